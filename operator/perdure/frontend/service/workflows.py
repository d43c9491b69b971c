"""RPCs about single workflows: signal, query, cancel, terminate, pause, delete, and describe them."""

import asyncio
import uuid
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

from google.protobuf.json_format import ParseDict
from google.protobuf.message import Message
from temporalio.api.common.v1 import ActivityType, Payloads, WorkflowExecution
from temporalio.api.enums.v1 import (
    EventType,
    ParentClosePolicy,
    PendingActivityState,
    PendingWorkflowTaskState,
    QueryRejectCondition,
    TaskQueueKind,
    VersioningBehavior,
    WorkflowExecutionStatus,
)
from temporalio.api.query.v1 import QueryRejected
from temporalio.api.workflow.v1 import (
    PendingActivityInfo,
    PendingChildExecutionInfo,
)
from temporalio.api.workflowservice.v1 import (
    DeleteWorkflowExecutionRequest,
    DeleteWorkflowExecutionResponse,
    DescribeWorkflowExecutionRequest,
    DescribeWorkflowExecutionResponse,
    PauseWorkflowExecutionRequest,
    PauseWorkflowExecutionResponse,
    QueryWorkflowRequest,
    QueryWorkflowResponse,
    RequestCancelWorkflowExecutionRequest,
    RequestCancelWorkflowExecutionResponse,
    SignalWorkflowExecutionRequest,
    SignalWorkflowExecutionResponse,
    TerminateWorkflowExecutionRequest,
    TerminateWorkflowExecutionResponse,
    UnpauseWorkflowExecutionRequest,
    UnpauseWorkflowExecutionResponse,
)

from perdure.controller.directory import Entry
from perdure.engine import events as ev
from perdure.engine import inputs
from perdure.engine.starts import StartExtras
from perdure.engine.state import WORKFLOWS_QUEUE, PendingActivity, RunState
from perdure.engine.versioning import UNVERSIONED, Versioning
from perdure.frontend import callbacks, failures, given, links
from perdure.frontend import payloads as data
from perdure.frontend.core import Core
from perdure.frontend.enums import from_enum, to_enum
from perdure.frontend.errors import (
    CompletedError,
    busy,
    invalid,
    not_ready,
    precondition,
    query_failed,
    too_late,
    unavailable,
)
from perdure.frontend.history import (
    Historian,
    deployment_version,
    request_of,
    retry_policy,
    started_by_a_workflow,
    versioning_override,
)
from perdure.frontend.paging import MAX_BYTES
from perdure.frontend.pending_operations import pending as pending_operation
from perdure.frontend.queries import MAX_WAITING, QueryFailedError
from perdure.frontend.run_reader import View
from perdure.frontend.service.call import LONGEST_WAIT, CallContext
from perdure.frontend.service.querying import StepQueries
from perdure.frontend.visibility import record_of
from perdure.kube import client as kube
from perdure.kube.clock import now
from perdure.runtime.chains import extras_of

QUERY_SECONDS = 30.0
"""How long a query waits for a worker at most, as on Temporal's server (client/history/client.go: DefaultTimeout)."""
_NO_BUILD = "unversioned"
"""In the search attribute BuildIds: workers without versioning have decided. Their builds follow, after a colon."""
_MAX_RESET_POINTS = 20
_TERMINATED = "terminated by user via frontend"
"""The reason of a termination if the client gives none, as on Temporal's server."""
_MAX_FAILED_ATTEMPTS = 3
"""A query fails immediately if the workflow's code has failed that often in a row: no worker could answer it."""


class Workflows:
    """Handles requests to single workflows."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._steps = StepQueries(core)

    async def signal_workflow_execution(
        self, request: SignalWorkflowExecutionRequest, call: CallContext
    ) -> SignalWorkflowExecutionResponse:
        """Signal a workflow."""
        if not request.signal_name:
            raise invalid("SignalName is not set on request.")
        if len(request.signal_name) > given.MAX_ID:
            raise invalid("SignalName length exceeds limit.")
        signal = inputs.SignalRequested(
            request_id=request.request_id or uuid.uuid4().hex,
            signal_name=request.signal_name,
            input=data.to_json(request.input.payloads, apart=True),
            identity=request.identity,
            principal=call.principal,
            header=data.header_to_json(request),
            client_request_id=request.request_id,
            links=links.to_json(request.links),
        )
        told = await self._demand(request, call, signal)
        return SignalWorkflowExecutionResponse(link=links.to_signal(told, request.request_id))

    async def request_cancel_workflow_execution(
        self, request: RequestCancelWorkflowExecutionRequest, call: CallContext
    ) -> RequestCancelWorkflowExecutionResponse:
        """Request the cancellation of a workflow; for a closed one, this does nothing."""
        cancel = inputs.CancelRequested(
            request_id=request.request_id or uuid.uuid4().hex,
            reason=request.reason,
            identity=request.identity,
            principal=call.principal,
            links=links.to_json(request.links),
        )
        with suppress(CompletedError):
            await self._demand(request, call, cancel)
        return RequestCancelWorkflowExecutionResponse()

    async def terminate_workflow_execution(
        self, request: TerminateWorkflowExecutionRequest, call: CallContext
    ) -> TerminateWorkflowExecutionResponse:
        """Stop a workflow."""
        stop = inputs.TerminateRequested(
            request_id=uuid.uuid4().hex,
            reason=request.reason or _TERMINATED,
            details=data.to_json(request.details.payloads),
            identity=request.identity,
            principal=call.principal,
            links=links.to_json(request.links),
        )
        await self._demand(request, call, stop)
        return TerminateWorkflowExecutionResponse()

    async def pause_workflow_execution(
        self, request: PauseWorkflowExecutionRequest, call: CallContext
    ) -> PauseWorkflowExecutionResponse:
        """Let nothing new begin in a workflow: no workflow task, no attempt of an activity."""
        await self._switch(request, call, inputs.PauseRequested)
        return PauseWorkflowExecutionResponse()

    async def unpause_workflow_execution(
        self, request: UnpauseWorkflowExecutionRequest, call: CallContext
    ) -> UnpauseWorkflowExecutionResponse:
        """Let a paused workflow continue."""
        await self._switch(request, call, inputs.UnpauseRequested)
        return UnpauseWorkflowExecutionResponse()

    async def _switch(
        self,
        request: PauseWorkflowExecutionRequest | UnpauseWorkflowExecutionRequest,
        call: CallContext,
        kind: type[inputs.PauseRequested | inputs.UnpauseRequested],
    ) -> None:
        """Pause or unpause a workflow.

        What would change nothing is refused, unless it is the same request once more (Temporal: service/history/api).
        """
        asked = kind(
            request_id=request.request_id or uuid.uuid4().hex,
            reason=request.reason,
            identity=request.identity or call.principal,
            principal=call.principal,
        )
        runs, seconds = self._core.runs, call.within(LONGEST_WAIT)
        execution = WorkflowExecution(workflow_id=request.workflow_id, run_id=request.run_id)
        entry = await runs.finder.reach(request.namespace, execution, seconds)
        state = (await runs.reader.view(entry)).state
        pauses = kind is inputs.PauseRequested
        if state and not state.closed and asked.request_id not in state.requests and bool(state.paused) is pauses:
            raise precondition("workflow is already paused." if pauses else "workflow is not paused.")
        await runs.finder.along(entry, execution, seconds, lambda open_: runs.demand(open_, asked))

    async def _demand(self, request: Any, call: CallContext, asked: inputs.Request) -> Entry:
        """Pass a request to the run of a workflow that is open when it arrives, and return that run.

        A request that names the first run of a chain goes to the chain's open run, whatever run ID it names besides
        (Temporal: service/history/api/terminateworkflow, requestcancelworkflow).
        """
        runs, execution, seconds = self._core.runs, request.workflow_execution, call.within(LONGEST_WAIT)
        first = getattr(request, "first_execution_run_id", "")
        if first:
            execution = WorkflowExecution(workflow_id=execution.workflow_id)

        async def demand(entry: Entry) -> Entry:
            await runs.demand(entry, asked)
            return entry

        entry = await runs.finder.reach(request.namespace, execution, seconds, first_run_id=first)
        return await runs.finder.along(entry, execution, seconds, demand)

    async def delete_workflow_execution(
        self, request: DeleteWorkflowExecutionRequest, call: CallContext
    ) -> DeleteWorkflowExecutionResponse:
        """Remove a run with its history; one that is open is stopped by that."""
        del call
        entry = self._core.runs.finder.entry(request.namespace, request.workflow_execution)
        url = kube.path(kube.PERDURE, entry.namespace, "workflowruns", entry.name)
        await self._core.runs.manager.client.delete(url, uid=entry.uid)
        return DeleteWorkflowExecutionResponse()

    # Queries

    async def query_workflow(self, request: QueryWorkflowRequest, call: CallContext) -> QueryWorkflowResponse:
        """Query a workflow, open or closed."""
        if not request.query.query_type:
            raise invalid("WorkflowQuery is not set on request.")
        seconds = call.within(LONGEST_WAIT)
        entry = await self._core.runs.finder.reach(request.namespace, request.execution, seconds)
        if not await self._core.runs.finder.has_begun(entry.uid, seconds):
            raise unavailable("the workflow has not begun yet")
        view = await self._core.runs.reader.view(entry)
        rejected = _rejected(request, view)
        if rejected is not None:
            return QueryWorkflowResponse(query_rejected=rejected)
        if view.state is None:
            raise unavailable("the workflow has not begun yet")
        code = view.state.code
        if code is None:
            return await self._steps.answer(request, view, view.state)
        if view.state.closed and not code.previous_started_event_id:
            raise not_ready("Workflow execution closed before WorkflowTaskStarted event")
        if code.task is not None and code.task.attempt >= _MAX_FAILED_ATTEMPTS:
            raise precondition("Cannot query workflow due to Workflow Task in failed state.")
        if len(self._core.queries.attached(entry.uid)) >= MAX_WAITING:
            raise busy(
                "consistent query buffer is full, this may be caused by too many queries and workflow not responding"
            )
        return QueryWorkflowResponse(query_result=await self._ask(entry, request, call))

    async def _ask(self, entry: Entry, request: QueryWorkflowRequest, call: CallContext) -> Payloads:
        await self._core.deployments.load(entry.namespace)
        query = self._core.queries.add(entry.uid, request.query)
        try:
            self._core.query_dispatch.dispatch(entry, query)
            async with asyncio.timeout(call.within(QUERY_SECONDS)):
                return await query.answer
        except QueryFailedError as error:
            raise query_failed(error.failure) from error
        except TimeoutError:
            record = self._core.visibility.get(entry.namespace, entry.uid)
            queue = record.task_queue if record is not None else ""
            raise too_late(f"query timed out: no worker of task queue {queue!r} has answered") from None
        finally:
            query.answer.cancel()
            self._core.queries.drop(entry.uid, query.query_id)

    # Describing

    async def describe_workflow_execution(
        self, request: DescribeWorkflowExecutionRequest, call: CallContext
    ) -> DescribeWorkflowExecutionResponse:
        """Describe a workflow: everything except its history."""
        entry = await self._core.runs.finder.reach(request.namespace, request.execution, call.within(LONGEST_WAIT))
        view = await self._core.runs.reader.view(entry)
        response = DescribeWorkflowExecutionResponse(
            workflow_execution_info=record_of(view.object).info(registered=False)
        )
        if view.state is None:
            return response
        task = view.state.code.task if view.state.code is not None else None
        if task is not None and task.scheduled_event_id and task.started_time is not None:
            response.workflow_execution_info.history_length += 1  # its WorkflowTaskStarted, which is not written yet
        history = await self._core.runs.reader.history(view)
        _describe_start(response, history[0], extras_of(view.object))
        _describe_builds(response, history, self._core.payloads.historian(entry.namespace), entry.uid)
        _describe_state(response, view.state)
        if view.state.code is not None:
            _describe_search_attributes(response, history, view.state.code.versioning)
            _describe_versioning(response, view.state.code.versioning)
        pending = (view.state.left_activities or view.state.activities).values()
        told = await self._core.payloads.whole(entry.namespace, lambda: list(map(_activity, pending)), MAX_BYTES)
        response.pending_activities.extend(told)
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
            reset = self._core.runs.finder.run_id_of(entry.namespace)(history[-1].reset_run)
            response.workflow_extended_info.reset_run_id = reset
        return response


def _rejected(request: QueryWorkflowRequest, view: View) -> QueryRejected | None:
    status = record_of(view.object).status
    condition = from_enum(QueryRejectCondition, request.query_reject_condition)
    unwanted = (condition == "NotOpen" and status != "Running") or (
        condition == "NotCompletedCleanly" and status not in {"Running", "Completed"}
    )
    return QueryRejected(status=to_enum(WorkflowExecutionStatus, status)) if unwanted else None


def _describe_start(response: DescribeWorkflowExecutionResponse, started: ev.AnyEvent, extras: StartExtras) -> None:
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
    """Which builds of workers have decided, and where each one first did, which is a point to reset to."""
    info = response.workflow_execution_info
    info.auto_reset_points.SetInParent()
    completed = [event for event in history if isinstance(event, ev.WorkflowTaskCompleted)]
    if not completed:
        return
    first: dict[tuple[str, str], ev.WorkflowTaskCompleted] = {}
    for event in completed:
        first.setdefault((event.binary_checksum, str(event.worker_version)), event)
    for event in list(first.values())[-_MAX_RESET_POINTS:]:
        told = historian.one(event).workflow_task_completed_event_attributes
        point = info.auto_reset_points.points.add(
            build_id=told.worker_version.build_id,
            binary_checksum=told.binary_checksum,
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
    """The search attributes about versions of workers, which Temporal's server writes with each workflow task."""
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
    if versioning == UNVERSIONED:
        return
    info = response.workflow_execution_info
    told = info.versioning_info
    told.behavior = to_enum(VersioningBehavior, versioning.behavior)
    if versioning.version is not None:
        told.deployment_version.CopyFrom(deployment_version(versioning.version))
        told.version = f"{versioning.version.deployment_name}.{versioning.version.build_id}"
        info.worker_deployment_name = versioning.version.deployment_name
    if versioning.override is not None:
        told.versioning_override.CopyFrom(versioning_override(versioning.override))
        told.versioning_override.behavior = to_enum(VersioningBehavior, versioning.effective_behavior)
        pinned = versioning.override.version
        if pinned is not None:
            told.versioning_override.pinned_version = f"{pinned.deployment_name}.{pinned.build_id}"
            info.worker_deployment_name = pinned.deployment_name


def _describe_state(response: DescribeWorkflowExecutionResponse, state: RunState) -> None:
    extended = response.workflow_extended_info
    extended.cancel_requested = state.cancel_requested
    extended.original_start_time.FromDatetime(state.start_time)
    if state.reset_time is not None:
        extended.last_reset_time.FromDatetime(state.reset_time)
    if state.expiration is not None:
        extended.execution_expiration_time.FromDatetime(state.expiration)
    extended.run_expiration_time.FromDatetime(state.run_deadline or given.NO_TIME)
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
    """What is paused, as the value of the search attribute ``TemporalPauseInfo`` (Temporal: buildTemporalPauseInfoEntries)."""
    told = []
    if state.paused is not None:
        told.append(f"Workflow:{state.workflow_id}")
        if state.paused.reason:
            told.append(f"Reason:{state.paused.reason}")
    types = {activity.activity_type for activity in state.activities.values() if activity.paused}
    return told + sorted(f"property:activityType={kind}" for kind in types)


def _activity(activity: PendingActivity) -> PendingActivityInfo:
    state = "Started" if activity.started_time else "Scheduled"
    if activity.cancel_requested:
        state = "CancelRequested"
    elif activity.paused:
        state = "PauseRequested" if activity.started_time else "Paused"
    made = PendingActivityInfo(
        activity_id=activity.activity_id,
        activity_type=ActivityType(name=activity.activity_type),
        state=to_enum(PendingActivityState, state),
        heartbeat_details=data.payloads(activity.heartbeat_details),
        attempt=activity.tries,
        maximum_attempts=activity.retry_policy.maximum_attempts,
        last_worker_identity=activity.identity or activity.last_identity,
        paused=activity.paused,
        last_failure=failures.to_proto(activity.last_failure) if activity.last_failure is not None else None,
    )
    if activity.pause is not None:
        _set_time(made.pause_info, "pause_time", activity.pause.time)
        made.pause_info.manual.identity, made.pause_info.manual.reason = activity.pause.identity, activity.pause.reason
    _set_time(made, "scheduled_time", activity.scheduled_time)
    _set_time(made, "last_started_time", activity.started_time)
    _set_time(made, "last_heartbeat_time", activity.last_heartbeat_time)
    _set_time(made, "expiration_time", activity.expiration)
    _set_time(made, "last_attempt_complete_time", activity.last_attempt_complete_time)
    if activity.started_time is None and activity.scheduled_time > now():
        _set_time(made, "next_attempt_schedule_time", activity.scheduled_time)
        since = activity.last_attempt_complete_time
        interval = activity.retry_policy.interval(max(activity.tries - 1, 1))
        made.current_retry_interval.FromTimedelta(activity.scheduled_time - since if since is not None else interval)
    options = made.activity_options
    options.task_queue.name = options.task_queue.normal_name = activity.task_queue
    for name in (
        "schedule_to_close_timeout",
        "schedule_to_start_timeout",
        "start_to_close_timeout",
        "heartbeat_timeout",
    ):
        getattr(options, name).FromTimedelta(getattr(activity, name) or timedelta(0))
    options.retry_policy.CopyFrom(retry_policy(activity.retry_policy))
    del options.retry_policy.non_retryable_error_types[:]  # as on Temporal's server
    if activity.priority:
        ParseDict(activity.priority, made.priority, ignore_unknown_fields=True)
        options.priority.CopyFrom(made.priority)
    return made


def _describe_operations(response: DescribeWorkflowExecutionResponse, state: RunState) -> None:
    """The Nexus operations that the workflow waits for, and those that wait for its end."""
    response.pending_nexus_operations.extend(pending_operation(each, now()) for each in state.operations.values())
    for pending in state.callbacks.values():
        told = response.callbacks.add()
        callbacks.describe(told, pending, due=state.is_due(pending))
        if pending.update_id:
            told.trigger.update_workflow_execution_completed.update_id = pending.update_id
        else:
            told.trigger.workflow_closed.SetInParent()


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


def _set_time(message: Message, field: str, time: Any) -> None:
    if time is not None:
        getattr(message, field).FromDatetime(time)
