"""A worker for greetings: the workflow, an activity, and the versions that the WorkerDeployment sets."""

import asyncio
import os
from datetime import timedelta
from pathlib import Path

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.common import VersioningBehavior, WorkerDeploymentVersion
from temporalio.service import TLSConfig
from temporalio.worker import Worker, WorkerDeploymentConfig

FOLDER = Path("/var/run/perdure")
"""Where workers.yaml mounts a token for the frontend, and the authority that has signed its certificate."""


@activity.defn
async def greet(name: str) -> str:
    """Write a greeting."""
    return f"Hello, {name}!"


@workflow.defn
class GreetingWorkflow:
    """Greets someone."""

    @workflow.run
    async def run(self, name: str) -> str:
        """Return the greeting."""
        return await workflow.execute_activity(greet, name, start_to_close_timeout=timedelta(seconds=10))


async def main() -> None:
    """Work until stopped."""
    token, authority = FOLDER / "token", FOLDER / "ca.crt"
    client = await Client.connect(
        os.environ["TEMPORAL_ADDRESS"],
        namespace=os.environ["TEMPORAL_NAMESPACE"],
        api_key=token.read_text() if token.exists() else None,
        tls=TLSConfig(server_root_ca_cert=authority.read_bytes()) if authority.exists() else False,
    )
    version = WorkerDeploymentVersion(
        deployment_name=os.environ["TEMPORAL_DEPLOYMENT_NAME"], build_id=os.environ["TEMPORAL_WORKER_BUILD_ID"]
    )
    versioning = WorkerDeploymentConfig(
        version=version, use_worker_versioning=True, default_versioning_behavior=VersioningBehavior.PINNED
    )
    async with Worker(
        client,
        task_queue="greetings",
        workflows=[GreetingWorkflow],
        activities=[greet],
        deployment_config=versioning,
    ):
        while True:  # the kubelet renews the token
            await asyncio.sleep(60)
            if token.exists():
                client.api_key = token.read_text()


if __name__ == "__main__":
    asyncio.run(main())
