"""Nexus operations of a run that workers decide: calls of handlers, timeouts, cancellation, and how they end."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from perdure.engine import commands as cmd
from perdure.engine import events as ev
from perdure.engine import history, resets
from perdure.engine import inputs as inp
from perdure.engine.effects import CompleteOperation, StartSuccessor, effects
from perdure.engine.failures import Failure, FailureKind, TimeoutType
from perdure.engine.fold import apply
from perdure.engine.inputs import OperationOutcome
from perdure.engine.retry import RetryPolicy
from perdure.engine.starts import Callback
from perdure.engine.state import PendingOperation
from perdure.engine.step import next_wake
from perdure.runtime.chains import extras_of, successor_run
from support.engine.coded import T0, Coded, NoDecider
from support.engine.nexus import BOOM, BUSY, answer, end, schedule, scheduled, started


def seconds(number: float) -> timedelta:
    return timedelta(seconds=number)


def operation(run: Coded) -> PendingOperation:
    return run.state.operations["5"]


def offered(run: Coded) -> list[tuple[int, int]]:
    return [(each.scheduled_event_id, calls.attempt) for each, calls in run.state.offered_calls(run.now)]


def test_a_handler_that_answers_completes_the_operation() -> None:
    run = scheduled()
    assert offered(run) == [(5, 1)]
    assert answer(run, OperationOutcome.COMPLETED, 1, result=7).ok
    closed = run.events[5]
    assert isinstance(closed, ev.NexusOperationCompleted)
    assert (closed.scheduled_event_id, closed.result, closed.request_id) == (5, 7, "op-1")
    assert run.names[-1] == "WorkflowTaskScheduled"
    assert not run.state.operations
    assert not answer(run, OperationOutcome.COMPLETED, 1, result=8).ok, "it has ended"


@pytest.mark.parametrize(
    ("outcome", "event"),
    [
        (OperationOutcome.FAILED, ev.NexusOperationFailed),
        (OperationOutcome.REFUSED, ev.NexusOperationFailed),
        (OperationOutcome.CANCELED, ev.NexusOperationCanceled),
    ],
)
def test_a_failure_names_the_failed_operation(outcome: OperationOutcome, event: type[Any]) -> None:
    run = scheduled()
    answer(run, outcome, failure=BOOM)
    closed = run.events[5]
    assert isinstance(closed, event)
    failure = closed.failure
    assert failure.kind is FailureKind.NEXUS_OPERATION
    assert (failure.endpoint, failure.service, failure.operation) == ("billing", "invoices", "charge")
    assert (failure.scheduled_event_id, failure.cause) == (5, BOOM)


def test_a_failed_call_is_retried_with_backoff_and_leaves_no_event() -> None:
    run = scheduled()
    before = list(run.names)
    due = 0.0
    for attempt, wait in enumerate((1, 2, 4), 1):
        assert offered(run) == [(5, attempt)]
        assert answer(run, OperationOutcome.ATTEMPT_FAILED, due, attempt, failure=BUSY).ok
        assert offered(run) == []
        due += wait
        assert next_wake(run.state, run.now) == T0 + seconds(due)
        run.at(due)
    assert run.names == before
    calls = operation(run).calls
    assert (calls.attempts, calls.last_failure) == (3, BUSY)
    assert not answer(run, OperationOutcome.COMPLETED, due, 3).ok, "another attempt is due"
    run.restart("two")
    assert operation(run).calls == calls, "what was recorded of the attempts stays"


def test_the_wait_between_calls_has_a_limit() -> None:
    run = scheduled()
    for attempt in range(1, 30):
        due = operation(run).calls.due
        answer(run, OperationOutcome.ATTEMPT_FAILED, (due - T0).total_seconds(), attempt, failure=BUSY)
    assert operation(run).calls.due - run.now == timedelta(hours=1)


def test_a_handler_that_does_not_answer_fails_the_call() -> None:
    run = scheduled()
    run.at(8.9)
    assert offered(run) == [(5, 1)]
    run.at(9)
    calls = operation(run).calls
    assert calls.attempts == 1
    assert calls.last_failure is not None
    assert (calls.last_failure.type, calls.last_failure.message) == ("UPSTREAM_TIMEOUT", "upstream timeout")
    run.at(10)
    assert offered(run) == [(5, 2)]


def test_the_end_of_the_started_workflow_completes_the_operation() -> None:
    run = started(scheduled(), 1)
    assert run.names[-2:] == ["NexusOperationStarted", "WorkflowTaskScheduled"]
    assert operation(run).input is None, "nobody needs it any more"
    assert offered(run) == []
    run.decide()
    assert end(run, OperationOutcome.COMPLETED, 5, result="done").ok
    assert "NexusOperationCompleted" in run.names
    assert end(run, OperationOutcome.COMPLETED, 5).reason == inp.OPERATION_NOT_FOUND


def test_an_operation_that_ends_before_the_handler_answers_counts_as_started() -> None:
    run = scheduled()
    assert end(run, OperationOutcome.FAILED, 1, failure=BOOM, operation_token="early").ok
    assert run.names[5:] == ["NexusOperationStarted", "NexusOperationFailed", "WorkflowTaskScheduled"]
    failed = next(event for event in run.events if isinstance(event, ev.NexusOperationFailed))
    assert failed.failure.operation_token == "early"
    assert not answer(run, OperationOutcome.STARTED, 1, operation_token="late").ok


def test_only_the_handler_completes_an_operation() -> None:
    run = started(scheduled())
    for wrong in (
        {"operation_request_id": "guessed"},
        {"operation_request_id": ""},
        {"handler_namespace": "others"},
        {"scheduled_event_id": 4},
    ):
        assert end(run, OperationOutcome.COMPLETED, 1, **wrong).reason == inp.OPERATION_NOT_FOUND
    assert run.state.operations
    early = scheduled()
    assert not end(early, OperationOutcome.COMPLETED, 1, handler_namespace="others").ok
    assert early.names[-1] == "NexusOperationScheduled"


def test_a_closed_run_rejects_the_end_of_an_operation() -> None:
    run = started(scheduled())
    run.decide(cmd.CompleteWorkflowExecution())
    assert end(run, OperationOutcome.COMPLETED, 1).reason == inp.CLOSED
    assert not run.state.operations
    assert offered(run) == []


def test_the_end_of_an_operation_waits_for_the_workflow_task_and_is_recorded_last() -> None:
    run = scheduled()
    run.signal()
    run.take()
    assert answer(run, OperationOutcome.STARTED, 1, operation_token="token").ok
    assert offered(run) == [], "it was started, although no event says so yet"
    assert end(run, OperationOutcome.COMPLETED, 2, result=1).ok
    assert not end(run, OperationOutcome.COMPLETED, 2, result=2).ok
    run.signal("more")
    run.restart("one")
    run.complete(cmd.RequestCancelNexusOperation(scheduled_event_id=5))
    assert run.since("WorkflowTaskCompleted") == [
        "NexusOperationCancelRequested",
        "NexusOperationStarted",
        "WorkflowExecutionSignaled",
        "NexusOperationCompleted",
        "WorkflowTaskScheduled",
    ]


@pytest.mark.parametrize(
    ("attributes", "kind", "at", "starts"),
    [
        ({"schedule_to_close_timeout": seconds(30)}, TimeoutType.SCHEDULE_TO_CLOSE, 30, True),
        ({"schedule_to_start_timeout": seconds(20)}, TimeoutType.SCHEDULE_TO_START, 20, False),
        ({"start_to_close_timeout": seconds(40)}, TimeoutType.START_TO_CLOSE, 42, True),
    ],
)
def test_each_timeout_ends_the_operation(attributes: Any, kind: TimeoutType, at: float, starts: bool) -> None:
    run = scheduled(**attributes)
    if starts:
        started(run, 2)
        run.at(at - 0.1)
        assert run.state.operations
        run.at(at)
    else:
        while run.state.operations:
            wake = next_wake(run.state, run.now)
            assert wake is not None
            run.at((wake - T0).total_seconds())
        assert run.now <= T0 + seconds(at)
    timed_out = next(event for event in run.events if isinstance(event, ev.NexusOperationTimedOut))
    assert timed_out.failure.cause is not None
    assert (timed_out.failure.cause.timeout_type, timed_out.failure.cause.message) == (kind, "operation timed out")


def test_a_handler_is_not_called_without_time_left() -> None:
    run = scheduled(schedule_to_close_timeout=seconds(1))
    assert offered(run) == []
    assert "NexusOperationTimedOut" in run.names


def test_no_timeout_is_longer_than_the_run_timeout() -> None:
    run = Coded.begin(workflow_run_timeout=seconds(60))
    run.decide(schedule(schedule_to_close_timeout=seconds(90), start_to_close_timeout=seconds(80)))
    event = run.events[-1]
    assert isinstance(event, ev.NexusOperationScheduled)
    assert event.schedule_to_close_timeout == event.start_to_close_timeout == seconds(60)
    assert event.schedule_to_start_timeout is None


def test_a_cancellation_is_sent_once_the_operation_has_started() -> None:
    run = scheduled()
    run.signal()
    run.decide(cmd.RequestCancelNexusOperation(scheduled_event_id=5))
    assert offered(run) == [(5, 1)], "to start it"
    started(run, 2)
    assert offered(run) == [(5, 1)], "to cancel it"
    assert run.ask(inp.OperationCancelReported, 2, scheduled_event_id=5, attempt=1, failure=BUSY, retryable=True).ok
    assert offered(run) == []
    run.at(3)
    assert offered(run) == [(5, 2)]
    assert run.ask(inp.OperationCancelReported, 3, scheduled_event_id=5, attempt=2).ok
    assert run.names[-1] == "NexusOperationCancelRequestCompleted"
    assert offered(run) == []
    assert end(run, OperationOutcome.CANCELED, 4, failure=Failure(kind=FailureKind.CANCELLED)).ok
    assert "NexusOperationCanceled" in run.names


def test_a_rejected_cancellation_is_recorded() -> None:
    run = started(scheduled())
    run.decide(cmd.RequestCancelNexusOperation(scheduled_event_id=5))
    refusal = Failure(kind=FailureKind.NEXUS_HANDLER, type="NOT_IMPLEMENTED", message="no")
    run.ask(inp.OperationCancelReported, scheduled_event_id=5, attempt=1, failure=refusal)
    refused = next(event for event in run.events if isinstance(event, ev.NexusOperationCancelRequestFailed))
    assert refused.failure == refusal
    assert operation(run).cancellation is not None
    assert offered(run) == []


def test_an_open_operation_is_cancelled_only_once() -> None:
    run = started(scheduled())
    run.decide(cmd.RequestCancelNexusOperation(scheduled_event_id=5))
    run.signal()
    cause = "BadRequestCancelNexusOperationAttributes"
    again = run.decide(cmd.RequestCancelNexusOperation(scheduled_event_id=5))
    assert "already requested" in again.message
    failed = next(event for event in run.events if isinstance(event, ev.WorkflowTaskFailed))
    assert failed.cause == cause
    unknown = run.decide(cmd.RequestCancelNexusOperation(scheduled_event_id=3))
    assert "non-existing" in unknown.message


def test_the_number_of_open_operations_of_a_run_is_limited() -> None:
    run = Coded.begin()
    run.decide(*(schedule(f"op-{number}") for number in range(30)))
    run.signal()
    refused = run.decide(schedule("one too many"))
    assert refused.message.startswith("PendingNexusOperationsLimitExceeded")


def test_the_end_of_a_run_completes_the_operations_that_started_it() -> None:
    run = Coded.begin(completion_callbacks=(Callback(url="temporal://system", header={"a": "b"}),))
    attached = {"callbacks": (Callback(url="temporal://system"),), "identity": "caller"}
    request = inp.CallbacksAttached(request_id="again", **attached)
    run.at(0, request)
    run.at(0, request)
    assert run.names.count("WorkflowExecutionOptionsUpdated") == 1, "a repeated request changes nothing"
    assert effects(run.state) == ()
    run.decide(cmd.CompleteWorkflowExecution(result=1))
    assert effects(run.state) == (CompleteOperation("1"), CompleteOperation("2"))
    assert run.state.has_pending_work
    run.at(1, inp.EffectDone(effect=CompleteOperation("1")))
    run.at(1, inp.EffectDone(effect=CompleteOperation("2"), refused="nobody waits"))
    assert not run.state.has_pending_work
    assert [each.state for each in run.state.callbacks.values()] == ["Succeeded", "Failed"]


def test_a_run_that_continues_as_another_hands_over_its_operations() -> None:
    callbacks = (Callback(url="temporal://system"),)
    for command, attributes in (
        (cmd.ContinueAsNewWorkflowExecution(), {}),
        (cmd.FailWorkflowExecution(failure=BOOM), {"retry_policy": RetryPolicy()}),
    ):
        run = Coded.begin(completion_callbacks=callbacks, **attributes)
        run.decide(command)
        assert effects(run.state) == (StartSuccessor(),)
        run.at(1, inp.EffectDone(effect=StartSuccessor()))
        assert effects(run.state) == ()
        assert not run.state.callbacks
    refused = Coded.begin(completion_callbacks=callbacks)
    refused.decide(cmd.ContinueAsNewWorkflowExecution())
    refused.at(1, inp.EffectDone(effect=StartSuccessor(), refused="no room"))
    assert effects(refused.state) == (CompleteOperation("1"),)


def test_the_next_run_gets_attached_callbacks_but_not_those_of_updates() -> None:
    first, second, third = (Callback(url="temporal://system", header={"number": each}) for each in "123")
    run = Coded.begin(completion_callbacks=(first,))
    run.at(0, inp.CallbacksAttached(request_id="again", callbacks=(second,)))
    run.take()
    accept = cmd.AcceptUpdate(update_id="u", name="set", request_id="op", completion_callbacks=(third,))
    run.complete(accept, cmd.ContinueAsNewWorkflowExecution())
    [of_update] = [key for key, each in run.state.callbacks.items() if each.update_id]
    assert effects(run.state) == (CompleteOperation(of_update), StartSuccessor()), "its update is lost"
    meta = {"namespace": "default", "name": "order", "uid": "run-1"}
    spec = {"workflowId": "order-1", "workflow": {"type": "Order", "taskQueue": "orders"}}
    following = successor_run({"metadata": meta, "spec": spec}, run.state, run.events[-1])
    assert extras_of(following).completion_callbacks == (first, second)
    run.at(1, inp.EffectDone(effect=StartSuccessor()))
    assert list(run.state.callbacks) == [of_update]


def test_a_reset_hands_the_operations_over_to_the_new_run() -> None:
    run = Coded.begin(completion_callbacks=(Callback(url="temporal://system"),))
    run.ask(inp.TerminateRequested, 1, reason="reset", reset_run="new", reset_event_id=3)
    assert effects(run.state) == ()


def test_a_reset_keeps_the_outcome_of_an_operation() -> None:
    run = started(scheduled(), 1)
    run.decide(seconds=2)
    end(run, OperationOutcome.COMPLETED, 3, result="done")
    point = 1 + next(n for n, event in enumerate(run.events) if isinstance(event, ev.NexusOperationScheduled))
    forked, later = fold(run.events[:point]), run.events[point:]
    again = list(resets.since(forked, later, "run-1", signals=True))
    first = run.events[0]
    assert isinstance(first, ev.WorkflowExecutionStarted)
    event = resets.reset_event(
        first, point + 1, T0 + seconds(60), base_run_id="run-1", new_run_id="run-2", successor="n"
    )
    begun = resets.begin(forked, event, again, NoDecider(), ())
    names = [type(each).__name__ for each in begun.events]
    assert [name for name in names if name.startswith("Nexus")] == ["NexusOperationStarted", "NexusOperationCompleted"]
    assert not begun.state.operations


def test_a_reset_calls_the_handler_again_with_the_same_request_id() -> None:
    run = scheduled()
    first = run.events[0]
    assert isinstance(first, ev.WorkflowExecutionStarted)
    event = resets.reset_event(first, 6, T0 + seconds(60), base_run_id="run-1", new_run_id="run-2", successor="n")
    begun = resets.begin(fold(run.events), event, [], NoDecider(), ())
    again = begun.state.operations["5"]
    assert (again.request_id, again.calls.due) == ("op-1", T0 + seconds(60))


def fold(events: list[ev.AnyEvent]) -> Any:
    state = None
    for event in events:
        state = apply(state, event)
    return state


def test_a_stored_operation_survives_the_api_server() -> None:
    run = started(scheduled())
    run.decide(cmd.RequestCancelNexusOperation(scheduled_event_id=5))
    assert history.decode_state(history.encode(run.state)) == run.state
    assert "operations" not in msgspec.to_builtins(Coded.begin().state), "who schedules none pays nothing"
