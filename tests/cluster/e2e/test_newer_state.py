"""An older operator that meets what a newer one has stored reports it, and changes nothing else of it: on a real API server."""

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from perdure.api.state_versions import FIELD, NEWEST
from perdure.runtime import status_encoding
from perdure.runtime.commits import OF_RUNS, OF_SCHEDULES, committed
from support.cluster.namespace import Cluster
from support.cluster.process import Process

pytestmark = [pytest.mark.cluster, pytest.mark.own]

Json = dict[str, Any]
WAIT = {"name": "wait", "waitForSignal": {"name": "go"}}
SPECS: dict[tuple[str, str], Json] = {
    ("Workflow", "child"): {"steps": [WAIT]},
    ("WorkflowRun", "waiting"): {"inline": {"steps": [WAIT], "output": "${steps.wait.output}"}},
    ("WorkflowRun", "parent"): {
        "inline": {"steps": [{"name": "child", "childWorkflow": {"workflow": {"name": "child"}}}]}
    },
    ("WorkflowLimit", "one"): {"capacity": 1},
    ("RetryPolicy", "calm"): {
        "exponential": {},
        "circuitBreaker": {"failureThreshold": 5, "openDuration": "1m"},
    },
    ("Schedule", "often"): {
        "intervals": [{"every": "1s"}],
        "overlapPolicy": "Skip",
        "workflowRunTemplate": {"spec": {"workflow": {"name": "child"}}},
    },
    ("Operation", "hello"): {"target": {"kind": "WorkflowRun", "name": "waiting"}, "pause": {}},
}
COVERED = {"WorkflowRun": OF_RUNS, "Schedule": OF_SCHEDULES}
CHILD = "parent-2"


def manifest(kind: str, name: str, spec: Json) -> Json:
    return {"apiVersion": "perdure.dev/v1beta1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def signal(namespace: Cluster, name: str, run: str) -> None:
    target = {"kind": "WorkflowRun", "name": run}
    namespace.create(manifest("Operation", name, {"target": target, "signal": {"name": "go", "input": 7}}))


def as_newer(kind: str, status: Json) -> Json:
    """A status as the next version stores it: of its state version, with fields that are new, and signed."""
    newer = copy.deepcopy(status) | {FIELD: NEWEST + 1, "lane": {"name": "fast", "rank": 1}}
    if kind in COVERED:
        newer["state"]["hibernated"] = {"since": "2026-01-01T00:00:00Z"}
        commit = newer.pop("commit")
        newer = committed(newer, COVERED[kind], commit["uid"], commit["number"])
    return newer


def as_known(kind: str, newer: Json) -> Json:
    """The same, as the next version would store it for this one."""
    status = {key: value for key, value in newer.items() if key != "lane"} | {FIELD: NEWEST}
    if kind in COVERED:
        del status["state"]["hibernated"]
        commit = status.pop("commit")
        status = committed(status, COVERED[kind], commit["uid"], commit["number"])
    return status


def rewrite(namespace: Cluster, kind: str, name: str, change: Callable[[str, Json], Json]) -> None:
    """Replace the status of an object, as an operator does."""
    obj = namespace.get(kind, name)
    assert obj is not None
    status = change(kind, obj["status"])
    obj["status"] = status_encoding.encode(status) if kind == "WorkflowRun" else status
    namespace("replace", "--subresource=status", "-f", "-", stdin=json.dumps(obj))


def stored(namespace: Cluster, kind: str, name: str) -> bytes:
    """An object as the API server returns it, without the conditions, and what each write of them changes."""
    obj = json.loads(namespace("get", kind, name, "--output=json", "--show-managed-fields=false"))
    del obj["metadata"]["resourceVersion"], obj["status"]["conditions"]
    return json.dumps(obj).encode()


def test_objects_of_a_newer_version_are_reported_and_otherwise_stay_as_they_are(
    namespace: Cluster, operator_process: Process
) -> None:
    for (kind, name), spec in SPECS.items():
        namespace.create(manifest(kind, name, spec))
    for kind, name, reason in (
        ("workflowrun", "parent", "Running"),
        ("workflowrun", CHILD, "Running"),
        ("operation", "hello", "Done"),
        ("schedule", "often", "Accepted"),
        ("workflowlimit", "one", "Accepted"),
        ("retrypolicy", "calm", "Accepted"),
    ):
        namespace.condition(kind, name, reason)
    newer = [key for key in SPECS if key[0] != "Workflow"]
    with operator_process.down():
        runs = {run["metadata"]["name"] for run in namespace.list("workflowruns")}
        for kind, name in newer:
            rewrite(namespace, kind, name, as_newer)
        before = {key: stored(namespace, *key) for key in newer}
        assert all(b"hibernated" in text for key, text in before.items() if key[0] in COVERED)
        assert all(b"lane" in text for text in before.values()), "the API server keeps what it does not know"
        signal(namespace, "go", "waiting")
        signal(namespace, "go-child", CHILD)
    for kind, name in newer:
        if kind != "Operation":  # nothing is left to do for it but its removal
            condition = namespace.condition(kind.lower(), name, "NewerState")
            assert f"state version {NEWEST + 1}" in condition["message"]
    namespace.closed(CHILD)  # it is of this version
    namespace.wait("the Events", lambda: len(reports(namespace)) >= 5)
    operator_process.restart()
    for run in ("waiting", "parent"):
        namespace.condition("workflowrun", run, "NewerState")
    assert {key: stored(namespace, *key) for key in newer} == before, "byte for byte"
    go = namespace.get("operation", "go")
    assert go is not None
    assert not (go.get("status") or {}).get("completionTime"), "the request waits"
    assert {run["metadata"]["name"] for run in namespace.list("workflowruns")} == runs, "the Schedule starts nothing"
    with operator_process.down():
        for kind, name in newer:
            rewrite(namespace, kind, name, as_known)
    namespace("delete", "schedule", "often")
    namespace.create(manifest("Operation", "on", {"target": {"kind": "WorkflowRun", "name": "waiting"}, "unpause": {}}))
    assert namespace.closed("waiting")["output"] == 7
    assert namespace.closed("parent")["phase"] == "Completed"
    for kind, name in newer:
        if kind != "Schedule":
            namespace.wait(
                f"the report of {name} to be removed", lambda kind=kind, name=name: known(namespace, kind, name)
            )


def known(namespace: Cluster, kind: str, name: str) -> bool:
    """Whether an object is not reported anymore."""
    obj = namespace.get(kind, name)
    assert obj is not None
    return "NewerState" not in {each["reason"] for each in obj["status"]["conditions"]}


def reports(namespace: Cluster) -> set[str]:
    """The objects about which an Event reports that a newer version wrote them."""
    events = namespace.list("events.v1.events.k8s.io")
    return {
        f"{each['regarding']['kind']}/{each['regarding']['name']}" for each in events if each["reason"] == "NewerState"
    }
