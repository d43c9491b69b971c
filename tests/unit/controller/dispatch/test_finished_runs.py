"""The operator keeps little memory of each finished run, whatever its size."""

from typing import Any

import orjson
import pytest

from perdure.controller.dispatch.index import Index
from perdure.controller.manager import Manager
from perdure.kube.clock import now
from support.managers import client_without_server, manager_over
from support.memory import traced
from support.recorded_runs import recorded

Json = dict[str, Any]
RUN: Json = recorded("whole")


def finished(number: int, size: int) -> Json:
    """A run as it was decoded from a list: no two share a text."""
    run = {**RUN, "metadata": {**RUN["metadata"]}, "spec": {**RUN["spec"]}, "status": {**RUN["status"]}}
    run["metadata"] |= {
        "name": f"order-{number:08}",
        "uid": f"8dcba364-1e4b-43c6-9c3b-{number:012x}",
        "resourceVersion": str(10_000_000 + number),
    }
    run["status"]["completionTime"] = now().isoformat()
    run["spec"]["input"] = {"blob": "x" * size}
    run["spec"]["searchAttributes"] = {"customer": f"customer-{number:08}"}
    decoded: Json = orjson.loads(orjson.dumps(run))
    return decoded


@pytest.mark.usefixtures("memory")
@pytest.mark.parametrize("size", [0, 20_000], ids=["tiny", "large"])
def test_a_finished_run_takes_less_than_a_kibibyte(manager: Manager, size: int) -> None:
    count = 1_000
    manager.informers["workflowruns"].on_event(finished(0, size), deleted=False)  # what is made once
    before = traced()
    for number in range(1, count + 1):
        manager.informers["workflowruns"].on_event(finished(number, size), deleted=False)
    after = traced()
    assert (after - before) / count <= 1_024


@pytest.mark.usefixtures("memory")
def test_a_deleted_finished_run_leaves_no_memory(manager: Manager) -> None:
    runs = [finished(number, 0) for number in range(300)]
    first = finished(300, 0)
    for deleted in (False, True):
        manager.informers["workflowruns"].on_event(first, deleted=deleted)  # what is made once
    before = traced()
    for run in runs:
        manager.informers["workflowruns"].on_event(run, deleted=False)
        manager.informers["workflowruns"].on_event(run, deleted=True)
    after = traced()
    assert manager.directory.get(runs[0]["metadata"]["uid"]) is None
    # When it would have been removed is forgotten only then: a text and 16 bytes.
    assert (after - before) / len(runs) <= 200


def test_only_versions_written_or_seen_by_this_process_skip_the_handlers(manager: Manager) -> None:
    run = finished(1, 0)
    later = {**run, "metadata": {**run["metadata"], "resourceVersion": "10000002"}}
    assert not manager.process_change("workflowruns", run)  # another client has written it
    manager.runs.publish(run)
    assert manager.process_change("workflowruns", run)
    assert not manager.process_change("workflowruns", later)
    assert not manager.process_change("pods", run)


async def test_changes_of_runs_of_other_members_skip_the_handlers() -> None:
    run = finished(1, 0)
    run["status"] = {}
    later = {**run, "metadata": {**run["metadata"], "resourceVersion": "10000002"}}
    async with client_without_server() as client:
        manager = manager_over(client, fleet="perdure")
        assert not manager.process_change("workflowruns", run)  # this member may own it
        manager.informers["workflowruns"].on_event(run, deleted=False)
        assert manager.process_change("workflowruns", later)
        known = manager.directory.get(run["metadata"]["uid"])
        assert known is not None
        assert known.version == "10000002"
        assert manager.runs.all() == []


def test_an_outdated_event_does_not_replace_the_last_seen_version() -> None:
    early, late = finished(1, 0), finished(2, 0)
    late["metadata"]["uid"] = early["metadata"]["uid"]
    index = Index()
    for run in (late, early):
        index.update(run)
    assert index.version(early["metadata"]["uid"]) == late["metadata"]["resourceVersion"]
