"""Findings of static checks about steps that never run, and steps that may not run."""

from typing import Any

import pytest

from support.language.checks import IDLE, checked, findings_of

# Steps that never run


@pytest.mark.parametrize(
    ("steps", "want"),
    [
        ([{"name": "a", "return": {}}], "step `z` never runs: step `a` before it always ends the block or the run"),
        ([{"name": "a", "fail": {}}], "step `z` never runs: step `a` before it always fails"),
        ([{"name": "a", "continueAsNew": {}}], "step `z` never runs: step `a` before it always closes the run"),
        ([{"name": "a", "return": {}, "when": "${1 < 2}"}], "step `z` never runs"),
        ([{"name": "a", "return": {}, "when": "${input.x}"}], None),
        ([{"name": "a", "fail": {}, "catch": [{"call": {"block": "idle"}}]}], None),
        ([{"name": "a", "fail": {}, "forEach": {"items": "${input}"}}], None),
    ],
)
def test_a_step_that_never_runs_is_reported(steps: list[dict[str, Any]], want: str | None) -> None:
    last = {"name": "z", "sleep": {"duration": "1s"}}
    findings = [f for f in findings_of(steps=[*steps, last], blocks=[IDLE]) if "idle" not in f]
    assert (want or "") in "".join(findings)
    assert len(findings) == (1 if want else 0)


def test_a_step_next_to_one_that_ends_the_run_can_run() -> None:
    steps = [{"name": "a", "needs": [], "return": {}}, {"name": "z", "needs": [], "sleep": {"duration": "1s"}}]
    assert findings_of(steps=steps) == []


def test_a_useless_limit_of_sequential_steps_is_reported() -> None:
    steps: list[dict[str, Any]] = [{"name": name, "sleep": {"duration": "1s"}} for name in "abc"]
    (finding,) = findings_of(steps=steps, maxConcurrency=2)
    assert finding.startswith(
        "Warning spec.maxConcurrency: has no effect: each step of the list needs the one before it"
    )
    assert findings_of(steps=[*steps[:2], {**steps[2], "needs": ["a"]}], maxConcurrency=2) == []


def test_a_condition_that_is_never_true_is_reported() -> None:
    (finding,) = findings_of(steps=[{"name": "a", "when": "${false}", "sleep": {"duration": "1s"}}])
    assert finding == "Warning spec.steps[0].when: step `a` never runs: its `when` is always false"


def test_unreachable_cases_of_a_switch_are_reported() -> None:
    call = {"call": {"block": "idle"}}
    whens = ["${input.a}", "${input.a}", "${false}", "${true}", "${input.b}"]
    switch = {"cases": [{"when": when, **call} for when in whens], "default": call}
    findings = findings_of(steps=[{"name": "s", "switch": switch}], blocks=[IDLE])
    assert [finding.split(": ")[0].removeprefix("Warning spec.steps[0].switch.") for finding in findings] == [
        "cases[1]",
        "cases[2]",
        "cases[4]",
        "default",
    ]


def test_clauses_that_catch_nothing_are_reported() -> None:
    def clauses(*types: list[str]) -> list[str]:
        catch = [{"errorTypes": each, "call": {"block": "idle"}} for each in types]
        return findings_of(steps=[{"name": "s", "activity": {"name": "work"}, "catch": catch}], blocks=[IDLE])

    assert clauses(["A"], ["B"], []) == []
    assert [finding.split(":")[0] for finding in clauses(["A", "B"], ["B"])] == ["Warning spec.steps[0].catch[1]"]
    assert [finding.split(":")[0] for finding in clauses([], ["B"])] == ["Warning spec.steps[0].catch[1]"]


def test_unused_definitions_are_reported() -> None:
    assert findings_of(blocks=[IDLE]) == ["Warning spec.blocks[0]: nothing calls block `idle`; remove it"]
    unused = checked(steps=IDLE["steps"]).findings
    assert [str(finding) for finding in unused] == [
        "spec.activities[0]: no step runs activity `work`; remove it",
    ]


# Outputs that may be missing


def test_reading_the_output_of_a_step_that_can_be_skipped_causes_a_warning() -> None:
    maybe = {"name": "maybe", "when": "${input.x}", "activity": {"name": "work"}}

    def reader(expression: str, **more: Any) -> list[str]:
        return findings_of(steps=[maybe, {"name": "s", "set": {"v": expression}, **more}])

    (finding,) = reader("${steps.maybe.output.id}")
    assert finding.startswith("Warning spec.steps[1].set.v: step `maybe` may be skipped, and then `steps.maybe.output`")
    assert len(reader("${steps.maybe.output}")) == 1
    assert reader("${steps.maybe.output.id}", when="${input.x}") == []
    assert reader("${steps.maybe.output.id}", when="${steps.maybe.status == 'Succeeded'}") == []
    assert reader("${steps.maybe.status == 'Skipped' ? 0 : steps.maybe.output.id}") == []
    assert reader("${steps.maybe.output == null ? 0 : steps.maybe.output.id}") == []
    assert reader("${steps.maybe.output.?id.orValue(0)}") == []
    assert len(findings_of(steps=[maybe], output="${steps.maybe.output.id}")) == 1


def test_reading_a_step_in_a_handler_without_a_check_causes_a_warning() -> None:
    def handler(expression: str) -> list[str]:
        return findings_of(onFailure={"block": "idle", "input": expression}, blocks=[IDLE])

    (finding,) = handler("${steps.do.output}")
    assert "Warning spec.onFailure.input: `steps.do` may be missing; write `steps.?do.orValue(…)`" in finding
    assert handler("${steps.?do.?output.orValue(null)}") == []
    assert handler("${error.type} ${error.message}") == []
    assert handler("${error.typ}")[0].startswith("Error spec.onFailure.input: there is no field `typ` in `error`")


def test_reading_a_branch_that_can_be_missing_causes_a_warning() -> None:
    branches = [{"name": name, "block": "idle"} for name in ("a", "b")]
    reader = {"name": "s", "set": {"v": "${steps.race.output.a}"}}
    race = {"name": "race", "parallel": {"branches": branches, "wait": "Any"}}
    assert len(findings_of(steps=[race, reader], blocks=[IDLE])) == 1
    race = {"name": "race", "parallel": {"branches": branches}}
    assert findings_of(steps=[race, reader], blocks=[IDLE]) == []


# Without end, without limit


def test_blocks_that_always_call_each_other_are_reported() -> None:
    def blocks(**more: Any) -> list[str]:
        there = {"name": "a", "steps": [{"name": "x", "call": {"block": "b"}}]}
        back = {
            "name": "b",
            "steps": [{"name": "y", "sleep": {"duration": "1s"}}, {"name": "z", "call": {"block": "a"}}],
        }
        back["steps"][1] |= more
        return findings_of(steps=[{"name": "s", "call": {"block": "a"}}], blocks=[there, back])

    assert blocks() == [
        (
            "Error spec.blocks[0].steps[0]: these blocks call each other endlessly: `a` calls `b` calls `a`; give one "
            "of the calls a `when`, or put it into a `switch`"
        )
    ]
    assert blocks(when="${steps.y.status == 'x'}") == []
    assert blocks(forEach={"items": "${input}"}) == []
    assert blocks(catch=[{"call": {"block": "b"}}]) == []


def test_a_block_that_can_return_before_it_calls_itself_is_not_reported() -> None:
    steps = [
        {"name": "done", "when": "${params.n == 0}", "return": {}},
        {"name": "again", "call": {"block": "a", "input": {"n": "${params.n - 1}"}}},
    ]
    assert findings_of(steps=[{"name": "s", "call": {"block": "a"}}], blocks=[{"name": "a", "steps": steps}]) == []


def test_waiting_without_a_timeout_gets_a_note() -> None:
    (finding,) = findings_of(steps=[{"name": "w", "waitForSignal": {"name": "paid"}}])
    assert finding.startswith("Note spec.steps[0].waitForSignal: waits without limit; set `timeout`")
    assert findings_of(steps=[{"name": "w", "waitForSignal": {"name": "paid", "timeout": "1d"}}]) == []
    assert findings_of(steps=[{"name": "w", "waitForSignal": {"name": "paid"}, "timeout": "1d"}]) == []


@pytest.mark.parametrize(
    ("timeouts", "want"),
    [
        ({"startToCloseTimeout": "30m"}, None),
        ({"startToCloseTimeout": "2h", "heartbeatTimeout": "1m"}, None),
        ({"startToCloseTimeout": "2h"}, "has no `heartbeatTimeout`"),
        ({"scheduleToCloseTimeout": "2h"}, "has no `heartbeatTimeout`"),
        ({"startToCloseTimeout": "1m", "heartbeatTimeout": "1m"}, "so it has no effect"),
        ({"startToCloseTimeout": "3m", "scheduleToCloseTimeout": "2m"}, "is longer than `scheduleToCloseTimeout`"),
    ],
)
def test_misleading_timeouts_are_reported(timeouts: dict[str, str], want: str | None) -> None:
    findings = findings_of(activities=[{"name": "work", "container": {"image": "i"}, **timeouts}])
    assert len(findings) == (1 if want else 0)
    assert (want or "") in "".join(findings)


# `schedule` in runs without a Schedule


def test_expressions_that_fail_in_a_run_without_a_schedule_are_noted_once() -> None:
    """Two days of new users: a Workflow that reads `schedule` failed when started manually, after its work was done."""
    steps: list[dict[str, Any]] = [
        {"name": "a", "set": {"x": "${schedule.?localDate.orValue('')}", "whole": "${schedule}"}},
        {"name": "b", "when": "${has(schedule.name)}", "set": {"y": "${schedule.localDate}"}},
        {"name": "c", "set": {"z": "${string(schedule.scheduledTime)}", "u": "${schedule.timeZone}"}},
    ]
    assert findings_of(steps=steps[:2]) == []
    (finding,) = findings_of(steps=steps, output="${schedule.lastFailure}")
    assert finding == (
        "Note spec.steps[2].set.z: `schedule.scheduledTime` has a value only in runs of a Schedule: a run that is started in "
        "another way fails here, as in 2 more expressions; take the value as input, or read `schedule.?scheduledTime.orValue(…)`"
    )
