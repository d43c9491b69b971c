"""The WorkflowLimits that steps take: when the interpreter asks for them, and when it releases them."""

import pytest

from perdure.engine import commands as cmd
from perdure.engine.inputs import ActivityAnswered, TerminateRequested
from perdure.language.checks import Documents, check_references
from support.language.checks import checked
from unit.language.execution.decisions import Json, do, make, restored, run, work
from unit.language.execution.play import Play

LIMITED = """
steps:
- name: pay
  limits: [{name: bank, key: "${input.bank}", waitTimeout: 1h}, {name: api}]
  call: {block: twice}
- {name: after, activity: {name: work}}
blocks:
- name: twice
  steps:
  - {name: first, activity: {name: work}}
  - {name: second, activity: {name: work}}
- {name: handle, steps: [{name: notify, activity: {name: work}}]}
"""
WANTED = [
    {"name": "bank", "key": "b1", "waitTimeout": "1h", "overflowPolicy": "Queue"},
    {"name": "api", "key": "", "overflowPolicy": "Queue"},
]


def limited(changes: str) -> Play:
    return Play(LIMITED.replace("  call: {block: twice}\n", f"  call: {{block: twice}}\n  {changes}\n"), {"bank": "b1"})


def released(play: Play) -> list[str]:
    return [each.details for each in play.all(cmd.RecordMarker) if each.marker_name == "LimitsReleased"]


def test_a_step_takes_its_limits_before_its_block_and_releases_them_when_the_block_has_ended() -> None:
    play = Play(LIMITED, {"bank": "b1"})
    assert play.scheduled == {"pay:limits": WANTED}
    play.completes("pay:limits")
    play.completes("pay/first")
    assert released(play) == []
    play.completes("pay/second")
    assert released(play) == ["pay:limits"]
    assert list(play.scheduled) == ["pay:limits", "pay/first", "pay/second", "after"]


def test_hooks_and_catch_run_without_the_limits() -> None:
    play = limited("onStart: {block: handle}\n  catch: [{call: {block: handle}}]\n  onEnd: {block: handle}")
    assert list(play.scheduled) == ["pay:onStart/notify"]
    play.completes("pay:onStart/notify")
    play.completes("pay:limits")
    play.fails("pay/first")
    assert released(play) == ["pay:limits"]
    play.completes("pay:catch/notify")
    play.completes("pay:onEnd/notify")
    assert list(play.scheduled)[-3:] == ["pay:catch/notify", "pay:onEnd/notify", "after"]
    assert released(play) == ["pay:limits"]


def test_a_failed_wait_fails_the_step_which_can_catch_it() -> None:
    play = limited("catch: [{errorTypes: [LimitReached], call: {block: handle}}]")
    play.fails("pay:limits", "LimitReached")
    assert list(play.scheduled) == ["pay:limits", "pay:catch/notify"]
    assert released(play) == []


def test_a_timeout_includes_the_wait_and_ends_it() -> None:
    play = limited("timeout: 10m")
    play.fires("pay:timeout")
    assert play.cancelled == ["pay:limits"]
    assert play.failure.type_names() & {"Timeout"}
    assert "timeout of 10m, and has not begun: it waited for its limits `bank`, `api`" in play.failure.message
    assert released(play) == []


def test_a_cancellation_releases_the_limits() -> None:
    play = Play(LIMITED, {"bank": "b1"})
    play.completes("pay:limits")
    play.cancel()
    assert play.cancelled == ["pay/first"]
    assert released(play) == ["pay:limits"]


def test_a_wait_that_is_cancelled_never_starts_the_block() -> None:
    play = Play(LIMITED, {"bank": "b1"})
    play.cancel()
    assert play.cancelled == ["pay:limits"]
    assert list(play.scheduled) == ["pay:limits"]


def test_limits_that_a_step_gets_too_late_are_released_immediately() -> None:
    play = limited("timeout: 10m\n  catch: [{call: {block: handle}}]")
    play.fires("pay:timeout")
    play.completes("pay:limits")
    assert released(play) == ["pay:limits"]
    assert "pay/first" not in play.scheduled


def test_each_item_of_a_loop_takes_limits_of_its_own() -> None:
    play = Play(
        """
steps:
- name: each
  forEach: {items: "${['a', 'b']}"}
  limits: [{name: mutex, key: "${item}"}]
  activity: {name: work}
"""
    )
    assert {path: params[0]["key"] for path, params in play.scheduled.items()} == {
        "each[0]:limits": "a",
        "each[1]:limits": "b",
    }
    play.completes("each[1]:limits")
    play.completes("each[1]")
    assert released(play) == ["each[1]:limits"]


@pytest.mark.parametrize(
    ("input_", "reported"), [({}, "step `pay`: "), ({"bank": "x" * 254}, "the key of limit `bank` has 254 characters")]
)
def test_a_key_without_a_value_fails_the_step(input_: Json, reported: str) -> None:
    play = Play(LIMITED, input_)
    assert play.failure.type == "ExpressionError"
    assert reported in play.failure.message


def test_the_state_keeps_what_a_step_holds_until_its_release() -> None:
    block = {"name": "once", "steps": [do("first")]}
    pay = {"name": "pay", "limits": [{"name": "bank"}], "call": {"block": "once"}}
    drive = run(make(pay, do("after"), blocks=[block]))
    asked = drive.open
    assert asked.takes_limits
    assert not drive.state.holds
    drive.completed(1)
    (held,) = restored(drive.state).holds.values()
    assert (held.scheduled_event_id, held.activity_id) == (asked.scheduled_event_id, "pay:limits")
    assert held.limits == [{"name": "bank", "key": "", "overflowPolicy": "Queue"}]
    drive.check_replay()
    drive.completed(2)
    assert not drive.state.holds
    assert drive.open.activity_id == "after"
    drive.check_replay()


def test_the_end_of_the_run_ends_what_its_steps_hold() -> None:
    drive = run(make({**do("pay"), "limits": [{"name": "bank"}]}))
    drive.completed(1)
    assert drive.state.holds
    drive.at(2, TerminateRequested(request_id="t"))
    assert drive.state.closed
    assert not drive.state.holds


def test_a_client_cannot_complete_the_wait_of_a_step() -> None:
    drive = run(make({**do("pay"), "limits": [{"name": "bank"}]}))
    answer = drive.ask(1, ActivityAnswered(request_id="a", activity_id="pay:limits"))
    assert (answer.ok, answer.reason) == (False, "NotSupported")
    assert not drive.state.holds


def findings(**step: object) -> list[str]:
    steps = [{**do("pay"), **step}]
    return [f"{each.severity.value} {each}" for each in checked(activities=[work()], steps=steps).findings]


def test_a_key_reads_only_what_the_step_reads() -> None:
    assert findings(limits=[{"name": "a", "key": "${input.customer}/${run.name}"}]) == []
    (finding,) = findings(limits=[{"name": "a", "key": "${item}"}])
    assert finding.startswith("Error spec.steps[0].limits[0].key: ")


def test_a_limit_that_the_run_also_holds_causes_a_warning() -> None:
    steps = [{**do("pay"), "limits": [{"name": "a"}]}]
    (finding,) = checked(activities=[work()], steps=steps, limits=[{"name": "a"}]).findings
    assert str(finding).startswith("spec.steps[0].limits[0].name: the run holds WorkflowLimit `a` already")


def test_a_limit_missing_from_the_files_is_reported() -> None:
    each = checked(activities=[work()], steps=[{**do("pay"), "limits": [{"name": "databse"}]}])
    (finding,) = check_references(each, Documents(limits=frozenset({"database"})))
    assert finding.path == "spec.steps[0].limits[0].name"
