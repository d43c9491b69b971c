"""Permissions: ServiceAccount tokens and roles of a real API server."""

from collections.abc import Iterator

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import Worker

from support.cluster.namespace import Cluster
from support.sdk import flows, registry
from support.sdk.accounts import CLIENT, WORKER, account
from support.sdk.server import Operator, serving

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def guarded(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    log = tmp_path_factory.mktemp("operator") / "log"
    with serving(cluster, log, PERDURE_TEMPORAL_AUTHENTICATION="Kubernetes") as running:
        yield running


async def connect(operator: Operator, token: str | None, namespace: str = "") -> Client:
    return await operator.connect(namespace=namespace or operator.namespace, api_key=token)


async def test_workers_and_clients_have_only_their_own_permissions(guarded: Operator) -> None:
    worker = await connect(guarded, account(guarded, "worker", WORKER))
    client = await connect(guarded, account(guarded, "client", CLIENT))
    async with Worker(worker, task_queue="guarded", workflows=registry.WORKFLOWS, activities=registry.ACTIVITIES):
        assert await client.execute_workflow(flows.Greet.run, "you", id="g1", task_queue="guarded") == "Hello, you"
        with pytest.raises(RPCError, match="cannot create workflowruns") as caught:
            await worker.start_workflow(flows.Greet.run, "you", id="g2", task_queue="guarded")
    assert caught.value.status is RPCStatusCode.PERMISSION_DENIED
    with pytest.raises(RPCError) as other:
        await (await connect(guarded, account(guarded, "client", CLIENT), "default")).count_workflows()
    assert other.value.status is RPCStatusCode.PERMISSION_DENIED


@pytest.mark.parametrize("token", [None, "not-a-token"])
async def test_a_caller_with_an_invalid_token_is_rejected(guarded: Operator, token: str | None) -> None:
    with pytest.raises((RPCError, RuntimeError), match=r"token"):
        await (await connect(guarded, token)).count_workflows()


async def test_the_history_names_the_user_who_made_a_request(guarded: Operator) -> None:
    client = await connect(guarded, account(guarded, "asker", CLIENT))
    handle = await client.start_workflow(flows.Box.run, id="asked", task_queue="nobody")
    await handle.signal(flows.Box.close)
    await handle.terminate("enough")
    events = [event async for event in handle.fetch_history_events()]
    user = f"system:serviceaccount:{guarded.namespace}:asker"
    named = {EventType.Name(event.event_type): event.principal.name for event in events[1:] if event.principal.name}
    signaled, terminated = "EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED", "EVENT_TYPE_WORKFLOW_EXECUTION_TERMINATED"
    assert named == {signaled: user, terminated: user}
    # The API server records the creator. It treats this operator, which runs outside of the cluster, as a user.
    assert events[0].principal.name


async def test_a_token_for_the_api_server_is_rejected_with_the_remedy(guarded: Operator) -> None:
    token = account(guarded, "elsewhere", CLIENT, audience="")
    with pytest.raises((RPCError, RuntimeError), match="kubectl create token SERVICEACCOUNT --audience="):
        await (await connect(guarded, token)).count_workflows()
