"""Commits with a real API server: only one of two writers succeeds, and the other gets a conflict."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from perdure.controller.reconcile.record import Record
from perdure.kube.access import find_access
from perdure.kube.client import PERDURE, Client, ConflictError, path
from perdure.runtime.commits import OF_RUNS, committed, edited
from support.cluster.namespace import Cluster

pytestmark = pytest.mark.cluster

WAITS = {"workflow": {"name": "not-there"}}
"""The spec of a run that no operator does anything with, once it has said why."""


@pytest.fixture
def waiting(namespace: Cluster, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """A namespace with a run that waits."""
    monkeypatch.setenv("KUBECONFIG", str(namespace.kubeconfig))
    namespace.start("waits", WAITS)
    namespace.condition("workflowrun", "waits", "WorkflowNotFound")
    return namespace


@asynccontextmanager
async def record_of(cluster: Cluster) -> AsyncIterator[tuple[Record, Client, str]]:
    async with Client.open(find_access(), user_agent="perdure-test") as client:
        url = path(PERDURE, cluster.namespace, "workflowruns", "waits")
        yield Record(client, await client.get(url)), client, f"{url}/status"


async def test_the_slower_of_two_writers_gets_a_conflict_and_reads_again(waiting: Cluster) -> None:
    async with record_of(waiting) as (record, client, status):
        await client.merge(status, {"status": {"progress": "1/2"}})
        with pytest.raises(ConflictError):
            await record.write({**record.status, "progress": "2/2"})
        assert await record.read_again()
        await record.write({**record.status, "progress": "2/2"})
    assert waiting("get", "wfr", "waits", "-o", "jsonpath={.status.progress}") == "2/2"


async def test_a_commit_keeps_everything_but_the_status(waiting: Cluster) -> None:
    applied = {
        "apiVersion": "perdure.dev/v1alpha1",
        "kind": "WorkflowRun",
        "metadata": {"name": "waits", "labels": {"team": "a"}, "annotations": {"note": "x"}, "finalizers": ["a.b/c"]},
        "spec": {"workflow": {"name": "not-there"}},
    }
    apply = "apply", "--server-side", "--force-conflicts", "--field-manager=gitops", "-f", "-"
    waiting(*apply, stdin=json.dumps(applied))
    try:
        async with record_of(waiting) as (record, client, status):
            before = await client.get(status)
            await record.write({**record.status, "progress": "1/2"})
            after = await client.get(status)
        assert after["status"]["progress"] == "1/2"
        assert after["spec"] == before["spec"]
        for field in ("labels", "annotations", "finalizers", "generation", "uid", "creationTimestamp"):
            assert after["metadata"][field] == before["metadata"][field]
        (owner,) = (each for each in after["metadata"]["managedFields"] if each["manager"] == "gitops")
        assert owner in before["metadata"]["managedFields"], "a commit must not change the managers of other fields"
    finally:
        waiting("patch", "wfr", "waits", "--type=merge", "-p", '{"metadata":{"finalizers":null}}')


NUMBERS: list[Any] = [
    1.0,
    -0.0,
    0.1,
    1e16,
    1e21,
    1e300,
    5e-324,
    2**53 + 1,
    2**63 - 1,
    2**63,
    2**64 - 1,
    -(2**63),
    True,
    None,
]


async def test_the_digest_of_a_commit_survives_storage(waiting: Cluster) -> None:
    async with record_of(waiting) as (record, _, _):
        memory = {"numbers": NUMBERS, "text": "ü \u2028 <&> \x00 😀", "": {"/~": [[], {}, ""]}}
        events = [{"eventId": 1, "result": NUMBERS}]
        history = {"events": events, "nextEventId": 2, "segments": 0, "sizeBytes": 9}
        status = {**record.status, "state": {"memory": memory}, "history": history}
        await record.write(committed(status, OF_RUNS, record.object["metadata"]["uid"], 0))
        await record.read_again()
        assert record.status["commit"]["number"] == 1
        assert edited(record.status, OF_RUNS) == ""
