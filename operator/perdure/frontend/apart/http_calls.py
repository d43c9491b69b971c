"""Pass requests over HTTP that are not RPCs of Temporal's API on to operators: calls of Nexus handlers, the archive, Webhooks."""

from functools import partial
from http import HTTPStatus
from typing import Final

from temporalio.api.workflowservice.v1 import RespondNexusTaskCompletedRequest, RespondNexusTaskFailedRequest

from perdure.controller.fleet.shards import shard_of
from perdure.controller.webhooks import Delivery
from perdure.frontend.apart.forwarder import Forwarder
from perdure.frontend.errors import RpcError
from perdure.frontend.http.nexus import FoundEndpoint
from perdure.frontend.http.webhooks import Receiver, RejectedError, SignedRequest, WebhookAnswer
from perdure.frontend.nexus.tasks import Answer, DispatchNexusTaskRequest
from perdure.frontend.peers.client import pack, unpack
from perdure.frontend.peers.http_calls import (
    DISPATCH,
    FIND_ENDPOINT,
    GET_ARCHIVED,
    LIST_ARCHIVED,
    RECEIVE,
    NexusAnswer,
    NexusCall,
    WebhookRequest,
)
from perdure.frontend.transport.rpc import CallContext
from perdure.frontend.visibility.archived import GetArchivedRunRequest, ListArchivedRunsRequest

WEBHOOK_SECONDS: Final = 30.0
"""How long a webhook request waits for an operator."""


class RemoteEndpoints:
    """Finds the endpoints of Nexus at an operator."""

    def __init__(self, forwarder: Forwarder) -> None:
        self._forwarder = forwarder

    async def find(self, endpoint_id: str) -> FoundEndpoint | None:
        """Return an endpoint by its ID; None if there is none.

        Raises:
            RpcError: No operator has answered in time.
        """
        call = CallContext(None)
        raw = await self._forwarder.to_any(FIND_ENDPOINT, endpoint_id.encode(), bytes, call, repeatable=True)
        return unpack(raw, FoundEndpoint) if raw else None


class RemoteCalls:
    """The handlers of requests that have the checks of RPCs."""

    def __init__(self, forwarder: Forwarder) -> None:
        self._forwarder = forwarder

    async def dispatch_nexus_task(self, request: DispatchNexusTaskRequest, call: CallContext) -> Answer:
        """Let an operator call a handler. The call is not repeated, because the handler may have got it."""
        message = NexusCall(
            namespace=request.namespace, task_queue=request.task_queue, request=request.request.SerializeToString()
        )
        decode = partial(unpack, kind=NexusAnswer)
        answer = await self._forwarder.to_any(DISPATCH, pack(message), decode, call, repeatable=False)
        if answer.failed:
            return RespondNexusTaskFailedRequest.FromString(answer.failed)
        return RespondNexusTaskCompletedRequest.FromString(answer.completed)

    async def get_archived_run(self, request: GetArchivedRunRequest, call: CallContext) -> bytes:
        """Let an operator read a run of the archive."""
        return await self._forwarder.to_any(GET_ARCHIVED, pack(request), bytes, call, repeatable=True)

    async def list_archived_runs(self, request: ListArchivedRunsRequest, call: CallContext) -> bytes:
        """Let an operator list runs of the archive."""
        return await self._forwarder.to_any(LIST_ARCHIVED, pack(request), bytes, call, repeatable=True)


class RemoteReceiver(Receiver):
    """Passes requests to Webhooks on to operators. A repeated one has no second effect, because its ID is signed."""

    def __init__(self, forwarder: Forwarder) -> None:
        self._forwarder = forwarder

    async def authenticate(self, namespace: str, name: str, delivery: Delivery) -> SignedRequest | None:
        """Let an operator check the signature of a request and, if it is valid, process the request.

        Raises:
            RejectedError: No operator has processed the request in time.
        """
        headers = {key: value.encode(errors="surrogateescape") for key, value in delivery.headers.items()}
        message = pack(WebhookRequest(namespace=namespace, name=name, headers=headers, body=delivery.body))
        shard = shard_of(namespace, name)  # so that one operator counts the requests per minute of a Webhook
        call = CallContext(WEBHOOK_SECONDS)
        try:
            raw = await self._forwarder.to_any(RECEIVE, message, bytes, call, repeatable=True, shard=shard)
        except RpcError:
            why = "no operator could process the request; retry later"
            raise RejectedError(HTTPStatus.SERVICE_UNAVAILABLE, "Failed", why, 5.0) from None
        return _Answered(unpack(raw, WebhookAnswer)) if raw else None


class _Answered:
    """A request that an operator has processed."""

    def __init__(self, answer: WebhookAnswer) -> None:
        self._answer = answer

    async def answer(self) -> WebhookAnswer:
        """Return the response of the operator."""
        return self._answer
