"""An operator with stale watches: resyncs find the missed changes, and the liveness probe fails.

The operator of these tests has no watches at all; the API server is real.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import yaml

from perdure.controller import informers
from perdure.controller.manager import Manager
from perdure.controller.namespaces import ServedNamespaces
from perdure.kube.access import find_access
from perdure.kube.client import Client
from perdure.kube.events import Recorder
from support.cluster.namespace import Cluster, Json, run_manifest
from support.managers import services_over

pytestmark = pytest.mark.cluster


@asynccontextmanager
async def at_work(cluster: Cluster) -> AsyncIterator[Manager]:
    async with manager_without_events(cluster) as manager:
        work = asyncio.create_task(manager.run())
        try:
            yield manager
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)


@asynccontextmanager
async def manager_without_events(cluster: Cluster) -> AsyncIterator[Manager]:
    async with Client.open(find_access(), user_agent="perdure-test") as client:
        recorder = Recorder(client, instance="test")
        services = services_over(client, recorder)
        yield Manager(services, ServedNamespaces((cluster.namespace,)))


def start(cluster: Cluster, name: str, duration: str) -> Json:
    """Make a run that sleeps; as it is before anyone has seen it."""
    spec = {"inline": {"steps": [{"name": "nap", "sleep": {"duration": duration}}]}}
    made: Json = json.loads(cluster("create", "-f", "-", "-o", "json", stdin=yaml.safe_dump(run_manifest(name, spec))))
    return made


async def test_missed_changes_are_found_by_the_second_resync_and_fail_the_probe_after_the_third(
    namespace: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(namespace.kubeconfig))
    monkeypatch.setattr(informers, "_LATE_SECONDS", 0.0)
    async with at_work(namespace) as manager:
        await manager.first_lists.wait()
        number = 0
        while manager.trouble() is None:
            assert number < 10, "missed changes never make the watch stale"
            start(namespace, f"nap-{number}", "1h")
            # The deployed operator writes to a new run; a second write between the two resyncs would hide that it was missed.
            await asyncio.to_thread(namespace.condition, "workflowrun", f"nap-{number}", "Running")
            await manager.resync()  # sees it for the first time: the event may still arrive
            await manager.resync()  # sees it again
            number += 1
        assert number >= 3
        assert "the watch on workflowruns is stale" in (manager.trouble() or "")
        manager.informers["workflowruns"].on_event(namespace.list("workflowruns")[0], deleted=False)
        assert manager.trouble() is None, "the watch has delivered an event, so it is not stale"


async def test_a_lagging_watch_does_not_bring_back_a_closed_run(
    namespace: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(namespace.kubeconfig))
    async with at_work(namespace) as manager:
        made = start(namespace, "brief", "1s")
        uid = made["metadata"]["uid"]
        manager.informers["workflowruns"].on_event(made, deleted=False)
        assert manager.runs.get(uid) is not None
        await asyncio.to_thread(namespace.wait, "the run to be done with", lambda: manager.runs.get(uid) is None)
        manager.informers["workflowruns"].on_event(made, deleted=False)
        assert manager.runs.get(uid) is None
