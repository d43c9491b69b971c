"""Describe open Nexus operations of workflows and standalone ones for Temporal's API. Pure."""

from datetime import datetime, timedelta
from typing import Any

from temporalio.api.enums.v1 import NexusOperationCancellationState, PendingNexusOperationState
from temporalio.api.workflow.v1 import PendingNexusOperationInfo

from perdure.engine.state import HandlerCalls, PendingOperation
from perdure.frontend.messages import failures, values
from perdure.frontend.messages.values import to_enum

TIMEOUTS = ("schedule_to_close_timeout", "schedule_to_start_timeout", "start_to_close_timeout")


def pending_operation(operation: PendingOperation, now: datetime) -> PendingNexusOperationInfo:
    """Describe an operation that a workflow waits for."""
    made = PendingNexusOperationInfo(
        endpoint=operation.endpoint,
        service=operation.service,
        operation=operation.operation,
        operation_id=operation.operation_token,
        operation_token=operation.operation_token,
        scheduled_event_id=operation.scheduled_event_id,
        state=state_of(operation, now),
    )
    set_calls(made, operation.calls, now)
    values.set_time(made, "scheduled_time", operation.scheduled_time)
    for name in TIMEOUTS:
        getattr(made, name).FromTimedelta(getattr(operation, name) or timedelta(0))
    if operation.cancellation is not None:
        set_cancellation(made.cancellation_info, operation, now)
        values.set_time(made.cancellation_info, "requested_time", operation.cancellation.requested_time)
    return made


def state_of(operation: PendingOperation, now: datetime) -> "PendingNexusOperationState.ValueType":
    """The state of an open operation."""
    calling = "BackingOff" if operation.calls.due > now else "Scheduled"
    found: PendingNexusOperationState.ValueType = to_enum(
        PendingNexusOperationState, "Started" if operation.started_time else calling
    )
    return found


def set_cancellation(info: Any, operation: PendingOperation, now: datetime) -> None:
    """Describe the cancellation of an operation and the calls of its handler."""
    cancellation = operation.cancellation
    if cancellation is None:
        return
    state = cancellation.state
    if cancellation.calls is not None:
        state = state or ("BackingOff" if cancellation.calls.due > now else "Scheduled")
        set_calls(info, cancellation.calls, now)
    info.state = to_enum(NexusOperationCancellationState, state)


def set_calls(info: Any, calls: HandlerCalls, now: datetime) -> None:
    """Describe the calls of a handler."""
    info.attempt = calls.attempts
    values.set_time(info, "last_attempt_complete_time", calls.last_attempt_complete_time)
    if calls.last_failure is not None:
        info.last_attempt_failure.CopyFrom(failures.to_proto(calls.last_failure))
    if calls.due > now:
        values.set_time(info, "next_attempt_schedule_time", calls.due)
