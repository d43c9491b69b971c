"""The metrics of open runs, of task queues, and of RPCs, as a scrape finds them."""

import asyncio

from temporalio.api.enums.v1 import TaskQueueKind
from temporalio.api.taskqueue.v1 import TaskQueue

from perdure.observe import metrics
from rpc.served import QUEUE, Served, complete_workflow, served

WORKFLOW_TASKS = {"task_queue": QUEUE, "kind": "workflow"}


def value_of(name: str, **labels: str) -> float | None:
    return metrics.REGISTRY.get_sample_value(name, {"namespace": "default", **labels})


def total(name: str, **labels: str) -> float:
    return value_of(name, **labels) or 0.0


def waited() -> float:
    """The seconds that tasks waited: under `others` if this process has served more task queues than have series."""
    labels = (WORKFLOW_TASKS, WORKFLOW_TASKS | {"task_queue": metrics.OTHERS})
    return sum(total("perdure_task_queue_wait_seconds_sum", **each) for each in labels)


async def scrape(it: Served) -> None:
    """Measure as the operator does before a scrape, on its clock."""

    async def measure() -> None:
        it.operator.manager.measure()
        metrics.show_task_queues(it.frontend.queues.totals())

    await it.operator.do(measure())


@served
async def test_a_backlog_and_its_age_grow_until_a_worker_polls(it: Served) -> None:
    before = waited()
    await it.start()
    await asyncio.sleep(120)
    await scrape(it)
    assert value_of("perdure_task_queue_backlog", **WORKFLOW_TASKS) == 1
    assert value_of("perdure_task_queue_pollers", **WORKFLOW_TASKS) == 0
    assert 120 <= total("perdure_task_queue_backlog_age_seconds", **WORKFLOW_TASKS) < 125
    task = await it.task()
    assert 120 <= waited() - before < 125
    await scrape(it)
    assert value_of("perdure_task_queue_backlog", **WORKFLOW_TASKS) == 0
    assert value_of("perdure_task_queue_pollers", **WORKFLOW_TASKS) == 1
    await it.complete(task, complete_workflow())


@served
async def test_sticky_queues_of_workers_have_no_series(it: Served) -> None:
    sticky = TaskQueue(name="worker-1", kind=TaskQueueKind.TASK_QUEUE_KIND_STICKY, normal_name=QUEUE)
    await it.call("PollWorkflowTaskQueue", queue=sticky)
    await it.call("PollWorkflowTaskQueue")
    assert [load.name for load in it.frontend.queues.totals()] == [QUEUE]


@served
async def test_open_runs_count_by_workflow_type_until_they_close(it: Served) -> None:
    await it.start("a")
    await it.start("b")
    task = await it.task()
    await scrape(it)
    assert value_of("perdure_open_runs", workflow="Order") == 2
    await it.complete(task, complete_workflow())
    await asyncio.sleep(1)
    await scrape(it)
    assert value_of("perdure_open_runs", workflow="Order") == 1
    assert value_of("perdure_runs_near_limit") is None
    await it.decide(complete_workflow())
    await asyncio.sleep(1)
    await scrape(it)
    assert value_of("perdure_open_runs", workflow="Order") is None
