from datetime import date, timedelta

import work
from prefect import flow, runtime, task, unmapped
from prefect.schedules import Cron
from prefect.task_runners import ThreadPoolTaskRunner


@task(retries=3, retry_delay_seconds=[10, 20, 40], timeout_seconds=600)
def extract(source: str, day: date) -> work.Part:
    return work.extract(source, day)


@task(retries=3, timeout_seconds=1800)
def load(parts: list[work.Part]) -> int:
    return work.load(parts)


@flow(task_runner=ThreadPoolTaskRunner(max_workers=2))
def nightly(sources: list[str], day: date | None = None) -> int:
    day = day or runtime.flow_run.scheduled_start_time.date()
    return load(extract.map(sources, unmapped(day)).result())


def schedule() -> None:
    nightly.serve(schedule=Cron("0 2 * * *", parameters={"sources": ["eu", "us", "asia"]}))


def backfill(first: date, days: int) -> None:
    for number in range(days):
        nightly(["eu", "us", "asia"], first + timedelta(days=number))
