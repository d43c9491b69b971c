"""Objects that the API server accepts but the operator cannot read: each gets a condition, and its Operations an answer."""

import json
from typing import Any

import pytest
import yaml

from support.cluster.namespace import Cluster, Json, run_manifest
from support.cluster.operations import ask, inline
from support.times import IMPOSSIBLE

pytestmark = pytest.mark.cluster

STAY = {"name": "stay", "waitForSignal": {"name": "go"}}
DEEP, LESS_DEEP = "<990 levels>", "<600 levels>"
"""Stand for values that nest so deep; what writes JSON or YAML here could not write those."""


def create(namespace: Cluster, *manifests: Json) -> None:
    for each in manifests:
        text = json.dumps(each)
        for stands, levels in ((DEEP, 990), (LESS_DEEP, 600)):
            text = text.replace(json.dumps(stands), "[" * levels + "1" + "]" * levels)
        namespace("create", "-f", "-", stdin=text)


def condition(namespace: Cluster, kind: str, name: str, reason: str) -> Json:
    """The condition with that reason, once there is one; the object itself is not read, as it may nest too deep for that."""

    def look() -> Json | None:
        text = namespace("get", kind, name, "-o", "jsonpath={.status.conditions}") or "[]"
        return next((each for each in json.loads(text) if each["reason"] == reason), None)

    found: Json = namespace.wait(f"{kind} {name} to say {reason}", look)
    return found


def failed(namespace: Cluster, name: str) -> str:
    """The message of a run that has failed for its definition."""
    found = condition(namespace, "workflowrun", name, "InvalidWorkflow")
    assert (found["type"], found["status"]) == ("Succeeded", "False")
    message: str = found["message"]
    return message


def not_ready(namespace: Cluster, kind: str, name: str) -> str:
    """The message of the condition of an object that is invalid."""
    message: str = condition(namespace, kind, name, "InvalidSpec")["message"]
    return message


def manifest(kind: str, name: str, spec: Json) -> Json:
    return {"apiVersion": "perdure.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def every_hour(template: Json) -> Json:
    return {"intervals": [{"every": "1h"}], "workflowRunTemplate": {"spec": template}}


def test_runs_with_nonexistent_dates_fail_and_their_operations_are_answered(namespace: Cluster) -> None:
    naps = [inline({"name": "nap", "sleep": {"until": time}}) for time in IMPOSSIBLE]
    create(namespace, *(run_manifest(f"nap-{n}", spec) for n, spec in enumerate(naps)))
    for number in range(len(naps)):
        assert "spec.inline.steps[0].sleep.until: must be an RFC 3339 time" in failed(namespace, f"nap-{number}")
    reason, _ = ask(namespace, "terminate", "nap-0", terminate={})
    assert reason != "InternalError"


@pytest.mark.parametrize("time", ["9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z"])
def test_the_earliest_and_the_latest_time_are_accepted(namespace: Cluster, time: str) -> None:
    longest = "99999d"
    until = inline({"name": "nap", "sleep": {"until": time}})
    create(namespace, run_manifest("nap", {**until, "executionTimeout": longest, "runTimeout": longest}))
    if time.startswith("0"):
        assert namespace.closed("nap")["phase"] == "Completed"
        return
    namespace.condition("workflowrun", "nap", "Running")
    assert ask(namespace, "cancel", "nap", cancel={})[0] == "Done"
    assert namespace.closed("nap")["phase"] == "Cancelled"


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (inline({"name": "s", "set": {"v": DEEP}}), "nesting"),
        ({**inline(STAY), "searchAttributes": {"v": LESS_DEEP}}, "spec.searchAttributes.v"),
        ({**inline(STAY), "input": DEEP}, "spec.input"),
    ],
    ids=["set", "search attribute", "input"],
)
def test_a_run_with_deeply_nested_values_fails_with_the_path(namespace: Cluster, spec: Json, said: str) -> None:
    create(namespace, run_manifest("deep", spec))
    assert said in failed(namespace, "deep")


@pytest.mark.parametrize(
    ("template", "said"),
    [
        (inline({"name": "nap", "sleep": {"until": IMPOSSIBLE[0]}}), "sleep.until"),
        (inline({"name": "s", "set": {"v": "${nobody}"}}), "spec.workflowRunTemplate.spec.inline.steps[0]"),
        ({**inline(STAY), "input": DEEP}, "spec.workflowRunTemplate.spec.input"),
        ({**inline(STAY), "searchAttributes": {"v": LESS_DEEP}}, "searchAttributes.v"),
    ],
    ids=["date", "expression", "input", "search attribute"],
)
def test_a_schedule_whose_runs_could_not_start_is_not_ready(namespace: Cluster, template: Json, said: str) -> None:
    create(namespace, manifest("Schedule", "hourly", every_hour(template)))
    assert said in not_ready(namespace, "schedule", "hourly")
    target = {"kind": "Schedule", "name": "hourly"}
    reason, message = ask(namespace, "trigger", target, trigger={})
    assert reason == "InvalidSpec"
    assert said in message


def test_an_unreadable_workflow_is_not_ready_and_fails_its_runs(namespace: Cluster) -> None:
    odd: Any = {"image": "i", "odd": DEEP}
    activity = {"name": "a", "startToCloseTimeout": "1m", "container": odd}
    steps = [{"name": "s", "activity": {"name": "a"}}]
    create(
        namespace,
        manifest("Workflow", "nap", {"steps": [{"name": "nap", "sleep": {"until": IMPOSSIBLE[1]}}]}),
        manifest("Workflow", "odd", {"activities": [activity], "steps": steps}),
        run_manifest("nap", {"workflow": {"name": "nap"}}),
    )
    assert "spec.steps[0].sleep.until" in not_ready(namespace, "workflow", "nap")
    assert "nesting" in not_ready(namespace, "workflow", "odd")
    namespace.condition("workflowrun", "nap", "InvalidWorkflow")
    reason, _ = ask(namespace, "terminate", "nap", terminate={})
    assert reason == "Done"


def test_an_operation_with_a_nonexistent_date_is_answered(namespace: Cluster) -> None:
    create(namespace, manifest("Schedule", "hourly", every_hour(inline(STAY))))
    backfill = {"startTime": "2027-02-28T23:59:60Z", "endTime": "2027-03-01T00:00:00Z"}
    asked = manifest("Operation", "fill", {"target": {"kind": "Schedule", "name": "hourly"}, "backfill": backfill})
    done = namespace.run("create", "-f", "-", stdin=yaml.safe_dump(asked))
    if done.returncode == 0:
        namespace.wait(
            "an answer", lambda: ((namespace.get("operation", "fill") or {}).get("status") or {}).get("phase")
        )


@pytest.mark.parametrize(
    ("number", "want"),
    [(2**63 - 1, 2**63 - 1), (2**63, 2.0**63), (2**64, 2.0**64), (-(2**63) - 1, -(2.0**63)), (10**29, 1e29)],
)
def test_integers_beyond_64_bits_are_floating_point_numbers(namespace: Cluster, number: int, want: float) -> None:
    output = {"output": {"input": "${input.n}", "literal": number, "larger": "${input.n > 0}"}}
    template = {**inline({"name": "out", "return": output}), "input": {"n": number}}
    create(namespace, run_manifest("large", template), manifest("Schedule", "large", every_hour(template)))
    found = namespace.closed("large")["output"]
    assert [type(want)(found[key]) for key in ("input", "literal")] == [want, want]
    assert found["larger"] is (number > 0)
    assert namespace.condition("schedule", "large", "Accepted")
    target = {"kind": "Schedule", "name": "large"}
    assert ask(namespace, "trigger", target, trigger={})[0] == "Done"
