"""Worker deployments with versioned workers of the SDK."""

import uuid
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from typing import Any

import pytest
from temporalio.api.deployment.v1 import WorkerDeploymentVersion as ProtoVersion
from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.workflowservice.v1 import (
    DescribeWorkerDeploymentRequest,
    DescribeWorkerDeploymentVersionRequest,
    SetWorkerDeploymentCurrentVersionRequest,
    SetWorkerDeploymentRampingVersionRequest,
)
from temporalio.client import Client
from temporalio.common import PinnedVersioningOverride, WorkerDeploymentVersion
from temporalio.service import RPCError
from temporalio.worker import Worker, WorkerDeploymentConfig

from sdk.versions import BUILDS
from support.sdk.client import Temporal


class Shop:
    """A deployment with two versions."""

    def __init__(self, temporal: Temporal) -> None:
        self.temporal = temporal
        self.name = f"shop-{uuid.uuid4().hex[:8]}"

    def worker(self, build: str) -> AbstractAsyncContextManager[Worker]:
        version = WorkerDeploymentVersion(deployment_name=self.name, build_id=build)
        config = WorkerDeploymentConfig(version=version, use_worker_versioning=True)
        return self.temporal.worker(workflows=BUILDS[build], deployment_config=config)

    @property
    def client(self) -> Client:
        return self.temporal.client

    async def registered(self, build: str) -> None:
        """Wait until a version has polled for workflow tasks. Each try waits for the operator's answer."""
        version = ProtoVersion(deployment_name=self.name, build_id=build)
        while True:
            try:
                found = await self.client.workflow_service.describe_worker_deployment_version(
                    DescribeWorkerDeploymentVersionRequest(namespace=self.client.namespace, deployment_version=version)
                )
            except RPCError as error:
                if "not found" not in error.message:
                    raise
            else:
                if any(queue.type == TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW for queue in found.version_task_queues):
                    return

    async def set_current(self, build: str) -> None:
        await self.registered(build)
        asked = SetWorkerDeploymentCurrentVersionRequest(
            namespace=self.client.namespace, deployment_name=self.name, build_id=build
        )
        await self.client.workflow_service.set_worker_deployment_current_version(asked)

    async def start(self, kind: str, **options: Any) -> Any:
        return await self.temporal.start(kind, **options)


@pytest.fixture
async def shop(temporal: Temporal) -> Shop:
    return Shop(temporal)


async def test_a_pinned_workflow_completes_on_the_version_it_started_on(shop: Shop) -> None:
    async with shop.worker("1"), shop.worker("2"):
        await shop.set_current("1")
        first = await shop.start("Pinned")
        await first.query("__stack_trace")
        await shop.set_current("2")
        second = await shop.start("Pinned")
        for handle in (first, second):
            await handle.signal("finish")
        assert [await first.result(), await second.result()] == ["one", "two"]
        info = (await first.describe()).raw_description.workflow_execution_info
        assert info.versioning_info.deployment_version.build_id == "1"
        assert info.worker_deployment_name == shop.name


async def test_an_auto_upgrade_workflow_completes_on_the_current_version(shop: Shop) -> None:
    async with shop.worker("1"), shop.worker("2"):
        await shop.set_current("1")
        handle = await shop.start("Upgrading")
        await handle.query("__stack_trace")
        await shop.set_current("2")
        await handle.signal("finish")
        assert await handle.result() == "two"


async def test_a_version_ramping_at_100_percent_gets_every_new_workflow(shop: Shop) -> None:
    async with shop.worker("1"), shop.worker("2"):
        await shop.set_current("1")
        await shop.registered("2")
        await shop.client.workflow_service.set_worker_deployment_ramping_version(
            SetWorkerDeploymentRampingVersionRequest(
                namespace=shop.client.namespace, deployment_name=shop.name, build_id="2", percentage=100
            )
        )
        handle = await shop.start("Pinned")
        await handle.signal("finish")
        assert await handle.result() == "two"
        described = await shop.client.workflow_service.describe_worker_deployment(
            DescribeWorkerDeploymentRequest(namespace=shop.client.namespace, deployment_name=shop.name)
        )
        assert described.worker_deployment_info.routing_config.ramping_deployment_version.build_id == "2"


async def test_a_start_can_be_pinned_to_another_version(shop: Shop) -> None:
    async with shop.worker("1"), shop.worker("2"):
        await shop.set_current("1")
        await shop.registered("2")
        version = WorkerDeploymentVersion(deployment_name=shop.name, build_id="2")
        handle = await shop.start(
            "Upgrading", versioning_override=PinnedVersioningOverride(version), run_timeout=timedelta(minutes=1)
        )
        await handle.signal("finish")
        assert await handle.result() == "two"
