from datetime import date, datetime, timedelta

import work
from airflow.sdk import dag, task


@task(
    retries=3, retry_delay=timedelta(seconds=10), execution_timeout=timedelta(minutes=10), max_active_tis_per_dagrun=2
)
def extract(source: str, ds: str | None = None) -> dict:
    return vars(work.extract(source, date.fromisoformat(ds)))


@task(retries=3, execution_timeout=timedelta(minutes=30))
def load(parts: list[dict]) -> int:
    return work.load([work.Part(**part) for part in parts])


@dag(schedule="0 2 * * *", start_date=datetime(2026, 11, 1), catchup=False)
def nightly():
    load(extract.expand(source=["eu", "us", "asia"]))


nightly()
