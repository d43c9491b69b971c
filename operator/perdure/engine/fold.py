"""How events change the state of a run: `apply` folds one event into the state.

``state = fold(events)``, except for what Temporal also keeps next to the history: the number of the current attempt of an open
activity, when it started, its last failure and heartbeat, and the workflow task that could not be decided. `as_recorded` is the
part of a state that the history alone determines.
"""

from datetime import datetime, timedelta
from typing import Any, TypeAlias, TypeVar, assert_never

import msgspec

from perdure.api.policies import ParentClosePolicy
from perdure.engine import events as ev
from perdure.engine.payloads import size_of
from perdure.engine.state import (
    DEAD_LETTER,
    DEFAULT_TIMEOUT,
    LIMITS_RELEASED,
    Code,
    HandlerCalls,
    HeldLimits,
    OperationCancellation,
    PauseInfo,
    PendingActivity,
    PendingCallback,
    PendingChild,
    PendingExternal,
    PendingOperation,
    PendingTimer,
    RunState,
    RunStatus,
    ScheduledActivity,
    UpdateRecord,
    WorkflowTask,
    deadline_after,
    task_timeout,
)
from perdure.engine.versioning import AUTO_UPGRADE, PINNED, Versioning

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
        return _first_state(event, size)
    if state is None:
        raise ValueError("a history begins with WorkflowExecutionStarted")
    if state.closed:
        raise ValueError(f"event {event.event_id} follows the closing event")
    advanced = msgspec.structs.replace(state, next_event_id=event.event_id + 1, history_size=state.history_size + size)
    if not state.suggested_event_id and (event.event_id > SUGGEST_EVENTS or advanced.history_size > SUGGEST_BYTES):
        advanced = msgspec.structs.replace(advanced, suggested_event_id=event.event_id)
    return _apply(advanced, event)


_encode = msgspec.json.Encoder().encode


def _apply(state: RunState, event: ev.AnyEvent) -> RunState:
    change = msgspec.structs.replace
    match event:
        case ev.ActivityTaskScheduled():
            return state.with_activity(_pending_activity(event))
        case (
            ev.ActivityTaskCompleted() | ev.ActivityTaskFailed() | ev.ActivityTaskTimedOut() | ev.ActivityTaskCanceled()
        ):
            key = str(event.scheduled_event_id)
            left = _without_payloads({key: state.activities[key]}) if state.standalone else state.left_activities
            if isinstance(event, ev.ActivityTaskCompleted) and state.activities[key].takes_limits:
                state = change(state, holds={**state.holds, key: _held(state.activities[key])})
            return change(state, activities=_removed(state.activities, key), left_activities=left)
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
                restarts=event.start_to_fire_timeout if event.restarts else None,
            )
            return change(state, timers={**state.timers, event.timer_id: timer})
        case ev.TimerFired() | ev.TimerCanceled():
            return change(state, timers=_removed(state.timers, event.timer_id))
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
        case ev.StartChildWorkflowExecutionFailed() | ev.ChildClosed():
            return change(state, children=_removed(state.children, event.initiated_event_id))
        case ev.SignalExternalWorkflowExecutionInitiated() | ev.RequestCancelExternalWorkflowExecutionInitiated():
            return change(state, externals={**state.externals, str(event.event_id): _pending_external(event)})
        case (
            ev.ExternalWorkflowExecutionSignaled()
            | ev.SignalExternalWorkflowExecutionFailed()
            | ev.ExternalWorkflowExecutionCancelRequested()
            | ev.RequestCancelExternalWorkflowExecutionFailed()
        ):
            return change(state, externals=_removed(state.externals, event.initiated_event_id))
        case (
            ev.NexusOperationScheduled()
            | ev.NexusOperationStarted()
            | ev.NexusOperationCancelRequested()
            | ev.NexusOperationCancelRequestCompleted()
            | ev.NexusOperationCancelRequestFailed()
        ):
            operation = _operation_after(state.operations.get(str(_event_operation(event))), event)
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
            closed = _without_input({key: state.operations[key]}) if state.standalone else state.left_operations
            return change(state, operations=_removed(state.operations, key), left_operations=closed)
        case ev.MarkerRecorded() if event.marker_name == LIMITS_RELEASED and state.code is None:
            return change(
                state, holds={k: each for k, each in state.holds.items() if each.activity_id != event.details}
            )
        case ev.MarkerRecorded():
            if event.marker_name != DEAD_LETTER or state.code is not None:
                return state
            return change(state, markers={**state.markers, str(event.event_id): event})
        case ev.WorkflowExecutionOptionsUpdated():
            return change(state, callbacks=_callbacks_after(state, event), code=_code_with_override(state.code, event))
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
            return _reset_state(state, event)
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
            callbacks = _callbacks_after(state, event)
            return change(state, first_decision_time=first, code=_code_after(state.code, event), callbacks=callbacks)
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
            return _closed_state(state, event)
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


# The first event


def _first_state(event: ev.WorkflowExecutionStarted, size: int) -> RunState:
    """The state of a run after its first event, which takes `size` bytes of history."""
    backoff = event.first_workflow_task_backoff
    run_ends = deadline_after(event.event_time + (backoff or timedelta(0)), event.workflow_run_timeout)
    chain_ends = event.workflow_execution_expiration_time
    return RunState(
        next_event_id=2,
        history_size=size,
        start_time=event.event_time,
        run_deadline=min(filter(None, (run_ends, chain_ends)), default=None),
        run_timeout=event.workflow_run_timeout,
        expiration=chain_ends,
        first_decision_time=deadline_after(event.event_time, backoff),
        attempt=event.attempt,
        retries_since=event.retries_since,
        retry_policy=event.retry_policy,
        workflow_id=event.workflow_id,
        run_id=event.original_execution_run_id,
        successor=event.successor,
        code=_code(event) if event.task_queue else None,
        standalone=event.standalone,
        callbacks={
            str(number): PendingCallback(callback=callback, registration_time=event.event_time)
            for number, callback in enumerate(event.completion_callbacks, 1)
        },
    )


def _code(event: ev.WorkflowExecutionStarted) -> Code:
    return Code(
        workflow_type=event.workflow_type,
        task_queue=event.task_queue or "",
        task_timeout=task_timeout(event.workflow_task_timeout, event.workflow_run_timeout),
        cron_schedule=event.cron_schedule,
        priority=event.priority,
        memo=event.memo or {},
        search_attributes=event.search_attributes,
        versioning=_versioning(event),
    )


def _versioning(event: ev.WorkflowExecutionStarted) -> Versioning:
    upgrade = event.inherited_auto_upgrade_info
    if upgrade is not None:
        return Versioning(
            behavior=AUTO_UPGRADE,
            version=upgrade.source_deployment_version,
            override=event.versioning_override,
            initial_behavior=upgrade.continue_as_new_initial_versioning_behavior,
        )
    inherited = event.inherited_pinned_version
    behavior = PINNED if inherited is not None else ""
    return Versioning(behavior=behavior, version=inherited, override=event.versioning_override)


# Runs that Temporal SDK workers decide


def _code_after(code: Code, event: ev.AnyEvent) -> Code:
    """Return the state for the workers after an event."""
    change = msgspec.structs.replace
    match event:
        case ev.WorkflowTaskScheduled():
            task = WorkflowTask(
                attempt=event.attempt,
                scheduled_event_id=event.event_id,
                scheduled_time=event.event_time,
                original_scheduled_time=event.event_time,
                start_to_close_timeout=event.start_to_close_timeout,
                sticky_queue=event.task_queue if event.sticky else "",
            )
            return change(code, task=task, wanted=False)
        case ev.WorkflowTaskCompleted():
            return change(
                code,
                task=None,
                previous_started_event_id=event.started_event_id,
                closing=False,
                versioning=code.versioning.completed(event.versioning_behavior, event.deployment_version),
            )
        case ev.WorkflowTaskFailed() | ev.WorkflowTaskTimedOut():
            return change(code, task=None)
        case ev.UpsertWorkflowSearchAttributes():
            return change(code, search_attributes=_updated(code.search_attributes, event.search_attributes))
        case ev.WorkflowPropertiesModified():
            return change(code, memo=_updated(code.memo, event.upserted_memo))
        case ev.WorkflowExecutionUpdateAdmitted():
            return change(code, admitted={**code.admitted, event.update_id: event.event_id})
        case ev.WorkflowExecutionUpdateAccepted():
            record = UpdateRecord(accepted_event_id=event.event_id)
            admitted = _removed(code.admitted, event.update_id)
            return change(code, updates={**code.updates, event.update_id: record}, admitted=admitted)
        case ev.WorkflowExecutionUpdateCompleted():
            record = UpdateRecord(accepted_event_id=event.accepted_event_id, completed_event_id=event.event_id)
            return change(code, updates={**code.updates, event.update_id: record})
        case _:
            return code


def _code_with_override(code: Code | None, event: ev.WorkflowExecutionOptionsUpdated) -> Code | None:
    """Return the state for the workers after an event that sets or removes the versioning override."""
    if code is None or (event.versioning_override is None and not event.unset_versioning_override):
        return code
    versioning = msgspec.structs.replace(code.versioning, override=event.versioning_override)
    return msgspec.structs.replace(code, versioning=versioning)


# Nexus operations, and the callbacks that complete those of other runs


_OperationEvent: TypeAlias = (
    ev.NexusOperationScheduled
    | ev.NexusOperationStarted
    | ev.NexusOperationCancelRequested
    | ev.NexusOperationCancelRequestCompleted
    | ev.NexusOperationCancelRequestFailed
)


def _event_operation(event: _OperationEvent) -> int:
    """ID of the event that scheduled the operation of an event."""
    return event.event_id if isinstance(event, ev.NexusOperationScheduled) else event.scheduled_event_id


def _operation_after(before: PendingOperation | None, event: _OperationEvent) -> PendingOperation | None:
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


def _callbacks_after(state: RunState, event: ev.AnyEvent) -> dict[str, PendingCallback]:
    """The callbacks of a run after an event that is not its first or its last."""
    match event:
        case ev.WorkflowExecutionOptionsUpdated():
            found, request_id = event.attached_completion_callbacks, event.attached_request_id
        case ev.WorkflowExecutionUpdateAdmitted() | ev.WorkflowExecutionUpdateAccepted():
            found, request_id = event.completion_callbacks, event.request_id
        case _:
            return state.callbacks
    of_run = sum(not each.update_id for each in state.callbacks.values())
    attached = {
        f"{event.event_id}/{number}" if event.update_id else str(of_run + number): PendingCallback(
            callback=callback,
            update_id=event.update_id,
            registration_time=event.event_time,
            request_id=request_id,
            event_id=event.event_id,
        )
        for number, callback in enumerate(found, 1)
    }
    return {**state.callbacks, **attached} if attached else state.callbacks


# A reset, and the closing event


_CLOSED_AS: dict[type[ev.Event], RunStatus] = {
    ev.WorkflowExecutionCanceled: RunStatus.CANCELLED,
    ev.WorkflowExecutionCompleted: RunStatus.COMPLETED,
    ev.WorkflowExecutionContinuedAsNew: RunStatus.CONTINUED_AS_NEW,
    ev.WorkflowExecutionFailed: RunStatus.FAILED,
    ev.WorkflowExecutionTerminated: RunStatus.TERMINATED,
    ev.WorkflowExecutionTimedOut: RunStatus.TIMED_OUT,
}


def _reset_state(state: RunState, event: ev.WorkflowTaskFailed) -> RunState:
    """The state after a reset. The run continues the history of another one, which has created all dead letters so far."""
    restarted = {"first_scheduled_time": event.event_time, "scheduled_time": event.event_time}
    return msgspec.structs.replace(
        state,
        reset_time=event.event_time,
        first_decision_time=None,
        run_deadline=event.workflow_run_expiration_time,
        expiration=event.workflow_execution_expiration_time,
        run_id=event.new_run_id,
        successor=event.successor,
        activities={key: msgspec.structs.replace(each, **restarted) for key, each in state.activities.items()},
        children={key: _child_after_reset(state, each, event) for key, each in state.children.items()},
        timers={key: _restarted(each, event.event_time) for key, each in state.timers.items()},
        operations={key: _operation_after_reset(each, event) for key, each in state.operations.items()},
        markers={},
        code=msgspec.structs.replace(state.code, task=None, wanted=True) if state.code is not None else None,
    )


def _child_after_reset(state: RunState, child: PendingChild, event: ev.WorkflowTaskFailed) -> PendingChild:
    """A child of a reset run. One that starts again for code keeps its start event: SDKs accept no second one."""
    start = event.restarted_children.get(str(child.initiated_event_id))
    if start is None:
        return child
    again = state.code is not None and child.started_event_id != 0
    number = child.started_event_id if again else 0
    return msgspec.structs.replace(child, start=start, started_event_id=number, run_id="", restarted=again)


def _restarted(timer: PendingTimer, time: datetime) -> PendingTimer:
    """A timer of a reset run."""
    return timer if timer.restarts is None else msgspec.structs.replace(timer, fire_time=time + timer.restarts)


def _operation_after_reset(operation: PendingOperation, event: ev.WorkflowTaskFailed) -> PendingOperation:
    """An operation of a reset run. Its request ID stays the same, so that the handler finds the operation that it has started.

    One that was canceled after the point starts again, as a new operation of the handler.
    """
    calls = HandlerCalls(due=event.event_time)
    again = event.restarted_operations.get(str(operation.scheduled_event_id))
    if again is not None:
        return msgspec.structs.replace(
            operation,
            input=again.input,
            request_id=again.request_id,
            scheduled_time=event.event_time,
            started_time=None,
            operation_token="",
            restarted=operation.restarted or operation.started_time is not None,
            calls=calls,
        )
    return operation if operation.started_time is not None else msgspec.structs.replace(operation, calls=calls)


def _closed_state(state: RunState, event: ev.ClosingEvent) -> RunState:
    """The state after the closing event. Open entries end with the run; undelivered requests to others stay."""
    kept = event.reset_event_id if isinstance(event, ev.WorkflowExecutionTerminated) else 0
    return msgspec.structs.replace(
        state,
        status=_CLOSED_AS[type(event)],
        close_time=event.event_time,
        activities={},
        left_activities=state.left_activities | (_without_payloads(state.activities) if state.for_clients else {}),
        holds={},
        timers={},
        operations={},
        left_operations=state.left_operations | (_without_input(state.operations) if state.standalone else {}),
        callbacks={} if kept else state.callbacks,
        children={
            key: child
            for key, child in state.children.items()
            if child.initiated_event_id > kept
            and (child.parent_close_policy is not ParentClosePolicy.ABANDON or child.start is not None)
        },
        externals={key: each for key, each in state.externals.items() if each.initiated_event_id > kept},
        kept={},
        start_successor=bool(getattr(event, "new_workflow_run", "")),
        paused=None,
        undecided=(),
        unfinished=False,
        task=None,
        code=state.code
        and msgspec.structs.replace(state.code, admitted={}, task=None, wanted=False, buffered=(), closing=False),
    )


def _without_payloads(activities: dict[str, PendingActivity]) -> dict[str, PendingActivity]:
    """Return activities without their scheduled payloads."""
    return {key: msgspec.structs.replace(each, input=None, header=None) for key, each in activities.items()}


def _without_input(operations: dict[str, PendingOperation]) -> dict[str, PendingOperation]:
    """Return Nexus operations without their scheduled input."""
    return {key: msgspec.structs.replace(each, input=None) for key, each in operations.items()}


# The tables in a state, which are never changed in place


_Entry = TypeVar("_Entry")


def _removed(entries: dict[str, _Entry], key: Any) -> dict[str, _Entry]:
    """The entries without that of `key`."""
    kept = dict(entries)
    kept.pop(str(key), None)
    return kept


def _updated(before: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """The entries after an upsert, in which null removes an entry."""
    return {name: value for name, value in {**before, **changes}.items() if value is not None}


# The recorded part of a state


def as_recorded(state: RunState) -> RunState:
    """Return the state without the data that no event records, which equals a fold over all events."""
    code = state.code
    if code is not None:
        code = msgspec.structs.replace(
            code,
            admitted={},
            task=None,
            wanted=False,
            buffered=(),
            sticky_queue="",
            sticky_timeout=DEFAULT_TIMEOUT,
            failure="",
            closing=False,
            completed="",
        )
    children = {key: _child(each) for key, each in state.children.items()}
    delivered = {"children": {}, "externals": {}, "start_successor": False} if state.closed else {}
    return msgspec.structs.replace(
        state,
        undecided=(),
        unfinished=False,
        task=None,
        requests=(),
        code=code,
        reports={},
        successor_refused="",
        callbacks={} if state.closed else _callbacks(state),
        **{"children": children, **delivered},
        markers={},
        kept={},
        operations={key: _operation(each) for key, each in state.operations.items()},
        activities={key: _activity(each) for key, each in state.activities.items()},
        left_activities={key: _activity(each) for key, each in state.left_activities.items()},
    )


def _child(child: PendingChild) -> PendingChild:
    """A child, without a start that no event records."""
    return msgspec.structs.replace(child, start=None, run_id="") if child.restarted else child


def _callbacks(state: RunState) -> dict[str, PendingCallback]:
    """The pending callbacks. No event records the call of an update's callback, or the rejection of an update."""
    accepted = state.code.updates if state.code is not None else {}
    return {
        key: each
        for key, each in state.callbacks.items()
        if not each.update_id or (each.update_id in accepted and not state.has_completed(each.update_id))
    }


def _operation(operation: PendingOperation) -> PendingOperation:
    """An operation without the failed calls of its handler, which no event records."""
    calls, cancellation = HandlerCalls(due=operation.scheduled_time), operation.cancellation
    if operation.restarted:
        unrecorded = {"input": None, "handler_namespace": "", "started_time": None, "operation_token": ""}
        return msgspec.structs.replace(operation, calls=calls, cancellation=None, **unrecorded)
    if cancellation is not None:
        cancellation = msgspec.structs.replace(cancellation, calls=None)
    return msgspec.structs.replace(operation, calls=calls, cancellation=cancellation)


def _activity(activity: PendingActivity) -> PendingActivity:
    """An activity before its first attempt, with the options that it was scheduled with."""
    scheduled = {name: getattr(activity, name) for name in ScheduledActivity.__struct_fields__}
    options = msgspec.structs.asdict(activity.original) if activity.original is not None else {}
    return PendingActivity(**{**scheduled, **options}, scheduled_time=activity.first_scheduled_time)
