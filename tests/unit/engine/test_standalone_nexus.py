"""Standalone Nexus operations: runs of one operation, which close with its outcome."""

from perdure.engine import events as ev
from perdure.engine import inputs as inp
from perdure.engine.failures import Failure, FailureKind, TimeoutType
from perdure.engine.fold import apply
from perdure.engine.inputs import OperationOutcome
from perdure.engine.state import PendingOperation, RunState, RunStatus
from support.engine.script import T0, Drive, seconds
from support.engine.standalone_nexus import BOOM, begin, end, report


def left(run: Drive) -> PendingOperation:
    """What is kept of the operation after the run has closed; the history leads to the state of the run."""
    folded: RunState | None = None
    for event in run.history:
        folded = apply(folded, event)
    assert folded is not None
    assert folded.left_operations == run.state.left_operations
    (only,) = run.state.left_operations.values()
    assert only.input is None
    return only


def test_a_handler_that_answers_completes_the_run() -> None:
    run = begin()
    report(run, 1, OperationOutcome.COMPLETED, result="paid")
    assert (run.state.status, run.result) == (RunStatus.COMPLETED, "paid")
    assert left(run).request_id == "secret"


def test_a_workflow_that_the_handler_starts_completes_the_run() -> None:
    run = begin()
    report(run, 1, OperationOutcome.STARTED, operation_token="token")
    assert not run.state.closed
    assert end(run, 2, OperationOutcome.COMPLETED, result="paid")
    assert (run.state.status, run.result, left(run).operation_token) == (RunStatus.COMPLETED, "paid", "token")


def test_only_the_secret_completes_an_operation_with_an_unknown_handler() -> None:
    run = begin(handler_namespace="")
    assert not end(run, 1, OperationOutcome.COMPLETED, operation_request_id="guessed")
    assert end(run, 1, OperationOutcome.COMPLETED, operation_token="token", result="paid")
    assert run.result == "paid"


def test_another_namespace_completes_nothing_once_the_handler_is_known() -> None:
    run = begin(handler_namespace="")
    report(run, 1, OperationOutcome.STARTED, operation_token="token")
    assert not end(run, 2, OperationOutcome.COMPLETED, handler_namespace="others")
    assert not run.state.closed


def test_a_failure_fails_the_run_and_names_the_operation() -> None:
    run = begin()
    report(run, 1, OperationOutcome.FAILED, failure=BOOM)
    assert run.state.status is RunStatus.FAILED
    assert run.failure is not None
    assert (run.failure.endpoint, run.failure.operation, run.failure.cause) == ("billing", "charge", BOOM)


def test_a_timeout_of_the_operation_closes_the_run_as_timed_out() -> None:
    run = begin(start_to_close_timeout=seconds(5))
    report(run, 1, OperationOutcome.STARTED, operation_token="token")
    run.at(6)
    assert run.state.status is RunStatus.TIMED_OUT
    assert run.failure is not None
    assert run.failure.cause is not None
    assert run.failure.cause.timeout_type is TimeoutType.START_TO_CLOSE


def test_a_cancellation_waits_until_the_handler_has_started_the_operation() -> None:
    run = begin()
    run.ask(1, inp.CancelRequested(request_id="c", reason="enough"))
    (operation,) = run.state.operations.values()
    assert operation.cancellation is not None
    assert operation.cancellation.calls is None
    report(run, 2, OperationOutcome.STARTED, operation_token="token")
    (operation,) = run.state.operations.values()
    assert operation.cancellation is not None
    assert operation.cancellation.calls is not None
    assert end(run, 3, OperationOutcome.CANCELED, failure=Failure(kind=FailureKind.CANCELLED, message="stopped"))
    assert run.state.status is RunStatus.CANCELLED


def test_a_run_that_was_paused_first_schedules_its_operation_once_it_is_unpaused() -> None:
    run = begin(paused=True)
    run.ask(2, inp.UnpauseRequested(request_id="u"))
    (operation,) = run.state.operations.values()
    assert operation.scheduled_time == T0 + seconds(2)


def test_a_terminated_run_keeps_the_description_of_its_operation() -> None:
    run = begin()
    run.ask(1, inp.TerminateRequested(request_id="t", reason="no more"))
    assert isinstance(run.history[-1], ev.WorkflowExecutionTerminated)
    assert left(run).service == "payments"


def test_a_standalone_operation_rejects_signals() -> None:
    answer = begin().ask(1, inp.SignalRequested(request_id="s", signal_name="x"))
    assert (answer.ok, answer.message) == (False, "a standalone activity or Nexus operation does not accept signals")
