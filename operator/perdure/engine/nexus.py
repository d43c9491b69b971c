"""Nexus operations during a step: calls of their handlers, timeouts, and outcomes.

Temporal's model (components/nexusoperations): the server calls a handler to start an operation, and to cancel one that has
started. A failed call is retried with increasing delays. The handler completes the operation in its response, or later.
"""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

import msgspec

from perdure.engine import events as ev
from perdure.engine import inputs as inp
from perdure.engine.failures import Failure, FailureKind, TimeoutType, bounded
from perdure.engine.inputs import Answer, OperationOutcome
from perdure.engine.ledger import OK, Due, Ledger
from perdure.engine.state import OPERATION_CLOSED, HandlerCalls, PendingOperation, RunState

MAX_CALLBACKS = 2_000
"""Maximum number of operations that the end of one run can complete, as on Temporal's server."""
MAX_UPDATE_CALLBACKS = 32
"""Maximum number of operations that the end of one update can complete, as on Temporal's server."""
_LARGEST_FAILURE = 4 * 1024
"""Size limit of the stored failure of a retried call, in bytes."""
_TIMED_OUT = Failure(kind=FailureKind.NEXUS_HANDLER, type="UPSTREAM_TIMEOUT", message="upstream timeout")
_NOT_FOUND = Answer(ok=False, reason=inp.OPERATION_NOT_FOUND, message="operation not found")
Outcome = TypeVar("Outcome", inp.OperationReported, inp.OperationEnded)


class NexusOperations:
    """The Nexus operations of a run during a step."""

    def __init__(self, ledger: Ledger) -> None:
        """`ledger`: collects the output of the step."""
        self._ledger = ledger

    # Responses of handlers

    def handle(self, item: inp.OperationInput) -> Answer:
        """Process the response of a handler, or the end of an operation that it has started."""
        if not self._ledger.open():
            return Answer(ok=False, reason=inp.CLOSED, message="workflow execution already completed")
        match item:
            case inp.OperationReported():
                return self._start_answered(item)
            case inp.OperationCancelReported():
                return self._cancel_answered(item)
            case inp.OperationEnded():
                return self._ended(item)

    def _start_answered(self, item: inp.OperationReported) -> Answer:
        operation = self._called(item.scheduled_event_id)
        if operation is None or operation.started_time is not None or operation.calls.attempt != item.attempt:
            return _NOT_FOUND
        match item.outcome:
            case OperationOutcome.STARTED:
                self._started(operation, item)
            case OperationOutcome.ATTEMPT_FAILED:
                self._call_failed(operation, item.failure or _TIMED_OUT)
            case _:
                self._close(operation, item)
        return OK

    def _cancel_answered(self, item: inp.OperationCancelReported) -> Answer:
        operation = self._called(item.scheduled_event_id)
        calls = operation.open_call if operation is not None and operation.started_time is not None else None
        if operation is None or calls is None or calls.attempt != item.attempt:
            return _NOT_FOUND
        if item.failure is not None and item.retryable:
            self._call_failed(operation, item.failure)
        else:
            self._cancel_ended(operation, item.failure)
        return OK

    def _ended(self, item: inp.OperationEnded) -> Answer:
        """Complete an operation with the run that its handler started, possibly before the handler has responded."""
        operation = self._ledger.state.operations.get(str(item.scheduled_event_id))
        buffered = [
            each for each in self._buffered() if getattr(each, "scheduled_event_id", 0) == item.scheduled_event_id
        ]
        ended = any(isinstance(each, OPERATION_CLOSED) for each in buffered)
        if operation is None or ended or operation.request_id != item.operation_request_id:
            return _NOT_FOUND
        handler = next(
            (each.handler_namespace for each in buffered if isinstance(each, ev.NexusOperationStarted)), None
        )
        handles = (
            handler or operation.handler_namespace
        )  # unknown if a manifest names the endpoint of an unstarted operation
        if handles and handles != item.handler_namespace:
            return _NOT_FOUND
        if handler is None and operation.started_time is None:
            self._started(operation, item)
            operation = msgspec.structs.replace(operation, operation_token=item.operation_token)
        self._close(operation, item)
        return OK

    def _buffered(self) -> tuple[ev.AnyEvent, ...]:
        return self._ledger.state.code.buffered if self._ledger.state.code is not None else ()

    def _called(self, number: int) -> PendingOperation | None:
        """An operation whose handler is being called; None if the handler has responded."""
        if number in operations_buffered(self._ledger.state):
            return None
        return self._ledger.state.operations.get(str(number))

    # Callbacks

    def attach_callbacks(self, request: inp.CallbacksAttached) -> Answer:
        """Let the end of the run, or of one of its updates, complete further operations."""
        of_update = sum(each.update_id == request.update_id for each in self._ledger.state.callbacks.values())
        if request.update_id and of_update + len(request.callbacks) > MAX_UPDATE_CALLBACKS:
            message = (
                f'cannot attach more than {MAX_UPDATE_CALLBACKS} callbacks to update "{request.update_id}" '
                f"({of_update} callbacks already attached)"
            )
            return Answer(ok=False, reason=inp.TOO_MANY_CALLBACKS, message=message)
        if len(self._ledger.state.callbacks) + len(request.callbacks) > MAX_CALLBACKS:
            known = len(self._ledger.state.callbacks)
            message = (
                f"cannot attach more than {MAX_CALLBACKS} callbacks to a workflow ({known} callbacks already attached)"
            )
            return Answer(ok=False, reason=inp.TOO_MANY_CALLBACKS, message=message)
        self._ledger.emit(
            ev.WorkflowExecutionOptionsUpdated(
                attached_request_id=request.request_id,
                update_id=request.update_id,
                attached_completion_callbacks=request.callbacks,
                identity=request.identity,
                principal=request.principal,
                links=request.links,
                **self._ledger.position,
            ),
            decide=False,
        )
        return OK

    # Start and end of operations

    def _started(self, operation: PendingOperation, item: inp.OperationReported | inp.OperationEnded) -> None:
        if operation.restarted:
            self._started_again(operation, item)
            return
        self._ledger.emit(
            ev.NexusOperationStarted(
                scheduled_event_id=operation.scheduled_event_id,
                operation_token=item.operation_token,
                request_id=operation.request_id,
                handler_namespace=item.handler_namespace,
                links=item.links,
                **self._ledger.position,
            ),
            decide=True,
        )

    def _started_again(self, operation: PendingOperation, item: inp.OperationReported | inp.OperationEnded) -> None:
        """Record the start of an operation whose first start, before a reset, is in the history."""
        now, state = self._ledger.now, self._ledger.state
        cancellation = operation.cancellation
        if cancellation is not None:
            calls = HandlerCalls(due=now)
            cancellation = msgspec.structs.replace(cancellation, calls=calls, requested_time=now)
        started = msgspec.structs.replace(
            operation,
            input=None,
            handler_namespace=item.handler_namespace,
            started_time=now,
            operation_token=item.operation_token,
            cancellation=cancellation,
            calls=operation.calls.answered(now),
        )
        self._ledger.change(operations={**state.operations, str(operation.scheduled_event_id): started})
        self._ledger.durable = True

    def _close(self, operation: PendingOperation, item: inp.OperationReported | inp.OperationEnded) -> None:
        about: dict[str, Any] = {
            "scheduled_event_id": operation.scheduled_event_id,
            "request_id": operation.request_id,
            **self._ledger.position,
        }
        if item.outcome is OperationOutcome.COMPLETED:
            links = item.links if isinstance(item, inp.OperationReported) else None
            self._ledger.emit(ev.NexusOperationCompleted(result=item.result, links=links, **about), decide=True)
            return
        token = item.operation_token or operation.operation_token
        closed = ev.NexusOperationCanceled if item.outcome is OperationOutcome.CANCELED else ev.NexusOperationFailed
        failure = failure_of(msgspec.structs.replace(operation, operation_token=token), item.failure)
        self._ledger.emit(closed(failure=failure, **about), decide=True)

    def _call_failed(self, operation: PendingOperation, failure: Failure) -> None:
        """Record a failed call, and schedule the next one."""
        failure = bounded(failure, _LARGEST_FAILURE)
        change, cancellation = msgspec.structs.replace, operation.cancellation
        if operation.started_time is None:
            operation = change(operation, calls=operation.calls.failed(failure, self._ledger.now))
        elif cancellation is not None and cancellation.calls is not None:
            calls = cancellation.calls.failed(failure, self._ledger.now)
            operation = change(operation, cancellation=change(cancellation, calls=calls))
        self._ledger.change(operations={**self._ledger.state.operations, str(operation.scheduled_event_id): operation})
        self._ledger.durable = True

    def _cancel_ended(self, operation: PendingOperation, failure: Failure | None) -> None:
        assert operation.cancellation is not None
        about: dict[str, Any] = {
            "scheduled_event_id": operation.scheduled_event_id,
            "requested_event_id": operation.cancellation.requested_event_id,
            **self._ledger.position,
        }
        if failure is None:
            self._ledger.emit(ev.NexusOperationCancelRequestCompleted(**about), decide=True)
        else:
            self._ledger.emit(ev.NexusOperationCancelRequestFailed(failure=failure, **about), decide=True)

    # Deadlines

    def due(self) -> Iterator[Due]:
        """Yield due actions: timeouts, and calls without a response in time."""
        for operation in self._ledger.state.operations.values():
            number, calls = operation.scheduled_event_id, operation.open_call
            if self._called(number) is None:
                continue
            for place, (deadline, kind) in enumerate(operation.deadlines()):
                if deadline <= self._ledger.now and self._ledger.processes_deferrable():
                    yield deadline, 1, f"{number}/{place}", partial(self._time_out, number, kind)
            if calls is None or calls.due > self._ledger.now:
                continue
            late = operation.too_late_for(calls)
            if late is not None:
                if self._ledger.processes_deferrable():
                    yield calls.due, 1, f"{number}/late", partial(self._too_late, number, late)
            elif operation.call_deadline(calls) <= self._ledger.now:
                ended = partial(self._unanswered, number, calls)
                yield operation.call_deadline(calls), 1, f"{number}/call", ended

    def _unanswered(self, number: int, calls: HandlerCalls) -> None:
        operation = self._called(number)
        if operation is not None and operation.open_call == calls:
            self._call_failed(operation, _TIMED_OUT)

    def _too_late(self, number: int, kind: TimeoutType) -> None:
        """Time out an operation that has no time left for another call."""
        operation = self._called(number)
        if operation is None:
            return
        if operation.started_time is None:
            self._time_out(number, kind)
            return
        message = f"not enough time to execute another request before {kind} timeout"
        failure = Failure(kind=FailureKind.APPLICATION, type="CallError", message=message, non_retryable=True)
        self._cancel_ended(operation, failure)

    def _time_out(self, number: int, kind: TimeoutType) -> None:
        operation = self._called(number)
        if operation is None or kind not in {each for _, each in operation.deadlines()}:
            return
        cause = Failure(kind=FailureKind.TIMEOUT, message="operation timed out", timeout_type=kind)
        timed_out = ev.NexusOperationTimedOut(
            scheduled_event_id=number,
            request_id=operation.request_id,
            failure=failure_of(operation, cause),
            **self._ledger.position,
        )
        self._ledger.emit(timed_out, decide=True)


def operations_buffered(state: RunState) -> frozenset[int]:
    """The operations with events that are not recorded yet."""
    return state.code.operations_buffered() if state.code is not None else frozenset()


def wake_times(state: RunState) -> Iterator[datetime]:
    """Yield when the Nexus operations of a run need its next step."""
    for operation in state.operations.values():
        for deadline, _ in operation.deadlines():
            yield deadline
        calls = operation.open_call
        if calls is not None:
            yield calls.due
            yield operation.call_deadline(calls)


def too_large(outcome: Outcome) -> Outcome:
    """The failure that replaces an outcome that is too large for the run."""
    message = "the run that waits for the operation has no room for its result"
    failure = Failure(kind=FailureKind.APPLICATION, type="PayloadTooLarge", message=message, non_retryable=True)
    return replace(outcome, outcome=OperationOutcome.FAILED, result=None, failure=failure, links=None)


def failure_of(operation: PendingOperation, cause: Failure | None) -> Failure:
    """The failure of an operation (nexusoperations/executors.go: createNexusOperationFailure)."""
    return Failure(
        kind=FailureKind.NEXUS_OPERATION,
        message="nexus operation completed unsuccessfully",
        endpoint=operation.endpoint,
        service=operation.service,
        operation=operation.operation,
        operation_token=operation.operation_token or None,
        scheduled_event_id=operation.scheduled_event_id,
        cause=cause,
    )
