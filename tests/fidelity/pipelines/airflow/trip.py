from datetime import timedelta
from itertools import pairwise

import work
from airflow.exceptions import AirflowFailException
from airflow.sdk import TriggerRule, dag, task

PARTS = ("flight", "hotel", "car")


@task(retries=1, retry_delay=timedelta(seconds=1))
def book(what: str, params: dict | None = None) -> str:
    return work.book(what, params["trip"])


@task(retries=100, trigger_rule=TriggerRule.ONE_FAILED)
def undo(ti=None) -> None:
    for what in reversed(PARTS):
        booking = ti.xcom_pull(task_ids=what)
        if booking:
            work.cancel(booking)


@task
def fail() -> None:
    raise AirflowFailException("the trip was undone")


@dag(schedule=None, params={"trip": "rome"})
def plan():
    booked = [book.override(task_id=what)(what) for what in PARTS]
    for before, after in pairwise(booked):
        before >> after
    booked >> undo() >> fail()


plan()
