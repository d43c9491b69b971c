"""Every kind of step and every modifier, by the commands of the program."""

from typing import Any

import pytest

from perdure.engine import commands as cmd
from perdure.engine import events as ev
from perdure.engine.failures import Failure, FailureKind
from unit.language.execution.play import Play, do

# Graphs


def test_steps_run_one_after_the_other() -> None:
    play = Play(f"steps: [{do('a')}, {do('b', '${steps.a.output}')}]")
    assert list(play.scheduled) == ["a"]
    play.completes("a", 1)
    assert play.scheduled["b"] == 1
    play.completes("b", 2)
    assert play.result == 2


def test_needs_define_a_graph() -> None:
    play = Play(f"""
steps: [{do("a")}, {do("b", needs="[]")}, {do("c", "${steps.a.output + steps.b.output}", needs="[a, b]")}, {do("d")}]
output: ${{steps.c.output}}
""")
    assert list(play.scheduled) == ["a", "b"]
    play.completes("b", 2)
    assert list(play.scheduled) == ["a", "b"]
    play.completes("a", 1)
    assert play.scheduled["c"] == 3
    play.completes("c", "sum")
    play.completes("d")
    assert play.result == "sum"


def limited(limit: int, *steps: str) -> Play:
    return Play(f"{{maxConcurrency: {limit}, steps: [{', '.join(steps)}]}}")


def test_a_limit_starts_ready_steps_in_the_order_of_the_list_as_others_end() -> None:
    free = [do(name, needs="[]") for name in "abcd"]
    play = limited(2, *free, do("e", needs="[a]"))
    assert list(play.scheduled) == ["a", "b"]
    play.completes("b")
    assert list(play.scheduled) == ["a", "b", "c"]
    play.completes("a")
    assert list(play.scheduled) == ["a", "b", "c", "d"]
    play.completes("d")
    assert "e" in play.scheduled
    play.completes("c")
    play.completes("e", "last")
    assert play.result == "last"


def test_a_skipped_step_does_not_count_against_the_limit() -> None:
    play = limited(1, do("a", needs="[]", when="${false}"), do("b", needs="[]"), do("c", needs="[]"))
    assert list(play.scheduled) == ["b"]
    play.completes("b")
    assert list(play.scheduled) == ["b", "c"]


def test_a_step_that_waits_for_the_limit_does_not_start_after_a_failure() -> None:
    play = limited(1, do("a", needs="[]"), do("b", needs="[]"))
    play.fails("a")
    assert list(play.scheduled) == ["a"]
    assert play.failure.chain()[-1].type == "Declined"


def test_each_call_of_a_block_has_its_own_limit() -> None:
    play = Play(
        f"""
steps:
- {{name: x, call: {{block: pair}}}}
- {{name: y, needs: [], call: {{block: pair}}}}
blocks: [{{name: pair, maxConcurrency: 1, steps: [{do("a", needs="[]")}, {do("b", needs="[]")}]}}]
"""
    )
    assert list(play.scheduled) == ["x/a", "y/a"]
    play.completes("y/a")
    assert list(play.scheduled) == ["x/a", "y/a", "y/b"]


def test_a_failure_stops_the_other_branches_of_the_graph() -> None:
    play = Play(f"steps: [{do('a')}, {do('b', needs='[]')}, {do('c', needs='[b]')}]")
    play.fails("a")
    assert play.cancelled == ["b"]
    assert "c" not in play.scheduled
    assert play.failure.type_names() == {"Activity"}
    assert [f.type for f in play.failure.chain()] == [None, "Declined"]


def test_a_dependant_of_a_skipped_step_runs() -> None:
    play = Play(f"steps: [{do('a', when='${input.x > 1}')}, {do('b', '${steps.a.status}')}]", {"x": 1})
    assert play.scheduled == {"b": "Skipped"}


def test_a_condition_that_is_not_a_boolean_fails_the_step() -> None:
    assert "true or false" in Play(f"steps: [{do('a', when='${input.x}')}]", {"x": 1}).failure.message


def test_return_stops_other_open_steps() -> None:
    play = Play(
        f"steps: [{do('a')}, {do('b', needs='[]')}, {{name: r, needs: [b], return: {{output: '${{steps.b.output}}'}}}}]"
    )
    play.completes("b", 5)
    assert play.cancelled == ["a"]
    assert play.result == 5


def test_falsy_values_are_kept() -> None:
    play = Play("steps: [{name: s, set: {x: 0}}, {name: r, return: {output: false}}]")
    assert play.result is False
    assert Play(f"steps: [{do('a', '0')}]").scheduled == {"a": 0}


# Waiting


def test_an_earlier_signal_is_consumed_first() -> None:
    play = Play(f"""
steps: [{do("a")}, {{name: w, waitForSignal: {{name: go}}}}, {{name: v, waitForSignal: {{name: go}}}}]
output: ["${{steps.w.output}}", "${{steps.v.output}}"]
""")
    play.signal("other", 0)
    play.signal("go", 1)
    play.signal("go", 2)
    play.completes("a")
    assert play.result == [1, 2]


def test_waiting_for_a_signal_ends_with_its_timeout() -> None:
    text = "steps: [{name: w, waitForSignal: {name: go, timeout: 60s}}]"
    play = Play(text)
    assert play.timers == {"w": 60}
    play.signal("go", "x")
    assert play.cancelled == ["w"]
    assert play.result == "x"
    play = Play(text)
    play.fires("w")
    assert play.failure.kind is FailureKind.TIMEOUT
    assert "no signal `go` came within" in play.failure.message


def test_the_oldest_waiter_gets_the_signal() -> None:
    wait = "waitForSignal: {name: go}"
    play = Play(
        f"steps: [{{name: a, {wait}}}, {{name: b, needs: [], {wait}}}]\noutput: ${{[steps.a.output, steps.b.output]}}"
    )
    play.signal("go", 1)
    play.signal("go", 2)
    assert play.result == [1, 2]


def test_a_condition_is_evaluated_after_every_event() -> None:
    play = Play("""
steps: [{name: w, waitUntil: {condition: "${signals.vote.size() >= 2 || vars.?done.orValue(false)}", timeout: 1h}}]
output: ${signals.vote}
""")
    play.signal("vote", "x")
    assert not play.closed
    play.signal("vote", "y")
    assert play.cancelled == ["w"]
    assert play.result == ["x", "y"]


def test_a_condition_over_variables_holds_as_soon_as_they_are_set() -> None:
    play = Play(f"""
steps:
- {{name: w, waitUntil: {{condition: "${{vars.?n.orValue(0) == 2}}"}}}}
- {do("b", needs="[]")}
- {{name: s, needs: [b], set: {{n: 2}}}}
""")
    play.completes("b")
    assert play.closed


def test_a_step_waits_until_a_time() -> None:
    play = Play("steps: [{name: s, sleep: {until: '2026-01-01T00:01:00Z'}}]")
    assert play.timers == {"s": 60}
    play.fires("s")
    assert play.closed


# Other runs


CHILD = """
steps:
- name: k
  childWorkflow: {workflow: {name: invoice}, workflowId: "i-${run.workflowId}", input: {n: 1}, cancellationType: %s}
"""


def test_a_child_is_started_and_its_result_is_the_output() -> None:
    play = Play(CHILD % "TryCancel")
    (command,) = play.all(cmd.StartChildWorkflowExecution)
    assert (command.child_id, command.start.workflow_type, command.start.workflow_id) == ("k", "invoice", "i-order")
    play.child("k", ev.ChildWorkflowExecutionCompleted, result=9)
    assert play.result == 9


@pytest.mark.parametrize(
    ("kind", "fields", "type_"),
    [
        (ev.ChildWorkflowExecutionFailed, {"failure": Failure(kind=FailureKind.APPLICATION, type="Broke")}, "Broke"),
        (ev.ChildWorkflowExecutionCanceled, {}, "Cancelled"),
        (ev.ChildWorkflowExecutionTimedOut, {}, "Timeout"),
        (ev.ChildWorkflowExecutionTerminated, {"reason": "enough"}, "Terminated"),
        (
            ev.StartChildWorkflowExecutionFailed,
            {"failure": Failure(kind=FailureKind.APPLICATION, type="WorkflowExecutionAlreadyStarted")},
            "WorkflowExecutionAlreadyStarted",
        ),
    ],
)
def test_a_child_that_does_not_complete_fails_its_step(kind: Any, fields: dict[str, Any], type_: str) -> None:
    play = Play(CHILD % "TryCancel")
    play.child("k", kind, **fields)
    assert play.failure.kind is FailureKind.CHILD_WORKFLOW
    assert play.failure.cause is not None
    assert type_ in play.failure.cause.type_names()


@pytest.mark.parametrize(
    ("how", "asked", "waits"), [("TryCancel", 1, False), ("WaitCancellationCompleted", 1, True), ("Abandon", 0, False)]
)
def test_a_cancelled_child_follows_its_cancellation_type(how: str, asked: int, waits: bool) -> None:
    play = Play(CHILD % how)
    play.cancel()
    assert len(play.all(cmd.RequestCancelExternalWorkflowExecution)) == asked
    assert play.closed is not waits
    if waits:
        play.child("k", ev.ChildWorkflowExecutionCanceled)
    assert isinstance(play.last, cmd.CancelWorkflowExecution)


def test_a_step_that_signals_another_run_ends_when_the_signal_is_recorded() -> None:
    text = "steps: [{name: s, signal: {workflowId: 'w-${input}', name: go, input: 1}}]"
    play = Play(text, 5)
    (command,) = play.all(cmd.SignalExternalWorkflowExecution)
    assert (command.workflow_id, command.signal_name, command.input) == ("w-5", "go", 1)
    play.happens(ev.ExternalWorkflowExecutionSignaled, initiated_event_id=2, signal_id="s", workflow_id="w-5")
    assert play.closed
    play = Play(text, 5)
    failure = Failure(kind=FailureKind.APPLICATION, type="ExternalWorkflowExecutionNotFound")
    play.happens(
        ev.SignalExternalWorkflowExecutionFailed, initiated_event_id=2, signal_id="s", workflow_id="w", failure=failure
    )
    assert play.failure.type == "ExternalWorkflowExecutionNotFound"


def test_the_next_run_gets_the_signals_that_were_not_consumed() -> None:
    play = Play(
        f"steps: [{do('a')}, {{name: n, continueAsNew: {{input: {{page: '${{input.page + 1}}'}}}}}}]", {"page": 1}
    )
    play.signal("x", 1)
    play.completes("a")
    assert isinstance(play.last, cmd.ContinueAsNewWorkflowExecution)
    assert play.last.input == {"page": 2}
    assert [(s.signal_name, s.input) for s in play.carried] == [("x", 1)]


# Fairness


def test_a_large_decision_is_split() -> None:
    dear = "${input.l.map(x, input.l.slice(0, 100)).size()}"
    steps = ", ".join(f"{{name: s{i}, set: {{x: '{dear}'}}}}" for i in range(20))
    play = Play(f"steps: [{steps}]\noutput: ${{vars.x}}", {"l": list(range(2_000))})
    assert play.splits >= 2
    assert play.result == 2_000


def test_an_event_for_a_step_that_has_ended_changes_nothing() -> None:
    play = Play(f"steps: [{do('a')}, {do('b')}]")
    play.completes("a")
    for happens in (play.completes, play.fails, play.is_cancelled, play.fires):
        assert happens("a") == []
        assert happens("unknown") == []
    assert play.fires("a:timeout") == []
