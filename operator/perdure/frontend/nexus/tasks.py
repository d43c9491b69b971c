"""RPCs of workers that handle Nexus operations: they poll for calls of handlers, and respond to them."""

import uuid
from typing import Any

import orjson
from google.protobuf.json_format import ParseDict, ParseError
from temporalio.api.common.v1 import Payload, Payloads
from temporalio.api.enums.v1 import NexusHandlerErrorRetryBehavior
from temporalio.api.failure.v1 import Failure as ProtoFailure
from temporalio.api.nexus.v1 import Failure as NexusFailure
from temporalio.api.nexus.v1 import HandlerError, StartOperationResponse
from temporalio.api.workflowservice.v1 import (
    PollNexusTaskQueueRequest,
    PollNexusTaskQueueResponse,
    RespondNexusTaskCompletedRequest,
    RespondNexusTaskCompletedResponse,
    RespondNexusTaskFailedRequest,
    RespondNexusTaskFailedResponse,
)

from perdure.controller.fleet.shards import SHARDS, Shards, shard_of
from perdure.engine import inputs
from perdure.engine.failures import Failure, FailureKind
from perdure.engine.inputs import OperationOutcome
from perdure.frontend.deployments.versions import Versions
from perdure.frontend.errors import invalid, not_found
from perdure.frontend.matching.offers import Matching, Poller
from perdure.frontend.matching.queues import Kind, Offer, QueueName
from perdure.frontend.messages import failures
from perdure.frontend.messages import payloads as data
from perdure.frontend.messages.tokens import NexusToken, pack, unpack
from perdure.frontend.messages.values import UnfitError, from_enum, name
from perdure.frontend.nexus import links
from perdure.frontend.nexus.calls import HandlerCall, OpenHandlerCalls
from perdure.frontend.nexus.direct_calls import DirectCalls
from perdure.frontend.transport.rpc import LONGEST_POLL, CallContext
from perdure.frontend.workers.workers import KnownWorkers

MAX_TOKEN = 4_096
"""Maximum length of an operation token, in characters."""
_TEMPORAL_FAILURE: str = ProtoFailure.DESCRIPTOR.full_name


class NexusTasks:
    """Dispatches calls to workers, and processes their responses."""

    def __init__(
        self,
        *,
        matching: Matching,
        versions: Versions,
        calls: OpenHandlerCalls,
        direct_calls: DirectCalls,
        workers: KnownWorkers,
        shards: Shards,
    ) -> None:
        self._matching = matching
        self._versions = versions
        self._calls = calls
        self._direct_calls = direct_calls
        self._workers = workers
        self._shards = shards
        matching.register(Kind.NEXUS, self._take)

    async def poll_nexus_task_queue(
        self, request: PollNexusTaskQueueRequest, call: CallContext
    ) -> PollNexusTaskQueueResponse:
        """Wait for a call; the response is empty if there is none in time."""
        if not request.task_queue.name:
            raise invalid("TaskQueue is not set on request.")
        named = QueueName(request.namespace, Kind.NEXUS, name(request.task_queue.name, "TaskQueue"))
        await self._versions.polled_queue(named, request.deployment_options)  # registers the version
        self._workers.record(request.namespace, request.worker_heartbeat)
        # Workers of every version handle calls.
        task: PollNexusTaskQueueResponse | None = await self._matching.poll(
            named, request.identity, call.within(LONGEST_POLL), call.recheck, through=call.member
        )
        return task if task is not None else PollNexusTaskQueueResponse()

    async def _take(self, offer: Offer, poller: Poller, /) -> PollNexusTaskQueueResponse | None:
        del poller
        direct = self._direct_calls.get(offer.query)
        if direct is not None:
            token = NexusToken(
                namespace=direct.queue.namespace, run_id="", call=direct.call_id, shard=self._local_shard()
            )
            return PollNexusTaskQueueResponse(task_token=pack(token), request=direct.request())
        found = self._calls.get(offer.query)
        request = self._calls.request(found) if found is not None else None
        caller = self._calls.entry(found) if found is not None else None
        if found is None or found.queue is None or request is None or caller is None:
            return None
        shard = shard_of(caller.namespace, caller.workflow_id)
        token = NexusToken(namespace=found.queue.namespace, run_id="", call=found.call_id, shard=shard)
        return PollNexusTaskQueueResponse(task_token=pack(token), request=request)

    async def respond_nexus_task_completed(
        self, request: RespondNexusTaskCompletedRequest, call: CallContext
    ) -> RespondNexusTaskCompletedResponse:
        """Process the response of a handler."""
        del call
        started = request.response.start_operation
        if started.HasField("async_success"):
            token = started.async_success.operation_token or started.async_success.operation_id
            if not token:
                raise invalid("missing opration token in response")
            if len(token) > MAX_TOKEN:
                raise invalid(f"operation token length exceeds allowed limit ({len(token)}/{MAX_TOKEN})")
        failed = started.operation_error.failure
        if failed.details and not _is_json(failed.details):
            raise invalid("failure details must be JSON serializable")
        task: NexusToken = unpack(request.task_token, NexusToken, request.namespace)
        if self._direct_calls.report(task.call, task.namespace, request):
            return RespondNexusTaskCompletedResponse()
        found = self._find(task)
        if found.name.cancels:
            await self._calls.report(found, None)
        else:
            await self._calls.report(found, None, self._answer(found, started))
        return RespondNexusTaskCompletedResponse()

    async def respond_nexus_task_failed(
        self, request: RespondNexusTaskFailedRequest, call: CallContext
    ) -> RespondNexusTaskFailedResponse:
        """Process the failure of a handler."""
        del call
        if request.HasField("failure") and not request.failure.HasField("nexus_handler_failure_info"):
            raise invalid("request Failure must contain error or failure with NexusHandlerFailureInfo")
        if not request.HasField("failure") and not request.HasField("error"):
            raise invalid("request must contain error or failure")
        task: NexusToken = unpack(request.task_token, NexusToken, request.namespace)
        if self._direct_calls.report(task.call, task.namespace, request):
            return RespondNexusTaskFailedResponse()
        has_failure = request.HasField("failure")
        failure = failures.to_json(request.failure) if has_failure else _handler_failure(request.error)
        await self._calls.report(self._find(task), failure)
        return RespondNexusTaskFailedResponse()

    def _local_shard(self) -> int:
        """A shard of this member of the fleet, so that requests that name it are routed here."""
        return next(filter(self._shards.owns_shard, range(SHARDS)), 0)

    def _find(self, task: NexusToken) -> HandlerCall:
        found = self._calls.take(task.call, task.namespace)
        if found is None:
            raise not_found("Nexus task not found or already expired")
        return found

    @staticmethod
    def _answer(call: HandlerCall, response: StartOperationResponse) -> inputs.OperationReported:
        """The outcome of an attempt to start an operation."""
        answer: dict[str, Any] = {"outcome": OperationOutcome.FAILED}
        match response.WhichOneof("variant"):
            case "sync_success":
                answer = _succeeded(response.sync_success)
            case "async_success":
                started = response.async_success
                answer = {
                    "outcome": OperationOutcome.STARTED,
                    "operation_token": started.operation_token or started.operation_id,
                    "links": links.from_nexus(started.links),
                }
            case "failure":
                answer["failure"] = failures.to_json(response.failure)
            case "operation_error":
                answer["failure"] = failures.to_json(as_temporal(response.operation_error.failure))
                if response.operation_error.operation_state == "canceled":
                    answer["failure"] = _as_cancelled(answer["failure"])
            case _:
                empty = Failure(kind=FailureKind.NEXUS_HANDLER, type="INTERNAL", message="empty outcome")
                answer = {"outcome": OperationOutcome.ATTEMPT_FAILED, "failure": empty}
        failure: Failure | None = answer.get("failure")
        if failure is not None and failure.kind is FailureKind.CANCELLED:
            answer["outcome"] = OperationOutcome.CANCELED
        assert call.queue is not None
        return inputs.OperationReported(
            request_id=uuid.uuid4().hex,
            scheduled_event_id=call.name.scheduled_event_id,
            attempt=call.name.attempt,
            handler_namespace=call.queue.namespace,
            **answer,
        )


def _succeeded(success: StartOperationResponse.Sync) -> dict[str, Any]:
    try:
        result = data.to_json([success.payload]) if success.HasField("payload") else None
    except UnfitError as error:
        failure = Failure(kind=FailureKind.APPLICATION, type="CallError", message=str(error), non_retryable=True)
        return {"outcome": OperationOutcome.REFUSED, "failure": failure}
    return {"outcome": OperationOutcome.COMPLETED, "result": result, "links": links.from_nexus(success.links)}


# Failures from older SDKs


def _handler_failure(error: HandlerError) -> Failure:
    """The failure for a handler error without one of Temporal's (frontend: convertOutcomeToNexusHandlerError)."""
    behavior = from_enum(NexusHandlerErrorRetryBehavior, error.retry_behavior) if error.retry_behavior else None
    cause = failures.to_json(as_temporal(error.failure))
    return Failure(kind=FailureKind.NEXUS_HANDLER, type=error.error_type, retry_behavior=behavior, cause=cause)


def _as_cancelled(failure: Failure) -> Failure:
    if failure.kind is FailureKind.CANCELLED:
        return failure
    return Failure(
        kind=FailureKind.CANCELLED, message=failure.message, stack_trace=failure.stack_trace, cause=failure.cause
    )


def as_temporal(failure: NexusFailure, depth: int = 0) -> ProtoFailure:
    """Convert a Nexus failure to Temporal's (common/nexus/failure.go: NexusFailureToTemporalFailure).

    Raises:
        RpcError: The failure claims to be one of Temporal's, but is not.
    """
    made = ProtoFailure()
    if failure.metadata.get("type") == _TEMPORAL_FAILURE:
        try:
            ParseDict(orjson.loads(failure.details), made, ignore_unknown_fields=True)
        except (orjson.JSONDecodeError, ParseError) as error:
            raise invalid(f"Malformed failure: {error}") from None
    elif failure.metadata or failure.details:
        kept = {"metadata": dict(failure.metadata), "details": _parsed(failure.details)}
        payload = Payload(metadata={"encoding": b"json/plain"}, data=orjson.dumps({k: v for k, v in kept.items() if v}))
        made.application_failure_info.type = "NexusFailure"
        made.application_failure_info.details.CopyFrom(Payloads(payloads=[payload]))
    made.message, made.stack_trace = failure.message, failure.stack_trace
    if failure.HasField("cause") and depth < failures.MAX_DEPTH:
        made.cause.CopyFrom(as_temporal(failure.cause, depth + 1))
    return made


def _is_json(text: bytes) -> bool:
    return not text or _parsed(text) is not _NONE


_NONE = object()


def _parsed(text: bytes) -> Any:
    try:
        return orjson.loads(text) if text else None
    except orjson.JSONDecodeError:
        return _NONE
