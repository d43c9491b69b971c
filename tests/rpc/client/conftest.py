"""An operator on an API server in memory, a worker with flows, and the kubeconfig of a user."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from temporalio.client import Client as TemporalClient

from perdure.api.labels import INPUT_ANNOTATION
from perdure.client import AsyncClient
from perdure.flow.manifests import Placement, workflow_of
from perdure.flow.serve import serve
from perdure.simulation.cluster.kubelet import ContainerExit
from perdure.simulation.cluster.store import Object
from support.apiserver import kubeconfig
from support.cluster_over_http import over_http
from support.example_runs import billing, desk, due
from support.operator import OPEN, in_memory
from support.ports import free_port
from support.temporal import Server

GREETING = {
    "apiVersion": "perdure.dev/v1alpha1",
    "kind": "Workflow",
    "metadata": {"name": "greeting"},
    "spec": {
        "input": {"schema": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}}},
        "steps": [{"name": "wait", "waitForSignal": {"name": "go"}}],
        "output": "${'hello ' + input.name}",
    },
}


def run_pod(pod: Object) -> ContainerExit:
    """What `perdure.flow.pod` does in a pod: call the function with the input, and write its result or its failure."""
    meta = pod["metadata"]
    activity = desk.activities[meta["labels"]["perdure.dev/activity"]]
    try:
        result = activity.run(json.loads(meta["annotations"][INPUT_ANNOTATION]))
    except Exception as error:  # noqa: BLE001 - as a pod reports every error
        failure = {"type": type(error).__name__, "message": str(error)}
        return ContainerExit(after=0.05, code=1, message=json.dumps({"error": failure}))
    return ContainerExit(after=0.05, message=json.dumps(result))


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """An operator; the kubeconfig is that of a user of its API server."""
    settings = replace(OPEN, http_address=f"127.0.0.1:{free_port()}")
    objects = [workflow_of(desk, Placement(image="x", module="desk.py")), GREETING]
    with (
        in_memory(namespace="shop", settings=settings, objects=objects, pods=run_pod) as found,
        over_http(found.cluster) as url,
    ):
        kubeconfig(tmp_path, monkeypatch, url)
        yield found


@pytest.fixture
async def worker(server: Server) -> AsyncIterator[None]:
    """Decides for the flows."""
    client = await TemporalClient.connect(server.address, namespace=server.namespace)
    stop = asyncio.Event()
    running = asyncio.create_task(serve(client, [billing, due], stop))
    yield
    stop.set()
    await running


@pytest.fixture
async def client(server: Server, worker: None) -> AsyncIterator[AsyncClient]:  # noqa: ARG001
    """The client of the user."""
    async with AsyncClient(frontend=f"http://{server.http_address}") as found:
        yield found
