"""The commit against a real API server: only one of two writers wins, and the other hears of it as a conflict."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from kube import Cluster
from perdure.controller.commit import Record
from perdure.kube.access import find_access
from perdure.kube.client import PERDURE, Client, ConflictError, path

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


async def test_of_two_writers_one_wins_and_the_other_reads_again(waiting: Cluster) -> None:
    async with record_of(waiting) as (record, client, status):
        await client.merge(status, {"status": {"progress": "1/2"}})
        with pytest.raises(ConflictError):
            await record.write({**record.status, "progress": "2/2"})
        assert await record.read_again()
        await record.write({**record.status, "progress": "2/2"})
    assert waiting("get", "wfr", "waits", "-o", "jsonpath={.status.progress}") == "2/2"


async def test_a_patch_that_fits_nowhere_any_more_is_a_conflict_too(waiting: Cluster) -> None:
    async with record_of(waiting) as (record, client, status):
        await record.write({**record.status, "state": {"memory": {"steps": {}}}})
        await client.merge(status, {"status": {"state": None}})
        with pytest.raises(ConflictError):
            await record.write({**record.status, "state": {"memory": {"steps": {"a": 1}}}})
