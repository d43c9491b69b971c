"""Children and Nexus operations that start again after a reset, because the run had cancelled them after the point."""

from perdure.engine import commands as cmd
from perdure.engine import events as ev
from perdure.engine import history
from perdure.engine import inputs as inp
from perdure.engine.failures import Failure, FailureKind
from perdure.engine.inputs import ChildOutcome, OperationOutcome
from perdure.engine.resets import Restarted, begin, reset_event, restarted, since
from perdure.engine.starts import RestartedOperation, WorkflowStart
from support.engine.coded import Coded, NoDecider
from support.engine.nexus import end, scheduled, started

KID = cmd.StartChildWorkflowExecution(child_id="1", start=WorkflowStart(workflow_type="Kid", workflow_id="kid"))


def begun() -> tuple[Coded, int]:
    """A run of code with a child that has started; the ID of the event that initiated it."""
    run = Coded.begin()
    run.decide(KID)
    (child,) = run.state.children.values()
    run.at(1, inp.ChildStarted(initiated_event_id=child.initiated_event_id, run_id="first"))
    return run, child.initiated_event_id


def reset(run: Coded, point: int, request_id: str = "") -> tuple[Coded, Restarted]:
    """The run that a reset to a point has created, and what starts again."""
    before, later = run.events[:point], run.events[point:]
    state = history.fork_of_code(run.events, point)
    found = restarted(state, before, later, lambda: request_id)
    first, task = before[0], before[-1]
    assert isinstance(first, ev.WorkflowExecutionStarted)
    assert isinstance(task, ev.WorkflowTaskStarted)
    event = reset_event(
        first, point + 1, run.now, base_run_id="r", new_run_id="s", successor="n", task=task, restarted=found
    )
    again = since(state, later, "r", signals=True, restarted=found)
    transition = begin(state, event, list(again), NoDecider(), ())
    return Coded(transition.state, [*before, *transition.events], now=run.now), found


def test_a_child_of_code_that_was_cancelled_later_starts_again() -> None:
    """temporal#10639: the new run inherited the cancellation. SDKs accept only one start event of a child."""
    run, number = begun()
    run.decide(cmd.RequestCancelExternalWorkflowExecution(child_id="1"))
    point = max(event.event_id for event in run.events if isinstance(event, ev.WorkflowTaskStarted))
    run.at(3, inp.ChildClosed(initiated_event_id=number, run_id="first", outcome=ChildOutcome.CANCELLED))
    new, found = reset(run, point)
    assert list(found.children) == [str(number)]
    (child,) = new.state.children.values()
    assert (child.start is not None, child.run_id) == (True, "")
    new.at(5, inp.ChildStarted(initiated_event_id=number, run_id="second"))
    (child,) = new.state.children.values()
    assert (child.start, child.run_id) == (None, "second")
    assert sum(isinstance(event, ev.ChildWorkflowExecutionStarted) for event in new.events) == 1
    new.at(6, inp.ChildClosed(initiated_event_id=number, run_id="second", outcome=ChildOutcome.COMPLETED))
    assert new.state.children == {}


def test_a_child_of_code_that_cannot_start_again_fails_as_if_it_had_started() -> None:
    """The first one may still be open and use the workflow ID. SDKs reject a failed start of a child that has started."""
    run, number = begun()
    run.decide(cmd.RequestCancelExternalWorkflowExecution(child_id="1"))
    point = max(event.event_id for event in run.events if isinstance(event, ev.WorkflowTaskStarted))
    new, _ = reset(run, point)
    taken = Failure(kind=FailureKind.APPLICATION, type="WorkflowExecutionAlreadyStarted", message="`kid` is open")
    new.at(5, inp.ChildStartFailed(initiated_event_id=number, failure=taken))
    (failed,) = (event for event in new.events if isinstance(event, ev.ChildWorkflowExecutionFailed))
    assert failed.failure == taken
    assert not any(isinstance(event, ev.StartChildWorkflowExecutionFailed) for event in new.events)
    assert new.state.children == {}


def test_a_child_of_code_that_completed_keeps_its_result() -> None:
    run, number = begun()
    run.decide(cmd.RequestCancelExternalWorkflowExecution(child_id="1"))
    point = max(event.event_id for event in run.events if isinstance(event, ev.WorkflowTaskStarted))
    run.at(3, inp.ChildClosed(initiated_event_id=number, run_id="first", outcome=ChildOutcome.COMPLETED))
    new, found = reset(run, point)
    assert (found.children, new.state.children) == ({}, {})


def test_a_child_that_someone_else_cancelled_keeps_its_outcome() -> None:
    run, number = begun()
    run.decide()
    point = max(event.event_id for event in run.events if isinstance(event, ev.WorkflowTaskStarted))
    run.at(3, inp.ChildClosed(initiated_event_id=number, run_id="first", outcome=ChildOutcome.CANCELLED))
    new, found = reset(run, point)
    assert (found.children, new.state.children) == ({}, {})


def test_a_nexus_operation_that_was_canceled_later_starts_again_with_a_new_request() -> None:
    """With the old request ID, the handler would find the operation that it has canceled."""
    run = started(scheduled(), 1)
    run.decide(cmd.RequestCancelNexusOperation(scheduled_event_id=5), seconds=2)
    point = max(event.event_id for event in run.events if isinstance(event, ev.WorkflowTaskStarted))
    end(run, OperationOutcome.CANCELED, 3)
    new, found = reset(run, point, "op-2")
    assert found.operations == {"5": RestartedOperation(request_id="op-2", input={"amount": 5})}
    (operation,) = new.state.operations.values()
    assert (operation.request_id, operation.started_time, operation.cancellation) == ("op-2", None, None)
    assert [calls.attempt for _, calls in new.state.offered_calls(new.now)] == [1]
    started(new, 4)
    assert new.names.count("NexusOperationStarted") == 1
    (operation,) = new.state.operations.values()
    assert (operation.operation_token, operation.input) == ("token", None)
    assert not end(new, OperationOutcome.COMPLETED, 5).ok, "the old request"
    assert end(new, OperationOutcome.COMPLETED, 6, operation_request_id="op-2", result=7).ok
    assert new.state.operations == {}


def test_the_cancellation_of_a_restarted_operation_reaches_its_handler() -> None:
    run = started(scheduled(), 1)
    run.decide(cmd.RequestCancelNexusOperation(scheduled_event_id=5), seconds=2)
    point = max(event.event_id for event in run.events if isinstance(event, ev.WorkflowTaskStarted))
    end(run, OperationOutcome.CANCELED, 3)
    new, _ = reset(run, point, "op-2")
    new.decide(cmd.RequestCancelNexusOperation(scheduled_event_id=5), seconds=4)
    started(new, 5)
    (operation,) = new.state.operations.values()
    assert operation.cancellation is not None
    assert operation.open_call == operation.cancellation.calls
    assert operation.cancellation.calls is not None


def test_a_nexus_operation_that_completed_keeps_its_result() -> None:
    run = started(scheduled(), 1)
    run.decide(cmd.RequestCancelNexusOperation(scheduled_event_id=5), seconds=2)
    point = max(event.event_id for event in run.events if isinstance(event, ev.WorkflowTaskStarted))
    end(run, OperationOutcome.COMPLETED, 3, result=7)
    new, found = reset(run, point, "op-2")
    assert (found.operations, new.state.operations) == ({}, {})
