from datetime import timedelta

import work
from airflow.providers.standard.operators.hitl import HITLBranchOperator
from airflow.sdk import dag, task


@task(retries=3, execution_timeout=timedelta(hours=1))
def build(params: dict | None = None) -> str:
    return work.build(params["version"])


@task(retries=3)
def publish(image: str) -> str:
    return work.publish(image)


@task(retries=3)
def withdraw(image: str) -> str:
    return work.withdraw(image)


@dag(schedule=None, params={"version": "v7"})
def release():
    image = build()
    decide = HITLBranchOperator(
        task_id="decide",
        subject="Publish the release?",
        options=["publish", "withdraw"],
        defaults="withdraw",
        response_timeout=timedelta(days=1),
    )
    image >> decide >> [publish(image), withdraw(image)]


release()
