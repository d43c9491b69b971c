import work
from prefect import flow, task
from prefect.futures import wait
from prefect.task_runners import ThreadPoolTaskRunner


@task(retries=3)
def list_files(folder: str) -> list[str]:
    return work.list_files(folder)


@task(
    retries=3,
    retry_condition_fn=lambda task, run, state: not isinstance(state.result(raise_on_failure=False), ValueError),
)
def count(file: str) -> work.Count:
    return work.count(file)


@task(retries=3)
def report(counts: list[work.Count], files: list[str]) -> work.Report:
    return work.report(counts, files)


@flow(task_runner=ThreadPoolTaskRunner(max_workers=2))
def words(folder: str) -> work.Report:
    files = list_files(folder)
    futures = count.map(files)
    wait(futures)
    return report([future.result() for future in futures if future.state.is_completed()], files)
