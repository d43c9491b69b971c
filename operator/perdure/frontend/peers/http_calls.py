"""Requests over HTTP that are not RPCs of Temporal's API, which a frontend of its own passes on: Nexus, the archive, Webhooks.

The frontend authenticates and authorizes those with a token. The signature of a request to a Webhook needs its Secret, which only
operators can read, so they check it.
"""

from collections.abc import Awaitable, Callable

from temporalio.api.nexus.v1 import Request
from temporalio.api.workflowservice.v1 import RespondNexusTaskCompletedRequest

from perdure.api.stored import MessageStruct
from perdure.controller.webhooks import Delivery
from perdure.frontend.core import Frontend
from perdure.frontend.http.nexus import finder
from perdure.frontend.http.webhooks import WebhookReceiver
from perdure.frontend.nexus.tasks import DispatchNexusTaskRequest, NexusDispatch
from perdure.frontend.peers.calls import PRINCIPAL, SERVICE, PeerCall
from perdure.frontend.peers.client import pack, unpack
from perdure.frontend.transport.rpc import CallContext, check_served
from perdure.frontend.visibility.archived import ArchivedRuns, GetArchivedRunRequest, ListArchivedRunsRequest

DISPATCH, FIND_ENDPOINT, GET_ARCHIVED, LIST_ARCHIVED, RECEIVE = (
    f"/{SERVICE}/{name}"
    for name in ("DispatchNexusTask", "FindNexusEndpoint", "GetArchivedRun", "ListArchivedRuns", "ReceiveWebhook")
)
"""Paths of calls: call a handler, find an endpoint by its ID, read an archived run, list archived runs, take a webhook call."""


class NexusCall(MessageStruct, frozen=True, kw_only=True):
    """A call of a handler."""

    namespace: str
    task_queue: str
    request: bytes
    """The message `temporal.api.nexus.v1.Request`."""


class NexusAnswer(MessageStruct, frozen=True, kw_only=True):
    """The response of a worker, as its RPC."""

    completed: bytes = b""
    failed: bytes = b""


class WebhookRequest(MessageStruct, frozen=True, kw_only=True):
    """A request to a Webhook, whose signature was not checked yet."""

    namespace: str
    name: str
    headers: dict[str, bytes]
    body: bytes


def answers(frontend: Frontend) -> dict[str, Callable[[PeerCall], Awaitable[bytes]]]:
    """What an operator answers to frontends, by path."""
    dispatch = NexusDispatch(frontend.shards, frontend.direct_calls)
    archived = ArchivedRuns(frontend.listing, frontend.runs.archive)
    find = finder(frontend.endpoints)
    webhooks = WebhookReceiver(frontend.webhooks, frontend.ready)
    if frontend.settings.webhooks:
        frontend.webhooks.serve()

    async def dispatched(call: PeerCall) -> bytes:
        await frontend.ready()
        sent = unpack(call.body, NexusCall)
        check_served(sent.namespace, frontend.served)
        request = DispatchNexusTaskRequest(sent.namespace, sent.task_queue, Request.FromString(sent.request))
        answer = await dispatch.dispatch_nexus_task(request, _context(call))
        raw = answer.SerializeToString()
        completed = isinstance(answer, RespondNexusTaskCompletedRequest)
        return pack(NexusAnswer(completed=raw) if completed else NexusAnswer(failed=raw))

    async def found(call: PeerCall) -> bytes:
        endpoint = await find(call.body.decode())
        return b"" if endpoint is None else pack(endpoint)

    async def got(call: PeerCall) -> bytes:
        await frontend.ready()
        sent = unpack(call.body, GetArchivedRunRequest)
        check_served(sent.namespace, frontend.served)
        return await archived.get(sent, _context(call))

    async def listed(call: PeerCall) -> bytes:
        await frontend.ready()
        sent = unpack(call.body, ListArchivedRunsRequest)
        check_served(sent.namespace, frontend.served)
        return await archived.list(sent, _context(call))

    async def received(call: PeerCall) -> bytes:
        sent = unpack(call.body, WebhookRequest)
        headers = {key: value.decode(errors="surrogateescape") for key, value in sent.headers.items()}
        signed = await webhooks.authenticate(sent.namespace, sent.name, Delivery(headers, sent.body))
        return b"" if signed is None else pack(await signed.answer())

    return {
        DISPATCH: dispatched,
        FIND_ENDPOINT: found,
        GET_ARCHIVED: got,
        LIST_ARCHIVED: listed,
        **({RECEIVE: received} if frontend.settings.webhooks else {}),
    }


def _context(call: PeerCall) -> CallContext:
    return CallContext(call.seconds_left, call.headers, call.header(PRINCIPAL))
