"""`stepsTimeout`: a deadline of the steps, after which compensations and handlers still run."""

import pytest

from perdure.engine import commands as cmd
from perdure.engine.failures import FailureKind
from perdure.engine.state import PendingTimer
from perdure.language.program import InvalidWorkflowError
from perdure.language.signals import awaited
from perdure.language.step_failures import DEADLINE_EXCEEDED
from unit.language.execution.play import Play, do

RUN = """
stepsTimeout: 10s
steps: [{a}, {b}]
blocks: [{{name: note, steps: [{note}]}}]
onFailure: {{block: note, input: "${{error.type}}"}}
finally:
  block: note
  input: {{a: "${{steps.a.status}}", b: "${{steps.?b.?status.orValue('None')}}", run: "${{run.status}}"}}
  timeout: 5s
""".format(a=do("a"), b=do("b"), note=do("x", "${params}"))
BLOCK = """
steps: [{{name: c, call: {{block: limited, input: 20s}}{more}}}]
blocks:
- {{name: limited, stepsTimeout: "${{params}}", steps: [{x}]}}
- {{name: note, steps: [{y}]}}
"""


def test_steps_stop_and_handlers_run() -> None:
    """argo-workflows#13060: no exit handler after the deadline; tektoncd/pipeline#4071: no `finally`."""
    play = Play(RUN)
    assert play.timers == {":stepsTimeout": 10}
    play.later(10).fires(":stepsTimeout")
    assert play.cancelled == ["a"]
    assert play.scheduled[":onFailure/x"] == DEADLINE_EXCEEDED
    play.completes(":onFailure/x")
    assert play.timers[":finally:timeout"] == 5
    assert play.scheduled[":finally/x"] == {"a": "Cancelled", "b": "None", "run": "Failed"}
    play.completes(":finally/x")
    assert (play.failure.kind, play.failure.type) == (FailureKind.TIMEOUT, DEADLINE_EXCEEDED)
    assert play.failure.message == "the steps have taken longer than their `stepsTimeout` of 10s"
    assert play.failure.type_names() >= {"Timeout", DEADLINE_EXCEEDED}


def test_handlers_have_only_their_own_limits() -> None:
    play = Play(RUN)
    play.fails("a")
    assert ":stepsTimeout" in play.cancelled
    play.later(60).completes(":onFailure/x")
    play.completes(":finally/x")
    assert play.failure.activity_id == "a"


def test_completed_compensations_run() -> None:
    step = do("a", compensate="{activity: {name: undo}}")
    play = Play(f"stepsTimeout: 10s\nsteps: [{step}, {do('b')}]")
    play.completes("a")
    play.later(10).fires(":stepsTimeout")
    assert "a:compensate" in play.scheduled
    play.completes("a:compensate")
    assert play.failure.type == DEADLINE_EXCEEDED


def test_a_run_that_is_fast_enough_cancels_the_timer() -> None:
    play = Play(RUN)
    play.completes("a")
    play.completes("b")
    assert play.cancelled == [":stepsTimeout"]
    play.completes(":finally/x")
    assert isinstance(play.last, cmd.CompleteWorkflowExecution)


def test_earlier_failures_are_named() -> None:
    play = Play(f"stepsTimeout: 10s\nfailurePolicy: FinishRunning\nsteps: [{do('a')}, {do('b', needs='[]')}]")
    play.fails("a")
    play.later(10).fires(":stepsTimeout")
    assert play.cancelled == ["b"]
    assert play.failure.type == DEADLINE_EXCEEDED
    assert [each.activity_id for each in play.failure.suppressed] == ["a"]


def test_a_deadline_while_steps_are_cancelled_changes_nothing() -> None:
    step = "{name: a, activity: {name: work, cancellationType: WaitCancellationCompleted}}"
    play = Play(f"stepsTimeout: 10s\nsteps: [{step}]")
    play.cancel()
    play.later(10).fires(":stepsTimeout")
    play.is_cancelled("a")
    assert isinstance(play.last, cmd.CancelWorkflowExecution)


def test_a_run_can_set_its_own_limit() -> None:
    play = Play(RUN, steps_timeout=30)
    assert play.timers == {":stepsTimeout": 30}


def test_a_limit_can_be_an_expression() -> None:
    play = Play('stepsTimeout: "${input.limit}"\nsteps: [' + do("a") + "]", {"limit": "3m"})
    assert play.timers == {":stepsTimeout": 180}


def test_a_limit_that_is_no_duration_fails_the_run() -> None:
    play = Play('stepsTimeout: "${input}"\nsteps: [' + do("a") + "]", "soon")
    assert (play.failure.type, play.scheduled) == ("ExpressionError", {})
    assert "`stepsTimeout`" in play.failure.message


@pytest.mark.parametrize("name", ["steps.a.output", "signals.go"])
def test_a_limit_begins_before_any_step(name: str) -> None:
    with pytest.raises(InvalidWorkflowError, match="stepsTimeout"):
        Play(f'stepsTimeout: "${{{name}}}"\nsteps: [{do("a")}]')


def test_a_block_fails_with_a_timeout() -> None:
    play = Play(BLOCK.format(more="", x=do("x"), y=do("y")))
    assert play.timers == {"c:stepsTimeout": 20}
    play.later(20).fires("c:stepsTimeout")
    assert play.cancelled == ["c/x"]
    assert play.failure.message == "the steps of `c` have taken longer than their `stepsTimeout` of 20s"
    assert (play.failure.kind, play.failure.type) == (FailureKind.TIMEOUT, None)


def test_the_timeout_of_a_block_can_be_caught() -> None:
    play = Play(BLOCK.format(more=", catch: [{errorTypes: [Timeout], call: {block: note}}]", x=do("x"), y=do("y")))
    play.later(20).fires("c:stepsTimeout")
    play.completes("c:catch/y")
    assert isinstance(play.last, cmd.CompleteWorkflowExecution)


def test_a_block_that_ends_in_time_cancels_its_timer() -> None:
    play = Play(BLOCK.format(more="", x=do("x"), y=do("y")))
    play.completes("c/x")
    assert play.cancelled == ["c:stepsTimeout"]


def test_a_deadline_starts_again_with_a_reset() -> None:
    play = Play(RUN)
    assert [each.restarts for each in play.all(cmd.StartTimer)] == [True]


def test_a_branch_that_is_given_up_leaves_no_timer() -> None:
    text = """
steps: [{name: p, parallel: {branches: [{name: one, block: limited}, {name: two, block: strict, input: 1}]}}]
blocks:
- {name: limited, stepsTimeout: 10s, steps: [%s]}
- {name: strict, params: {schema: {type: string}}, steps: [%s]}
""" % (do("x"), do("y"))  # fmt: skip # noqa: UP031
    play = Play(text)
    assert play.cancelled == ["p.one:stepsTimeout"]
    assert play.failure.type == "InvalidInput"


def test_a_wait_for_a_signal_ends_with_the_deadline() -> None:
    text = "stepsTimeout: 10s\nsteps: [{name: w, waitForSignal: {name: go}}]"
    play = Play(text)
    timer = PendingTimer(started_event_id=2, timer_id=":stepsTimeout", fire_time=play.now)
    assert [each.until for each in awaited(play.program, play.memory, {":stepsTimeout": timer})] == [play.now]
