"""A Schedule whose run cannot have its name, because a WorkflowRun of someone else has it."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from perdure.api import labels
from perdure.kube.clock import now
from perdure.schedule.state import Start
from support.cluster.namespace import Cluster, run_manifest

pytestmark = pytest.mark.cluster

EVERY = 10
WAITS = {"workflow": {"name": "not-there"}}


def test_a_run_whose_name_is_taken_starts_under_another_name(namespace: Cluster) -> None:
    first = datetime.fromtimestamp(now().timestamp() // EVERY * EVERY, UTC)
    # All names of the next minutes: the test does not determine which time starts first.
    times = [first + timedelta(seconds=EVERY * number) for number in range(30)]
    names = [Start(nominal=time, actual=time).run_name("busy") for time in times]
    foreign = [run_manifest(name, WAITS) for name in names]
    namespace.create(*foreign)
    steps = [{"name": "rest", "sleep": {"duration": "1s"}}]
    spec = {"intervals": [{"every": f"{EVERY}s"}], "workflowRunTemplate": {"spec": {"inline": {"steps": steps}}}}
    namespace.apply({"apiVersion": labels.API_VERSION, "kind": "Schedule", "metadata": {"name": "busy"}, "spec": spec})

    def completed() -> dict[str, Any] | None:
        status = (namespace.get("schedule", "busy") or {}).get("status") or {}
        return next((each for each in status.get("recentActions", ()) if each.get("status") == "Completed"), None)

    action = namespace.wait("a run of the schedule to complete", completed)
    name = action["workflowRun"]
    taken, _, digest = name.rpartition("-x")
    assert taken in names
    assert len(digest) == 4
    made, other = namespace.get("workflowrun", name), namespace.get("workflowrun", taken)
    assert made is not None
    assert other is not None
    assert made["metadata"]["ownerReferences"][0]["kind"] == "Schedule"
    assert made["spec"].get("workflowId", name) == name
    assert action["runId"] == made["metadata"]["uid"]
    assert "ownerReferences" not in other["metadata"]
    assert not (other.get("status") or {}).get("completionTime")

    def reported() -> bool:
        events = namespace.list("events", "--field-selector=reason=RunNameTaken")
        return any(f"WorkflowRun `{taken}` exists" in event.get("message", event.get("note", "")) for event in events)

    namespace.wait("an Event", reported)
    namespace.delete("schedule", "busy")
