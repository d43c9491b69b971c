"""The API server rejects edits of a status, or the operator reports them once; the run continues when the status is restored."""

import json
from typing import Any

import pytest

from support.cluster.namespace import Cluster, check_history
from support.cluster.process import Process

pytestmark = pytest.mark.cluster

Json = dict[str, Any]


DAMAGE: dict[str, tuple[Json, str]] = {
    "a state that is none": ({"state": {"startTime": "yesterday"}}, "`status.state` cannot be read"),
    "a time without a zone": ({"state": {"runDeadline": "2030-01-01T00:00:00"}}, "`status.state` cannot be read"),
    "a memory that is none": ({"state": {"memory": {"frames": "done"}}}, "`status.state` cannot be read"),
    "of another event": ({"state": {"nextEventId": 9}}, "`status.state` is at event 9"),
    "without its definition": ({"definition": None, "revision": None}, "edited after commit"),
    "with another definition": (
        {"definition": {"steps": [{"name": "other", "return": {"output": "forged"}}]}},
        "edited after commit",
    ),
    "with a completion time": ({"completionTime": "2020-01-01T00:00:00Z"}, "edited after commit"),
}


@pytest.mark.parametrize(("change", "message"), DAMAGE.values(), ids=DAMAGE)
def test_damage_is_reported_once_and_its_effects_are_limited(namespace: Cluster, change: Json, message: str) -> None:
    good = begun(namespace, "resting")
    edit(namespace, "resting", {"status": change})
    check_reported_once_and_restored(namespace, "resting", change, message, good)


def test_a_status_cannot_be_removed_or_replaced_by_an_older_one(namespace: Cluster) -> None:
    old = begun(namespace, "resting")
    wake(namespace, "resting")
    good = namespace.closed("resting")
    for removed in ({"status": None}, {"status": {"state": None}}):
        assert "`status.state` must not be removed" in refused(namespace, "resting", removed)
    undigested = {"status": {"commit": None, "output": "forged"}}
    assert "`status.commit` must not be removed" in refused(namespace, "resting", undigested)
    put_back = {"status": {**dict.fromkeys(good), **old}}
    described = refused(namespace, "resting", put_back)
    assert "`status.commit` must not be removed or replaced with an older one" in described
    assert "`status.history.nextEventId` must not decrease" in described
    run = namespace.get("workflowrun", "resting")
    assert run is not None
    assert run["status"] == good


def test_a_finished_run_with_a_forged_completion_time_is_kept(namespace: Cluster) -> None:
    begun(namespace, "resting")
    wake(namespace, "resting")
    good = namespace.closed("resting")
    edit(namespace, "resting", {"status": {"completionTime": "2020-01-01T00:00:00Z"}})
    namespace.condition("workflowrun", "resting", "StateDamaged")
    edit(namespace, "resting", {"status": {"completionTime": good["completionTime"]}})
    namespace.condition("workflowrun", "resting", "Completed")


@pytest.mark.own
def test_damaged_runs_do_not_prevent_a_starting_operator_from_reconciling_others(
    namespace: Cluster, operator_process: Process
) -> None:
    runs = {f"resting-{number}": damage for number, damage in enumerate(DAMAGE.values())}
    good = {name: begun(namespace, name) for name in (*runs, "whole")}
    with operator_process.down():
        for name, (change, _) in runs.items():
            edit(namespace, name, {"status": change})
    wake(namespace, "whole")
    assert namespace.closed("whole")["output"] == "rested"
    for name, (change, message) in runs.items():
        check_reported_once_and_restored(namespace, name, change, message, good[name])


def begun(namespace: Cluster, name: str) -> Json:
    """The status of a run that rests until it is woken."""
    steps = [{"name": "nap", "waitForSignal": {"name": "wake"}}, {"name": "end", "return": {"output": "rested"}}]
    manifest = {"apiVersion": "perdure.dev/v1alpha1", "kind": "Workflow", "metadata": {"name": "rest"}}
    namespace.apply({**manifest, "spec": {"steps": steps}})
    namespace.start(name, {"workflow": {"name": "rest"}, "runTimeout": "1h"})
    namespace.condition("workflowrun", name, "Running")
    run = namespace.get("workflowrun", name)
    assert run is not None
    status: Json = run["status"]
    return status


def wake(namespace: Cluster, name: str) -> None:
    spec = {"target": {"kind": "WorkflowRun", "name": name}, "signal": {"name": "wake"}}
    manifest = {"apiVersion": "perdure.dev/v1alpha1", "kind": "Operation", "metadata": {"name": f"wake-{name}"}}
    namespace.apply({**manifest, "spec": spec})


def check_reported_once_and_restored(namespace: Cluster, name: str, change: Json, message: str, good: Json) -> None:
    condition = namespace.condition("workflowrun", name, "StateDamaged")
    assert condition["status"] == "Unknown"
    assert message in condition["message"]
    edit(namespace, name, {"status": {key: good.get(key) for key in change}})
    namespace.condition("workflowrun", name, "Running")
    wake(namespace, name)
    assert namespace.closed(name)["output"] == "rested"
    run = namespace.with_history(name)
    check_history(run)

    def reported() -> int:
        events = namespace.list("events.v1.events.k8s.io")
        return [e["reason"] for e in events if e["regarding"]["name"] == name].count("StateDamaged")

    namespace.wait("the Event", reported)
    assert reported() == 1


def edit(namespace: Cluster, name: str, change: Json) -> None:
    namespace("patch", "wfr", name, "--subresource=status", "--type=merge", "-p", json.dumps(change))


def refused(namespace: Cluster, name: str, change: Json) -> str:
    """The error message of the API server for a rejected change."""
    done = namespace.run("patch", "wfr", name, "--subresource=status", "--type=merge", "-p", json.dumps(change))
    assert done.returncode != 0
    return done.stderr
