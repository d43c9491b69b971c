"""What a state asks for outside of its run."""

import msgspec

from engine.script import T0, Drive, Reacting, application, child, seconds
from perdure.engine import commands as cmd
from perdure.engine import inputs as inp
from perdure.engine.effects import (
    AskExternal,
    CloseChild,
    ReportAttempt,
    StartChild,
    StartSuccessor,
    WriteDeadLetter,
    effects,
)
from perdure.engine.retry import RetryPolicy
from perdure.engine.starts import ParentClosePolicy
from perdure.engine.state import DEAD_LETTER, CircuitReport, CircuitResult

SIGNAL = cmd.SignalExternalWorkflowExecution(signal_id="tell", workflow_id="other", signal_name="go", input=1)
CHILDREN = (
    child("a"),
    child("b", ParentClosePolicy.ABANDON),
    SIGNAL,
    cmd.RecordMarker(marker_name=DEAD_LETTER),
    cmd.RecordMarker(marker_name="note"),
)


def test_an_open_run_starts_its_children_asks_others_and_sets_letters_aside() -> None:
    drive = Drive.by(Reacting(CHILDREN))
    assert effects(drive.state) == (StartChild(2), StartChild(3), AskExternal(4), WriteDeadLetter(5))
    drive.at(1, inp.ChildStarted(initiated_event_id=2, run_id="a"), inp.EffectDone(effect=WriteDeadLetter(5)))
    assert effects(drive.state) == (StartChild(3), AskExternal(4))


def test_a_closed_run_closes_its_children_and_still_starts_those_it_abandons() -> None:
    drive = Drive.by(
        Reacting(CHILDREN, WorkflowExecutionSignaled=[(cmd.ContinueAsNewWorkflowExecution(),)]), successor="n"
    )
    drive.signal(1)
    left = effects(drive.state)
    assert left == (CloseChild(2), StartChild(3), CloseChild(3), AskExternal(4), WriteDeadLetter(5), StartSuccessor())
    assert drive.state.has_chores
    for effect in left:
        drive.at(2, inp.EffectDone(effect=effect))
    assert effects(drive.state) == ()
    assert not drive.state.has_chores


def test_a_run_that_is_retried_asks_for_its_next_run() -> None:
    failing = cmd.FailWorkflowExecution(failure=application())
    policy = RetryPolicy(initial_interval=seconds(1), maximum_attempts=2)
    drive = Drive.by(Reacting((failing,)), retry_policy=policy, successor="next")
    assert effects(drive.state) == (StartSuccessor(),)


def test_the_key_of_a_report_is_that_of_the_state() -> None:
    effect = ReportAttempt(5, 2)
    assert ReportAttempt.of(effect.key) == effect
    reports = {effect.key: CircuitReport(policy="p", result=CircuitResult.FAILED, time=T0)}
    state = msgspec.structs.replace(Drive.by(Reacting(())).state, reports=reports)
    assert effects(state) == (effect,)
