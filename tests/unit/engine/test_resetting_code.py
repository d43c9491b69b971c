"""Code that starts with the history of another run: a worker decides again from there."""

from typing import Any

import pytest

from perdure.engine import commands as cmd
from perdure.engine import events as ev
from perdure.engine import history
from perdure.engine import inputs as inp
from perdure.engine.effects import CompleteOperation, effects
from perdure.engine.failures import Failure, FailureKind
from perdure.engine.resets import begin, reset_event, since
from perdure.engine.starts import Callback
from perdure.engine.step import step
from support.engine.coded import Coded, activity, timer


def reset(coded: Coded, point: int, *, signals: bool = True) -> Coded:
    """A run that starts with the first events of another one."""
    first: Any = coded.events[0]
    task: Any = coded.events[point - 1]
    state = history.fork_of_code(coded.events, point)
    reported = reset_event(
        first, point + 1, coded.now, base_run_id="run-1", new_run_id="run-2", successor="next", task=task
    )
    again = list(since(state, coded.events[point:], "run-1", signals=signals))
    begun = begin(state, reported, again, _NoDecider(), ())
    other = Coded(begun.state, [*coded.events[:point], *begun.events], now=coded.now)
    other.check()
    return other


class _NoDecider:
    def decide(self, memory: Any, event: Any, *, continue_as_new_suggested: bool = False) -> Any:  # noqa: ARG002
        raise AssertionError("a run that workers decide asks nobody in this process")


def test_54_the_history_up_to_the_task_is_kept_and_a_new_task_follows_the_reset() -> None:
    coded = Coded.begin()
    coded.decide(activity())
    coded.signal("late", seconds=5)
    coded.decide(cmd.CompleteWorkflowExecution(result=1))
    other = reset(coded, 3)
    assert other.names == [
        "WorkflowExecutionStarted",
        "WorkflowTaskScheduled",
        "WorkflowTaskStarted",
        "WorkflowTaskFailed",
        "WorkflowExecutionSignaled",
        "WorkflowTaskScheduled",
    ]
    reported: Any = other.events[3]
    assert (reported.cause, reported.scheduled_event_id, reported.started_event_id) == ("ResetWorkflow", 2, 3)
    assert (reported.base_run_id, reported.new_run_id) == ("run-1", "run-2")
    assert not other.state.activities
    other.decide(activity("b"))
    assert other.since("WorkflowTaskCompleted") == ["ActivityTaskScheduled"]


def test_signals_are_omitted_if_the_request_excludes_them() -> None:
    coded = Coded.begin()
    coded.decide(timer("t", 60))
    coded.signal("late", seconds=5)
    assert "WorkflowExecutionSignaled" not in reset(coded, 3, signals=False).names


def updated() -> Coded:
    """A run that has accepted an update, completed it, and continued."""
    coded = Coded.begin()
    coded.decide(timer("t", 60))
    coded.ask(inp.TaskRequested, 1)
    accept = cmd.AcceptUpdate(update_id="u", name="set", input=[1], header={"k": 1}, identity="ada", principal="eve")
    coded.decide(accept, cmd.CompleteUpdate(update_id="u", result=2))
    return coded


def test_54_updates_that_were_accepted_are_admitted_again_until_a_worker_accepts_them() -> None:
    other = reset(updated(), 3)
    reported: Any = next(event for event in other.events if isinstance(event, ev.WorkflowExecutionUpdateAdmitted))
    assert (reported.update_id, reported.name, reported.input, reported.header) == ("u", "set", [1], {"k": 1})
    assert (reported.identity, reported.principal) == ("ada", "eve")
    assert (other.code.admitted, other.code.updates) == ({"u": reported.event_id}, {})
    other.decide(timer("t", 60), cmd.AcceptUpdate(update_id="u", name="set", input=[1]))
    accepted: Any = other.events[-1]
    assert isinstance(accepted, ev.WorkflowExecutionUpdateAccepted)
    assert (accepted.update_id, accepted.name, accepted.input) == ("u", "", None), "the request is in one event only"
    assert (other.code.admitted, list(other.code.updates)) == ({}, ["u"])


def test_an_update_rejected_after_a_reset_is_not_sent_again() -> None:
    other = reset(updated(), 3)
    other.decide(timer("t", 60), rejected={"u": Failure(kind=FailureKind.APPLICATION, message="no")})
    assert (other.code.admitted, other.code.updates) == ({}, {})


def test_an_update_is_admitted_once_in_a_run_that_is_reset_several_times() -> None:
    once = reset(updated(), 3)
    once.decide(timer("t", 60), cmd.AcceptUpdate(update_id="u", name="set", input=[1]))
    twice = reset(once, 3)
    assert twice.names.count("WorkflowExecutionUpdateAdmitted") == 1
    assert list(twice.code.admitted) == ["u"]


def test_updates_are_omitted_if_the_request_excludes_them() -> None:
    coded = updated()
    state = history.fork_of_code(coded.events, 3)
    assert list(since(state, coded.events[3:], "run-1", signals=True, updates=False)) == []


def test_work_that_was_open_at_the_point_is_open_again() -> None:
    coded = Coded.begin()
    coded.decide(activity(), timer("t", 60))
    coded.signal(seconds=5)
    coded.take()
    coded.complete(cmd.CompleteWorkflowExecution())
    point = max(history.task_starts(coded.events))
    other = reset(coded, point)
    assert [a.activity_id for a in other.state.activities.values()] == ["a"]
    assert [t.timer_id for t in other.state.timers.values()] == ["t"]
    assert other.code.previous_started_event_id == 3
    other.state = step(other.state, [], other.now, _NoDecider()).state
    assert other.task.scheduled_event_id == other.state.next_event_id - 1


def test_reset_points_are_the_starts_of_workflow_tasks() -> None:
    coded = Coded.begin()
    coded.decide(timer("t", 60))
    assert history.task_starts(coded.events) == [3]
    assert isinstance(coded.events[2], ev.WorkflowTaskStarted)
    with pytest.raises(
        ValueError, match="the run cannot be reset to event 4, where no decision was made; choose event 3"
    ):
        history.fork_of_code(coded.events, 4)


def with_callback() -> Coded:
    """A run that has accepted an update, whose end completes a Nexus operation."""
    coded = Coded.begin()
    coded.decide(timer("t", 60))
    coded.ask(inp.TaskRequested, 1)
    callbacks = (Callback(url="temporal://system"),)
    coded.decide(cmd.AcceptUpdate(update_id="u", name="set", request_id="op", completion_callbacks=callbacks))
    return coded


def test_an_update_keeps_its_callbacks_after_a_reset() -> None:
    before = with_callback()
    [(key, callback)] = before.state.callbacks.items()
    assert (callback.update_id, callback.request_id, effects(before.state)) == ("u", "op", ())
    before.ask(inp.TerminateRequested, 2, reason="reset", reset_run="new", reset_event_id=3)
    assert effects(before.state) == (), "the new run has it"
    other = reset(before, 3)
    other.decide(timer("t", 60), cmd.AcceptUpdate(update_id="u", name="set"), cmd.CompleteUpdate(update_id="u"))
    [again] = other.state.callbacks
    assert again != key
    assert effects(other.state) == (CompleteOperation(again),)
    other.at(5, inp.EffectDone(effect=CompleteOperation(again)))
    assert other.state.callbacks == {}


def test_an_update_rejected_after_a_reset_fails_its_callbacks() -> None:
    other = reset(with_callback(), 3)
    rejection = Failure(kind=FailureKind.APPLICATION, message="not now")
    other.decide(timer("t", 60), rejected={"u": rejection})
    [(key, callback)] = other.state.callbacks.items()
    assert callback.rejection == rejection
    assert effects(other.state) == (CompleteOperation(key),)


def test_a_reset_without_updates_omits_their_callbacks() -> None:
    coded = with_callback()
    attached = {"callbacks": (Callback(url="temporal://system"),), "update_id": "u"}
    coded.at(2, inp.CallbacksAttached(request_id="other", **attached))
    later, state = coded.events[3:], history.fork_of_code(coded.events, 3)
    with_updates = list(since(state, later, "run-1", signals=True))
    assert inp.CallbacksAttached(request_id="other", **attached) in with_updates
    assert list(since(state, later, "run-1", signals=True, updates=False)) == []
