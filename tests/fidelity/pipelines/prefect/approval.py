import work
from prefect import flow, pause_flow_run, task
from prefect.exceptions import FlowPauseTimeout


@task(retries=3, timeout_seconds=3600)
def build(version: str) -> str:
    return work.build(version)


@task(retries=3)
def publish(image: str) -> str:
    return work.publish(image)


@task(retries=3)
def withdraw(image: str) -> str:
    return work.withdraw(image)


@flow
def release(version: str, timeout: int = 86400) -> str:
    image = build(version)
    try:
        approved = pause_flow_run(wait_for_input=bool, timeout=timeout)
    except FlowPauseTimeout:
        approved = False
    return (publish if approved else withdraw)(image)
