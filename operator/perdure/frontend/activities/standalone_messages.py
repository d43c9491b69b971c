"""Describe standalone activities for Temporal's API, like chasm/lib/activity of Temporal's server. Pure."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from temporalio.api.activity.v1 import ActivityExecutionInfo, ActivityExecutionOutcome
from temporalio.api.common.v1 import ActivityType, Priority, SearchAttributes
from temporalio.api.enums.v1 import ActivityExecutionStatus, PendingActivityState, RetryState
from temporalio.api.failure.v1 import Failure as ProtoFailure

from perdure.engine import events as ev
from perdure.engine.failures import Failure, FailureKind, TimeoutType
from perdure.engine.state import PendingActivity, RunState
from perdure.frontend.messages import failures, links
from perdure.frontend.messages import payloads as data
from perdure.frontend.messages.enums import to_enum
from perdure.frontend.messages.histories import retry_policy
from perdure.frontend.visibility.index import VisibilityRecord
from perdure.kube import client as kube
from perdure.runtime.chains import extras_of

_ENDED = (ev.ActivityTaskCompleted, ev.ActivityTaskFailed, ev.ActivityTaskTimedOut, ev.ActivityTaskCanceled)
_OF_ATTEMPTS = (TimeoutType.START_TO_CLOSE, TimeoutType.HEARTBEAT)


def activity_of(state: RunState) -> PendingActivity | None:
    """The activity of a run that is a standalone activity; None before it is scheduled."""
    return next(iter((*state.activities.values(), *state.left_activities.values())), None)


def outcome_of(history: Sequence[ev.AnyEvent]) -> ActivityExecutionOutcome:
    """The outcome of a closed standalone activity.

    Args:
        history: Its events, or the last events of a long history.
    """
    closing, made = history[-1], ActivityExecutionOutcome()
    ended = next((event for event in reversed(history) if isinstance(event, _ENDED)), None)
    match ended:
        case _ if isinstance(closing, ev.WorkflowExecutionTerminated):
            made.failure.message = closing.reason
            made.failure.terminated_failure_info.identity = closing.identity
        case ev.ActivityTaskCompleted():
            made.result.payloads.extend(data.from_json(ended.result))
            made.result.SetInParent()
        case ev.ActivityTaskFailed() | ev.ActivityTaskTimedOut():
            made.failure.CopyFrom(failures.to_proto(ended.failure))
            made.retry_state = to_enum(RetryState, ended.retry_state.value)
        case ev.ActivityTaskCanceled():
            made.failure.CopyFrom(_canceled(history, ended))
        case _:  # a timeout of the run itself, which only a manifest can set
            failure = ev.failure_of(closing) or Failure(kind=FailureKind.SERVER, message="the outcome was not kept")
            made.failure.CopyFrom(failures.to_proto(failure))
    return made


def _canceled(history: Sequence[ev.AnyEvent], ended: ev.ActivityTaskCanceled) -> ProtoFailure:
    """The cancellation, with its reason if the activity had not started, otherwise with the worker's details."""
    cancellation = _cancellation(history)
    details = ended.details
    if not ended.started_event_id and cancellation is not None:
        details = cancellation.cause
    failure = Failure(kind=FailureKind.CANCELLED, message="Activity canceled", details=details)
    made = failures.to_proto(failure)
    made.canceled_failure_info.identity = cancellation.identity if cancellation is not None else ""
    return made


def _cancellation(history: Sequence[ev.AnyEvent]) -> ev.WorkflowExecutionCancelRequested | None:
    return next((event for event in history if isinstance(event, ev.WorkflowExecutionCancelRequested)), None)


def pending_state(activity: PendingActivity) -> str:
    """The state of an open activity as PendingActivityState."""
    if activity.cancel_requested:
        return "CancelRequested"
    if activity.paused:
        return "PauseRequested" if activity.started_time else "Paused"
    return "Started" if activity.started_time else "Scheduled"


def described(
    run: kube.Object, record: VisibilityRecord, state: RunState, history: Sequence[ev.AnyEvent], now: datetime
) -> ActivityExecutionInfo:
    """Describe a standalone activity, with its heartbeat details and its last failure.

    Args:
        run: The WorkflowRun of the activity.
        record: The record of the run in lists.
        state: The state of the run, which has begun.
        history: The events of the run.
        now: The time.
    """
    extras = extras_of(run)
    made = ActivityExecutionInfo(
        activity_id=record.workflow_id,
        run_id=record.run_id,
        activity_type=ActivityType(name=record.workflow_type),
        task_queue=record.task_queue,
        status=to_enum(ActivityExecutionStatus, record.status),
        header=data.header(extras.header),
        user_metadata=data.user_metadata(extras.user_metadata),
        links=[link for found in (extras.links, *map(_attached_links, history)) for link in links.from_json(found)],
        search_attributes=data.attributes(record.search_attributes) or SearchAttributes(),
        state_transition_count=record.history_length,
        state_size_bytes=record.history_size,
    )
    made.schedule_time.FromDatetime(state.start_time)
    cancellation = _cancellation(history)
    if cancellation is not None:
        made.canceled_reason = cancellation.cause
    if state.close_time is not None:
        made.close_time.FromDatetime(state.close_time)
        made.execution_duration.FromTimedelta(state.close_time - state.start_time)
    activity = activity_of(state)
    if activity is not None:
        _describe(made, activity, state, now)
        _describe_last_attempt(made, activity, history[-1] if state.closed else None, history)
    return made


def _attached_links(event: ev.AnyEvent) -> Any:
    """The links that another start attached with an event; None if there are none."""
    return event.links if isinstance(event, ev.WorkflowExecutionOptionsUpdated) else None


def _describe(made: ActivityExecutionInfo, activity: PendingActivity, state: RunState, now: datetime) -> None:
    made.task_queue = activity.task_queue
    made.attempt = activity.tries
    made.total_heartbeat_count = activity.heartbeats
    made.retry_policy.CopyFrom(retry_policy(activity.retry_policy))
    made.last_worker_identity = activity.identity or activity.last_identity
    made.execution_time.FromDatetime(activity.first_scheduled_time)
    for name in (
        "schedule_to_close_timeout",
        "schedule_to_start_timeout",
        "start_to_close_timeout",
        "heartbeat_timeout",
    ):
        getattr(made, name).FromTimedelta(getattr(activity, name) or timedelta(0))
    if activity.first_scheduled_time > state.start_time:
        made.start_delay.FromTimedelta(activity.first_scheduled_time - state.start_time)
    if activity.priority:
        made.priority.CopyFrom(data.message_from_json(activity.priority, Priority))
    _set_time(made, "last_started_time", activity.started_time or activity.last_started_time)
    _set_time(made, "last_heartbeat_time", activity.last_heartbeat_time)
    _set_time(made, "expiration_time", activity.expiration)
    if activity.heartbeat_details is not None:
        made.heartbeat_details.payloads.extend(data.from_json(activity.heartbeat_details))
    if state.closed:
        return
    made.run_state = to_enum(PendingActivityState, pending_state(activity))
    if activity.started_time is None and activity.scheduled_time > now and not activity.paused:
        _set_time(made, "next_attempt_schedule_time", activity.scheduled_time)
        if activity.last_attempt_complete_time is not None:
            made.current_retry_interval.FromTimedelta(activity.scheduled_time - activity.last_attempt_complete_time)


def _describe_last_attempt(
    made: ActivityExecutionInfo,
    activity: PendingActivity,
    closing: ev.AnyEvent | None,
    history: Sequence[ev.AnyEvent],
) -> None:
    """Describe the end and the failure of the last attempt, including an attempt that closed the activity."""
    completed, failure = activity.last_attempt_complete_time, activity.last_failure
    ended = next((event for event in reversed(history) if isinstance(event, _ENDED)), None) if closing else None
    match ended:
        case ev.ActivityTaskCompleted():
            completed = ended.event_time
            made.last_worker_identity = made.last_worker_identity or ended.identity
        case ev.ActivityTaskFailed():
            completed, failure = ended.event_time, ended.failure
        case ev.ActivityTaskTimedOut() if ended.failure.timeout_type in _OF_ATTEMPTS:
            completed, failure = ended.event_time, ended.failure
    _set_time(made, "last_attempt_complete_time", completed)
    if failure is not None:
        made.last_failure.CopyFrom(failures.to_proto(failure))


def _set_time(made: Any, field: str, time: datetime | None) -> None:
    if time is not None:
        getattr(made, field).FromDatetime(time)
