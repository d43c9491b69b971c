"""Children that start again after a reset, because the run had cancelled them after the point."""

from typing import Any

from perdure.engine import commands as cmd
from perdure.engine import events as ev
from perdure.engine import history
from perdure.engine import inputs as inp
from perdure.engine.inputs import ChildOutcome
from perdure.engine.resets import begin, reset_event, restarted_children, since
from perdure.engine.starts import WorkflowStart
from support.engine.coded import Coded, NoDecider

KID = cmd.StartChildWorkflowExecution(child_id="1", start=WorkflowStart(workflow_type="Kid", workflow_id="kid"))


def begun() -> tuple[Coded, int]:
    """A run of code with a child that has started; the ID of the event that initiated it."""
    run = Coded.begin()
    run.decide(KID)
    (child,) = run.state.children.values()
    run.at(1, inp.ChildStarted(initiated_event_id=child.initiated_event_id, run_id="first"))
    return run, child.initiated_event_id


def reset(run: Coded, point: int) -> tuple[Coded, dict[str, Any]]:
    """The run that a reset to a point has created, and the children that start again."""
    before, later = run.events[:point], run.events[point:]
    state = history.fork_of_code(run.events, point)
    restarted = restarted_children(state, before, later, ())
    first, task = before[0], before[-1]
    assert isinstance(first, ev.WorkflowExecutionStarted)
    assert isinstance(task, ev.WorkflowTaskStarted)
    event = reset_event(
        first, point + 1, run.now, base_run_id="r", new_run_id="s", successor="n", task=task, restarted=restarted
    )
    again = since(state, later, "r", signals=True, restarted=restarted)
    transition = begin(state, event, list(again), NoDecider(), ())
    return Coded(transition.state, [*before, *transition.events], now=run.now), restarted


def test_a_child_of_code_that_was_cancelled_later_starts_again() -> None:
    """temporal#10639: the new run inherited the cancellation. SDKs accept only one start event of a child."""
    run, number = begun()
    run.decide(cmd.RequestCancelExternalWorkflowExecution(child_id="1"))
    point = max(event.event_id for event in run.events if isinstance(event, ev.WorkflowTaskStarted))
    run.at(3, inp.ChildClosed(initiated_event_id=number, run_id="first", outcome=ChildOutcome.CANCELLED))
    new, restarted = reset(run, point)
    assert list(restarted) == [str(number)]
    (child,) = new.state.children.values()
    assert (child.start is not None, child.run_id) == (True, "")
    new.at(5, inp.ChildStarted(initiated_event_id=number, run_id="second"))
    (child,) = new.state.children.values()
    assert (child.start, child.run_id) == (None, "second")
    assert sum(isinstance(event, ev.ChildWorkflowExecutionStarted) for event in new.events) == 1
    new.at(6, inp.ChildClosed(initiated_event_id=number, run_id="second", outcome=ChildOutcome.COMPLETED))
    assert new.state.children == {}


def test_a_child_of_code_that_completed_keeps_its_result() -> None:
    run, number = begun()
    run.decide(cmd.RequestCancelExternalWorkflowExecution(child_id="1"))
    point = max(event.event_id for event in run.events if isinstance(event, ev.WorkflowTaskStarted))
    run.at(3, inp.ChildClosed(initiated_event_id=number, run_id="first", outcome=ChildOutcome.COMPLETED))
    new, restarted = reset(run, point)
    assert (restarted, new.state.children) == ({}, {})


def test_a_child_that_someone_else_cancelled_keeps_its_outcome() -> None:
    run, number = begun()
    run.decide()
    point = max(event.event_id for event in run.events if isinstance(event, ev.WorkflowTaskStarted))
    run.at(3, inp.ChildClosed(initiated_event_id=number, run_id="first", outcome=ChildOutcome.CANCELLED))
    new, restarted = reset(run, point)
    assert (restarted, new.state.children) == ({}, {})
