"""Nexus endpoints: storage, allowed callers, and missing workers."""

import asyncio
import base64
import json
from typing import Any

import grpc
import msgspec
import pytest
from temporalio.api.common.v1 import (
    Callback,
    WorkflowExecution,
)
from temporalio.api.enums.v1 import (
    CallbackState,
    WorkflowTaskFailedCause,
)
from temporalio.api.nexus.v1 import (
    EndpointSpec,
    EndpointTarget,
    StartOperationResponse,
)
from temporalio.api.taskqueue.v1 import TaskQueue

from perdure.controller.runs.conditions import lacks_worker
from perdure.frontend.errors import RpcError
from perdure.frontend.nexus.endpoints import CALLERS_HEADER, CONFIG_MAP
from perdure.frontend.settings import Settings
from perdure.runtime.callbacks import CallbackToken
from perdure.simulation.cluster.store import ObjectKey
from rpc.nexus.calls import BILLS, FIVE, answer, caller, charge, endpoint, handle, schedule, spec, start_for, until
from rpc.served import Served, complete_workflow, names, served


@served
async def test_an_endpoint_of_a_newer_version_is_used_and_not_written(here: Served) -> None:
    made = await endpoint(here, callers="default, shop")
    key = ObjectKey("configmaps", "default", CONFIG_MAP)
    stored = here.world.server.get(key)["data"]
    newer = {"billing": json.dumps({**json.loads(stored["billing"]), "quota": 5})}
    here.world.server.update(key, lambda found: found.update(data=dict(newer)))
    here.restart()
    assert list((await here.call("ListNexusEndpoints")).endpoints) == [made]
    for name in ("billing", "invoicing"):
        with pytest.raises(RpcError, match="a newer version of Perdure has written endpoint") as refused:
            await here.call("UpdateNexusEndpoint", id=made.id, version=1, spec=spec(name))
        assert refused.value.code is grpc.StatusCode.UNAVAILABLE
    await endpoint(here, name="another")
    assert here.world.server.get(key)["data"]["billing"] == newer["billing"]
    await here.call("DeleteNexusEndpoint", id=made.id, version=1)
    assert set(here.world.server.get(key)["data"]) == {"another"}


@served
async def test_endpoints_are_stored_changed_and_deleted(here: Served) -> None:
    made = await endpoint(here, callers="default, shop")
    assert (made.version, made.spec, made.url_prefix) == (1, spec(), f"/nexus/endpoints/{made.id}/services")
    stored = here.world.server.get(ObjectKey("configmaps", "default", CONFIG_MAP))["data"]["billing"]
    assert msgspec.json.decode(stored)["allowedCallers"] == ["default", "shop"]
    with pytest.raises(RpcError, match="already registered") as taken:
        await endpoint(here)
    assert taken.value.code is grpc.StatusCode.ALREADY_EXISTS
    with pytest.raises(RpcError, match="received: 2 expected 1"):
        await here.call("UpdateNexusEndpoint", id=made.id, version=2, spec=spec())
    changed = await here.call("UpdateNexusEndpoint", id=made.id, version=1, spec=spec("invoicing"))
    assert (changed.endpoint.version, changed.endpoint.spec.name) == (2, "invoicing")
    here.restart()
    listed = await here.call("ListNexusEndpoints")
    assert list(listed.endpoints) == [changed.endpoint]
    stored = here.world.server.get(ObjectKey("configmaps", "default", CONFIG_MAP))["data"]
    assert msgspec.json.decode(stored["invoicing"])["allowedCallers"] == ["default", "shop"], "they stay"
    assert (await here.call("GetNexusEndpoint", id=made.id)).endpoint == changed.endpoint
    await here.call("DeleteNexusEndpoint", id=made.id, version=2)
    with pytest.raises(RpcError, match="not found"):
        await here.call("GetNexusEndpoint", id=made.id)
    assert not (await here.call("ListNexusEndpoints")).endpoints


@served
async def test_endpoints_are_listed_in_pages(here: Served) -> None:
    for number in range(5):
        await endpoint(here, name=f"billing-{number}")
    token, found = b"", []
    for _ in range(3):
        page = await here.call("ListNexusEndpoints", page_size=2, next_page_token=token)
        token, found = page.next_page_token, [*found, *(each.spec.name for each in page.endpoints)]
    assert (sorted(found), token) == ([f"billing-{number}" for number in range(5)], b"")
    named = await here.call("ListNexusEndpoints", name="billing-3")
    assert [each.spec.name for each in named.endpoints] == ["billing-3"]


@served
async def test_invalid_endpoints_are_rejected(here: Served) -> None:
    external = EndpointTarget(external=EndpointTarget.External(url="https://example.com"))
    for wrong, message in (
        (spec(""), "endpoint name not set"),
        (spec("1st"), "must match the regex"),
        (spec("x" * 201), "length limit of 200"),
        (EndpointSpec(name="billing"), "empty target variant"),
        (EndpointSpec(name="billing", target=external), "external endpoints are not supported"),
        (spec(namespace=""), "target namespace not set"),
    ):
        with pytest.raises(RpcError, match=message) as refused:
            await here.call("CreateNexusEndpoint", spec=wrong)
        assert refused.value.code is grpc.StatusCode.INVALID_ARGUMENT


@served
async def test_an_unreadable_entry_is_kept_and_admits_no_callers(here: Served) -> None:
    await endpoint(here)
    key = ObjectKey("configmaps", "default", CONFIG_MAP)
    here.world.server.update(key, lambda obj: obj["data"].update(broken='{"id": 7}'))
    here.restart()
    await endpoint(here, name="other")
    assert here.world.server.get(key)["data"].keys() == {"billing", "broken", "other"}
    assert len((await here.call("ListNexusEndpoints")).endpoints) == 2


# Allowed callers


@served
async def test_only_allowed_namespaces_can_call_an_endpoint(here: Served) -> None:
    await endpoint(here, callers="")
    await here.start()
    with pytest.raises(RpcError, match='caller namespace "default" unauthorized for "billing"'):
        await here.decide(schedule())
    failed = next(event for event in await here.history() if event.HasField("workflow_task_failed_event_attributes"))
    cause = WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_BAD_SCHEDULE_NEXUS_OPERATION_ATTRIBUTES
    assert failed.workflow_task_failed_event_attributes.cause == cause


@served
async def test_a_namespace_can_call_its_own_endpoint_and_a_wildcard_admits_all(here: Served) -> None:
    await endpoint(here, callers="", name="own", namespace="default")
    await endpoint(here, callers="*", name="open")
    await here.start()
    await here.decide(schedule("own"), schedule("open"))
    assert (await handle(here, "default")).request.endpoint == "own"
    assert (await handle(here)).request.endpoint == "open"


@served
async def test_removing_an_allowed_caller_rejects_its_next_attempt(here: Served) -> None:
    made = await endpoint(here)
    await here.start()
    await here.decide(schedule())
    await asyncio.sleep(5)
    await here.call("UpdateNexusEndpoint", ((CALLERS_HEADER, "shop"),), id=made.id, version=1, spec=spec())
    await until(here, "NexusOperationFailed")
    failed = next(e for e in await here.history() if e.HasField("nexus_operation_failed_event_attributes"))
    cause = failed.nexus_operation_failed_event_attributes.failure.cause
    assert cause.nexus_handler_failure_info.type == "UNAUTHORIZED"


@served
async def test_operations_of_the_temporal_system_endpoint_are_rejected_with_the_alternative(here: Served) -> None:
    await here.start()
    with pytest.raises(RpcError, match=r"cannot start workflows with a signal: .* from an activity"):
        await here.decide(schedule("__temporal_system"))
    failed = next(event for event in await here.history() if event.HasField("workflow_task_failed_event_attributes"))
    cause = WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_BAD_SCHEDULE_NEXUS_OPERATION_ATTRIBUTES
    assert failed.workflow_task_failed_event_attributes.cause == cause


@served
async def test_a_missing_endpoint_fails_the_task_or_the_operation(here: Served) -> None:
    await here.start()
    with pytest.raises(RpcError, match='endpoint "billing" not found'):
        await here.decide(schedule())
    made = await endpoint(here)
    await here.decide(schedule())
    await asyncio.sleep(1)
    await here.call("DeleteNexusEndpoint", id=made.id, version=1)
    await until(here, "NexusOperationFailed")


def stored(here: Served) -> dict[str, Any]:
    """The run of the workflow, as the API server has it."""
    [run] = [each for each in here.world.server.of("workflowruns") if each["spec"]["workflowId"] == "w"]
    return run


def missing_worker_message(here: Served) -> str:
    """The message of the workflow about missing workers."""
    return lacks_worker(stored(here)["status"])


@served
async def test_an_endpoint_without_workers_is_reported_until_one_polls(here: Served) -> None:
    await endpoint(here)
    await asyncio.sleep(30)  # workers have that time to connect after a restart
    await here.start()
    await here.decide(schedule())
    await asyncio.sleep(8)
    assert missing_worker_message(here) == "", "workers may be busy for a while"
    await asyncio.sleep(130)  # the next call is due a minute later
    lacking = "operation `invoices.charge`: no worker polls the task queue of the Nexus endpoint `billing`"
    assert missing_worker_message(here) == lacking
    assert [each["note"] for each in here.world.server.posted if each["reason"] == "NoWorker"] == [lacking]
    polling = asyncio.create_task(handle(here))
    while missing_worker_message(here):
        assert not polling.done(), "it is noticed before the next call"
        await asyncio.sleep(1)
    await answer(here, await polling, async_success=StartOperationResponse.Async(operation_token="later"))
    await here.decide()
    await asyncio.sleep(120)
    assert missing_worker_message(here) == "", "it waits for no worker any more"


@served
async def test_a_missing_worker_is_reported_once_across_operator_restarts(here: Served) -> None:
    await endpoint(here)
    await asyncio.sleep(30)  # workers have that time to connect after a start
    await here.start()
    await here.decide(schedule())
    await here.start("unpolled", queue=TaskQueue(name="unpolled"))
    await asyncio.sleep(60)
    assert all(lacks_worker(each["status"]) for each in here.world.server.of("workflowruns"))
    here.world.start(Settings(authentication=False))
    await asyncio.sleep(60)
    assert all(lacks_worker(each["status"]) for each in here.world.server.of("workflowruns"))
    assert len([each for each in here.world.server.posted if each["reason"] == "NoWorker"]) == 2


@served
async def test_a_worker_that_stops_polling_is_reported(here: Served) -> None:
    task = await caller(here)
    await asyncio.sleep(100)  # it does not answer, and polls no more
    assert "endpoint `billing`" in missing_worker_message(here)
    assert task.task_token


@served
async def test_missing_workers_are_not_reported_to_namespaces_that_the_endpoint_does_not_admit(here: Served) -> None:
    made = await endpoint(here)
    await asyncio.sleep(30)
    await here.start()
    await here.decide(schedule())
    run = here.operator.manager.runs.get(stored(here)["metadata"]["uid"])
    assert run is not None
    assert run.state is not None
    [operation] = run.state.operations.values()
    assert not here.frontend.handled("default", operation)
    await here.call("UpdateNexusEndpoint", ((CALLERS_HEADER, "shop"),), id=made.id, version=1, spec=spec())
    assert here.frontend.handled("default", operation)
    assert not here.frontend.handled("shop", operation)


@served
async def test_a_worker_of_another_namespace_cannot_respond(here: Served) -> None:
    task = await caller(here)
    with pytest.raises(RpcError, match="Invalid TaskToken"):
        await here.call("RespondNexusTaskCompleted", namespace="shop", task_token=task.task_token)
    forged = task.task_token.replace(b'"bills"', b'"shop"')
    assert forged != task.task_token
    with pytest.raises(RpcError, match="not found or already expired"):
        await here.call("RespondNexusTaskCompleted", namespace="shop", task_token=forged)
    await answer(here, task, sync_success=StartOperationResponse.Sync(payload=FIVE))


@served
async def test_a_forged_callback_completes_no_operation(here: Served) -> None:
    task = await caller(here)
    reported = await here.call("DescribeWorkflowExecution", execution=WorkflowExecution(workflow_id="w"))
    run_id = reported.workflow_execution_info.execution.run_id
    token = CallbackToken(
        namespace="default", name="w", workflow_id="w", run_id=run_id, scheduled_event_id=5, request_id="guessed"
    )
    task.request.start_operation.callback_header["temporal-callback-token"] = token.text()
    await start_for(here, task)
    await charge(here, complete_workflow())
    execution = WorkflowExecution(workflow_id="charge")
    async with asyncio.timeout(60):
        while True:
            reported = await here.call("DescribeWorkflowExecution", namespace=BILLS, execution=execution)
            if reported.callbacks[0].state == CallbackState.CALLBACK_STATE_FAILED:
                break
            await asyncio.sleep(0.1)
    assert reported.callbacks[0].last_attempt_failure.message == "operation not found"
    assert "NexusOperationCompleted" not in names(await here.history())


def _with_token(token: bytes) -> Callback.Nexus:
    header = {"Temporal-Callback-Token": base64.urlsafe_b64encode(token).decode()}
    return Callback.Nexus(url="temporal://system", header=header)


@served
async def test_callbacks_to_other_addresses_are_rejected(here: Served) -> None:
    for nexus, message in (
        (Callback.Nexus(url="https://example.com/steal"), "does not match any configured callback address"),
        (Callback.Nexus(url="temporal://system"), "temporal-callback-token is missing or invalid"),
        (_with_token(b"not JSON"), "temporal-callback-token is missing or invalid"),
        (_with_token(b'{"x":' + b"[" * 3_000), "temporal-callback-token is missing or invalid"),
        (Callback.Nexus(url="temporal://system", header={"a": "b" * 9_000}), "header size longer"),
    ):
        with pytest.raises(RpcError, match=message):
            await here.start(completion_callbacks=[Callback(nexus=nexus)])
