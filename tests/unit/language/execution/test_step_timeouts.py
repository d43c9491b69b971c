"""Timeouts of steps, as their expressions compute them."""

from datetime import timedelta

import pytest

from perdure.engine import commands as cmd
from unit.language.execution.play import Play, do

# Computed timeouts


def test_the_timeout_of_a_step_is_computed_for_each_item_when_it_begins() -> None:
    step = do("a", forEach="{items: [5s, 1m]}", timeout="${item}")
    play = Play(f"steps: [{step}]")
    assert play.timers == {"a[0]:timeout": 5, "a[1]:timeout": 60}
    play.fires("a[0]:timeout")
    assert "step `a[0]` has taken longer than its timeout of 5s" in play.failure.message
    assert play.failure.type_names() >= {"Timeout"}


@pytest.mark.parametrize("wait", ["waitForSignal: {name: go, ", "waitUntil: {condition: '${false}', "])
def test_the_timeout_of_a_wait_is_computed(wait: str) -> None:
    text = f"steps: [{{name: w, {wait}timeout: '${{timestamp(input.deadline) - now}}'}}}}]"
    play = Play(text, {"deadline": "2026-01-01T00:01:30Z"})
    assert play.timers == {"w": 90}
    play.later(90).fires("w")
    assert play.failure.message.endswith("within 1m30s")
    late = Play(text, {"deadline": "2025-12-31T23:00:00Z"})
    assert late.timers == {"w": 0}


def test_a_signal_cancels_the_timer_of_a_computed_timeout() -> None:
    play = Play("steps: [{name: w, waitForSignal: {name: go, timeout: '${input}'}}]", "1h")
    assert play.timers == {"w": 3600}
    play.signal("go", 1)
    assert play.cancelled == ["w"]
    assert play.result == 1


def test_computed_timeouts_override_those_of_the_activity() -> None:
    step = (
        "{name: a, activity: {name: work, startToCloseTimeout: '${input.attempt}', heartbeatTimeout: '${input.beat}'}}"
    )
    play = Play(f"steps: [{step}]", {"attempt": "5m", "beat": "7s"})
    (command,) = play.all(cmd.ScheduleActivityTask)
    assert command.start_to_close_timeout == timedelta(minutes=5)
    assert command.heartbeat_timeout == timedelta(seconds=7)
    assert command.schedule_to_close_timeout is None


def test_the_timeouts_of_a_child_are_computed() -> None:
    child = "{workflow: {name: w}, executionTimeout: '${input}', runTimeout: '${duration(input)}'}"
    play = Play(f"steps: [{{name: c, childWorkflow: {child}}}]", "2h")
    (command,) = play.all(cmd.StartChildWorkflowExecution)
    assert command.start.workflow_execution_timeout == command.start.workflow_run_timeout == timedelta(hours=2)


def test_the_timeouts_of_a_compensation_are_computed_when_its_step_has_completed() -> None:
    undo = "{activity: {name: undo, startToCloseTimeout: '${steps.a.output.limit}', heartbeatTimeout: 3s}}"
    play = Play(f"steps: [{do('a', compensate=undo)}, {{name: b, fail: {{}}}}]")
    play.completes("a", {"limit": "90s"})
    *_, command = play.all(cmd.ScheduleActivityTask)
    assert command.activity_id == "a:compensate"
    assert command.start_to_close_timeout == timedelta(seconds=90)
    assert command.heartbeat_timeout == timedelta(seconds=3)


@pytest.mark.parametrize(
    ("step", "message"),
    [
        ("{name: s, timeout: '${input}', activity: {name: work}}", "step `s`: `timeout`: 5 must be a duration"),
        ("{name: s, waitForSignal: {name: go, timeout: '${input}'}}", "step `s`: `timeout`: 5 must be a duration"),
        ("{name: s, timeout: '${input.x}', activity: {name: work}}", "input.x"),
        (
            "{name: s, activity: {name: work, startToCloseTimeout: '${input}'}}",
            "step `s`: `startToCloseTimeout`: 5 must be a duration",
        ),
        (
            "{name: s, activity: {name: work, heartbeatTimeout: \"${duration('-5s')}\"}}",
            "step `s`: `heartbeatTimeout` must be longer than `0s`; the expression gives -5s",
        ),
        (
            "{name: s, childWorkflow: {workflow: {name: w}, executionTimeout: \"${string(input - 5) + 's'}\"}}",
            "step `s`: `executionTimeout` must be longer than `0s`; the expression gives 0s",
        ),
    ],
)
def test_an_invalid_timeout_fails_the_step(step: str, message: str) -> None:
    play = Play(f"steps: [{step}]", 5)
    assert play.failure.type == "ExpressionError"
    assert message in play.failure.message
    assert play.timers == {}
    caught = step.removesuffix("}") + ", catch: [{errorTypes: [ExpressionError], call: {block: ok}}]}"
    block = "{name: ok, steps: [{name: r, return: {output: caught}}]}"
    assert Play(f"steps: [{caught}]\nblocks: [{block}]", 5).result == "caught"
