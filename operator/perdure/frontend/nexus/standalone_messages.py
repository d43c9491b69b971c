"""Describe standalone Nexus operations for Temporal's API, like chasm/lib/nexusoperation of Temporal's server. Pure."""

from collections.abc import Sequence
from datetime import datetime

from temporalio.api.common.v1 import Payload, SearchAttributes
from temporalio.api.enums.v1 import NexusOperationExecutionStatus
from temporalio.api.failure.v1 import Failure as ProtoFailure
from temporalio.api.nexus.v1 import NexusOperationExecutionInfo

from perdure.engine import events as ev
from perdure.engine.failures import Failure, FailureKind
from perdure.engine.state import PendingOperation, RunState
from perdure.frontend.messages import failures, links
from perdure.frontend.messages import payloads as data
from perdure.frontend.messages.enums import to_enum
from perdure.frontend.nexus.pending import TIMEOUTS, set_calls, set_cancellation, set_time, state_of
from perdure.frontend.visibility.index import VisibilityRecord
from perdure.kube import client as kube
from perdure.runtime.chains import extras_of

_BY_HANDLER = (ev.NexusOperationCompleted, ev.NexusOperationFailed, ev.NexusOperationCanceled)
_ENDED = (*_BY_HANDLER, ev.NexusOperationTimedOut)


def operation_of(state: RunState) -> PendingOperation | None:
    """The operation of a run that is a standalone Nexus operation; None before it is scheduled."""
    return next(iter((*state.operations.values(), *state.left_operations.values())), None)


def outcome_of(history: Sequence[ev.AnyEvent]) -> Payload | ProtoFailure:
    """The outcome of a closed standalone Nexus operation.

    Args:
        history: Its events, or the last events of a long history.
    """
    closing = history[-1]
    if isinstance(closing, ev.WorkflowExecutionTerminated):
        made = ProtoFailure(message=closing.reason)
        made.terminated_failure_info.identity = closing.identity
        return made
    ended = _end(history)
    if isinstance(ended, ev.NexusOperationCompleted):
        if ended.result is None:
            return data.null_payload()
        return data.one_payload(ended.result)
    # The history says whose operation it was; here, that is known.
    failure = ended.failure.cause or ended.failure if ended is not None else ev.failure_of(closing)
    return failures.to_proto(failure or Failure(kind=FailureKind.SERVER, message="the outcome was not kept"))


def _end(
    history: Sequence[ev.AnyEvent],
) -> (
    ev.NexusOperationCompleted | ev.NexusOperationFailed | ev.NexusOperationCanceled | ev.NexusOperationTimedOut | None
):
    return next((event for event in reversed(history) if isinstance(event, _ENDED)), None)


def described(
    run: kube.Object, record: VisibilityRecord, state: RunState, history: Sequence[ev.AnyEvent], now: datetime
) -> NexusOperationExecutionInfo:
    """Describe a standalone Nexus operation.

    Args:
        run: The WorkflowRun of the operation.
        record: The record of the run in lists.
        state: The state of the run, which has begun.
        history: The events of the run.
        now: The time.
    """
    extras, operation = extras_of(run), operation_of(state)
    made = NexusOperationExecutionInfo(
        operation_id=record.workflow_id,
        run_id=record.run_id,
        endpoint=record.endpoint,
        service=record.service,
        operation=record.workflow_type,
        status=to_enum(NexusOperationExecutionStatus, record.status),
        identity=extras.identity,
        user_metadata=data.user_metadata(extras.user_metadata),
        search_attributes=data.attributes(record.search_attributes) or SearchAttributes(),
        state_transition_count=record.history_length,
        state_size_bytes=record.history_size,
    )
    made.schedule_time.FromDatetime(state.start_time)
    made.execution_duration.FromTimedelta((state.close_time or now) - state.start_time)
    set_time(made, "close_time", state.close_time)
    if operation is None:
        return made
    made.request_id, made.operation_token = operation.request_id, operation.operation_token
    made.nexus_header.update(operation.header)
    for name in TIMEOUTS:
        if (length := getattr(operation, name)) is not None:
            getattr(made, name).FromTimedelta(length)
    if operation.schedule_to_close_timeout is not None:
        made.expiration_time.FromDatetime(operation.scheduled_time + operation.schedule_to_close_timeout)
    _describe_calls(made, operation, state, history, now)
    _describe_cancellation(made, operation, history, now)
    for event in history:
        if isinstance(event, ev.NexusOperationStarted | ev.NexusOperationCompleted):
            made.links.extend(links.from_json(event.links))
    return made


def _describe_calls(
    made: NexusOperationExecutionInfo,
    operation: PendingOperation,
    state: RunState,
    history: Sequence[ev.AnyEvent],
    now: datetime,
) -> None:
    """Describe the calls that start the operation, including a call that has not failed."""
    time, calls = state.close_time or now, operation.calls
    set_calls(made, calls, time)
    if operation.started_time is None and calls.due <= time:
        made.attempt = calls.attempt
    if not state.closed:
        made.state = state_of(operation, now)
        return
    made.ClearField("next_attempt_schedule_time")
    ended = _end(history)
    if ended is None or isinstance(ended, ev.NexusOperationCompleted) or operation.started_time is not None:
        return
    if not isinstance(ended, ev.NexusOperationTimedOut) or calls.due <= time:  # a call was due, or its answer has come
        made.last_attempt_complete_time.FromDatetime(ended.event_time)
        made.last_attempt_failure.CopyFrom(failures.to_proto(ended.failure.cause or ended.failure))


def _describe_cancellation(
    made: NexusOperationExecutionInfo, operation: PendingOperation, history: Sequence[ev.AnyEvent], now: datetime
) -> None:
    requested = next((event for event in history if isinstance(event, ev.WorkflowExecutionCancelRequested)), None)
    if requested is None:
        return
    info, cancellation = made.cancellation_info, operation.cancellation
    info.requested_time.FromDatetime(requested.event_time)
    info.reason = requested.cause
    set_cancellation(info, operation, now)
    calls = cancellation.calls if cancellation is not None else None
    if cancellation is not None and calls is not None and not cancellation.state and calls.due <= now:
        info.attempt = calls.attempt
