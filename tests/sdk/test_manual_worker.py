"""Tasks and responses of a worker that responds when the test decides.

The numbers in names are the points of Temporal's semantics that they try.
"""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from temporalio.api.command.v1 import Command
from temporalio.api.enums.v1 import EventType, UpdateWorkflowExecutionLifecycleStage, WorkflowTaskFailedCause
from temporalio.api.workflowservice.v1 import (
    PollWorkflowTaskQueueResponse,
    QueryWorkflowRequest,
    UpdateWorkflowExecutionRequest,
)
from temporalio.client import WorkflowExecutionStatus, WorkflowHandle
from temporalio.service import RPCError, RPCStatusCode

from sdk.manual_worker import LONG, ManualWorker, close, marker, schedule, timer
from support.sdk import flows
from support.sdk.client import Temporal

HOUR = timedelta(hours=1)


@pytest.fixture
def hand(temporal: Temporal) -> ManualWorker:
    return ManualWorker(temporal)


@pytest.fixture
async def box(temporal: Temporal) -> AsyncIterator[WorkflowHandle[Any, Any]]:
    """A workflow without a worker; closed at the end of the test."""
    handle = await temporal.start(flows.Box.run, task_timeout=timedelta(seconds=120))
    yield handle
    if (await handle.describe()).status is WorkflowExecutionStatus.RUNNING:
        await handle.terminate()


async def failed_task(temporal: Temporal, handle: WorkflowHandle[Any, Any]) -> str:
    """The cause of the only failed workflow task so far."""
    [failed] = [said for name, said in await temporal.history(handle) if name == "WorkflowTaskFailed"]
    return WorkflowTaskFailedCause.Name(failed.cause).removeprefix("WORKFLOW_TASK_FAILED_CAUSE_")


async def refused(asked: Any) -> RPCError:
    with pytest.raises(RPCError) as caught:
        await asked
    return caught.value


def types(task: PollWorkflowTaskQueueResponse) -> list[str]:
    return [EventType.Name(event.event_type).removeprefix("EVENT_TYPE_") for event in task.history.events]


async def test_30_missing_timeouts_are_filled_and_limited_to_the_run_timeout(
    temporal: Temporal, hand: ManualWorker
) -> None:
    handle = await temporal.start(flows.Box.run, run_timeout=HOUR)
    queue = temporal.task_queue
    await hand.decide(
        schedule("a", queue, schedule_to_close_timeout=LONG, heartbeat_timeout=2 * LONG),
        schedule("b", queue, start_to_close_timeout=2 * HOUR, schedule_to_start_timeout=2 * HOUR),
    )
    a, b = [said for name, said in await temporal.history(handle) if name == "ActivityTaskScheduled"]
    names = ("schedule_to_close_timeout", "schedule_to_start_timeout", "start_to_close_timeout", "heartbeat_timeout")
    assert [getattr(a, name).ToTimedelta() for name in names] == [LONG, LONG, LONG, LONG]
    assert [getattr(b, name).ToTimedelta() for name in names] == [HOUR, HOUR, HOUR, timedelta(0)]
    await handle.terminate()


@pytest.mark.parametrize(
    ("commands", "cause"),
    [
        ([{}], "BAD_SCHEDULE_ACTIVITY_ATTRIBUTES"),
        ([{"start_to_close_timeout": LONG}] * 2, "SCHEDULE_ACTIVITY_DUPLICATE_ID"),
    ],
    ids=["no timeout", "the same id twice"],
)
async def test_30_41_invalid_commands_fail_the_task(
    temporal: Temporal,
    hand: ManualWorker,
    box: WorkflowHandle[Any, Any],
    commands: list[dict[str, timedelta]],
    cause: str,
) -> None:
    asked = hand.decide(*[schedule("same", temporal.task_queue, **timeouts) for timeouts in commands])
    assert (await refused(asked)).status is RPCStatusCode.INVALID_ARGUMENT
    assert await failed_task(temporal, box) == cause
    assert "ActivityTaskScheduled" not in await temporal.names(box)
    assert (await box.describe()).status is WorkflowExecutionStatus.RUNNING
    assert (await hand.task()).attempt == 2


async def test_32_events_during_a_task_are_buffered_with_activity_completions_last(
    temporal: Temporal, hand: ManualWorker, box: WorkflowHandle[Any, Any]
) -> None:
    await hand.decide(schedule("a", temporal.task_queue, start_to_close_timeout=LONG))
    attempt = await hand.activity()
    await hand.signal(box, "wake")
    task = await hand.task()
    before = await temporal.names(box)
    await hand.done(attempt)
    await hand.signal(box, "s1")
    await hand.signal(box, "s2")
    assert await temporal.names(box) == before
    await hand.complete(task, marker("decided"))
    names = await temporal.names(box)
    assert names[names.index("MarkerRecorded") :] == [
        "MarkerRecorded",
        "ActivityTaskStarted",
        "WorkflowExecutionSignaled",
        "WorkflowExecutionSignaled",
        "ActivityTaskCompleted",
        "WorkflowTaskScheduled",
    ]


async def test_33_the_task_fails_with_more_than_a_hundred_buffered_events(
    temporal: Temporal, hand: ManualWorker, box: WorkflowHandle[Any, Any]
) -> None:
    task = await hand.task()
    await asyncio.gather(*[hand.signal(box, f"s{number}") for number in range(100)])
    assert "WorkflowExecutionSignaled" not in await temporal.names(box)
    await hand.signal(box, "one more")
    assert (await temporal.names(box)).count("WorkflowExecutionSignaled") == 101
    assert await failed_task(temporal, box) == "FORCE_CLOSE_COMMAND"
    assert (await refused(hand.complete(task, close()))).status is RPCStatusCode.NOT_FOUND


async def test_34_closing_with_unprocessed_events_fails_the_task_and_then_rejects_signals(
    temporal: Temporal, hand: ManualWorker, box: WorkflowHandle[Any, Any]
) -> None:
    task = await hand.task()
    await hand.signal(box, "unheard")
    error = await refused(hand.complete(task, close()))
    assert (error.status, error.message) == (RPCStatusCode.INVALID_ARGUMENT, "UnhandledCommand")
    assert await failed_task(temporal, box) == "UNHANDLED_COMMAND"
    task = await hand.task()
    error = await refused(hand.signal(box, "too late"))
    assert (error.status, error.message) == (RPCStatusCode.RESOURCE_EXHAUSTED, "workflow is closing")
    await hand.complete(task, close())
    assert (await box.describe()).status is WorkflowExecutionStatus.COMPLETED


async def test_35_36_further_attempts_follow_immediately_and_leave_no_events_until_one_succeeds(
    temporal: Temporal, hand: ManualWorker, box: WorkflowHandle[Any, Any]
) -> None:
    for attempt in (1, 2, 3):
        task = await hand.task()
        assert task.attempt == attempt
        await hand.fail(task)
    recorded = ["WorkflowExecutionStarted", "WorkflowTaskScheduled", "WorkflowTaskStarted", "WorkflowTaskFailed"]
    assert await temporal.names(box) == [*recorded, "WorkflowTaskScheduled"]  # the attempt that waits is shown
    task = await hand.task()
    assert (task.attempt, task.started_event_id) == (4, 6)
    assert types(task)[4:] == ["WORKFLOW_TASK_SCHEDULED", "WORKFLOW_TASK_STARTED"]
    await hand.complete(task, marker("decided"))
    assert (await temporal.names(box))[4:] == [
        "WorkflowTaskScheduled",
        "WorkflowTaskStarted",
        "WorkflowTaskCompleted",
        "MarkerRecorded",
    ]


async def test_35_a_new_event_makes_the_next_attempt_a_first_one(
    hand: ManualWorker, box: WorkflowHandle[Any, Any]
) -> None:
    await hand.fail(await hand.task())
    await hand.signal(box, "new")
    assert (await hand.task()).attempt == 1


async def test_40_no_command_can_follow_one_that_closes_the_run(
    temporal: Temporal, hand: ManualWorker, box: WorkflowHandle[Any, Any]
) -> None:
    error = await refused(hand.decide(close(), timer("t", LONG)))
    assert error.status is RPCStatusCode.INVALID_ARGUMENT
    names = await temporal.names(box)
    assert names[-2:] == ["WorkflowTaskScheduled", "WorkflowTaskStarted"], "the request is refused, not the task"
    assert "TimerStarted" not in names


async def test_40_termination_during_a_task_fails_it(
    temporal: Temporal, hand: ManualWorker, box: WorkflowHandle[Any, Any]
) -> None:
    task = await hand.task()
    await hand.signal(box, "unheard")
    await box.terminate()
    assert (await temporal.names(box))[2:] == [
        "WorkflowTaskStarted",
        "WorkflowTaskFailed",
        "WorkflowExecutionSignaled",
        "WorkflowExecutionTerminated",
    ]
    assert await failed_task(temporal, box) == "FORCE_CLOSE_COMMAND"
    assert (await refused(hand.complete(task, close()))).status is RPCStatusCode.NOT_FOUND


def query(temporal: Temporal, handle: WorkflowHandle[Any, Any]) -> Any:
    """A query without retries: the SDK's client retries while the operator is busy."""
    request = QueryWorkflowRequest(namespace=temporal.operator.namespace)
    request.execution.workflow_id = handle.id
    request.query.query_type = "look"
    return temporal.client.workflow_service.query_workflow(request)


async def test_42_at_most_ten_queries_wait_for_a_task(
    temporal: Temporal, hand: ManualWorker, box: WorkflowHandle[Any, Any]
) -> None:
    asked = [asyncio.create_task(query(temporal, box)) for _ in range(11)]
    done, waiting = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
    [error] = [task.exception() for task in done]
    assert isinstance(error, RPCError)
    assert error.status is RPCStatusCode.RESOURCE_EXHAUSTED
    assert len((await hand.decide()).queries) == 10
    answers = await asyncio.gather(*waiting)
    assert [answer.query_result.payloads[0].data for answer in answers] == [b"look"] * 10


async def test_42_a_workflow_whose_task_keeps_failing_cannot_be_queried(
    temporal: Temporal, hand: ManualWorker, box: WorkflowHandle[Any, Any]
) -> None:
    await hand.fail(await hand.task())
    await hand.fail(await hand.task())
    error = await refused(query(temporal, box))
    assert error.status is RPCStatusCode.FAILED_PRECONDITION
    assert "failed state" in error.message


async def test_42_a_workflow_closed_before_its_first_decision_cannot_be_queried(
    temporal: Temporal, box: WorkflowHandle[Any, Any]
) -> None:
    await box.terminate()
    assert (await refused(query(temporal, box))).status is RPCStatusCode.FAILED_PRECONDITION


async def test_43_at_most_ten_updates_are_in_flight(temporal: Temporal, box: WorkflowHandle[Any, Any]) -> None:
    def update(number: int) -> Any:
        request = UpdateWorkflowExecutionRequest(namespace=temporal.operator.namespace)
        request.workflow_execution.workflow_id = box.id
        request.request.meta.update_id = str(number)
        request.request.input.name = "add"
        request.request.input.args.payloads.add(metadata={"encoding": b"json/plain"}, data=b'"x"')
        request.wait_policy.lifecycle_stage = (
            UpdateWorkflowExecutionLifecycleStage.UPDATE_WORKFLOW_EXECUTION_LIFECYCLE_STAGE_COMPLETED
        )
        return temporal.client.workflow_service.update_workflow_execution(request)

    asked = [asyncio.create_task(update(number)) for number in range(11)]
    done, waiting = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
    [error] = [task.exception() for task in done]
    assert isinstance(error, RPCError)
    assert error.status is RPCStatusCode.RESOURCE_EXHAUSTED
    async with temporal.worker():
        await asyncio.gather(*waiting)
        assert await box.query(flows.Box.look) == ["x"] * 10


async def test_44_a_repeated_signal_request_is_recorded_once(
    temporal: Temporal, hand: ManualWorker, box: WorkflowHandle[Any, Any]
) -> None:
    for request_id in ("one", "one", "two"):
        await hand.signal(box, "put", request_id)
    assert (await temporal.names(box)).count("WorkflowExecutionSignaled") == 2


async def test_44_a_signal_does_not_end_the_start_delay(temporal: Temporal, hand: ManualWorker) -> None:
    handle = await temporal.start(flows.Box.run, start_delay=HOUR)
    await hand.signal(handle, "put")
    await handle.cancel()
    assert await temporal.names(handle) == [
        "WorkflowExecutionStarted",
        "WorkflowExecutionSignaled",
        "WorkflowExecutionCancelRequested",
    ]
    assert not (await handle.describe()).raw_description.HasField("pending_workflow_task")
    await handle.terminate()


async def test_52_the_task_fails_with_more_than_two_thousand_open_activities(
    temporal: Temporal, hand: ManualWorker, box: WorkflowHandle[Any, Any]
) -> None:
    def commands(count: int) -> list[Command]:
        return [schedule(str(number), "nobody", start_to_close_timeout=LONG) for number in range(count)]

    await refused(hand.decide(*commands(2_001)))
    assert await failed_task(temporal, box) == "PENDING_ACTIVITIES_LIMIT_EXCEEDED"
    assert (await box.describe()).status is WorkflowExecutionStatus.RUNNING


async def test_52_continue_as_new_is_suggested_from_4096_events(
    temporal: Temporal, hand: ManualWorker, box: WorkflowHandle[Any, Any]
) -> None:
    taken = [(await hand.decide(*[marker("m")] * 500, prolong=True)).started_event_id for _ in range(10)]
    assert taken[-2] < 4_096 < taken[-1]
    tasks = [said for name, said in await temporal.history(box) if name == "WorkflowTaskStarted"]
    assert [task.suggest_continue_as_new for task in tasks] == [False] * 9 + [True]
