"""Calls of Nexus handlers over HTTP: a worker of the SDK answers them, against the operator on an API server in memory."""

import asyncio
import io
import json
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import aiohttp
import nexusrpc.handler
import pytest
from temporalio import nexus, workflow
from temporalio.api.nexus.v1 import (
    EndpointSpec,
    EndpointTarget,
    StartOperationResponse,
    UnsuccessfulOperationError,
)
from temporalio.api.nexus.v1 import Failure as NexusFailure
from temporalio.api.nexus.v1 import Response as NexusResponse
from temporalio.api.operatorservice.v1 import CreateNexusEndpointRequest
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import PollNexusTaskQueueRequest, RespondNexusTaskCompletedRequest
from temporalio.client import Client, WorkflowFailureError
from temporalio.exceptions import CancelledError
from temporalio.worker import Worker

from support.fleet import in_memory_fleet
from support.operator import OPEN, in_memory
from support.ports import free_port

QUEUE = "bills"


@workflow.defn(name="Charge", sandboxed=False)
class Charge:
    """Waits until it is canceled."""

    @workflow.run
    async def run(self, name: str) -> str:
        await workflow.wait_condition(lambda: False)
        return name


@nexusrpc.handler.service_handler(name="Billing")
class Billing:
    """The operations that can be called."""

    @nexusrpc.handler.sync_operation
    async def quote(self, context: nexusrpc.handler.StartOperationContext, name: str) -> str:  # noqa: ARG002
        if name == "nobody":
            raise nexusrpc.OperationError("unknown customer", state=nexusrpc.OperationErrorState.FAILED)
        if name == "":
            raise nexusrpc.HandlerError(
                "name the customer", type=nexusrpc.HandlerErrorType.BAD_REQUEST, retryable_override=True
            )
        return f"7 for {name}"

    @nexusrpc.handler.sync_operation
    async def context_of(self, context: nexusrpc.handler.StartOperationContext, _: None) -> dict[str, Any]:
        return {
            "headers": dict(context.headers),
            "request_id": context.request_id,
            "callback": [context.callback_url, dict(context.callback_headers)],
            "links": [[link.url, link.type] for link in context.inbound_links],
        }

    @nexusrpc.handler.sync_operation
    async def nothing(self, context: nexusrpc.handler.StartOperationContext, payload: None) -> None:  # noqa: ARG002
        return payload

    @nexusrpc.handler.sync_operation
    async def link(self, context: nexusrpc.handler.StartOperationContext, kind: str) -> None:
        context.outbound_links.append(nexusrpc.Link(url="https://example.com", type=kind))

    @nexus.workflow_run_operation
    async def charge(self, context: nexus.WorkflowRunOperationContext, name: str) -> nexus.WorkflowHandle[str]:
        return await context.start_workflow(Charge.run, name, id=name)


class Http:
    """Calls handlers."""

    def __init__(self, session: aiohttp.ClientSession, base: str, endpoint: str, client: Client) -> None:
        self.session = session
        self.base = base
        self.endpoint = endpoint
        self.client = client

    async def call(
        self, operation: str, body: Any = None, *, path: str = "", method: str = "POST", **headers: str
    ) -> tuple[int, dict[str, str], Any]:
        """Call an operation; keywords are headers."""
        url = f"{self.base}{path or f'/nexus/endpoints/{self.endpoint}/services/Billing'}/{operation}"
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        data: Any = body
        if body is not None:
            sent.setdefault("Content-Type", "application/json")
            data = io.BytesIO(body if isinstance(body, bytes) else json.dumps(body).encode())
        asked = self.session.request(method, url, data=data, headers=sent, skip_auto_headers={"Content-Type"})
        async with asked as response:
            text = await response.read()
            return response.status, dict(response.headers), json.loads(text) if text else None


@pytest.fixture(scope="module")
def address() -> Iterator[tuple[str, str]]:
    port = free_port()
    settings = replace(OPEN, http_address=f"127.0.0.1:{port}", nexus_headers=frozenset({"x-tenant"}))
    with in_memory(settings=settings) as server:
        yield server.address, f"http://127.0.0.1:{port}"


@asynccontextmanager
async def endpoint(client: Client, base: str) -> AsyncIterator[Http]:
    """A new endpoint."""
    target = EndpointTarget(worker=EndpointTarget.Worker(namespace="default", task_queue=QUEUE))
    spec = EndpointSpec(name=f"bills-{uuid.uuid4().hex}", target=target)
    made = await client.operator_service.create_nexus_endpoint(CreateNexusEndpointRequest(spec=spec))
    async with aiohttp.ClientSession() as session:
        yield Http(session, base, made.endpoint.id, client)


@pytest.fixture
async def http(address: tuple[str, str]) -> AsyncIterator[Http]:
    async with endpoint(await Client.connect(address[0]), address[1]) as found:
        yield found


@pytest.fixture
async def served(http: Http) -> AsyncIterator[Http]:
    async with Worker(http.client, task_queue=QUEUE, workflows=[Charge], nexus_service_handlers=[Billing()]):
        yield http


async def test_an_operation_can_be_called_by_endpoint_or_task_queue(served: Http) -> None:
    status, headers, answer = await served.call("quote", "Ada")
    assert (status, headers["Content-Type"], answer) == (200, "application/json", "7 for Ada")
    by_queue = f"/namespaces/default/task-queues/{QUEUE}/nexus-services/Billing"
    assert (await served.call("quote", "Ada", path=by_queue))[::2] == (200, "7 for Ada")


async def test_a_missing_input_or_result_has_no_content(served: Http) -> None:
    status, headers, answer = await served.call("nothing")
    assert (status, headers.get("Content-Type"), answer) == (200, None, None)


async def test_a_handler_gets_only_known_headers_of_the_caller(served: Http) -> None:
    link = "temporal:///namespaces/default/workflows/w/r/history"
    status, _, answer = await served.call(
        "context_of?callback=http://example.com/done",
        Authorization="Bearer s3cret",
        Grpc_Metadata_Authorization="Bearer s3cret",
        X_Forwarded_Access_Token="s3cret",
        Authorization_Extras="s3cret",
        Cookie="session=s3cret",
        Temporal_Principal_Name="admin",
        X_Tenant="blue",
        X_Other="other",
        Traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        Nexus_Request_Id="r-1",
        Nexus_Callback_Token="t",
        Nexus_Link=f'<{link}>; type="temporal.api.common.v1.Link.WorkflowEvent"',
        Request_Timeout="20s",
    )
    assert status == 200
    assert answer["request_id"] == "r-1"
    assert answer["callback"] == ["http://example.com/done", {"token": "t"}]
    assert answer["links"] == [[link, "temporal.api.common.v1.Link.WorkflowEvent"]]
    headers = answer["headers"]
    assert headers["x-tenant"] == "blue"
    assert headers["traceparent"].startswith("00-0af7")
    assert int(headers["request-timeout"].removesuffix("ms")) <= 19_000
    assert headers.keys() - {"request-timeout", "timeout", "user-agent"} == {
        "nexus-link",
        "nexus-request-id",
        "traceparent",
        "x-tenant",
    }
    assert "s3cret" not in json.dumps(answer)


async def test_a_handler_cannot_inject_headers(served: Http) -> None:
    status, headers, _ = await served.call("link", "a.Kind")
    assert (status, headers["Nexus-Link"]) == (200, '<https://example.com>; type="a.Kind"')
    status, headers, answer = await served.call("link", "a.Kind\r\nX-Added: yes")
    assert (status, "X-Added" in headers) == (500, False)
    assert answer["message"] == "the handler's response has control characters in Nexus-Link"


async def test_a_failed_operation_is_reported_as_failed(served: Http) -> None:
    status, headers, answer = await served.call("quote", "nobody")
    assert (status, headers["Nexus-Operation-State"]) == (424, "failed")
    assert headers["Temporal-Nexus-Failure-Source"] == "worker"
    assert "unknown customer" in json.dumps(answer)
    failure = (await served.call("quote", "nobody", Temporal_Nexus_Failure_Support="true"))[2]
    assert failure["metadata"]["type"] == "nexus.OperationError"
    assert failure["details"] == {"state": "failed"}
    assert failure["cause"]["metadata"]["type"] == "temporal.api.failure.v1.Failure"


async def test_a_handler_error_says_whether_to_retry(served: Http) -> None:
    for support in ("", "true"):
        status, headers, answer = await served.call("quote", "", Temporal_Nexus_Failure_Support=support)
        assert (status, headers["Nexus-Request-Retryable"]) == (400, "true")
        assert headers["Temporal-Nexus-Failure-Source"] == "worker"
        assert "name the customer" in json.dumps(answer)
    assert answer["metadata"]["type"] == "nexus.HandlerError"
    assert answer["details"] == {"type": "BAD_REQUEST", "retryableOverride": True}


async def test_a_started_operation_is_canceled_by_its_token(served: Http) -> None:
    status, headers, answer = await served.call("charge", "charge-1")
    assert (status, answer["state"]) == (201, "running")
    assert "/workflows/charge-1/" in headers["Nexus-Link"]
    handle = served.client.get_workflow_handle("charge-1")
    assert (await served.call("charge/cancel", Nexus_Operation_Token=answer["token"]))[0] == 202
    with pytest.raises(WorkflowFailureError) as failure:
        await asyncio.wait_for(handle.result(), 30)
    assert isinstance(failure.value.cause, CancelledError)


async def test_an_operator_without_a_shard_asks_the_caller_to_retry() -> None:
    """The response of the worker goes to the owner of a shard that the call names."""
    http_address = f"127.0.0.1:{free_port()}"
    with in_memory_fleet(1, settings=replace(OPEN, http_address=http_address)) as fleet:
        (member,) = fleet.fleet.members
        async with endpoint(await fleet.connect(member), f"http://{http_address}") as http:
            await asyncio.wrap_future(fleet.do(fleet.fleet.hand_over(member)))
            status, _, failure = await http.call("quote", "Ada")
    assert (status, failure["message"].partition(",")[0]) == (503, "this operator owns no shard at the moment")


async def test_a_call_without_a_worker_times_out(http: Http) -> None:
    path = "/namespaces/default/task-queues/unserved/nexus-services/Billing"
    status, headers, answer = await http.call("quote", "Ada", path=path, Request_Timeout="200ms")
    assert (status, answer["message"]) == (520, "upstream timeout")
    assert headers["Temporal-Nexus-Failure-Source"] == "worker"


async def test_a_header_that_is_not_utf_8_is_rejected(http: Http) -> None:
    address, _, port = http.base.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(address, int(port))
    path = f"/nexus/endpoints/{http.endpoint}/services/Billing/quote"
    writer.write(f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n".encode())
    writer.write(b"X-Name: \xff\xfe\r\n\r\n")
    answer = await asyncio.wait_for(reader.read(), 30)
    writer.close()
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"the header 'X-Name' is not UTF-8" in answer


async def test_too_deeply_nested_details_are_a_handler_error(http: Http) -> None:
    calling = asyncio.create_task(http.call("quote", "Ada"))
    task = await http.client.workflow_service.poll_nexus_task_queue(
        PollNexusTaskQueueRequest(namespace="default", task_queue=TaskQueue(name=QUEUE), identity="worker")
    )
    failure = NexusFailure(message="deep", details=b"[" * 900 + b"]" * 900)
    error = UnsuccessfulOperationError(operation_state="failed", failure=failure)
    response = NexusResponse(start_operation=StartOperationResponse(operation_error=error))
    await http.client.workflow_service.respond_nexus_task_completed(
        RespondNexusTaskCompletedRequest(namespace="default", task_token=task.task_token, response=response)
    )
    status, _, answer = await calling
    assert (status, answer["message"]) == (500, "the handler's failure is nested too deeply for JSON")


@pytest.mark.parametrize(
    ("asked", "status", "message"),
    [
        ({"path": f"/nexus/endpoints/{uuid.uuid4()}/services/Billing"}, 404, "nexus endpoint not found"),
        ({"path": "/nexus/endpoints/x"}, 404, "not found"),
        ({"path": "/namespaces/nowhere/task-queues/q/nexus-services/s"}, 404, "Namespace nowhere is not found."),
        (
            {"path": "/namespaces/No_Where/task-queues/q/nexus-services/s"},
            400,
            "is not a valid name of a Kubernetes namespace",
        ),
        ({"method": "GET"}, 400, 'invalid request method: expected POST, got "GET"'),
        ({"operation": "quote/cancel"}, 400, "missing operation token"),
        ({"operation": "quote/x/cancel"}, 404, "not found"),
        ({"operation": "callback", "path": "/nexus"}, 501, "completion over HTTP is not supported"),
        ({"operation": "callback", "path": "/namespaces/default/nexus"}, 501, "completion over HTTP is not supported"),
        ({"Request_Timeout": "soon"}, 400, "invalid request timeout header"),
        ({"Nexus_Link": "here"}, 400, 'invalid "nexus-link" header'),
        ({"Content_Type": "application/x-temporal-payload"}, 400, "invalid input"),
        ({"body": b"x" * (2 * 1024 * 1024)}, 400, "input exceeds size limit"),
        ({"Origin": "https://example.com"}, 403, "web pages cannot call the HTTP API"),
    ],
)
async def test_an_invalid_call_gets_a_failure(http: Http, asked: dict[str, Any], status: int, message: str) -> None:
    found, _, answer = await http.call(**{"operation": "quote", "body": b"\xff", **asked})
    assert (found, answer["metadata"]) == (status, {"type": "nexus.HandlerError"})
    assert message in answer["message"]
