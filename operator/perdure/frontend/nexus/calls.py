"""Calls of Nexus handlers, kept in memory: dispatch them to workers, and pass the responses to the waiting run.

The state of the run determines which handlers to call, and repeats a call without a timely response. So nothing here is needed
after a restart. A call leaves the namespace of the run only if the endpoint admits that namespace at that moment.
"""

import asyncio
import uuid
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import structlog
from temporalio.api.common.v1 import Link
from temporalio.api.enums.v1 import EventType
from temporalio.api.nexus.v1 import Link as NexusLink
from temporalio.api.nexus.v1 import Request

from perdure.api.reasons import ConditionReason
from perdure.controller.directory import Entry
from perdure.controller.workers import FollowedRun
from perdure.engine import inputs
from perdure.engine.failures import Failure, FailureKind
from perdure.engine.inputs import OperationOutcome
from perdure.engine.nexus import too_large
from perdure.engine.state import HandlerCalls, PendingOperation, RunState
from perdure.frontend.errors import RpcError
from perdure.frontend.matching.offers import Destination, Matching, key_of
from perdure.frontend.matching.queues import Kind, Offer, QueueName
from perdure.frontend.messages import payloads as data
from perdure.frontend.messages.nexus import link_to_event
from perdure.frontend.nexus import links as nexus_links
from perdure.frontend.nexus.endpoints import Endpoint, EndpointRegistry
from perdure.frontend.runs.gateway import RunGateway
from perdure.kube.clock import now
from perdure.runtime.callbacks import SYSTEM_URL, TOKEN_HEADER, CallbackToken

_REQUEST_TIMEOUT, _JAVAS_REQUEST_TIMEOUT = "request-timeout", "Request-Timeout"
_OPERATION_TIMEOUT = "operation-timeout"
_log = structlog.get_logger("perdure.frontend.nexus")


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

    def __init__(self, runs: RunGateway, matching: Matching, endpoints: EndpointRegistry) -> None:
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
        if endpoint.namespace not in self._runs.served:
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
        return self._runs.entry(call.name.run_id)

    def request(self, call: HandlerCall) -> Request | None:
        """The request for a worker; None if the run no longer waits for the call."""
        run = self._runs.get(call.name.run_id)
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
        return nexus_links.to_operation(caller)
    link = link_to_event(run.ref, operation.scheduled_event_id, EventType.EVENT_TYPE_NEXUS_OPERATION_SCHEDULED)
    return nexus_links.to_event(link.workflow_event)


def _remaining_times(operation: PendingOperation, time: datetime) -> Iterator[timedelta]:
    if operation.start_to_close_timeout is not None:
        yield operation.start_to_close_timeout
    if operation.schedule_to_close_timeout is not None:
        yield operation.scheduled_time + operation.schedule_to_close_timeout - time


def set_request_timeout(request: Request, seconds: float) -> None:
    """Set the header that tells a handler how long the caller waits."""
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
