"""The effects that a state requires outside of its run."""

import msgspec

from perdure.api.policies import ParentClosePolicy
from perdure.engine import commands as cmd
from perdure.engine import inputs as inp
from perdure.engine.effects import (
    CloseChild,
    ReportAttempt,
    RequestExternal,
    StartAttempt,
    StartChild,
    StartSuccessor,
    StopAttempt,
    WriteDeadLetter,
    attempt_effects,
    effects,
)
from perdure.engine.retry import RetryPolicy
from perdure.engine.state import DEAD_LETTER, CircuitReport, CircuitResult
from support.engine.script import T0, Drive, Reacting, activity, application, child, seconds

SIGNAL = cmd.SignalExternalWorkflowExecution(signal_id="notify", workflow_id="other", signal_name="go", input=1)
CHILDREN = (
    child("a"),
    child("b", ParentClosePolicy.ABANDON),
    SIGNAL,
    cmd.RecordMarker(marker_name=DEAD_LETTER),
    cmd.RecordMarker(marker_name="note"),
)


def test_an_open_run_starts_children_sends_requests_and_writes_dead_letters() -> None:
    drive = Drive.by(Reacting(CHILDREN))
    assert effects(drive.state) == (StartChild(2), StartChild(3), RequestExternal(4), WriteDeadLetter(5))
    drive.at(1, inp.ChildStarted(initiated_event_id=2, run_id="a"), inp.EffectDone(effect=WriteDeadLetter(5)))
    assert effects(drive.state) == (StartChild(3), RequestExternal(4))


def test_a_closed_run_closes_its_children_and_still_starts_those_it_abandons() -> None:
    drive = Drive.by(
        Reacting(CHILDREN, WorkflowExecutionSignaled=[(cmd.ContinueAsNewWorkflowExecution(),)]), successor="n"
    )
    drive.signal(1)
    left = effects(drive.state)
    assert left == (
        CloseChild(2),
        StartChild(3),
        CloseChild(3),
        RequestExternal(4),
        WriteDeadLetter(5),
        StartSuccessor(),
    )
    assert drive.state.has_pending_work
    for effect in left:
        drive.at(2, inp.EffectDone(effect=effect))
    assert effects(drive.state) == ()
    assert not drive.state.has_pending_work


def test_a_retried_run_requests_its_next_run() -> None:
    failing = cmd.FailWorkflowExecution(failure=application())
    policy = RetryPolicy(initial_interval=seconds(1), maximum_attempts=2)
    drive = Drive.by(Reacting((failing,)), retry_policy=policy, successor="next")
    assert effects(drive.state) == (StartSuccessor(),)


def test_the_key_of_a_report_matches_the_state() -> None:
    effect = ReportAttempt(5, 2)
    assert ReportAttempt.of(effect.key) == effect
    reports = {effect.key: CircuitReport(policy="p", result=CircuitResult.FAILED, time=T0)}
    state = msgspec.structs.replace(Drive.by(Reacting(())).state, reports=reports)
    assert effects(state) == (effect,)


# Pods


def test_an_attempt_starts_when_it_is_due_and_earlier_attempts_never_start_again() -> None:
    drive = Drive.by(Reacting((activity(retry_policy=RetryPolicy(initial_interval=seconds(2))),)))
    assert attempt_effects(drive.state, T0) == (StartAttempt(2, 1),)
    drive.failed(1)
    assert attempt_effects(drive.state, T0 + seconds(2.5)) == ()
    assert attempt_effects(drive.state, T0 + seconds(3)) == (StartAttempt(2, 2),)


def test_a_pause_holds_back_new_attempts_and_keeps_running_pods() -> None:
    drive = Drive.by(Reacting((activity("a"), activity("b"))))
    drive.at(1, inp.AttemptStarted(scheduled_event_id=2, attempt=1, time=T0))
    drive.ask(1, inp.PauseRequested(request_id="p"))
    assert attempt_effects(drive.state, drive.now) == (StartAttempt(2, 1),)


def test_attempts_are_stopped_before_others_are_started_and_each_only_while_it_runs() -> None:
    cancel = cmd.RequestCancelActivityTask(activity_id="b")
    drive = Drive.by(Reacting((activity("a"), activity("b")), WorkflowExecutionSignaled=[(cancel,)]))
    drive.at(1, inp.AttemptStarted(scheduled_event_id=3, attempt=1, time=T0))
    drive.signal(1)
    assert attempt_effects(drive.state, drive.now) == (StopAttempt(3, 1), StartAttempt(2, 1), StartAttempt(3, 1))
    drive.at(2, inp.AttemptCancelled(scheduled_event_id=3, attempt=1))
    assert attempt_effects(drive.state, drive.now) == (StartAttempt(2, 1),)


def test_activities_of_workers_and_closed_runs_need_no_pods() -> None:
    drive = Drive.by(Reacting((activity("a", task_queue="orders"), activity("b", task_queue="pods/tool"))))
    assert attempt_effects(drive.state, T0) == (StartAttempt(3, 1),)
    drive.ask(1, inp.TerminateRequested(request_id="t"))
    assert attempt_effects(drive.state, drive.now) == ()
