"""Nexus operations with the SDK, from a workflow of one namespace to workers of another one."""

import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import nexusrpc.handler
import pytest
from temporalio import nexus
from temporalio.api.nexus.v1 import EndpointSpec, EndpointTarget
from temporalio.api.operatorservice.v1 import CreateNexusEndpointRequest
from temporalio.client import Client, WorkflowFailureError, WorkflowHandle
from temporalio.exceptions import ApplicationError, CancelledError, NexusOperationError
from temporalio.worker import Worker

from perdure.frontend.nexus.endpoints import CALLERS_HEADER
from support.cluster.namespace import Cluster, temporary_namespace
from support.sdk import nexus_flows
from support.sdk.client import Temporal
from support.sdk.server import Operator, serving

pytestmark = pytest.mark.cluster


@nexusrpc.handler.service_handler(name=nexus_flows.BILLING)
class Billing:
    """The service of the other namespace."""

    @nexusrpc.handler.sync_operation
    async def quote(self, context: nexusrpc.handler.StartOperationContext, name: str) -> str:  # noqa: ARG002
        if name == "nobody":
            raise nexusrpc.OperationError("unknown customer", state=nexusrpc.OperationErrorState.FAILED)
        return f"7 for {name}"

    @nexus.workflow_run_operation
    async def charge(self, context: nexus.WorkflowRunOperationContext, name: str) -> nexus.WorkflowHandle[str]:
        return await context.start_workflow(nexus_flows.Charge.run, name, id=f"charge-{name}-{uuid.uuid4().hex[:8]}")


@dataclass
class Two:
    """A caller's namespace and a handler's, and the endpoint between them."""

    caller: Temporal
    handler: Client
    endpoint: str

    async def call(self, operation: str, name: str) -> WorkflowHandle[nexus_flows.CallsBilling, str]:
        handle: WorkflowHandle[nexus_flows.CallsBilling, str] = await self.caller.start(
            nexus_flows.CallsBilling.run, self.endpoint, operation, name
        )
        return handle


@pytest.fixture(scope="module")
def bills(cluster: Cluster) -> Iterator[str]:
    """The namespace of the handlers."""
    with temporary_namespace(cluster, excluded=True) as made:
        yield made.namespace


@pytest.fixture(scope="module")
def operator(cluster: Cluster, bills: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    """An operator that serves both namespaces."""
    with serving(cluster, tmp_path_factory.mktemp("operator") / "log", bills) as running:
        yield running


@asynccontextmanager
async def two(temporal: Temporal, bills: str, *, callers: str = "") -> AsyncIterator[Two]:
    """Workers of both namespaces."""
    handler, endpoint = await temporal.operator.connect(namespace=bills), f"billing-{uuid.uuid4().hex[:8]}"
    worker = EndpointTarget.Worker(namespace=bills, task_queue="bills")
    await temporal.client.operator_service.create_nexus_endpoint(
        CreateNexusEndpointRequest(spec=EndpointSpec(name=endpoint, target=EndpointTarget(worker=worker))),
        metadata={CALLERS_HEADER: callers or temporal.client.namespace},
    )
    async with (
        temporal.worker(),
        Worker(handler, task_queue="bills", workflows=[nexus_flows.Charge], nexus_service_handlers=[Billing()]),
    ):
        yield Two(temporal, handler, endpoint)


async def test_a_handler_in_another_namespace_answers(temporal: Temporal, bills: str) -> None:
    async with two(temporal, bills) as here:
        handle = await here.call("quote", "ann")
        assert await handle.result() == "7 for ann"
        assert "NexusOperationCompleted" in await temporal.names(handle)
        with pytest.raises(WorkflowFailureError) as caught:
            await (await here.call("quote", "nobody")).result()
        assert isinstance(caught.value.cause, NexusOperationError)
        assert isinstance(caught.value.cause.cause, ApplicationError)
        assert "unknown customer" in str(caught.value.cause.cause)


async def test_a_workflow_in_another_namespace_completes_the_operation(temporal: Temporal, bills: str) -> None:
    async with two(temporal, bills) as here:
        handle = await here.call("charge", "ann")
        assert await handle.result() == "ann has paid, in 2 runs"
        names = await temporal.names(handle)
        assert names.index("NexusOperationStarted") < names.index("NexusOperationCompleted")
        with pytest.raises(WorkflowFailureError) as caught:
            await (await here.call("charge", "broke")).result()
        assert isinstance(caught.value.cause, NexusOperationError)
        assert "no money" in str(caught.value.cause.cause)


async def test_a_cancelled_caller_cancels_the_operation(temporal: Temporal, bills: str) -> None:
    async with two(temporal, bills) as here:
        handle = await here.call("charge", "slow")
        await handle.execute_update(nexus_flows.CallsBilling.started)
        await handle.cancel()
        with pytest.raises(WorkflowFailureError) as caught:
            await handle.result()
        assert isinstance(caught.value.cause, CancelledError)
        names = await temporal.names(handle)
        assert names.index("NexusOperationCancelRequested") < names.index("NexusOperationCanceled")


async def test_a_namespace_that_the_endpoint_does_not_list_cannot_call_it(temporal: Temporal, bills: str) -> None:
    async with two(temporal, bills, callers="somebody-else") as here:
        handle = await here.call("quote", "ann")
        async for event in handle.fetch_history_events(wait_new_event=True):
            if event.HasField("workflow_task_failed_event_attributes"):
                message = event.workflow_task_failed_event_attributes.failure.message
                break
        assert f'caller namespace "{temporal.client.namespace}" unauthorized' in message
        await handle.terminate()
