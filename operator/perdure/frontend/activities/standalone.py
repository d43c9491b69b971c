"""RPCs about single standalone activities. Rules, messages, and limits are Temporal's (chasm/lib/activity)."""

import functools
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
from temporalio.api.activity.v1 import ActivityExecutionInfo, ActivityExecutionOutcome
from temporalio.api.common.v1 import ActivityType, Priority, SearchAttributes
from temporalio.api.enums.v1 import (
    ActivityExecutionStatus,
    ActivityIdConflictPolicy,
    ActivityIdReusePolicy,
    PendingActivityState,
    RetryState,
)
from temporalio.api.failure.v1 import Failure as ProtoFailure
from temporalio.api.workflowservice.v1 import (
    DeleteActivityExecutionRequest,
    DeleteActivityExecutionResponse,
    DescribeActivityExecutionRequest,
    DescribeActivityExecutionResponse,
    PollActivityExecutionRequest,
    PollActivityExecutionResponse,
    RequestCancelActivityExecutionRequest,
    RequestCancelActivityExecutionResponse,
    StartActivityExecutionRequest,
    StartActivityExecutionResponse,
    TerminateActivityExecutionRequest,
    TerminateActivityExecutionResponse,
)

from perdure.api.phases import RunKind
from perdure.archive.records import record_of
from perdure.controller.directory import Entry
from perdure.controller.namespaces import ServedNamespaces
from perdure.engine import events as ev
from perdure.engine import inputs
from perdure.engine.failures import Failure, FailureKind, TimeoutType
from perdure.engine.starts import StartExtras
from perdure.engine.state import PODS_QUEUE, PendingActivity, RunState
from perdure.frontend.errors import invalid
from perdure.frontend.matching.dispatch import requested_priority
from perdure.frontend.matching.polls import LONGEST_POLL
from perdure.frontend.messages import failures, values
from perdure.frontend.messages import payloads as data
from perdure.frontend.messages.histories import retry_policy
from perdure.frontend.messages.nexus import (
    callbacks_of,
    callbacks_to_engine,
    describe_callback,
    links_from_json,
    links_to_json,
)
from perdure.frontend.messages.values import UnfitError, duration, to_enum
from perdure.frontend.runs.gateway import RunGateway, View, check_length
from perdure.frontend.runs.starts import RunCreator, StartedRun, check_extras, durations, input_of, search_attributes
from perdure.frontend.standalone import (
    StandaloneRuns,
    check_metadata,
    id_policies,
    not_started,
    request_id_of,
    token_of,
)
from perdure.frontend.transport.rpc import CallContext
from perdure.frontend.visibility.index import VisibilityRecord
from perdure.frontend.visibility.search_attributes import SearchAttributeRegistry
from perdure.kube import client as kube
from perdure.kube.clock import now
from perdure.runtime.chains import extras_of, retry_policy_json

TIMEOUTS = {
    "schedule_to_close_timeout": "scheduleToCloseTimeout",
    "schedule_to_start_timeout": "scheduleToStartTimeout",
    "start_to_close_timeout": "startToCloseTimeout",
    "heartbeat_timeout": "heartbeatTimeout",
}
"""Fields of Temporal's messages, and the matching fields of a spec."""

_ENDED = (ev.ActivityTaskCompleted, ev.ActivityTaskFailed, ev.ActivityTaskTimedOut, ev.ActivityTaskCanceled)
_OF_ATTEMPTS = (TimeoutType.START_TO_CLOSE, TimeoutType.HEARTBEAT)


class StandaloneActivities:
    """Starts, describes, and stops standalone activities."""

    def __init__(
        self,
        runs: RunGateway,
        creator: RunCreator,
        search_attributes: SearchAttributeRegistry,
        served: ServedNamespaces,
    ) -> None:
        self._served = served
        self._runs = runs
        self._search_attributes = search_attributes
        self._standalone = StandaloneRuns(runs, creator, RunKind.ACTIVITY)

    # Starting

    async def start_activity_execution(
        self, request: StartActivityExecutionRequest, call: CallContext
    ) -> StartActivityExecutionResponse:
        """Start a standalone activity, or find it open."""
        started_run = await self._begin(request, call.principal)
        response = StartActivityExecutionResponse(run_id=started_run.entry.uid, started=started_run.started)
        link = response.link.activity
        link.namespace, link.activity_id, link.run_id = request.namespace, request.activity_id, started_run.entry.uid
        return response

    async def _begin(self, request: StartActivityExecutionRequest, principal: str) -> StartedRun:
        _check(request)
        policies = id_policies(request, ActivityIdReusePolicy, ActivityIdConflictPolicy)
        spec, extras = _requested(request, await self._search_attributes.types(request.namespace))
        callbacks = callbacks_of(request, self._served)
        extras = msgspec.structs.replace(extras, completion_callbacks=callbacks, links=links_to_json(request.links))
        check_extras(extras)
        started_run = await self._standalone.start(request, spec, extras, policies, principal)
        if not started_run.started and started_run.entry.name != self._standalone.name_of(
            request
        ):  # also if another start was faster
            await self._attach(started_run.entry, request, principal)
        return started_run

    async def _attach(self, known: Entry, request: StartActivityExecutionRequest, principal: str) -> None:
        """Attach the completion callbacks of this request to an open activity, if the request wants it."""
        options = request.on_conflict_options
        callbacks = request.completion_callbacks if options.attach_completion_callbacks else ()
        attached = inputs.CallbacksAttached(
            request_id=request_id_of(request),
            callbacks=callbacks_to_engine(callbacks),
            identity=request.identity,
            principal=principal,
            links=links_to_json(request.links) if options.attach_links else None,
        )
        if attached.callbacks or attached.links:
            await self._standalone.demand(known, attached)

    # Following

    async def poll_activity_execution(
        self, request: PollActivityExecutionRequest, call: CallContext
    ) -> PollActivityExecutionResponse:
        """Wait for the outcome; the response is empty if there is none in time."""
        entry = self._standalone.find(request)

        def closed() -> bool:
            return self._runs.is_closed(entry.uid)

        if not await self._runs.changes.wait_until(entry.uid, closed, call.within(LONGEST_POLL)):
            return PollActivityExecutionResponse()
        view = await self._runs.view(entry)
        history = await self._runs.history(view)
        return PollActivityExecutionResponse(run_id=entry.uid, outcome=outcome_of(history))

    async def describe_activity_execution(
        self, request: DescribeActivityExecutionRequest, call: CallContext
    ) -> DescribeActivityExecutionResponse:
        """Describe an activity; with a token, wait for a change, and return an empty response if there is none in time."""
        if request.long_poll_token and not request.run_id:
            raise invalid("run id is required when long poll token is provided")
        found = await self._standalone.once_changed(request, call, functools.partial(self._described, request))
        return found or DescribeActivityExecutionResponse()

    async def _described(
        self, request: DescribeActivityExecutionRequest, view: View
    ) -> DescribeActivityExecutionResponse:
        if view.state is None:
            raise not_started(view.entry)
        history = await self._runs.history(view)
        info = described(view.object, record_of(view.object, VisibilityRecord), view.state, history, now())
        response = DescribeActivityExecutionResponse(
            run_id=view.entry.uid, info=info, long_poll_token=token_of(info.run_id, info)
        )
        for pending in view.state.callbacks.values():
            callback = response.callbacks.add()
            callback.trigger.activity_closed.SetInParent()
            describe_callback(callback.info, pending, due=view.state.is_due(pending))
        if not request.include_heartbeat_details:
            response.info.ClearField("heartbeat_details")
        if not request.include_last_failure:
            response.info.ClearField("last_failure")
        payloads = data.payloads(view.object["spec"].get("input"))
        if request.include_input and payloads is not None:
            response.input.CopyFrom(payloads)
        if request.include_outcome and view.state.closed:
            response.outcome.CopyFrom(outcome_of(history))
        return response

    # Stopping

    async def request_cancel_activity_execution(
        self, request: RequestCancelActivityExecutionRequest, call: CallContext
    ) -> RequestCancelActivityExecutionResponse:
        """Request the cancellation of an activity. One that no worker runs is canceled immediately."""
        await self._standalone.cancel(request, call)
        return RequestCancelActivityExecutionResponse()

    async def terminate_activity_execution(
        self, request: TerminateActivityExecutionRequest, call: CallContext
    ) -> TerminateActivityExecutionResponse:
        """Terminate an activity without notifying its worker."""
        await self._standalone.terminate(request, call)
        return TerminateActivityExecutionResponse()

    async def delete_activity_execution(
        self, request: DeleteActivityExecutionRequest, call: CallContext
    ) -> DeleteActivityExecutionResponse:
        """Remove an activity with its history. This stops an open activity."""
        await self._standalone.delete(request)
        return DeleteActivityExecutionResponse()


def _check(request: StartActivityExecutionRequest) -> None:
    """Check the required and the unsupported fields of a start.

    Raises:
        RpcError: A required field is missing, or an unsupported field is set.
    """
    if not request.task_queue.name:
        raise invalid("missing task queue name")
    for value, what in ((request.activity_id, "activityId"), (request.activity_type.name, "activityType")):
        if not value:
            raise invalid(f"{what} is not set")
        check_length(value, what)
    check_length(request.request_id, "request ID")
    if not (duration(request, "schedule_to_close_timeout") or duration(request, "start_to_close_timeout")):
        raise invalid(
            "a valid StartToCloseTimeout or ScheduleToCloseTimeout must be set on the activity. "
            f"ActivityId={request.activity_id} ActivityType={request.activity_type.name}"
        )
    check_metadata(request)
    _check_attaching(request)


def _check_attaching(request: StartActivityExecutionRequest) -> None:
    """Check the callbacks and links to attach to an open activity.

    Raises:
        RpcError: They cannot be attached.
    """
    options = request.on_conflict_options
    if options.attach_completion_callbacks and not options.attach_request_id:
        raise invalid("on_conflict_options: attach_completion_callbacks requires attach_request_id to be set")
    if options.attach_request_id and not (request.completion_callbacks or request.links):
        raise invalid("on_conflict_options: attach_request_id requires at least one completion callback or link")


def _requested(request: StartActivityExecutionRequest, types: dict[str, str]) -> tuple[dict[str, Any], StartExtras]:
    """Build the spec of the WorkflowRun of a standalone activity, and its other parts.

    Raises:
        UnfitError: The request is not valid.
    """
    queue = request.task_queue.name
    if queue.startswith(PODS_QUEUE):
        raise UnfitError(f"TaskQueue: no worker polls {queue[:63]!r}")
    activity: dict[str, Any] = {"type": request.activity_type.name, "taskQueue": values.name(queue, "TaskQueue")}
    activity |= durations(request, TIMEOUTS)
    if request.HasField("retry_policy"):
        activity["retryPolicy"] = retry_policy_json(values.retry_policy(request.retry_policy))
    spec: dict[str, Any] = {"workflowId": request.activity_id, "activity": activity}
    try:
        kept = input_of(request.input.payloads, by_name=False)
    except UnfitError:
        raise UnfitError("input exceeds length limit") from None
    if kept is not None:
        spec["input"] = kept
    spec |= durations(request, {"start_delay": "startDelay"})
    spec |= search_attributes(request, types, request.namespace)
    extras = StartExtras(
        identity=request.identity,
        header=data.header_to_json(request),
        user_metadata=data.user_metadata_to_json(request.user_metadata),
        priority=requested_priority(request),
        request_id=request.request_id,
    )
    return spec, extras


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
        links=[link for found in (extras.links, *map(_attached_links, history)) for link in links_from_json(found)],
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


def _describe(info: ActivityExecutionInfo, activity: PendingActivity, state: RunState, now: datetime) -> None:
    info.task_queue = activity.task_queue
    info.attempt = activity.tries
    info.total_heartbeat_count = activity.heartbeats
    info.retry_policy.CopyFrom(retry_policy(activity.retry_policy))
    info.last_worker_identity = activity.identity or activity.last_identity
    info.execution_time.FromDatetime(activity.first_scheduled_time)
    for name in TIMEOUTS:
        getattr(info, name).FromTimedelta(getattr(activity, name) or timedelta(0))
    if activity.first_scheduled_time > state.start_time:
        info.start_delay.FromTimedelta(activity.first_scheduled_time - state.start_time)
    if activity.priority:
        info.priority.CopyFrom(data.message_from_json(activity.priority, Priority))
    values.set_time(info, "last_started_time", activity.started_time or activity.last_started_time)
    values.set_time(info, "last_heartbeat_time", activity.last_heartbeat_time)
    values.set_time(info, "expiration_time", activity.expiration)
    if activity.heartbeat_details is not None:
        info.heartbeat_details.payloads.extend(data.from_json(activity.heartbeat_details))
    if state.closed:
        return
    info.run_state = to_enum(PendingActivityState, pending_state(activity))
    if activity.started_time is None and activity.scheduled_time > now and not activity.paused:
        values.set_time(info, "next_attempt_schedule_time", activity.scheduled_time)
        if activity.last_attempt_complete_time is not None:
            info.current_retry_interval.FromTimedelta(activity.scheduled_time - activity.last_attempt_complete_time)


def _describe_last_attempt(
    info: ActivityExecutionInfo,
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
            info.last_worker_identity = info.last_worker_identity or ended.identity
        case ev.ActivityTaskFailed():
            completed, failure = ended.event_time, ended.failure
        case ev.ActivityTaskTimedOut() if ended.failure.timeout_type in _OF_ATTEMPTS:
            completed, failure = ended.event_time, ended.failure
    values.set_time(info, "last_attempt_complete_time", completed)
    if failure is not None:
        info.last_failure.CopyFrom(failures.to_proto(failure))
