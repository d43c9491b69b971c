"""A versioned worker. The Deployment sets the version: `VERSION` is the build ID and the module with its workflows."""

import asyncio
import os
from importlib import import_module
from pathlib import Path

from temporalio.client import Client
from temporalio.common import WorkerDeploymentVersion
from temporalio.service import TLSConfig
from temporalio.worker import Worker, WorkerDeploymentConfig

FOLDER = Path("/var/run/perdure")
"""Where worker.yaml mounts a token for the frontend, and the authority that has signed its certificate."""


def worker(client: Client, build: str) -> Worker:
    """A worker of a version."""
    code = import_module(build)
    return Worker(
        client,
        task_queue="parcels",
        workflows=[code.ParcelWorkflow, code.DepotWorkflow],
        deployment_config=WorkerDeploymentConfig(
            version=WorkerDeploymentVersion(deployment_name="parcels", build_id=build), use_worker_versioning=True
        ),
    )


async def main() -> None:
    """Work until stopped."""
    token, authority = FOLDER / "token", FOLDER / "ca.crt"
    client = await Client.connect(
        os.environ.get("TEMPORAL_ADDRESS", "perdure-temporal.perdure-system:7233"),
        namespace=os.environ["TEMPORAL_NAMESPACE"],
        api_key=token.read_text() if token.exists() else None,
        tls=TLSConfig(server_root_ca_cert=authority.read_bytes()) if authority.exists() else False,
    )
    async with worker(client, os.environ["VERSION"]):
        while True:  # the kubelet renews the token
            await asyncio.sleep(60)
            if token.exists():
                client.api_key = token.read_text()


if __name__ == "__main__":
    asyncio.run(main())
