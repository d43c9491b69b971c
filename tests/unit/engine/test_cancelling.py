"""Asking activities to stop."""

from typing import Any

import pytest

from perdure.engine import commands as cmd
from perdure.engine import events as ev
from perdure.engine import inputs as inp
from perdure.engine.failures import Failure, FailureKind, RetryState, TimeoutType
from perdure.engine.state import RunStatus
from support.engine.script import T0, Drive, Reacting, activity, application, seconds

CANCEL = cmd.RequestCancelActivityTask(activity_id="work")
GONE = Failure(kind=FailureKind.SERVER, message="node gone")


def requested_cancellation(*, started: bool = True, **options: Any) -> Drive:
    drive = Drive.by(Reacting((activity(**options),), WorkflowExecutionSignaled=[(CANCEL,), (CANCEL,)]))
    if started:
        drive.started(1)
    drive.signal(2)
    return drive


def ids_of(drive: Drive) -> dict[str, int]:
    return {"scheduled_event_id": drive.open.scheduled_event_id, "attempt": drive.open.attempt}


def test_29_an_activity_that_has_not_started_is_cancelled_immediately_and_the_decider_sees_it() -> None:
    drive = requested_cancellation(started=False)
    assert drive.new() == ["WorkflowExecutionSignaled", "ActivityTaskCancelRequested", "ActivityTaskCanceled"]
    assert drive.script.asked[-1] == "ActivityTaskCanceled"
    assert drive.retired == [(2, 1)]
    assert drive.state.activities == {}
    drive.check_replay()


def test_29_an_activity_that_backs_off_is_cancelled_immediately() -> None:
    drive = Drive.by(Reacting((activity(),), WorkflowExecutionSignaled=[(CANCEL,)]))
    drive.failed(1)
    drive.signal(1.5)
    closed = drive.history[-1]
    assert isinstance(closed, ev.ActivityTaskCanceled)
    assert (closed.attempt, closed.started_event_id) == (2, 0)
    assert drive.retired == [(2, 1), (2, 2)]


def test_a_running_activity_gets_a_cancellation_request_and_answers_later() -> None:
    drive = requested_cancellation()
    assert drive.types()[-1] == "ActivityTaskCancelRequested"
    assert drive.open.cancel_requested
    drive.at(3, inp.AttemptCancelled(details="tidied up", **ids_of(drive)))
    closed = drive.history[-1]
    assert isinstance(closed, ev.ActivityTaskCanceled)
    assert (closed.details, closed.started_event_id) == ("tidied up", 5)
    assert drive.retired == [(2, 1)]
    drive.check_replay()


def test_a_second_request_or_one_for_a_closed_activity_changes_nothing() -> None:
    drive = requested_cancellation()
    drive.signal(3)
    assert drive.types().count("ActivityTaskCancelRequested") == 1
    drive = Drive.by(Reacting((activity(),), WorkflowExecutionSignaled=[(CANCEL,)]))
    drive.completed(1)
    drive.signal(2)
    assert drive.new() == ["WorkflowExecutionSignaled"]
    drive.check_replay()


def test_an_activity_can_complete_after_a_cancellation_request() -> None:
    drive = requested_cancellation()
    drive.completed(3, "done")
    assert drive.types()[-1] == "ActivityTaskCompleted"


def test_29_a_failure_after_a_cancellation_request_is_not_retried() -> None:
    drive = requested_cancellation()
    drive.failed(3)
    closed = drive.history[-1]
    assert isinstance(closed, ev.ActivityTaskFailed)
    assert (closed.retry_state, closed.failure) == (RetryState.CANCEL_REQUESTED, application())


def test_a_pod_lost_after_a_cancellation_request_cancels_the_activity() -> None:
    drive = requested_cancellation()
    drive.at(3, inp.AttemptLost(failure=GONE, **ids_of(drive)))
    assert drive.types()[-1] == "ActivityTaskCanceled"


@pytest.mark.parametrize(
    ("options", "want"),
    [
        ({"start_to_close_timeout": seconds(5)}, TimeoutType.START_TO_CLOSE),
        ({"heartbeat_timeout": seconds(5)}, TimeoutType.HEARTBEAT),
    ],
)
def test_a_timeout_after_a_cancellation_request_is_not_retried(options: Any, want: TimeoutType) -> None:
    drive = requested_cancellation(**options)
    drive.at(20, inp.HeartbeatRead(time=T0 + seconds(1), **ids_of(drive)))
    closed = drive.history[-1]
    assert isinstance(closed, ev.ActivityTaskTimedOut)
    assert (closed.retry_state, closed.failure.timeout_type) == (RetryState.CANCEL_REQUESTED, want)


def test_an_activity_that_cancels_itself_without_a_request_fails_permanently() -> None:
    drive = Drive.of(activity())
    drive.started(1)
    drive.at(2, inp.AttemptCancelled(details=[1], **ids_of(drive)))
    closed = drive.history[-2]
    assert isinstance(closed, ev.ActivityTaskFailed)
    assert (closed.failure.kind, closed.failure.details) == (FailureKind.CANCELLED, [1])
    assert closed.retry_state is RetryState.NON_RETRYABLE_FAILURE
    assert drive.state.status is RunStatus.FAILED


def test_one_decision_cancels_several_activities_and_the_decider_sees_them_afterwards() -> None:
    both = tuple(cmd.RequestCancelActivityTask(activity_id=name) for name in "ab")
    drive = Drive.by(Reacting((activity("a"), activity("b")), WorkflowExecutionSignaled=[both]))
    drive.signal(1)
    assert drive.new() == [
        "WorkflowExecutionSignaled",
        *["ActivityTaskCancelRequested", "ActivityTaskCanceled"] * 2,
    ]
    assert drive.script.asked[-2:] == ["ActivityTaskCanceled"] * 2
    drive.check_replay()
