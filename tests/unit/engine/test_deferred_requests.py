"""Requests to a run that cannot act on them now: the end of a run that never began, and what the others wait for."""

from typing import Any

import pytest

from perdure.engine import commands as cmd
from perdure.engine import inputs as inp
from perdure.engine.commands import StandaloneDecider
from perdure.engine.state import RunStatus
from support.engine.coded import Coded
from support.engine.script import Drive, Reacting, activity, seconds

NEVER_BEGAN: list[dict[str, Any]] = [{"paused": True}, {"first_workflow_task_backoff": seconds(86_400)}]


@pytest.mark.parametrize("stop", [False, True], ids=["cancel", "stop"])
@pytest.mark.parametrize("how", NEVER_BEGAN, ids=["paused from the start", "delayed"])
def test_a_run_that_never_began_ends_with_its_cancellation(how: dict[str, Any], stop: bool) -> None:
    """argo-workflows#17041."""
    drive = Drive.by(Reacting((activity(),), WorkflowExecutionCancelRequested=[(activity("tidy"),)]), **how)
    answer = drive.ask(1, inp.CancelRequested(request_id="1", reason="not needed", stop=stop))
    assert (answer.ok, answer.reason, answer.message) == (True, "", "")
    assert drive.state.status is RunStatus.CANCELLED
    assert drive.types()[-2:] == ["WorkflowExecutionCancelRequested", "WorkflowExecutionCanceled"]
    assert drive.script.asked == []
    drive.check_replay()
    assert drive.ask(2, inp.CancelRequested(request_id="1")).ok


def test_a_standalone_activity_that_never_began_ends_with_its_cancellation() -> None:
    drive = Drive.by(StandaloneDecider(activity()), paused=True, standalone=True)
    drive.ask(1, inp.CancelRequested(request_id="1"))
    assert drive.state.status is RunStatus.CANCELLED


def test_the_cancellation_of_a_paused_run_that_began_waits_and_says_so() -> None:
    drive = Drive.by(Reacting((), WorkflowExecutionCancelRequested=[(cmd.CancelWorkflowExecution(),)]))
    drive.ask(1, inp.PauseRequested(request_id="p"))
    answer = drive.ask(2, inp.CancelRequested(request_id="c"))
    assert (answer.ok, answer.reason) == (True, "Deferred")
    assert answer.message == "the request is recorded, and takes effect once the run is unpaused"
    assert not drive.state.closed
    assert drive.ask(3, inp.UnpauseRequested(request_id="u")).reason == ""
    assert drive.state.status is RunStatus.CANCELLED
    drive.check_replay()


def test_a_signal_to_a_delayed_run_says_when_the_run_starts() -> None:
    drive = Drive.by(Reacting(), first_workflow_task_backoff=seconds(60))
    answer = drive.signal(1)
    assert answer.message == "the request is recorded, and takes effect when the run starts, at 2026-01-01T00:01:00Z"
    assert drive.signal(61).reason == ""


def test_a_request_to_a_run_that_cannot_continue_says_why() -> None:
    drive = Drive.by(Reacting())
    drive.script.broken = True
    answer = drive.signal(1)
    assert answer.reason == ""  # nothing is known yet
    answer = drive.signal(1.5, "again")
    assert answer.message == (
        "the request is recorded, and takes effect once the run can continue: the script is broken"
    )


def test_a_reset_of_a_running_activity_waits_for_the_end_of_its_attempt() -> None:
    drive = Drive.by(Reacting((activity(),)))
    drive.started(1)
    answer = drive.ask(2, inp.ActivityReset(request_id="r", activity_id="work"))
    assert answer.message == "the request is recorded, and takes effect when the running attempt 1 has ended"


def test_an_unpaused_step_of_a_paused_run_waits_for_the_run() -> None:
    drive = Drive.by(Reacting((activity(),)))
    drive.ask(1, inp.PauseRequested(request_id="p"))
    drive.ask(1, inp.PauseRequested(request_id="q", activity_id="work"))
    answer = drive.ask(2, inp.UnpauseRequested(request_id="u", activity_id="work"))
    assert answer.message == "the request is recorded, and takes effect once the run is unpaused"


def test_workers_decide_what_the_cancellation_of_a_delayed_run_means() -> None:
    """As on Temporal's server, the code gets the cancellation with its first workflow task."""
    coded = Coded.begin(first_workflow_task_backoff=seconds(60))
    answer = coded.at(1, inp.CancelRequested(request_id="c")).answers["c"]
    assert (answer.reason, coded.state.closed) == ("Deferred", False)
    assert coded.state.cancel_requested
