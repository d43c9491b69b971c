"""Failures that are caught, time limits, compensations, and handlers of the end of a run."""

import pytest

from perdure.engine import commands as cmd
from perdure.engine.failures import FailureKind
from unit.language.execution.play import ECHO, SEES, Play, do

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


def test_a_failure_without_a_catch_propagates() -> None:
    play = Play(CATCH)
    play.fails("a", "Unheard")
    assert play.failure.chain()[-1].type == "Unheard"


def test_a_failure_of_the_handler_propagates_with_the_original_failure() -> None:
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


def test_a_step_of_any_kind_can_have_a_timeout() -> None:
    play = Play(
        "steps: [{name: c, timeout: 10s, call: {block: echo}, catch: [{errorTypes: [Timeout], call: {block: late}}]}]\n"
        "blocks: [{name: echo, steps: [{name: inner, activity: {name: work}}]},"
        " {name: late, steps: [{name: r, return: {output: late}}]}]"
    )
    assert play.timers == {"c:timeout": 10}
    play.fires("c:timeout")
    assert play.cancelled == ["c/inner"]
    assert play.result == "late"


def test_a_step_that_ends_in_time_cancels_its_timer() -> None:
    play = Play(f"steps: [{do('a', timeout='10s')}]")
    play.completes("a")
    assert play.cancelled == ["a:timeout"]
    assert play.closed


def test_a_dead_letter_is_recorded_as_a_marker() -> None:
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


def test_completed_steps_are_compensated_in_reverse_order() -> None:
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


def test_compensation_continues_after_a_reported_failure() -> None:
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


def test_a_cancelled_run_is_compensated() -> None:
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


@pytest.mark.parametrize(
    "handler", ["onFailure: {block: tidy, input: '${error", "finally: {block: tidy, input: '${run.failure"]
)
def test_the_message_of_the_whole_failure_names_the_step(handler: str) -> None:
    path = f":{handler.partition(':')[0]}/note"
    play = Play(f"{SAGA}{handler}.message}}'}}")
    play.fails("a", "Full", "no room is left")
    assert play.scheduled[path] == "no room is left"
    play = Play(f"{SAGA}{handler}.failure.message}}'}}")
    play.fails("a", "Full", "no room is left")
    told = play.scheduled[path]
    assert isinstance(told, str)
    assert told.startswith("step `a`: activity `work` failed after 1 attempt")
    assert told.endswith(": no room is left")


def test_a_handler_that_takes_too_long_is_stopped() -> None:
    play = Play(
        "steps: [{name: s, set: {x: 1}}]\nfinally: {block: b, timeout: 5s}\n"
        "blocks: [{name: b, steps: [{name: w, waitForSignal: {name: never}}]}]"
    )
    assert play.timers == {":finally:timeout": 5}
    play.fires(":finally:timeout")
    assert play.failure.kind is FailureKind.TIMEOUT


def test_a_failed_finally_fails_a_successful_run() -> None:
    play = Play(
        "steps: [{name: s, set: {x: 1}}]\nfinally: {block: b}\n"
        "blocks: [{name: b, steps: [{name: f, fail: {type: T, message: m}}]}]"
    )
    assert play.failure.type == "T"


def test_a_run_can_complete_after_a_cancellation_request() -> None:
    play = Play("steps: [{name: a, activity: {name: work, cancellationType: WaitCancellationCompleted}}]")
    play.cancel()
    assert not play.closed
    play.completes("a", "done all the same")
    assert play.result == "done all the same"


def test_a_completed_activity_of_a_cancelled_run_is_compensated() -> None:
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


def test_handlers_and_compensations_see_the_outcome_of_the_run() -> None:
    text = (
        SEES
        + "steps: [{name: a, activity: {name: work}, compensate: {call: {block: see}}}, {name: b, activity: {name: work}}]"
    )
    play = Play(text)
    assert play.scheduled["a"] is None
    play.completes("a")
    play.fails("b", "Declined", "no funds")
    outcome = {"status": "Failed", "type": "Declined", "suppressed": 0}
    assert play.scheduled["a:compensate/note"] == outcome
    play.fails("a:compensate/note")
    assert play.scheduled[":finally/note"] == {**outcome, "suppressed": 1}
    play.completes(":finally/note")
    assert play.failure.cause is not None


def test_handlers_see_that_a_run_has_completed_or_was_cancelled() -> None:
    play = Play(SEES + f"steps: [{do('a')}]")
    play.completes("a")
    assert play.scheduled[":finally/note"] == {"status": "Completed", "type": "none", "suppressed": 0}
    play = Play(SEES + f"steps: [{do('a')}]")
    play.cancel()
    assert play.scheduled[":finally/note"] == {"status": "Cancelled", "type": "none", "suppressed": 0}
    assert Play("steps: [{name: s, return: {output: '${run.status} ${run.failure}'}}]").result == "Running null"
