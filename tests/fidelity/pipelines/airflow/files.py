import work
from airflow.exceptions import AirflowFailException
from airflow.sdk import dag, task


@task(retries=3)
def list_files(params: dict | None = None) -> list[str]:
    return work.list_files(params["folder"])


@task(retries=3, max_active_tis_per_dagrun=2)
def count(file: str) -> dict:
    try:
        return vars(work.count(file))
    except ValueError as error:
        raise AirflowFailException(str(error)) from error


@task(retries=3, trigger_rule="all_done")
def report(counts: list[dict], files: list[str]) -> dict:
    return vars(work.report([work.Count(**each) for each in counts], files))


@dag(schedule=None, params={"folder": "in"})
def words():
    files = list_files()
    report(count.expand(file=files), files)


words()
