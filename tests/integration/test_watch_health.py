"""An operator whose watches are dead: the sweep finds what they have not told, and the liveness probe says so.

The operator of these tests has no watches at all; the API server is real.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import yaml

from kube import Cluster, run_manifest
from perdure.controller.deadletters import DeadLetters
from perdure.controller.definitions import Definitions
from perdure.controller.identity import ActivityIdentity
from perdure.controller.manager import Manager
from perdure.controller.pods import Pods
from perdure.controller.policies import Policies
from perdure.controller.run import Tools
from perdure.kube.access import find_access
from perdure.kube.client import Client
from perdure.kube.events import Recorder
from perdure.runtime.attempts import PodSettings

pytestmark = pytest.mark.cluster


@asynccontextmanager
async def blind_manager(cluster: Cluster) -> AsyncIterator[Manager]:
    async with Client.open(find_access(), user_agent="perdure-test") as client:
        recorder = Recorder(client, instance="test")
        tools = Tools(
            client=client,
            pods=Pods(client, ActivityIdentity(client, "perdure-activity"), PodSettings()),
            definitions=Definitions(client),
            policies=Policies(client, recorder),
            letters=DeadLetters(client, recorder),
            recorder=recorder,
        )
        yield Manager(tools, namespaces=(cluster.namespace,))


def start(cluster: Cluster, name: str) -> None:
    spec = {"inline": {"steps": [{"name": "nap", "sleep": {"duration": "1h"}}]}}
    cluster("create", "-f", "-", stdin=yaml.safe_dump(run_manifest(name, spec)))


async def test_what_no_watch_tells_is_found_by_the_second_sweep_and_probed_after_the_third(
    namespace: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(namespace.kubeconfig))
    async with blind_manager(namespace) as manager:
        work = asyncio.create_task(manager.run())
        try:
            for number in range(3):
                assert manager.trouble() is None
                start(namespace, f"nap-{number}")
                # Whoever takes a new run up writes to it; afterwards nothing changes any more.
                await asyncio.to_thread(namespace.condition, "workflowrun", f"nap-{number}", "Running")
                await manager.sweep()  # sees it for the first time: the watch may be about to tell
                await manager.sweep()  # sees it again
            assert "the watch of workflowruns is dead" in (manager.trouble() or "")
            manager.on_run(namespace.list("workflowruns")[0], deleted=False)
            assert manager.trouble() is None, "the watch has told of something: it lives"
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
