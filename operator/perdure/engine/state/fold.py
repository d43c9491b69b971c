"""How an event changes the state of a run."""

from datetime import timedelta
from typing import assert_never

import msgspec

from perdure.engine import events as ev
from perdure.engine.opaque import size_of
from perdure.engine.state.entries import removed
from perdure.engine.state.fold_callbacks import callbacks_after
from perdure.engine.state.fold_code import code_after, code_with_override
from perdure.engine.state.fold_end import closed_state, reset_state, without_input, without_payloads
from perdure.engine.state.fold_nexus import event_operation, operation_after
from perdure.engine.state.fold_start import first_state
from perdure.engine.state.pending import HeldLimits, PendingChild, PendingExternal, PendingTimer
from perdure.engine.state.pending_activity import PauseInfo, PendingActivity
from perdure.engine.state.run_state import RunState

DEAD_LETTER = "DeadLetter"
"""Name of a marker whose details become a DeadLetter; the state keeps it until that is created."""

LIMITS_RELEASED = "LimitsReleased"
"""Name of a marker that ends the hold of a step on its WorkflowLimits; its details are the ID of the activity that took them."""

SUGGEST_EVENTS = 10_000
"""Number of events above which continue-as-new is suggested."""

SUGGEST_BYTES = 8 * 1024 * 1024
"""Bytes of history above which continue-as-new is suggested."""


def apply(state: RunState | None, event: ev.AnyEvent) -> RunState:
    """Fold one event into the state. `state` is None before the first event.

    Raises:
        ValueError: The event does not follow the state: there is a gap, or the run has closed.
    """
    expected = state.next_event_id if state else 1
    if event.event_id != expected:
        raise ValueError(f"history is out of order: expected event {expected}, got {event.event_id}")
    size = size_of(_encode(event))
    if isinstance(event, ev.WorkflowExecutionStarted):
        return first_state(event, size)
    if state is None:
        raise ValueError("a history begins with WorkflowExecutionStarted")
    if state.closed:
        raise ValueError(f"event {event.event_id} follows the closing event")
    advanced = msgspec.structs.replace(state, next_event_id=event.event_id + 1, history_size=state.history_size + size)
    if not state.suggested_event_id and (event.event_id > SUGGEST_EVENTS or advanced.history_size > SUGGEST_BYTES):
        advanced = msgspec.structs.replace(advanced, suggested_event_id=event.event_id)
    return _apply(advanced, event)


_encode = msgspec.json.Encoder().encode


def _apply(state: RunState, event: ev.AnyEvent) -> RunState:  # noqa: C901, PLR0912 (one case for each event)
    change = msgspec.structs.replace
    match event:
        case ev.ActivityTaskScheduled():
            return state.with_activity(_pending_activity(event))
        case (
            ev.ActivityTaskCompleted() | ev.ActivityTaskFailed() | ev.ActivityTaskTimedOut() | ev.ActivityTaskCanceled()
        ):
            key = str(event.scheduled_event_id)
            left = without_payloads({key: state.activities[key]}) if state.standalone else state.left_activities
            if isinstance(event, ev.ActivityTaskCompleted) and state.activities[key].takes_limits:
                state = change(state, holds={**state.holds, key: _held(state.activities[key])})
            return change(state, activities=removed(state.activities, key), left_activities=left)
        case ev.ActivityTaskCancelRequested():
            activity = state.activities[str(event.scheduled_event_id)]
            return state.with_activity(
                change(activity, cancel_requested=True, cancel_requested_event_id=event.event_id)
            )
        case ev.TimerStarted():
            timer = PendingTimer(
                started_event_id=event.event_id,
                timer_id=event.timer_id,
                fire_time=event.event_time + event.start_to_fire_timeout,
            )
            return change(state, timers={**state.timers, event.timer_id: timer})
        case ev.TimerFired() | ev.TimerCanceled():
            return change(state, timers=removed(state.timers, event.timer_id))
        case ev.StartChildWorkflowExecutionInitiated():
            return _with_child(
                state,
                PendingChild(
                    initiated_event_id=event.event_id,
                    child_id=event.child_id,
                    workflow_id=event.start.workflow_id,
                    workflow_type=event.start.workflow_type,
                    parent_close_policy=event.parent_close_policy,
                    start=event.start,
                ),
            )
        case ev.ChildWorkflowExecutionStarted():
            child = state.children[str(event.initiated_event_id)]
            return _with_child(state, change(child, start=None, started_event_id=event.event_id, run_id=event.run_id))
        case (
            ev.StartChildWorkflowExecutionFailed()
            | ev.ChildWorkflowExecutionCompleted()
            | ev.ChildWorkflowExecutionFailed()
            | ev.ChildWorkflowExecutionCanceled()
            | ev.ChildWorkflowExecutionTimedOut()
            | ev.ChildWorkflowExecutionTerminated()
        ):
            return change(state, children=removed(state.children, event.initiated_event_id))
        case ev.SignalExternalWorkflowExecutionInitiated() | ev.RequestCancelExternalWorkflowExecutionInitiated():
            return change(state, externals={**state.externals, str(event.event_id): _pending_external(event)})
        case (
            ev.ExternalWorkflowExecutionSignaled()
            | ev.SignalExternalWorkflowExecutionFailed()
            | ev.ExternalWorkflowExecutionCancelRequested()
            | ev.RequestCancelExternalWorkflowExecutionFailed()
        ):
            return change(state, externals=removed(state.externals, event.initiated_event_id))
        case (
            ev.NexusOperationScheduled()
            | ev.NexusOperationStarted()
            | ev.NexusOperationCancelRequested()
            | ev.NexusOperationCancelRequestCompleted()
            | ev.NexusOperationCancelRequestFailed()
        ):
            operation = operation_after(state.operations.get(str(event_operation(event))), event)
            if operation is None:
                return state  # it has already ended
            return change(state, operations={**state.operations, str(operation.scheduled_event_id): operation})
        case (
            ev.NexusOperationCompleted()
            | ev.NexusOperationFailed()
            | ev.NexusOperationCanceled()
            | ev.NexusOperationTimedOut()
        ):
            key = str(event.scheduled_event_id)
            closed = without_input({key: state.operations[key]}) if state.standalone else state.left_operations
            return change(state, operations=removed(state.operations, key), left_operations=closed)
        case ev.MarkerRecorded() if event.marker_name == LIMITS_RELEASED and state.code is None:
            return change(
                state, holds={k: each for k, each in state.holds.items() if each.activity_id != event.details}
            )
        case ev.MarkerRecorded():
            if event.marker_name != DEAD_LETTER or state.code is not None:
                return state
            return change(state, markers={**state.markers, str(event.event_id): event})
        case ev.WorkflowExecutionOptionsUpdated():
            return change(state, callbacks=callbacks_after(state, event), code=code_with_override(state.code, event))
        case ev.WorkflowExecutionSignaled():
            return change(state, signals=state.signals + 1)
        case ev.WorkflowExecutionCancelRequested():
            return change(state, cancel_requested=True)
        case ev.WorkflowExecutionPaused():
            return change(state, paused=PauseInfo(reason=event.reason, identity=event.identity, time=event.event_time))
        case ev.WorkflowExecutionUnpaused():
            return change(state, paused=None)
        case ev.ActivityTaskStarted():
            return state
        case ev.WorkflowTaskFailed() if event.cause == "ResetWorkflow":
            return reset_state(state, event)
        case (
            ev.WorkflowTaskScheduled()
            | ev.WorkflowTaskStarted()
            | ev.WorkflowTaskCompleted()
            | ev.WorkflowTaskFailed()
            | ev.WorkflowTaskTimedOut()
            | ev.UpsertWorkflowSearchAttributes()
            | ev.WorkflowPropertiesModified()
            | ev.WorkflowExecutionUpdateAdmitted()
            | ev.WorkflowExecutionUpdateAccepted()
            | ev.WorkflowExecutionUpdateCompleted()
        ):
            assert state.code is not None
            first = state.first_decision_time
            if first is not None and isinstance(event, ev.WorkflowTaskScheduled):
                first = min(first, event.event_time)  # an update does not wait for the end of the delay
            callbacks = callbacks_after(state, event)
            return change(state, first_decision_time=first, code=code_after(state.code, event), callbacks=callbacks)
        case ev.WorkflowExecutionStarted():
            raise ValueError("a history begins only once")
        case (
            ev.WorkflowExecutionCanceled()
            | ev.WorkflowExecutionCompleted()
            | ev.WorkflowExecutionContinuedAsNew()
            | ev.WorkflowExecutionFailed()
            | ev.WorkflowExecutionTerminated()
            | ev.WorkflowExecutionTimedOut()
        ):
            return closed_state(state, event)
        case _:
            assert_never(event)


def _pending_activity(event: ev.ActivityTaskScheduled) -> PendingActivity:
    due = event.event_time + (event.start_delay or timedelta(0))
    return PendingActivity(
        scheduled_event_id=event.event_id,
        activity_id=event.activity_id,
        activity_type=event.activity_type,
        input=event.input,
        schedule_to_close_timeout=event.schedule_to_close_timeout,
        schedule_to_start_timeout=event.schedule_to_start_timeout,
        start_to_close_timeout=event.start_to_close_timeout,
        heartbeat_timeout=event.heartbeat_timeout,
        retry_policy=event.retry_policy,
        task_queue=event.task_queue,
        header=event.header,
        priority=event.priority,
        first_scheduled_time=due,
        scheduled_time=due,
    )


def _held(activity: PendingActivity) -> HeldLimits:
    return HeldLimits(
        scheduled_event_id=activity.scheduled_event_id, activity_id=activity.activity_id, limits=activity.input
    )


def _with_child(state: RunState, child: PendingChild) -> RunState:
    return msgspec.structs.replace(state, children={**state.children, str(child.initiated_event_id): child})


def _pending_external(
    event: ev.SignalExternalWorkflowExecutionInitiated | ev.RequestCancelExternalWorkflowExecutionInitiated,
) -> PendingExternal:
    whom = PendingExternal(
        initiated_event_id=event.event_id,
        workflow_id=event.workflow_id,
        run_id=event.run_id,
        child_workflow_only=event.child_workflow_only,
        control=event.control,
    )
    if isinstance(event, ev.RequestCancelExternalWorkflowExecutionInitiated):
        return msgspec.structs.replace(whom, reason=event.reason)
    return msgspec.structs.replace(
        whom, signal_id=event.signal_id, signal_name=event.signal_name, input=event.input, header=event.header
    )
