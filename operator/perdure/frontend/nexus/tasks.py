"""Nexus tasks: calls of handlers, which workers poll for and answer. The calls are kept in memory.

The state of a run determines which handlers to call, and repeats a call without a timely response. So nothing here is needed
after a restart. A call leaves the namespace of the run only if the endpoint admits that namespace at that moment.

Clients call handlers directly through the HTTP API. No run repeats such a call: without a response in time, and if the operator
ends, the client retries it.
"""

import asyncio
import uuid
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import structlog
from temporalio.api.common.v1 import Link
from temporalio.api.enums.v1 import EventType, NexusHandlerErrorRetryBehavior
from temporalio.api.nexus.v1 import HandlerError, Request, StartOperationResponse
from temporalio.api.nexus.v1 import Link as NexusLink
from temporalio.api.workflowservice.v1 import (
    PollNexusTaskQueueRequest,
    PollNexusTaskQueueResponse,
    RespondNexusTaskCompletedRequest,
    RespondNexusTaskCompletedResponse,
    RespondNexusTaskFailedRequest,
    RespondNexusTaskFailedResponse,
)

from perdure.api.reasons import ConditionReason
from perdure.controller.directory import Directory, Entry
from perdure.controller.dispatch.runs import WorkflowRuns
from perdure.controller.fleet.shards import SHARDS, Shards, shard_of
from perdure.controller.namespaces import ServedNamespaces
from perdure.controller.workers import FollowedRun
from perdure.engine import inputs
from perdure.engine.failures import Failure, FailureKind
from perdure.engine.inputs import OperationOutcome
from perdure.engine.nexus import too_large
from perdure.engine.state import HandlerCalls, PendingOperation, RunState
from perdure.frontend.deployments.versions import Versions
from perdure.frontend.errors import RpcError, invalid, not_found, too_late, unavailable
from perdure.frontend.matching.polls import LONGEST_POLL
from perdure.frontend.matching.queues import Destination, Kind, Matching, Offer, Poller, QueueName, key_of
from perdure.frontend.messages import failures, values
from perdure.frontend.messages import payloads as data
from perdure.frontend.messages.nexus import link_to_event
from perdure.frontend.messages.tokens import NexusToken, pack, unpack
from perdure.frontend.messages.values import MAX_BLOB, UnfitError, from_enum
from perdure.frontend.nexus import protocol
from perdure.frontend.nexus.endpoints import Endpoint, EndpointRegistry
from perdure.frontend.runs.gateway import RunGateway
from perdure.frontend.transport.rpc import CallContext
from perdure.frontend.workers import KnownWorkers
from perdure.kube.clock import monotonic, now
from perdure.runtime.callbacks import SYSTEM_URL, TOKEN_HEADER, CallbackToken

MAX_TOKEN = 4_096
"""Maximum length of an operation token, in characters."""
_REQUEST_TIMEOUT, _JAVAS_REQUEST_TIMEOUT = "request-timeout", "Request-Timeout"
_OPERATION_TIMEOUT = "operation-timeout"
_log = structlog.get_logger("perdure.frontend.nexus")


# Calls by runs


@dataclass(frozen=True, slots=True)
class CallName:
    """One call of a handler: an attempt to start an operation, or to cancel it."""

    run_id: str
    scheduled_event_id: int
    attempt: int
    cancels: bool


@dataclass(slots=True)
class HandlerCall:
    """A call that needs a response from a handler."""

    name: CallName
    call_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    queue: QueueName | None = None
    """The task queue; None until the endpoint is known."""
    endpoint: str = ""

    @property
    def offer(self) -> Offer:
        """The offer in the task queue."""
        return Offer(self.name.run_id, query=self.call_id)


class OpenHandlerCalls:
    """The calls that wait for a worker, or for its response."""

    def __init__(
        self,
        *,
        served: ServedNamespaces,
        directory: Directory,
        open_runs: WorkflowRuns,
        runs: RunGateway,
        matching: Matching,
        endpoints: EndpointRegistry,
    ) -> None:
        self._served = served
        self._directory = directory
        self._open_runs = open_runs
        self._runs = runs
        self._matching = matching
        self._endpoints = endpoints
        self._calls: dict[str, HandlerCall] = {}
        self._of_run: dict[str, dict[CallName, HandlerCall]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def follow(self, run: FollowedRun, state: RunState | None) -> None:
        """Make the calls that the new state of a run requires, and withdraw the others."""
        run_id = run.ref.uid
        known = self._of_run.get(run_id, {})
        due = {} if state is None else {_name(run_id, *each): each for each in state.offered_calls(now())}
        for name in known.keys() - due.keys():
            self._drop(known.pop(name))
        for name in due.keys() - known.keys():
            call = known[name] = HandlerCall(name)
            self._calls[call.call_id] = call
            self._spawn(self._dispatch(call, run.ref.namespace, due[name][0]))
        if known:
            self._of_run[run_id] = known
        else:
            self._of_run.pop(run_id, None)

    def get(self, call_id: str) -> HandlerCall | None:
        """Return an open call."""
        return self._calls.get(call_id)

    def take(self, call_id: str, namespace: str) -> HandlerCall | None:
        """Remove and return a call that a worker of a namespace has answered, because a call has one response."""
        call = self._calls.get(call_id)
        if call is None or call.queue is None or call.queue.namespace != namespace:
            return None
        del self._calls[call_id]
        return call

    def _drop(self, call: HandlerCall) -> None:
        self._calls.pop(call.call_id, None)
        if call.queue is not None:
            self._matching.settle(key_of(call.offer), {})

    def _spawn(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.get_running_loop().create_task(work, name="Nexus call")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _dispatch(self, call: HandlerCall, namespace: str, operation: PendingOperation) -> None:
        """Put a call into the task queue of its endpoint; report a failure if the endpoint does not admit it."""
        try:
            found = await self._endpoints.find(operation.endpoint_id, operation.endpoint)
        except RpcError as error:
            _log.warning("The Nexus endpoints cannot be read", error=error.message)
            return  # the call times out, and is repeated
        if call.call_id not in self._calls:
            return
        failure = self._refusal(found[1] if found is not None else None, namespace)
        if failure is not None or found is None:
            await self.report(call, failure)
            return
        call.endpoint, endpoint = found
        call.queue = QueueName(endpoint.namespace, Kind.NEXUS, endpoint.task_queue)
        self._matching.settle(key_of(call.offer), {call.offer: Destination(call.queue)})

    def _refusal(self, endpoint: Endpoint | None, namespace: str) -> Failure | None:
        """Why workflows of a namespace may not call an endpoint; None if they may."""
        if endpoint is None:
            return _handler_error("NOT_FOUND", "endpoint not registered")
        if not endpoint.admits(namespace):
            return _handler_error(
                "UNAUTHORIZED", f"caller namespace {namespace!r} is not in the endpoint's allowedCallers"
            )
        if endpoint.namespace not in self._served:
            return _handler_error("NOT_FOUND", f"namespace not found: {endpoint.namespace!r}")
        return None

    async def report(
        self, call: HandlerCall, failure: Failure | None, outcome: inputs.OperationReported | None = None
    ) -> None:
        """Report the outcome of a call to its run."""
        entry = self.entry(call)
        if entry is None:
            return
        name, request_id = call.name, uuid.uuid4().hex
        report: inputs.OperationInput
        if outcome is not None:
            report = outcome
        elif name.cancels:
            report = inputs.OperationCancelReported(
                request_id=request_id,
                scheduled_event_id=name.scheduled_event_id,
                attempt=name.attempt,
                failure=failure,
                retryable=failure is not None and is_retryable(failure),
            )
        else:
            assert failure is not None
            report = inputs.OperationReported(
                request_id=request_id,
                scheduled_event_id=name.scheduled_event_id,
                attempt=name.attempt,
                outcome=OperationOutcome.ATTEMPT_FAILED if is_retryable(failure) else OperationOutcome.REFUSED,
                failure=failure,
            )
        answer = await self._runs.request(entry, report)
        if answer.reason == ConditionReason.PAYLOAD_TOO_LARGE and isinstance(report, inputs.OperationReported):
            await self._runs.request(entry, too_large(report))

    def entry(self, call: HandlerCall) -> Entry | None:
        """The run that waits for a call."""
        return self._directory.get(call.name.run_id)

    def request(self, call: HandlerCall) -> Request | None:
        """The request for a worker; None if the run no longer waits for the call."""
        run = self._open_runs.get(call.name.run_id)
        state = run.state if run is not None else None
        if run is None or state is None:
            return None
        for operation, calls in state.offered_calls(now()):
            if _name(run.ref.uid, operation, calls) == call.name:
                return _request(run, operation, calls, call)
        return None


def _name(run_id: str, operation: PendingOperation, calls: HandlerCalls) -> CallName:
    cancels = operation.started_time is not None
    return CallName(run_id, operation.scheduled_event_id, calls.attempt, cancels)


def _request(run: FollowedRun, operation: PendingOperation, calls: HandlerCalls, call: HandlerCall) -> Request:
    time = now()
    made = Request(endpoint=call.endpoint, header=operation.header)
    made.scheduled_time.FromDatetime(calls.due)
    made.capabilities.temporal_failure_responses = True
    set_request_timeout(made, (operation.call_deadline(calls) - time).total_seconds())
    if call.name.cancels:
        cancel = made.cancel_operation
        cancel.service, cancel.operation = operation.service, operation.operation
        cancel.operation_token = cancel.operation_id = operation.operation_token
        return made
    longest = min(_remaining_times(operation, time), default=None)
    if longest is not None and _OPERATION_TIMEOUT not in made.header:
        made.header[_OPERATION_TIMEOUT] = milliseconds(longest)
    start = made.start_operation
    start.service, start.operation, start.request_id = operation.service, operation.operation, operation.request_id
    start.payload.CopyFrom(data.null_payload() if operation.input is None else data.one_payload(operation.input))
    token = CallbackToken(
        namespace=run.ref.namespace,
        name=run.ref.name,
        workflow_id=run.ref.workflow_id,
        run_id=run.ref.uid,
        scheduled_event_id=operation.scheduled_event_id,
        request_id=operation.request_id,
    )
    start.callback, start.callback_header[TOKEN_HEADER] = SYSTEM_URL, token.text()
    start.links.append(_link(run, operation))
    return made


def _link(run: FollowedRun, operation: PendingOperation) -> NexusLink:
    """The link to the caller of a handler: an event of a workflow, or a standalone operation."""
    if run.state is not None and run.state.standalone:
        caller = Link.NexusOperation(namespace=run.ref.namespace, operation_id=run.ref.workflow_id, run_id=run.ref.uid)
        return protocol.operation_link(caller)
    link = link_to_event(run.ref, operation.scheduled_event_id, EventType.EVENT_TYPE_NEXUS_OPERATION_SCHEDULED)
    return protocol.event_link(link.workflow_event)


def _remaining_times(operation: PendingOperation, time: datetime) -> Iterator[timedelta]:
    if operation.start_to_close_timeout is not None:
        yield operation.start_to_close_timeout
    if operation.schedule_to_close_timeout is not None:
        yield operation.scheduled_time + operation.schedule_to_close_timeout - time


def set_request_timeout(request: Request, seconds: float) -> None:
    """Set the header with the time that the caller waits."""
    request.header[_REQUEST_TIMEOUT] = request.header[_JAVAS_REQUEST_TIMEOUT] = milliseconds(timedelta(seconds=seconds))


def milliseconds(length: timedelta) -> str:
    """A duration in the format of Nexus headers."""
    return f"{max(length // timedelta(milliseconds=1), 0)}ms"


_FINAL = frozenset({"BAD_REQUEST", "UNAUTHENTICATED", "UNAUTHORIZED", "NOT_FOUND", "NOT_IMPLEMENTED", "CONFLICT"})
"""Types of permanent handler errors (nexus-rpc/sdk-go: HandlerError.Retryable)."""


def is_retryable(failure: Failure) -> bool:
    """Whether a call is repeated after a failure."""
    if failure.kind is not FailureKind.NEXUS_HANDLER:
        return not failure.non_retryable
    if failure.retry_behavior is not None:
        return failure.retry_behavior == "Retryable"
    return failure.type not in _FINAL


def _handler_error(kind: str, message: str) -> Failure:
    return Failure(kind=FailureKind.NEXUS_HANDLER, type=kind, message=message)


# Calls by clients

Answer = RespondNexusTaskCompletedRequest | RespondNexusTaskFailedRequest
"""The response of a worker to a call."""


@dataclass(frozen=True, slots=True)
class DispatchNexusTaskRequest:
    """A call of a handler. The public API has no message for it: clients send HTTP requests."""

    namespace: str
    """The namespace whose workers handle the call."""
    task_queue: str
    request: Request


@dataclass(slots=True)
class DirectCall:
    """A call that a client waits for."""

    queue: QueueName
    deadline: float
    """The deadline, as a time of `monotonic`."""
    received: Request
    answer: "asyncio.Future[Answer]"
    call_id: str = field(default_factory=lambda: uuid.uuid4().hex)

    @property
    def offer(self) -> Offer:
        """The offer in the task queue."""
        return Offer("", query=self.call_id)

    def request(self) -> Request:
        """The request for a worker that takes the call now."""
        made = Request()
        made.CopyFrom(self.received)
        set_request_timeout(made, self.deadline - monotonic())
        return made


class DirectCalls:
    """The calls that clients wait for."""

    def __init__(self, matching: Matching) -> None:
        """Offer calls through `matching`."""
        self._matching = matching
        self._calls: dict[str, DirectCall] = {}

    async def call(self, request: DispatchNexusTaskRequest, seconds: float) -> Answer:
        """Call a handler.

        Raises:
            TimeoutError: No worker has responded within `seconds`.
        """
        queue = QueueName(request.namespace, Kind.NEXUS, request.task_queue)
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        call = DirectCall(queue, monotonic() + seconds, request.request, answer)
        self._calls[call.call_id] = call
        try:
            self._matching.settle(key_of(call.offer), {call.offer: Destination(queue)})
            async with asyncio.timeout(seconds):
                return await answer
        finally:
            self._calls.pop(call.call_id, None)
            self._matching.settle(key_of(call.offer), {})

    def get(self, call_id: str) -> DirectCall | None:
        """Return an open call."""
        return self._calls.get(call_id)

    def report(self, call_id: str, namespace: str, answer: Answer) -> bool:
        """Pass the response of a worker to the client; return whether the client was waiting. A call has one response."""
        call = self._calls.get(call_id)
        if call is None or call.queue.namespace != namespace or call.answer.done():
            return False
        call.answer.set_result(answer)
        return True


class NexusDispatch:
    """Lets workers handle the calls of clients."""

    def __init__(self, shards: Shards, direct_calls: DirectCalls) -> None:
        self._shards = shards
        self._direct_calls = direct_calls

    async def dispatch_nexus_task(self, request: DispatchNexusTaskRequest, call: CallContext) -> Answer:
        """Pass a call to a worker, and wait for its response.

        Raises:
            RpcError: The call is invalid, no worker has answered it in time, or this operator could not receive the response.
        """
        values.name(request.task_queue, "TaskQueue")
        if request.request.start_operation.payload.ByteSize() > MAX_BLOB:
            raise invalid("input exceeds size limit")
        if not any(map(self._shards.owns_shard, range(SHARDS))):
            # The response of the worker would be routed to another member: one with few of many members may own none.
            raise unavailable("this operator owns no shard at the moment, so no response would reach it; retry later")
        request.request.scheduled_time.FromDatetime(now())
        try:
            return await self._direct_calls.call(request, call.within(LONGEST_POLL))
        except TimeoutError:
            raise too_late("upstream timeout") from None


# RPCs of workers


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
        named = QueueName(request.namespace, Kind.NEXUS, values.name(request.task_queue.name, "TaskQueue"))
        await self._versions.polled_queue(named, request.deployment_options)  # registers the version
        self._workers.record(request.namespace, request.worker_heartbeat)
        # Workers of every version handle calls.
        task: PollNexusTaskQueueResponse | None = await self._matching.poll(
            named, request.identity, call.within(LONGEST_POLL), call.recheck, through=call.member
        )
        return task if task is not None else PollNexusTaskQueueResponse()

    async def _take(self, offer: Offer, poller: Poller, /) -> PollNexusTaskQueueResponse | None:
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
        started = request.response.start_operation
        if started.HasField("async_success"):
            token = started.async_success.operation_token or started.async_success.operation_id
            if not token:
                raise invalid("missing opration token in response")
            if len(token) > MAX_TOKEN:
                raise invalid(f"operation token length exceeds allowed limit ({len(token)}/{MAX_TOKEN})")
        failed = started.operation_error.failure
        if failed.details and not protocol.is_json(failed.details):
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
                    "links": protocol.links_of_handler(started.links),
                }
            case "failure":
                answer["failure"] = failures.to_json(response.failure)
            case "operation_error":
                answer["failure"] = failures.to_json(protocol.to_temporal(response.operation_error.failure))
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
    return {"outcome": OperationOutcome.COMPLETED, "result": result, "links": protocol.links_of_handler(success.links)}


# Failures from older SDKs


def _handler_failure(error: HandlerError) -> Failure:
    """The failure for a handler error without one of Temporal's (frontend: convertOutcomeToNexusHandlerError)."""
    behavior = from_enum(NexusHandlerErrorRetryBehavior, error.retry_behavior) if error.retry_behavior else None
    cause = failures.to_json(protocol.to_temporal(error.failure))
    return Failure(kind=FailureKind.NEXUS_HANDLER, type=error.error_type, retry_behavior=behavior, cause=cause)


def _as_cancelled(failure: Failure) -> Failure:
    if failure.kind is FailureKind.CANCELLED:
        return failure
    return Failure(
        kind=FailureKind.CANCELLED, message=failure.message, stack_trace=failure.stack_trace, cause=failure.cause
    )
