"""The blocks that run before and after a step."""

import pytest

from perdure.api.kinds.workflow import WorkflowSpec
from perdure.engine import commands as cmd
from perdure.language.checks import check
from unit.language.execution.play import Play

HOOKED = """
steps:
- name: a
  onStart: {block: begin, input: "${input}"}
  activity: {name: work, input: body}
  onEnd: {block: end, input: "${step}"}
- name: b
  activity: {name: work, input: "${steps.a.output}"}
blocks:
- {name: begin, steps: [{name: notify, activity: {name: work, input: "${params}"}}]}
- {name: end, steps: [{name: notify, activity: {name: work, input: "${params}"}}]}
- {name: handle, steps: [{name: notify, return: {output: handled}}]}
"""


def hooked(changes: str) -> str:
    return HOOKED.replace(
        "  activity: {name: work, input: body}\n", f"  activity: {{name: work, input: body}}\n  {changes}\n"
    )


def test_a_step_runs_between_its_hooks() -> None:
    play = Play(HOOKED, 1)
    assert play.scheduled == {"a:onStart/notify": 1}
    play.completes("a:onStart/notify")
    assert play.scheduled["a"] == "body"
    play.completes("a", 7)
    assert play.scheduled["a:onEnd/notify"] == {"status": "Succeeded", "output": 7, "failure": None}
    assert "b" not in play.scheduled
    play.completes("a:onEnd/notify", "unread")
    assert play.scheduled["b"] == 7


def test_the_end_hook_sees_the_failure_and_does_not_change_it() -> None:
    play = Play(HOOKED)
    play.completes("a:onStart/notify")
    play.fails("a", "Declined")
    params = play.scheduled["a:onEnd/notify"]
    assert (params["status"], params["failure"]["type"]) == ("Failed", "Declined")
    play.completes("a:onEnd/notify")
    assert play.failure.chain()[-1].type == "Declined"
    assert "b" not in play.scheduled


def test_a_start_hook_that_fails_fails_the_step_which_does_not_run() -> None:
    play = Play(HOOKED)
    play.fails("a:onStart/notify", "NoRoom")
    assert "a" not in play.scheduled
    assert play.scheduled["a:onEnd/notify"]["failure"]["type"] == "NoRoom"
    play.completes("a:onEnd/notify")
    assert play.failure.chain()[-1].type == "NoRoom"


def test_an_end_hook_that_fails_fails_a_step_that_succeeded() -> None:
    play = Play(HOOKED)
    play.completes("a:onStart/notify")
    play.completes("a", 7)
    play.fails("a:onEnd/notify", "Unheard")
    assert play.failure.chain()[-1].type == "Unheard"
    assert "b" not in play.scheduled


def test_the_failure_of_an_end_hook_is_added_to_that_of_the_step() -> None:
    play = Play(HOOKED)
    play.completes("a:onStart/notify")
    play.fails("a", "Declined")
    play.fails("a:onEnd/notify", "Unheard")
    assert play.failure.chain()[-1].type == "Declined"
    assert [each.chain()[-1].type for each in play.failure.suppressed] == ["Unheard"]


def test_a_failure_that_is_caught_is_a_success_for_the_end_hook() -> None:
    play = Play(hooked("catch: [{call: {block: handle}}]"))
    play.fails("a:onStart/notify")
    assert play.scheduled["a:onEnd/notify"] == {"status": "Succeeded", "output": "handled", "failure": None}
    play.completes("a:onEnd/notify")
    assert play.scheduled["b"] == "handled"


def test_a_cancellation_stops_the_start_hook_and_the_end_hook_runs() -> None:
    play = Play(HOOKED)
    play.cancel()
    assert play.cancelled == ["a:onStart/notify"]
    assert play.scheduled["a:onEnd/notify"]["status"] == "Cancelled"
    assert "a" not in play.scheduled
    play.completes("a:onEnd/notify")
    assert play.all(cmd.CancelWorkflowExecution)


def test_a_cancellation_does_not_interrupt_the_end_hook() -> None:
    play = Play(HOOKED)
    play.completes("a:onStart/notify")
    play.completes("a", 7)
    play.cancel()
    assert play.cancelled == []
    assert not play.all(cmd.CancelWorkflowExecution)
    play.completes("a:onEnd/notify")
    assert play.all(cmd.CancelWorkflowExecution)


def test_the_timeout_of_the_step_includes_the_start_hook_and_not_the_end_hook() -> None:
    play = Play(hooked("timeout: 5s"))
    play.fires("a:timeout")
    assert play.cancelled == ["a:onStart/notify"]
    assert play.scheduled["a:onEnd/notify"]["failure"]["type"] == "TemporalTimeout:StartToClose"
    ended = Play(hooked("timeout: 5s"))
    ended.completes("a:onStart/notify")
    ended.completes("a", 7)
    assert ended.cancelled == ["a:timeout"]


def test_each_item_of_a_loop_has_hooks() -> None:
    play = Play(
        hooked("forEach: {items: [x, y]}").replace("${input}", "${item}").replace("${step}", "${item} ${step.output}")
    )
    assert play.scheduled == {"a[0]:onStart/notify": "x", "a[1]:onStart/notify": "y"}
    play.completes("a[1]:onStart/notify")
    play.completes("a[1]", 2)
    assert play.scheduled["a[1]:onEnd/notify"] == "y 2"
    play.completes("a[1]:onEnd/notify")
    play.completes("a[0]:onStart/notify")
    play.completes("a[0]", 1)
    play.completes("a[0]:onEnd/notify")
    assert play.scheduled["b"] == [1, 2]


def test_a_step_that_is_skipped_has_no_hooks() -> None:
    play = Play(hooked("when: '${false}'"))
    assert list(play.scheduled) == ["b"]


def test_a_step_that_closes_as_it_starts_has_hooks() -> None:
    play = Play(HOOKED.replace("activity: {name: work, input: body}", "set: {x: 1}"))
    assert list(play.scheduled) == ["a:onStart/notify"]
    play.completes("a:onStart/notify")
    assert play.scheduled["a:onEnd/notify"]["output"] == {"x": 1}


def test_a_return_takes_effect_after_the_end_hook() -> None:
    play = Play(HOOKED.replace("activity: {name: work, input: body}", "return: {output: early}"))
    play.completes("a:onStart/notify")
    assert not play.all(cmd.CompleteWorkflowExecution)
    play.completes("a:onEnd/notify")
    assert play.result == "early"
    assert "b" not in play.scheduled


def test_a_step_whose_end_hook_fails_is_compensated() -> None:
    play = Play(hooked("compensate: {activity: {name: undo, input: '${steps.a.output}'}}"))
    play.completes("a:onStart/notify")
    play.completes("a", 7)
    play.fails("a:onEnd/notify")
    assert play.scheduled["a:compensate"] == 7


def test_a_failing_input_expression_is_a_failure_of_the_hook() -> None:
    play = Play(HOOKED.replace("${step}", "${step.output.nope}"))
    play.completes("a:onStart/notify")
    play.completes("a", {})
    assert "step `a`" in play.failure.message
    assert "nope" in play.failure.message


def test_a_failed_hook_creates_no_dead_letter() -> None:
    text = hooked("deadLetter: true")
    play = Play(text)
    play.fails("a:onStart/notify")
    assert not play.all(cmd.RecordMarker)
    other = Play(text)
    other.completes("a:onStart/notify")
    other.fails("a")
    assert len(other.all(cmd.RecordMarker)) == 1


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ({"onStart": {"block": "nope"}}, "spec.steps[0].onStart.block: block `nope` is not defined"),
        ({"onStart": {"block": "h", "input": "${step}"}}, "spec.steps[0].onStart.input: unknown name `step`"),
        (
            {"onEnd": {"block": "h", "input": "${step.state}"}},
            "spec.steps[0].onEnd.input: there is no field `state` in `step`",
        ),
        (
            {"onEnd": {"block": "again"}},
            "spec.steps[0].onEnd: runs step `c` of block `again`, which is `continueAsNew`",
        ),
    ],
)
def test_an_error_in_a_hook_is_reported(steps: dict[str, object], message: str) -> None:
    blocks = [
        {"name": "h", "steps": [{"name": "s", "set": {"x": "${params}"}}]},
        {"name": "again", "steps": [{"name": "c", "continueAsNew": {}}]},
    ]
    spec = WorkflowSpec.parse({"steps": [{"name": "a", "set": {"y": 1}, **steps}], "blocks": blocks})
    assert message in "\n".join(map(str, check(spec).errors))


def test_an_end_hook_of_a_step_that_continues_as_new_is_an_error() -> None:
    step = {"name": "a", "continueAsNew": {}, "onEnd": {"block": "h"}}
    blocks = [{"name": "h", "steps": [{"name": "s", "set": {"x": 1}}]}]
    (error,) = check(WorkflowSpec.parse({"steps": [step], "blocks": blocks})).errors
    assert str(error).startswith("spec.steps[0].onEnd: must not be used with `continueAsNew`")
