"""Signals that are approvals."""

from typing import Any

import pytest

from perdure.api.kinds.workflow import WorkflowSpec
from perdure.engine import commands as cmd
from perdure.engine import events as ev
from perdure.language.checks import check
from unit.language.execution.play import Play

APPROVAL = """
steps:
- {name: ask, waitForSignal: {name: go, approval: true, message: "Release ${input}?"}}
- {name: do, activity: {name: work, input: "${steps.ask.output}"}}
"""


def decide(play: Play, decision: Any, *, by: str = "jane") -> None:
    play.happens(ev.WorkflowExecutionSignaled, signal_name="go", input=decision, principal=by)


def test_the_approver_is_the_authenticated_sender() -> None:
    play = Play(APPROVAL, "v7")
    decide(play, {"approved": True, "comment": "fine", "by": "someone else"})
    assert play.scheduled["do"] == {"approved": True, "comment": "fine", "by": "jane"}


def test_an_approval_that_arrived_before_the_step_keeps_its_sender() -> None:
    play = Play(
        "steps: [{name: first, activity: {name: work}}, "
        + APPROVAL.split("\n- ", 1)[1].replace("\n- ", ", ").strip()
        + "]",
        "v7",
    )
    decide(play, {"approved": True})
    play.completes("first")
    assert play.scheduled["do"] == {"approved": True, "comment": None, "by": "jane"}


@pytest.mark.parametrize("decision", [{"approved": False}, {"approved": "true"}, {}, None, True, [1]])
def test_anything_else_is_a_rejection(decision: Any) -> None:
    play = Play(APPROVAL, "v7")
    decide(play, decision)
    assert play.failure.type == "Rejected"
    assert play.failure.message == "step `ask`: jane rejected it"
    assert play.failure.details == {"approved": False, "comment": None, "by": "jane"}


def test_a_rejection_has_the_reason_and_the_user_if_known() -> None:
    play = Play(APPROVAL, "v7")
    decide(play, {"approved": False, "comment": "not on a Friday"}, by="")
    assert play.failure.message == "step `ask`: an unknown user rejected it: not on a Friday"


def test_the_message_is_kept_while_the_step_waits() -> None:
    play = Play(APPROVAL, "v7")
    assert play.memory.tasks["ask"].note == "Release v7?"
    decide(play, {"approved": True})
    assert "ask" not in play.memory.tasks


def test_a_message_without_a_value_fails_the_step() -> None:
    play = Play(APPROVAL.replace("${input}", "${input.nope}"), {})
    assert "nope" in play.failure.message


def test_a_signal_that_is_carried_to_the_next_run_keeps_its_sender() -> None:
    play = Play("steps: [{name: a, activity: {name: work}}, {name: b, continueAsNew: {}}]")
    decide(play, {"approved": True})
    play.completes("a")
    (command,) = play.all(cmd.ContinueAsNewWorkflowExecution)
    assert [signal.principal for signal in command.signals] == ["jane"]


def test_lint_knows_the_fields_of_the_output() -> None:
    steps = [
        {"name": "ask", "waitForSignal": {"name": "go", "approval": True, "timeout": "1h"}},
        {"name": "use", "set": {"x": "${steps.ask.output.user}"}},
    ]
    (finding,) = check(WorkflowSpec.parse({"steps": steps})).errors
    assert "there is no field `user` in `steps.ask.output`" in str(finding)
