"""A status that somebody has edited into something impossible: it is told once, and the run goes on when it is restored."""

import json
from typing import Any

import pytest

from kube import Cluster, check_history

pytestmark = pytest.mark.cluster

Json = dict[str, Any]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"state": None}, "`status.state` cannot be read"),
        ({"state": {"startTime": "yesterday"}}, "`status.state` cannot be read"),
        ({"state": {"runDeadline": "2030-01-01T00:00:00"}}, "`status.state` cannot be read"),
        ({"state": {"memory": {"frames": "done"}}}, "`status.state` cannot be read"),
        ({"state": {"nextEventId": 9}}, "`status.state` is of event 9"),
        ({"definition": None}, "status.definition: is missing"),
        ({"definition": {"steps": [{"name": "nap", "sleep": {"duration": "${nobody}"}}]}}, "nobody"),
    ],
    ids=[
        "without a state",
        "a state that is none",
        "a time without a zone",
        "a memory that is none",
        "of another event",
        "without its definition",
        "with a definition that cannot be run",
    ],
)
def test_damage_is_told_once_and_hurts_no_more_than_it_has_to(namespace: Cluster, change: Json, message: str) -> None:
    steps = [{"name": "nap", "sleep": {"duration": "5s"}}, {"name": "end", "return": {"output": "rested"}}]
    manifest = {"apiVersion": "perdure.dev/v1alpha1", "kind": "Workflow", "metadata": {"name": "rest"}}
    namespace.apply({**manifest, "spec": {"steps": steps}})
    namespace.start("resting", {"workflow": {"name": "rest"}, "runTimeout": "1h"})
    namespace.condition("workflowrun", "resting", "Running")
    good = (namespace.get("workflowrun", "resting") or {})["status"]
    edit(namespace, {"status": change})
    condition = namespace.condition("workflowrun", "resting", "StateDamaged")
    assert condition["status"] == "Unknown"
    assert message in condition["message"]
    edit(namespace, {"status": {key: good[key] for key in change}})
    assert namespace.closed("resting")["output"] == "rested"
    run = namespace.get("workflowrun", "resting")
    assert run is not None
    check_history(run)
    events = namespace.list("events.v1.events.k8s.io")
    assert [e["reason"] for e in events if e["regarding"]["name"] == "resting"].count("StateDamaged") == 1


def edit(namespace: Cluster, change: Json) -> None:
    namespace("patch", "wfr", "resting", "--subresource=status", "--type=merge", "-p", json.dumps(change))
