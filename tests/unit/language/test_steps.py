"""Every kind of step and every modifier, by what the program asks the engine for."""

from datetime import timedelta
from typing import Any

import pytest

from perdure.engine import commands as cmd
from perdure.engine import events as ev
from perdure.engine.failures import Failure, FailureKind
from perdure.language.execution import loops
from unit.language.play import Play


def do(name: str, value: str = "null", **modifiers: str) -> str:
    more = "".join(f", {key}: {quoted(text)}" for key, text in modifiers.items())
    return f"{{name: {name}, activity: {{name: work, input: {quoted(value)}}}{more}}}"


def quoted(text: str) -> str:
    return f"'{text}'" if text.startswith("$") else text


# Graphs


def test_steps_run_one_after_the_other() -> None:
    play = Play(f"steps: [{do('a')}, {do('b', '${steps.a.output}')}]")
    assert list(play.scheduled) == ["a"]
    play.completes("a", 1)
    assert play.scheduled["b"] == 1
    play.completes("b", 2)
    assert play.result == 2


def test_needs_make_a_graph() -> None:
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


def test_a_condition_that_gives_no_boolean_fails_the_step() -> None:
    assert "true or false" in Play(f"steps: [{do('a', when='${input.x}')}]", {"x": 1}).failure.message


def test_return_stops_what_else_runs() -> None:
    play = Play(
        f"steps: [{do('a')}, {do('b', needs='[]')}, {{name: r, needs: [b], return: {{output: '${{steps.b.output}}'}}}}]"
    )
    play.completes("b", 5)
    assert play.cancelled == ["a"]
    assert play.result == 5


def test_falsy_values_are_values() -> None:
    play = Play("steps: [{name: s, set: {x: 0}}, {name: r, return: {output: false}}]")
    assert play.result is False
    assert Play(f"steps: [{do('a', '0')}]").scheduled == {"a": 0}


# Waiting


def test_a_signal_that_came_before_is_taken_first() -> None:
    play = Play(f"""
steps: [{do("a")}, {{name: w, waitForSignal: {{name: go}}}}, {{name: v, waitForSignal: {{name: go}}}}]
output: ["${{steps.w.output}}", "${{steps.v.output}}"]
""")
    play.signal("other", 0)
    play.signal("go", 1)
    play.signal("go", 2)
    play.completes("a")
    assert play.result == [1, 2]


def test_a_signal_is_waited_for_until_the_time_is_up() -> None:
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


def test_a_condition_is_asked_whenever_something_happens() -> None:
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


# Blocks

ECHO = "blocks: [{name: echo, steps: [" + do("inner", "${params}") + "], output: '${steps.inner.output}'}]"


def test_a_block_has_parameters_steps_and_an_output_of_its_own() -> None:
    play = Play(f"steps: [{{name: c, call: {{block: echo, input: '${{input.x}}'}}}}]\n{ECHO}", {"x": 7})
    assert play.scheduled == {"c/inner": 7}
    play.completes("c/inner", 8)
    assert play.result == 8


def test_the_parameters_of_a_block_are_checked() -> None:
    play = Play("""
steps: [{name: c, call: {block: b, input: {n: one}}}]
blocks: [{name: b, params: {schema: {properties: {n: {type: integer}}}}, steps: [{name: s, set: {x: 1}}]}]
""")
    assert play.failure.type == "InvalidInput"
    assert "params.n" in play.failure.message


def test_blocks_may_call_themselves_to_a_depth() -> None:
    text = """
steps: [{name: c, call: {block: down, input: {n: 1, to: %d}}}]
blocks:
- name: down
  steps:
  - name: more
    switch:
      cases: [{when: "${params.n < params.to}", call: {block: down, input: {n: "${params.n + 1}", to: "${params.to}"}}}]
      default: {call: {block: bottom, input: "${params.n}"}}
- {name: bottom, steps: [{name: r, return: {output: "${params}"}}]}
"""
    assert Play(text % 20).result == 20
    play = Play(text % 1000)
    assert [f.type for f in play.failure.chain()] == ["BlockDepthExceeded"]


def test_a_switch_without_a_fitting_case_does_nothing() -> None:
    assert (
        Play(f"steps: [{{name: s, switch: {{cases: [{{when: '${{false}}', call: {{block: echo}}}}]}}}}]\n{ECHO}").result
        is None
    )


def test_return_in_a_block_ends_only_the_block() -> None:
    play = Play(f"""
steps: [{{name: c, call: {{block: b}}}}, {do("after", "${steps.c.output}")}]
blocks: [{{name: b, steps: [{{name: r, return: {{output: 3}}}}, {do("never")}]}}]
""")
    assert play.scheduled == {"after": 3}


# Parallel

RACE = """
steps:
- name: race
  parallel:
    wait: %s
    branches: [{name: x, block: echo, input: 1}, {name: y, block: echo, input: 2}, {name: z, block: echo, input: 3}]
""" + ECHO  # fmt: skip


def test_all_branches_have_to_succeed() -> None:
    play = Play(RACE % "All")
    assert play.scheduled == {"race.x/inner": 1, "race.y/inner": 2, "race.z/inner": 3}
    for branch in "zxy":
        play.completes(f"race.{branch}/inner", branch)
    assert play.result == {"x": "x", "y": "y", "z": "z"}


def test_one_failure_fails_all() -> None:
    play = Play(RACE % "All")
    play.fails("race.y/inner")
    assert play.cancelled == ["race.x/inner", "race.z/inner"]
    assert play.failure.kind is FailureKind.ACTIVITY


def test_the_first_branch_wins_and_the_losers_are_cancelled() -> None:
    play = Play(RACE % "Any")
    play.fails("race.x/inner")
    assert not play.closed
    play.completes("race.z/inner", "won")
    assert play.cancelled == ["race.y/inner"]
    assert play.result == {"z": "won"}


def test_some_branches_have_to_succeed() -> None:
    play = Play(RACE % "2")
    play.completes("race.x/inner", 1)
    play.completes("race.y/inner", 2)
    assert play.cancelled == ["race.z/inner"]
    assert play.result == {"x": 1, "y": 2}
    play = Play(RACE % "2")
    play.fails("race.x/inner")
    play.fails("race.y/inner")
    assert play.cancelled == ["race.z/inner"]
    assert play.failure.type == "BranchesFailed"


# Loops


def test_items_run_at_most_so_many_at_a_time() -> None:
    play = Play(f"steps: [{do('l', '${[index, room]}', forEach='{items: [a, b, c], maxConcurrency: 2, as: room}')}]")
    assert play.scheduled == {"l[0]": [0, "a"], "l[1]": [1, "b"]}
    play.completes("l[1]", "B")
    assert play.scheduled["l[2]"] == [2, "c"]
    play.completes("l[2]", "C")
    play.completes("l[0]", "A")
    assert play.result == ["A", "B", "C"]


@pytest.mark.parametrize(
    ("items", "want"),
    [
        ("[]", []),
        ("'${lists.range(3)}'", [0, 1, 2]),
        ("[5, 6]", [5, 6]),
        ("[true, 1]", [True, 1]),
        ("'${input}'", [{"key": "a", "value": 1}, {"key": "b", "value": 2}]),
    ],
)
def test_items_are_lists_ranges_and_maps(items: str, want: list[Any]) -> None:
    play = Play(
        f"steps: [{{name: l, forEach: {{items: {items}}}, call: {{block: same, input: '${{item}}'}}}}]\n"
        "blocks: [{name: same, steps: [{name: r, return: {output: '${params}'}}]}]",
        {"b": 2, "a": 1},
    )
    assert play.result == want


def test_what_are_no_items_fails_the_step() -> None:
    assert "must give a list or a map" in Play(f"steps: [{do('l', forEach='{items: 5}')}]").failure.message


def test_a_failed_item_stops_the_others() -> None:
    play = Play(f"steps: [{do('l', forEach='{items: [a, b, c]}')}]")
    play.completes("l[0]")
    play.fails("l[1]")
    assert play.cancelled == ["l[2]"]
    assert play.failure.kind is FailureKind.ACTIVITY


def test_a_loop_within_a_loop_goes_on_however_much_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "MAX_OPEN", 4)
    play = Play("""
steps: [{name: l, forEach: {items: "${lists.range(3)}"}, call: {block: b, input: "${item}"}}]
blocks:
- name: b
  steps: [{name: m, forEach: {items: "${lists.range(3)}"}, activity: {name: work, input: "${params * 10 + item}"}}]
""")
    done = 0
    while not play.closed:
        open_now = [path for path in play.memory.tasks if path in play.scheduled]
        assert len(play.memory.tasks) <= 7
        play.completes(open_now[-1], play.scheduled[open_now[-1]])
        done += 1
    assert done == 9
    assert play.result == [[0, 1, 2], [10, 11, 12], [20, 21, 22]]


def test_outputs_of_items_nobody_refers_to_are_not_kept() -> None:
    play = Play(f"steps: [{do('l', forEach='{items: [a, b]}')}, {do('last')}]")
    play.completes("l[0]", "x" * 1000)
    assert play.memory.loops["l"].outputs == {}


def test_outputs_of_items_that_are_too_large_together_fail_the_step() -> None:
    play = Play(f"steps: [{do('l', forEach='{items: [a, b, c]}')}]")
    play.completes("l[0]", "x" * 100_000)
    play.completes("l[1]", "x" * 100_000)
    assert play.failure.type == "OutputTooLarge"


def test_a_long_loop_keeps_only_what_is_open() -> None:
    play = Play("steps: [" + do("l", forEach="{items: '${lists.range(2000)}'}") + ", {name: s, set: {x: 1}}]")
    assert len(play.scheduled) == loops.MAX_OPEN
    sizes = {}
    for index in range(2_000):
        play.completes(f"l[{index}]", index)
        if index in {1_100, 1_700}:
            sizes[index] = len(str(play.memory))
    assert play.closed
    assert len(play.scheduled) == 2_000
    assert sizes[1_700] < 1.02 * sizes[1_100] < 40_000


# Catch, timeout


CATCH = f"""
steps:
- name: a
  activity: {{name: work}}
  catch:
  - {{errorTypes: [Rare], call: {{block: echo, input: rare}}}}
  - {{errorTypes: [Declined, Timeout], as: e, call: {{block: echo, input: "${{e.type + ': ' + e.message}}"}}}}
{ECHO}
"""


def test_a_failure_is_caught_by_its_type() -> None:
    play = Play(CATCH)
    play.fails("a", "Declined", "not enough money")
    assert play.scheduled["a:catch/inner"] == "Declined: not enough money"
    play.completes("a:catch/inner", "mended")
    assert play.result == "mended"


def test_a_failure_nobody_catches_goes_up() -> None:
    play = Play(CATCH)
    play.fails("a", "Unheard")
    assert play.failure.chain()[-1].type == "Unheard"


def test_a_failure_in_the_handler_goes_up_with_what_it_handled() -> None:
    play = Play("""
steps: [{name: o, call: {block: b}, catch: [{errorTypes: [Declined], call: {block: last}}]}]
blocks:
- {name: b, steps: [{name: a, activity: {name: work}, catch: [{call: {block: again}}]}]}
- {name: again, steps: [{name: f, fail: {type: Worse, message: still}}]}
- {name: last, steps: [{name: r, return: {output: caught}}]}
""")
    play.fails("o/a", "Declined")
    assert play.result == "caught"


def test_an_expression_that_cannot_be_evaluated_can_be_caught() -> None:
    play = Play(
        f"""
steps:
- name: a
  activity: {{name: work, input: "${{input.nothing}}"}}
  catch: [{{errorTypes: [ExpressionError], call: {{block: echo, input: 1}}}}]
{ECHO}
""",
        {},
    )
    assert play.scheduled == {"a:catch/inner": 1}


def test_a_step_has_a_time_limit_whatever_it_does() -> None:
    play = Play(
        "steps: [{name: c, timeout: 10s, call: {block: echo}, catch: [{errorTypes: [Timeout], call: {block: late}}]}]\n"
        "blocks: [{name: echo, steps: [{name: inner, activity: {name: work}}]},"
        " {name: late, steps: [{name: r, return: {output: late}}]}]"
    )
    assert play.timers == {"c:timeout": 10}
    play.fires("c:timeout")
    assert play.cancelled == ["c/inner"]
    assert play.result == "late"


def test_a_step_that_ends_in_time_stops_its_clock() -> None:
    play = Play(f"steps: [{do('a', timeout='10s')}]")
    play.completes("a")
    assert play.cancelled == ["a:timeout"]
    assert play.closed


def test_a_dead_letter_is_noted() -> None:
    play = Play(f"steps: [{do('a', deadLetter='true', catch='[{call: {block: echo}}]')}]\n{ECHO}")
    asked = play.fails("a")
    marker = asked[0]
    assert isinstance(marker, cmd.RecordMarker)
    assert (marker.marker_name, marker.details["step"], marker.details["scheduledEventId"]) == ("DeadLetter", "a", 7)
    assert "a:catch/inner" in play.scheduled


# Sagas, handlers

SAGA = """
steps:
- {name: a, activity: {name: work, input: a}, compensate: {activity: {name: undo, input: "${steps.a.output.id}"}}}
- {name: b, activity: {name: work, input: b}, compensate: {call: {block: b, input: "${steps.b.output}"}}}
- {name: c, activity: {name: work, input: c}}
blocks:
- {name: b, steps: [{name: undo, activity: {name: undo, input: "${params}"}}]}
- {name: tidy, steps: [{name: note, activity: {name: work, input: "${params}"}}]}
"""


def test_completed_steps_are_undone_last_in_first_out() -> None:
    play = Play(SAGA)
    play.completes("a", {"id": 1})
    play.completes("b", 2)
    play.fails("c")
    assert "a:compensate" not in play.scheduled
    assert play.scheduled["b:compensate/undo"] == 2
    play.completes("b:compensate/undo")
    assert play.scheduled["a:compensate"] == 1
    play.completes("a:compensate")
    assert play.failure.kind is FailureKind.ACTIVITY
    assert play.failure.suppressed == ()


def test_compensation_goes_on_when_one_fails_and_the_failure_tells() -> None:
    play = Play(SAGA)
    play.completes("a", {"id": 1})
    play.completes("b", 2)
    play.fails("c", message="no car")
    play.fails("b:compensate/undo", message="no way back")
    assert play.scheduled["a:compensate"] == 1
    play.fails("a:compensate", message="nor here")
    assert [f.chain()[-1].message for f in play.failure.suppressed] == ["no way back", "nor here"]
    assert "no car" in play.failure.message
    assert "no way back" in play.failure.message


def test_a_cancelled_run_is_undone_too() -> None:
    play = Play(SAGA + "onCancel: {block: tidy, input: bye}\nfinally: {block: tidy, input: end, timeout: 5s}")
    play.completes("a", {"id": 1})
    play.cancel()
    assert play.cancelled == ["b"]
    play.completes("a:compensate")
    assert play.scheduled[":onCancel/note"] == "bye"
    play.cancel()
    play.completes(":onCancel/note")
    assert play.scheduled[":finally/note"] == "end"
    assert play.timers[":finally:timeout"] == 5
    play.completes(":finally/note")
    assert isinstance(play.last, cmd.CancelWorkflowExecution)
    assert play.last.failure is None


def test_the_failure_handler_sees_the_failure() -> None:
    play = Play(SAGA + 'onFailure: {block: tidy, input: "${error.type + steps.a.status}"}')
    play.fails("a", "Full")
    assert play.scheduled[":onFailure/note"] == "FullFailed"
    play.completes(":onFailure/note")
    assert play.failure.chain()[-1].type == "Full"


def test_a_handler_that_takes_too_long_is_stopped() -> None:
    play = Play(
        "steps: [{name: s, set: {x: 1}}]\nfinally: {block: b, timeout: 5s}\n"
        "blocks: [{name: b, steps: [{name: w, waitForSignal: {name: never}}]}]"
    )
    assert play.timers == {":finally:timeout": 5}
    play.fires(":finally:timeout")
    assert play.failure.kind is FailureKind.TIMEOUT


def test_finally_that_fails_fails_a_run_that_had_completed() -> None:
    play = Play(
        "steps: [{name: s, set: {x: 1}}]\nfinally: {block: b}\n"
        "blocks: [{name: b, steps: [{name: f, fail: {type: T, message: m}}]}]"
    )
    assert play.failure.type == "T"


def test_a_run_that_completes_while_it_is_cancelled_has_completed() -> None:
    play = Play("steps: [{name: a, activity: {name: work, cancellationType: WaitCancellationCompleted}}]")
    play.cancel()
    assert not play.closed
    play.completes("a", "done all the same")
    assert play.result == "done all the same"


def test_a_completed_activity_of_a_cancelled_run_is_undone() -> None:
    play = Play(
        "steps: [{name: a, activity: {name: work, cancellationType: WaitCancellationCompleted},"
        " compensate: {activity: {name: undo}}},"
        " {name: z, activity: {name: work}}]"
    )
    play.cancel()
    play.completes("a")
    assert list(play.scheduled) == ["a", "a:compensate"]
    play.completes("a:compensate")
    assert isinstance(play.last, cmd.CancelWorkflowExecution)


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
def test_a_cancelled_child(how: str, asked: int, waits: bool) -> None:
    play = Play(CHILD % how)
    play.cancel()
    assert len(play.all(cmd.RequestCancelExternalWorkflowExecution)) == asked
    assert play.closed is not waits
    if waits:
        play.child("k", ev.ChildWorkflowExecutionCanceled)
    assert isinstance(play.last, cmd.CancelWorkflowExecution)


def test_a_signal_to_another_run_ends_its_step_when_it_is_recorded() -> None:
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


def test_much_work_is_parted() -> None:
    dear = "${input.l.map(x, input.l.slice(0, 100)).size()}"
    steps = ", ".join(f"{{name: s{i}, set: {{x: '{dear}'}}}}" for i in range(20))
    play = Play(f"steps: [{steps}]\noutput: ${{vars.x}}", {"l": list(range(2_000))})
    assert play.splits >= 2
    assert play.result == 2_000


def test_what_comes_for_a_step_that_has_ended_changes_nothing() -> None:
    play = Play(f"steps: [{do('a')}, {do('b')}]")
    play.completes("a")
    for happens in (play.completes, play.fails, play.is_cancelled, play.fires):
        assert happens("a") == []
        assert happens("unknown") == []
    assert play.fires("a:timeout") == []


def test_handlers_and_compensations_see_how_the_run_ends() -> None:
    text = (
        SEEN
        + "steps: [{name: a, activity: {name: work}, compensate: {call: {block: see}}}, {name: b, activity: {name: work}}]"
    )
    play = Play(text)
    assert play.scheduled["a"] is None
    play.completes("a")
    play.fails("b", "Declined", "no funds")
    seen = {"status": "Failed", "type": "Declined", "suppressed": 0}
    assert play.scheduled["a:compensate/note"] == seen
    play.fails("a:compensate/note")
    assert play.scheduled[":finally/note"] == {**seen, "suppressed": 1}
    play.completes(":finally/note")
    assert play.failure.cause is not None


def test_handlers_see_that_a_run_has_completed_or_was_cancelled() -> None:
    play = Play(SEEN + f"steps: [{do('a')}]")
    play.completes("a")
    assert play.scheduled[":finally/note"] == {"status": "Completed", "type": "none", "suppressed": 0}
    play = Play(SEEN + f"steps: [{do('a')}]")
    play.cancel()
    assert play.scheduled[":finally/note"] == {"status": "Cancelled", "type": "none", "suppressed": 0}
    assert Play("steps: [{name: s, return: {output: '${run.status} ${run.failure}'}}]").result == "Running null"


SEEN = """
blocks:
- name: see
  steps:
  - name: note
    activity:
      name: work
      input:
        status: "${run.status}"
        type: "${run.failure == null ? 'none' : run.failure.type}"
        suppressed: "${run.status == 'Failed' ? run.failure.failure.?suppressed.orValue([]).size() : 0}"
finally: {block: see}
"""


# Timeouts that expressions give


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


def test_a_signal_that_comes_cancels_the_timer_of_a_computed_timeout() -> None:
    play = Play("steps: [{name: w, waitForSignal: {name: go, timeout: '${input}'}}]", "1h")
    assert play.timers == {"w": 3600}
    play.signal("go", 1)
    assert play.cancelled == ["w"]
    assert play.result == 1


def test_the_timeouts_of_an_activity_are_computed_over_those_of_its_definition() -> None:
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
def test_a_timeout_that_is_none_fails_the_step(step: str, message: str) -> None:
    play = Play(f"steps: [{step}]", 5)
    assert play.failure.type == "ExpressionError"
    assert message in play.failure.message
    assert play.timers == {}
    caught = step.removesuffix("}") + ", catch: [{errorTypes: [ExpressionError], call: {block: ok}}]}"
    block = "{name: ok, steps: [{name: r, return: {output: caught}}]}"
    assert Play(f"steps: [{caught}]\nblocks: [{block}]", 5).result == "caught"
