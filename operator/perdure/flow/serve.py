"""A worker for flows: `python -m perdure.flow.serve etl.py` decides for the runs of the flows in a module, until it is stopped.

The connection is that of the environment: `TEMPORAL_ADDRESS`, `TEMPORAL_NAMESPACE`, and in a pod the token and the authority that
`perdure deploy` mounts.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Final

from temporalio.client import Client
from temporalio.common import VersioningBehavior, WorkerDeploymentVersion
from temporalio.service import TLSConfig
from temporalio.worker import Worker, WorkerDeploymentConfig

from perdure.flow.definitions import Flow, environments_of
from perdure.flow.modules import load_in_container
from perdure.flow.sandbox import sandbox

if TYPE_CHECKING:
    from collections.abc import Iterable

CREDENTIALS: Final = Path("/var/run/perdure")
"""Where a pod has the token for the frontend, and the authority of its certificate."""

DEPLOYMENT: Final = "TEMPORAL_DEPLOYMENT_NAME"
BUILD_ID: Final = "TEMPORAL_WORKER_BUILD_ID"
"""Environment variables with the worker's deployment and version, as Temporal's Worker Controller sets them."""

_RENEWAL_SECONDS: Final = 60


async def serve(client: Client, flows: Iterable[Flow[..., object]], stop: asyncio.Event) -> None:
    """Decide for the runs of flows until stopped.

    Args:
        client: The connection.
        flows: The flows.
        stop: Set when the worker should end.
    """
    by_queue: dict[str, list[Flow[..., object]]] = {}
    for flow in flows:
        by_queue.setdefault(flow.environment.name, []).append(flow)
    workers = [
        Worker(
            client,
            task_queue=queue,
            workflows=[flow.workflow for flow in served],
            workflow_runner=sandbox(served),
            deployment_config=_versioning(),
        )
        for queue, served in by_queue.items()
    ]
    async with asyncio.TaskGroup() as running:
        tasks = [running.create_task(worker.run()) for worker in workers]
        stopping = running.create_task(stop.wait())
        await asyncio.wait([*tasks, stopping], return_when=asyncio.FIRST_COMPLETED)
        for worker in workers:
            await worker.shutdown()
        stopping.cancel()


def _versioning() -> WorkerDeploymentConfig | None:
    name, build = os.environ.get(DEPLOYMENT), os.environ.get(BUILD_ID)
    if not name or not build:
        return None
    version = WorkerDeploymentVersion(deployment_name=name, build_id=build)
    return WorkerDeploymentConfig(
        version=version, use_worker_versioning=True, default_versioning_behavior=VersioningBehavior.PINNED
    )


async def main() -> None:
    """Serve the flows of a module until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(prog="python -m perdure.flow.serve", description=__doc__)
    parser.add_argument("module", help="a file, or a dotted name")
    options = parser.parse_args()
    flows = [
        flow
        for environment in environments_of(load_in_container(options.module))
        for flow in environment.flows.values()
    ]
    client = await Client.connect(
        os.environ.get("TEMPORAL_ADDRESS", "perdure-temporal.perdure-system:7233"),
        namespace=os.environ.get("TEMPORAL_NAMESPACE", "default"),
        api_key=_token(),
        tls=_encryption(),
    )
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    renewal = asyncio.create_task(_renew(client))
    try:
        await serve(client, flows, stop)
    finally:
        renewal.cancel()


async def _renew(client: Client) -> None:
    """Use the token that the kubelet has written last."""
    while True:
        await asyncio.sleep(_RENEWAL_SECONDS)
        if (token := _token()) is not None:
            client.api_key = token


def _token() -> str | None:
    file = CREDENTIALS / "token"
    return file.read_text() if file.exists() else None


def _encryption() -> TLSConfig | bool:
    file = CREDENTIALS / "ca.crt"
    return TLSConfig(server_root_ca_cert=file.read_bytes()) if file.exists() else False


if __name__ == "__main__":
    asyncio.run(main())
