"""The description of a workflow: everything except its history. Each function fills one part of the response."""

from collections.abc import Sequence
from datetime import timedelta

from google.protobuf.json_format import ParseDict
from temporalio.api.common.v1 import ActivityType
from temporalio.api.enums.v1 import (
    EventType,
    ParentClosePolicy,
    PendingActivityState,
    PendingWorkflowTaskState,
    TaskQueueKind,
    VersioningBehavior,
)
from temporalio.api.workflow.v1 import (
    PendingActivityInfo,
    PendingChildExecutionInfo,
)
from temporalio.api.workflowservice.v1 import (
    DescribeWorkflowExecutionRequest,
    DescribeWorkflowExecutionResponse,
)

from perdure.archive.records import record_of
from perdure.controller.directory import Directory
from perdure.engine import events as ev
from perdure.engine.starts import StartExtras
from perdure.engine.state import WORKFLOWS_QUEUE, PendingActivity, RunState
from perdure.engine.versioning import ONE_TIME, UNVERSIONED, Versioning
from perdure.frontend.activities.standalone import TIMEOUTS, pending_state
from perdure.frontend.errors import RpcError
from perdure.frontend.matching.polls import LONGEST_CLIENT_POLL
from perdure.frontend.messages import failures, values
from perdure.frontend.messages import payloads as data
from perdure.frontend.messages.histories import (
    MAX_BYTES,
    Historian,
    deployment_version,
    request_of,
    retry_policy,
    started_by_a_workflow,
    versioning_override,
)
from perdure.frontend.messages.nexus import describe_callback
from perdure.frontend.messages.values import to_enum
from perdure.frontend.nexus.operations import pending_operation
from perdure.frontend.runs.gateway import LargePayloads, RunGateway
from perdure.frontend.transport.rpc import CallContext
from perdure.frontend.visibility.index import VisibilityRecord
from perdure.kube.clock import now
from perdure.runtime.chains import extras_of

_NO_BUILD = "unversioned"
"""Prefix of unversioned workers' builds in the search attribute BuildIds; the build follows after a colon."""
_MAX_RESET_POINTS = 20


class WorkflowDescriptions:
    """Describes workflows."""

    def __init__(self, directory: Directory, runs: RunGateway, payloads: LargePayloads) -> None:
        self._directory = directory
        self._runs = runs
        self._payloads = payloads

    async def describe_workflow_execution(
        self, request: DescribeWorkflowExecutionRequest, call: CallContext
    ) -> DescribeWorkflowExecutionResponse:
        """Describe a workflow: everything except its history."""
        try:
            entry = await self._runs.reach(request.namespace, request.execution, call.within(LONGEST_CLIENT_POLL))
            view = await self._runs.view(entry)
        except RpcError as error:
            view = await self._runs.archived(request.namespace, request.execution, error)
            entry = view.entry
        response = DescribeWorkflowExecutionResponse(
            workflow_execution_info=record_of(view.object, VisibilityRecord).info(registered=False)
        )
        if view.state is None:
            return response
        task = view.state.code.task if view.state.code is not None else None
        if task is not None and task.scheduled_event_id and task.started_time is not None:
            response.workflow_execution_info.history_length += 1  # its unwritten WorkflowTaskStarted
        history = await self._runs.history(view)
        _describe_start(response, history[0], extras_of(view.object))
        _describe_builds(response, history, self._payloads.historian(entry.namespace), entry.uid)
        _describe_state(response, view.state)
        if view.state.code is not None:
            _describe_search_attributes(response, history, view.state.code.versioning)
            _describe_versioning(response, view.state.code.versioning)
        pending = list(view.state.left_activities.values() or view.state.open_activities())
        activities = await self._payloads.build(
            entry.namespace, lambda: list(map(_describe_activity, pending)), MAX_BYTES, payloads=view.payloads
        )
        response.pending_activities.extend(activities)
        _describe_operations(response, view.state)
        request_id = extras_of(view.object).request_id
        if not request_id and isinstance(history[0], ev.WorkflowExecutionStarted) and history[0].parent is not None:
            request_id = f"{history[0].parent.run_id}:{history[0].parent.initiated_event_id}:0"
        info = response.workflow_extended_info.request_id_infos[request_id or request_of(entry.uid)]
        info.event_type, info.event_id = EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED, 1
        for event in history:
            if found := _request_of(event):
                info = response.workflow_extended_info.request_id_infos[found[0]]
                info.event_type, info.event_id = found[1], event.event_id
        if isinstance(history[-1], ev.WorkflowExecutionTerminated) and history[-1].reset_run:
            reset = self._directory.run_id_of(entry.namespace, history[-1].reset_run)
            response.workflow_extended_info.reset_run_id = reset
        return response


def _describe_start(response: DescribeWorkflowExecutionResponse, started: ev.AnyEvent, extras: StartExtras) -> None:
    """Describe the start options of the workflow."""
    if not isinstance(started, ev.WorkflowExecutionStarted):
        return
    if started.priority:
        ParseDict(started.priority, response.workflow_execution_info.priority, ignore_unknown_fields=True)
    config = response.execution_config
    if started_by_a_workflow(started):
        config.workflow_run_timeout.SetInParent()
    config.task_queue.name = started.task_queue or WORKFLOWS_QUEUE
    config.task_queue.kind = TaskQueueKind.TASK_QUEUE_KIND_NORMAL
    for name, length in (
        ("workflow_execution_timeout", started.workflow_execution_timeout),
        ("workflow_run_timeout", started.workflow_run_timeout),
        ("default_workflow_task_timeout", started.workflow_task_timeout),
    ):
        if length:
            getattr(config, name).FromTimedelta(length)
    metadata = data.user_metadata(started.user_metadata or extras.user_metadata)
    if metadata is not None:
        config.user_metadata.CopyFrom(metadata)


def _describe_builds(
    response: DescribeWorkflowExecutionResponse, history: Sequence[ev.AnyEvent], historian: Historian, run_id: str
) -> None:
    """Describe the builds of workers that have decided, each with its first decision, which is a point to reset to."""
    info = response.workflow_execution_info
    info.auto_reset_points.SetInParent()
    completed = [event for event in history if isinstance(event, ev.WorkflowTaskCompleted)]
    if not completed:
        return
    first: dict[tuple[str, str], ev.WorkflowTaskCompleted] = {}
    for event in completed:
        first.setdefault((event.binary_checksum, str(event.worker_version)), event)
    for event in list(first.values())[-_MAX_RESET_POINTS:]:
        attributes = historian.one(event).workflow_task_completed_event_attributes
        point = info.auto_reset_points.points.add(
            build_id=attributes.worker_version.build_id,
            binary_checksum=attributes.binary_checksum,
            run_id=run_id,
            first_workflow_task_completed_id=event.event_id,
            resettable=True,
        )
        point.create_time.FromDatetime(event.event_time)
    last = historian.one(completed[-1]).workflow_task_completed_event_attributes
    if last.HasField("worker_version"):
        info.most_recent_worker_version_stamp.CopyFrom(last.worker_version)


def _describe_search_attributes(
    response: DescribeWorkflowExecutionResponse, history: Sequence[ev.AnyEvent], versioning: Versioning
) -> None:
    """Describe the search attributes about worker versions that Temporal's server writes with each workflow task."""
    info = response.workflow_execution_info
    versions = [event.deployment_version for event in history if isinstance(event, ev.WorkflowTaskCompleted)]
    builds = [] if versioning.pinned_to is None else [f"pinned:{versioning.pinned_to}"]
    if None in versions:
        points = [point.build_id or point.binary_checksum for point in info.auto_reset_points.points]
        builds += [_NO_BUILD, *(f"{_NO_BUILD}:{build}" for build in dict.fromkeys(points) if build)]
    used = list(dict.fromkeys(str(version) for version in versions if version is not None))
    for name, value in (("BuildIds", builds), ("TemporalUsedWorkerDeploymentVersions", used)):
        if value:
            info.search_attributes.indexed_fields[name].CopyFrom(
                data.attribute({"type": "KeywordList", "value": value})
            )


def _describe_versioning(response: DescribeWorkflowExecutionResponse, versioning: Versioning) -> None:
    """Describe the behavior, versions, and override of worker versioning."""
    if versioning == UNVERSIONED:
        return
    info = response.workflow_execution_info
    described = info.versioning_info
    described.behavior = to_enum(VersioningBehavior, versioning.behavior)
    if versioning.version is not None:
        described.deployment_version.CopyFrom(deployment_version(versioning.version))
        described.version = f"{versioning.version.deployment_name}.{versioning.version.build_id}"
        info.worker_deployment_name = versioning.version.deployment_name
    if versioning.override is not None:
        described.versioning_override.CopyFrom(versioning_override(versioning.override))
        pinned = versioning.override.version
        if versioning.override.behavior != ONE_TIME:  # which the deprecated fields have no form for
            described.versioning_override.behavior = to_enum(VersioningBehavior, versioning.effective_behavior)
            if pinned is not None:
                described.versioning_override.pinned_version = f"{pinned.deployment_name}.{pinned.build_id}"
        if pinned is not None:
            info.worker_deployment_name = pinned.deployment_name


def _describe_state(response: DescribeWorkflowExecutionResponse, state: RunState) -> None:
    """Describe the cancellation, expirations, pauses, children, and pending workflow task."""
    extended = response.workflow_extended_info
    extended.cancel_requested = state.cancel_requested
    extended.original_start_time.FromDatetime(state.start_time)
    if state.reset_time is not None:
        extended.last_reset_time.FromDatetime(state.reset_time)
    if state.expiration is not None:
        extended.execution_expiration_time.FromDatetime(state.expiration)
    extended.run_expiration_time.FromDatetime(state.run_deadline or values.NO_TIME)
    if state.paused is not None:
        extended.pause_info.reason, extended.pause_info.identity = state.paused.reason, state.paused.identity
        if state.paused.time is not None:
            extended.pause_info.paused_time.FromDatetime(state.paused.time)
    pauses = _pauses(state)
    if pauses:
        attributes = response.workflow_execution_info.search_attributes.indexed_fields
        attributes["TemporalPauseInfo"].CopyFrom(data.attribute({"type": "KeywordList", "value": pauses}))
    if not state.closed:
        response.pending_children.extend(
            PendingChildExecutionInfo(
                workflow_id=child.workflow_id,
                run_id=child.run_id,
                workflow_type_name=child.workflow_type,
                initiated_id=child.initiated_event_id,
                parent_close_policy=to_enum(ParentClosePolicy, child.parent_close_policy.value),
            )
            for child in state.children.values()
        )
    task = state.code.task if state.code is not None else None
    if task is not None:
        pending = response.pending_workflow_task
        pending.state = to_enum(PendingWorkflowTaskState, "Started" if task.started_time else "Scheduled")
        pending.attempt = task.attempt
        pending.scheduled_time.FromDatetime(task.scheduled_time)
        pending.original_scheduled_time.FromDatetime(task.original_scheduled_time)
        if task.started_time is not None:
            pending.started_time.FromDatetime(task.started_time)


def _pauses(state: RunState) -> list[str]:
    """The values of the search attribute ``TemporalPauseInfo`` (Temporal: buildTemporalPauseInfoEntries)."""
    pauses = []
    if state.paused is not None:
        pauses.append(f"Workflow:{state.workflow_id}")
        if state.paused.reason:
            pauses.append(f"Reason:{state.paused.reason}")
    types = {activity.activity_type for activity in state.open_activities() if activity.paused}
    return pauses + sorted(f"property:activityType={kind}" for kind in types)


def _describe_activity(activity: PendingActivity) -> PendingActivityInfo:
    """Describe an open activity."""
    made = PendingActivityInfo(
        activity_id=activity.activity_id,
        activity_type=ActivityType(name=activity.activity_type),
        state=to_enum(PendingActivityState, pending_state(activity)),
        heartbeat_details=data.payloads(activity.heartbeat_details),
        attempt=activity.tries,
        maximum_attempts=activity.retry_policy.maximum_attempts,
        last_worker_identity=activity.identity or activity.last_identity,
        paused=activity.paused,
        last_failure=failures.to_proto(activity.last_failure) if activity.last_failure is not None else None,
    )
    if activity.pause is not None:
        values.set_time(made.pause_info, "pause_time", activity.pause.time)
        made.pause_info.manual.identity, made.pause_info.manual.reason = activity.pause.identity, activity.pause.reason
    values.set_time(made, "scheduled_time", activity.scheduled_time)
    values.set_time(made, "last_started_time", activity.started_time)
    values.set_time(made, "last_heartbeat_time", activity.last_heartbeat_time)
    values.set_time(made, "expiration_time", activity.expiration)
    values.set_time(made, "last_attempt_complete_time", activity.last_attempt_complete_time)
    if activity.started_time is None and activity.scheduled_time > now() and not activity.paused:
        values.set_time(made, "next_attempt_schedule_time", activity.scheduled_time)
        since = activity.last_attempt_complete_time
        interval = activity.retry_policy.interval(max(activity.tries - 1, 1))
        made.current_retry_interval.FromTimedelta(activity.scheduled_time - since if since is not None else interval)
    options = made.activity_options
    options.task_queue.name = options.task_queue.normal_name = activity.task_queue
    for name in TIMEOUTS:
        getattr(options, name).FromTimedelta(getattr(activity, name) or timedelta(0))
    options.retry_policy.CopyFrom(retry_policy(activity.retry_policy))
    del options.retry_policy.non_retryable_error_types[:]  # as on Temporal's server
    if activity.priority is not None:
        made.priority.SetInParent()
        ParseDict(activity.priority, made.priority, ignore_unknown_fields=True)
        options.priority.CopyFrom(made.priority)
    return made


def _describe_operations(response: DescribeWorkflowExecutionResponse, state: RunState) -> None:
    """Describe the Nexus operations that the workflow waits for, and the ones that wait for its end."""
    response.pending_nexus_operations.extend(pending_operation(each, now()) for each in state.operations.values())
    for pending in state.callbacks.values():
        callback = response.callbacks.add()
        describe_callback(callback, pending, due=state.is_due(pending))
        if pending.update_id:
            callback.trigger.update_workflow_execution_completed.update_id = pending.update_id
        else:
            callback.trigger.workflow_closed.SetInParent()


def _request_of(event: ev.AnyEvent) -> "tuple[str, EventType.ValueType] | None":
    """The ID of the request that led to an event, and the type of the event; None if none is recorded."""
    match event:
        case ev.WorkflowExecutionOptionsUpdated() if event.attached_request_id:
            return event.attached_request_id, EventType.EVENT_TYPE_WORKFLOW_EXECUTION_OPTIONS_UPDATED
        case ev.WorkflowExecutionUpdateAdmitted() if event.request_id:
            return event.request_id, EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ADMITTED
        case ev.WorkflowExecutionUpdateAccepted() if event.request_id:
            return event.request_id, EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED
        case _:
            return None
