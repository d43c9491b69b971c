"""RPCs of workers that handle Nexus operations, and of administrators about endpoints."""

import re
import uuid
from typing import Any

import orjson
from google.protobuf.json_format import ParseDict, ParseError
from temporalio.api.common.v1 import Payload, Payloads
from temporalio.api.enums.v1 import NexusHandlerErrorRetryBehavior
from temporalio.api.failure.v1 import Failure as ProtoFailure
from temporalio.api.nexus.v1 import Endpoint as ProtoEndpoint
from temporalio.api.nexus.v1 import EndpointSpec, HandlerError, StartOperationResponse
from temporalio.api.nexus.v1 import Failure as NexusFailure
from temporalio.api.operatorservice.v1 import (
    CreateNexusEndpointRequest,
    CreateNexusEndpointResponse,
    DeleteNexusEndpointRequest,
    DeleteNexusEndpointResponse,
    GetNexusEndpointRequest,
    GetNexusEndpointResponse,
    ListNexusEndpointsRequest,
    ListNexusEndpointsResponse,
    UpdateNexusEndpointRequest,
    UpdateNexusEndpointResponse,
)
from temporalio.api.workflowservice.v1 import (
    PollNexusTaskQueueRequest,
    PollNexusTaskQueueResponse,
    RespondNexusTaskCompletedRequest,
    RespondNexusTaskCompletedResponse,
    RespondNexusTaskFailedRequest,
    RespondNexusTaskFailedResponse,
)

from perdure.controller.fleet.shards import SHARDS, Shards, shard_of
from perdure.controller.namespaces import ServedNamespaces
from perdure.engine import inputs
from perdure.engine.failures import Failure, FailureKind
from perdure.engine.inputs import OperationOutcome
from perdure.frontend.deployments.versions import Versions
from perdure.frontend.errors import invalid, not_found, precondition
from perdure.frontend.matching.offers import Matching, Poller
from perdure.frontend.matching.queues import Kind, Offer, QueueName
from perdure.frontend.messages import failures, values
from perdure.frontend.messages import payloads as data
from perdure.frontend.messages.enums import from_enum
from perdure.frontend.messages.task_tokens import NexusToken, pack, unpack
from perdure.frontend.messages.values import UnfitError, name
from perdure.frontend.nexus import links
from perdure.frontend.nexus.calls import HandlerCall, HandlerCallsOpen
from perdure.frontend.nexus.direct_calls import DirectCalls
from perdure.frontend.nexus.endpoints import Endpoint, EndpointRegistry
from perdure.frontend.transport.rpc import LONGEST_POLL, CallContext
from perdure.frontend.workers.workers import KnownWorkers
from perdure.kube.clock import monotonic

CALLERS_HEADER = "perdure-allowed-callers"
"""gRPC metadata of CreateNexusEndpoint and UpdateNexusEndpoint: other namespaces that may call it, separated by commas."""
MAX_TOKEN = 4_096
"""Maximum length of an operation token, in characters."""
_NAME = re.compile(r"[a-zA-Z][a-zA-Z0-9\-]*[a-zA-Z0-9]")
_MAX_NAME, _MAX_DESCRIPTION = 200, 20_000
_PAGE, _MAX_PAGE = 100, 1_000
_TEMPORAL_FAILURE: str = ProtoFailure.DESCRIPTOR.full_name


class NexusTasks:
    """Dispatches calls to workers, and processes their responses."""

    def __init__(
        self,
        *,
        matching: Matching,
        versions: Versions,
        calls: HandlerCallsOpen,
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
        matching.takes(Kind.NEXUS, self._take)

    async def poll_nexus_task_queue(
        self, request: PollNexusTaskQueueRequest, call: CallContext
    ) -> PollNexusTaskQueueResponse:
        """Wait for a call; the response is empty if there is none in time."""
        if not request.task_queue.name:
            raise invalid("TaskQueue is not set on request.")
        named = QueueName(request.namespace, Kind.NEXUS, name(request.task_queue.name, "TaskQueue"))
        await self._versions.polled_queue(named, request.deployment_options)  # registers the version
        self._workers.record(request.namespace, request.worker_heartbeat)
        until = monotonic() + call.within(LONGEST_POLL)
        while (left := until - monotonic()) > 0:
            # Workers of every version handle calls.
            offer = await self._matching.queues.poll(named, request.identity, left, call.recheck)
            if offer is None:
                break
            given_out: PollNexusTaskQueueResponse | None = await self._matching.take(
                Kind.NEXUS, offer, Poller(request.identity, through=call.member)
            )
            if given_out is not None:
                return given_out
        return PollNexusTaskQueueResponse()

    async def _take(self, offer: Offer, poller: Poller, /) -> PollNexusTaskQueueResponse | None:
        del poller
        direct = self._direct_calls.get(offer.query)
        if direct is not None:
            token = NexusToken(
                namespace=direct.queue.namespace, run_id="", call=direct.call_id, shard=self._own_shard()
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
        whole = request.HasField("failure")
        failure = failures.to_json(request.failure) if whole else _handler_failure(request.error)
        await self._calls.report(self._find(task), failure)
        return RespondNexusTaskFailedResponse()

    def _own_shard(self) -> int:
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


class NexusEndpoints:
    """Manages endpoints."""

    def __init__(self, endpoints: EndpointRegistry, served: ServedNamespaces) -> None:
        self._endpoints = endpoints
        self._served = served

    async def create_nexus_endpoint(
        self, request: CreateNexusEndpointRequest, call: CallContext
    ) -> CreateNexusEndpointResponse:
        """Create an endpoint. Only workflows of its own namespace may call it, unless the caller says which others may."""
        named, fields = self._spec(request.spec, call)
        made = await self._endpoints.create(named, **fields)
        return CreateNexusEndpointResponse(endpoint=_endpoint(named, made))

    async def update_nexus_endpoint(
        self, request: UpdateNexusEndpointRequest, call: CallContext
    ) -> UpdateNexusEndpointResponse:
        """Change an endpoint. Its callers stay the same unless the caller names others."""
        _need_id(request.id)
        if request.version <= 0:
            raise invalid("endpoint version is non-positive")
        named, fields = self._spec(request.spec, call)
        changed = await self._endpoints.update(request.id, request.version, named, **fields)
        return UpdateNexusEndpointResponse(endpoint=_endpoint(named, changed))

    async def delete_nexus_endpoint(
        self, request: DeleteNexusEndpointRequest, call: CallContext
    ) -> DeleteNexusEndpointResponse:
        """Delete an endpoint."""
        del call
        _need_id(request.id)
        if request.version <= 0:
            raise invalid("endpoint version is non-positive")
        await self._endpoints.delete(request.id)
        return DeleteNexusEndpointResponse()

    async def get_nexus_endpoint(self, request: GetNexusEndpointRequest, call: CallContext) -> GetNexusEndpointResponse:
        """Return one endpoint."""
        del call
        _need_id(request.id)
        found = await self._endpoints.find(request.id)
        if found is None:
            raise not_found(f"Nexus endpoint with ID `{request.id}` not found")
        return GetNexusEndpointResponse(endpoint=_endpoint(*found))

    async def list_nexus_endpoints(
        self, request: ListNexusEndpointsRequest, call: CallContext
    ) -> ListNexusEndpointsResponse:
        """List all endpoints, or the endpoint with a name."""
        del call
        known = await self._endpoints.all()
        if request.name:
            return ListNexusEndpointsResponse(
                endpoints=[_endpoint(n, e) for n, e in known.items() if n == request.name]
            )
        if request.page_size < 0:
            raise invalid("page_size is negative")
        if request.page_size > _MAX_PAGE:
            raise invalid(f"page_size exceeds limit of {_MAX_PAGE}")
        after = request.next_page_token.decode(errors="replace")
        # In the order of Temporal's server, by ID, so that a deletion between two pages changes nothing.
        found = sorted(((n, e) for n, e in known.items() if e.id > after), key=lambda each: each[1].id)
        page = found[: request.page_size or _PAGE]
        response = ListNexusEndpointsResponse(endpoints=[_endpoint(*each) for each in page])
        if len(page) < len(found):
            response.next_page_token = page[-1][1].id.encode()
        return response

    def _spec(self, spec: EndpointSpec, call: CallContext) -> tuple[str, dict[str, Any]]:
        """The name and the fields of an endpoint.

        Raises:
            RpcError: The endpoint is not valid.
        """
        issues = _name_issues(spec.name)
        target = spec.target.worker
        match spec.target.WhichOneof("variant"):
            case "worker":
                if not target.namespace:
                    issues.append("target namespace not set")
                elif target.namespace not in self._served:
                    missing = f"Namespace {target.namespace} is not found."
                    raise precondition(f"could not verify namespace referenced by target exists: {missing}")
                if not target.task_queue or len(target.task_queue) > values.MAX_ID:
                    issues.append('invalid target task queue: "taskQueue is not set, or its length exceeds limit"')
            case "external":
                issues.append("external endpoints are not supported: the target must be a namespace and a task queue")
            case _:
                issues.append("empty target variant")
        if spec.description.ByteSize() > _MAX_DESCRIPTION:
            issues.append(f"description size exceeds limit of {_MAX_DESCRIPTION}")
        if issues:
            raise invalid(", ".join(issues))
        description = data.one_to_json(spec.description) if spec.HasField("description") else None
        fields = {"namespace": target.namespace, "task_queue": target.task_queue, "description": description}
        given_callers = [str(value) for key, value in call.metadata if key == CALLERS_HEADER]
        if given_callers:
            callers = (each.strip() for each in ",".join(given_callers).split(","))
            fields["allowed_callers"] = tuple(filter(None, callers))
        return spec.name, fields


def _name_issues(named: str) -> list[str]:
    if not named:
        return ["endpoint name not set"]
    issues = []
    if len(named) > _MAX_NAME:
        issues.append(f"endpoint name exceeds length limit of {_MAX_NAME}")
    if not _NAME.fullmatch(named):
        issues.append('endpoint name must match the regex: "^[a-zA-Z][a-zA-Z0-9\\\\-]*[a-zA-Z0-9]$"')
    return issues


def _need_id(endpoint_id: str) -> None:
    if not endpoint_id:
        raise invalid("endpoint ID not set")
    if not values.is_uuid(endpoint_id):
        raise invalid(f'malformed endpoint ID: "{endpoint_id[:63]}"')


def _endpoint(named: str, endpoint: Endpoint) -> ProtoEndpoint:
    made = ProtoEndpoint(
        id=endpoint.id, version=endpoint.version, url_prefix=f"/nexus/endpoints/{endpoint.id}/services"
    )
    made.spec.name = named
    made.spec.target.worker.namespace = endpoint.namespace
    made.spec.target.worker.task_queue = endpoint.task_queue
    if endpoint.description is not None:
        made.spec.description.CopyFrom(data.one_payload(endpoint.description))
    made.created_time.FromDatetime(endpoint.created_time)
    if endpoint.last_modified_time is not None:
        made.last_modified_time.FromDatetime(endpoint.last_modified_time)
    return made
