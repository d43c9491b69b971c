"""How an event changes a Nexus operation."""

from datetime import datetime
from typing import TypeAlias

import msgspec

from perdure.engine import events as ev
from perdure.engine.state.nexus_operation import HandlerCalls, OperationCancellation, PendingOperation

OperationEvent: TypeAlias = (
    ev.NexusOperationScheduled
    | ev.NexusOperationStarted
    | ev.NexusOperationCancelRequested
    | ev.NexusOperationCancelRequestCompleted
    | ev.NexusOperationCancelRequestFailed
)


def event_operation(event: OperationEvent) -> int:
    """ID of the event that scheduled the operation of an event."""
    return event.event_id if isinstance(event, ev.NexusOperationScheduled) else event.scheduled_event_id


def operation_after(before: PendingOperation | None, event: OperationEvent) -> PendingOperation | None:
    """An operation after an event; None if it no longer exists."""
    change = msgspec.structs.replace
    if isinstance(event, ev.NexusOperationScheduled):
        return PendingOperation(
            scheduled_event_id=event.event_id,
            endpoint=event.endpoint,
            endpoint_id=event.endpoint_id,
            handler_namespace=event.handler_namespace,
            service=event.service,
            operation=event.operation,
            input=event.input,
            schedule_to_close_timeout=event.schedule_to_close_timeout,
            schedule_to_start_timeout=event.schedule_to_start_timeout,
            start_to_close_timeout=event.start_to_close_timeout,
            header=event.nexus_header,
            request_id=event.request_id,
            scheduled_time=event.event_time,
            calls=HandlerCalls(due=event.event_time),
        )
    if before is None:
        return None
    cancellation = before.cancellation
    match event:
        case ev.NexusOperationStarted():
            if cancellation is not None:
                cancellation = _may_cancel(cancellation, event.event_time)
            return change(
                before,
                input=None,
                handler_namespace=event.handler_namespace,
                started_time=event.event_time,
                operation_token=event.operation_token,
                cancellation=cancellation,
                calls=before.calls.answered(event.event_time),
            )
        case ev.NexusOperationCancelRequested():
            cancellation = OperationCancellation(requested_event_id=event.event_id)
            if before.started_time is not None:
                cancellation = _may_cancel(cancellation, event.event_time)
        case _:
            assert cancellation is not None
            done = isinstance(event, ev.NexusOperationCancelRequestCompleted)
            calls = cancellation.calls and cancellation.calls.answered(event.event_time)
            if calls is not None and isinstance(event, ev.NexusOperationCancelRequestFailed):
                calls = change(calls, last_failure=event.failure)
            cancellation = change(cancellation, state="Succeeded" if done else "Failed", calls=calls)
    return change(before, cancellation=cancellation)


def _may_cancel(cancellation: OperationCancellation, time: datetime) -> OperationCancellation:
    return msgspec.structs.replace(cancellation, calls=HandlerCalls(due=time), requested_time=time)
