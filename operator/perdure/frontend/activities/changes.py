"""RPCs that change open activities of workflows and standalone ones: pause, unpause, reset, change options."""

import re
import uuid
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import msgspec
from temporalio.api.activity.v1 import ActivityOptions
from temporalio.api.common.v1 import Priority
from temporalio.api.common.v1 import RetryPolicy as ProtoRetryPolicy
from temporalio.api.enums.v1 import TaskQueueKind
from temporalio.api.workflowservice.v1 import (
    PauseActivityExecutionRequest,
    PauseActivityExecutionResponse,
    PauseActivityRequest,
    PauseActivityResponse,
    ResetActivityExecutionRequest,
    ResetActivityExecutionResponse,
    ResetActivityRequest,
    ResetActivityResponse,
    UnpauseActivityExecutionRequest,
    UnpauseActivityExecutionResponse,
    UnpauseActivityRequest,
    UnpauseActivityResponse,
    UpdateActivityExecutionOptionsRequest,
    UpdateActivityExecutionOptionsResponse,
    UpdateActivityOptionsRequest,
    UpdateActivityOptionsResponse,
)

from perdure.archive.records import status_named
from perdure.controller.directory import Entry
from perdure.engine import activities, inputs
from perdure.engine.ledger import activity_named
from perdure.engine.state import PODS_QUEUE, OpenActivityOptions, PendingActivity, RunState
from perdure.frontend.activities.standalone import TIMEOUTS, pending_state
from perdure.frontend.errors import invalid, not_found, precondition, unavailable
from perdure.frontend.matching.dispatch import requested_priority
from perdure.frontend.messages import histories, values
from perdure.frontend.messages import payloads as data
from perdure.frontend.messages.values import UnfitError, duration_or_none, retry_policy
from perdure.frontend.runs.gateway import RunGateway
from perdure.frontend.transport.rpc import CallContext

RETRY_FIELDS = ("initial_interval", "backoff_coefficient", "maximum_interval", "maximum_attempts")
"""The parts of a retry policy that a client may change."""
_QUEUE_PATHS, _POLICY_PATH = {"task_queue", "task_queue.name"}, "retry_policy"
_CHANGEABLE = "Scheduled", "Started", "Paused", "PauseRequested"


@dataclass(frozen=True, slots=True)
class _FoundActivity:
    """The activity of a request."""

    entry: Entry
    activity: PendingActivity | None
    """The activity; None if it is not open."""
    state: str
    """The state of the activity or, if it has closed, of its run."""
    requests: Collection[str]
    """IDs of the requests that its run has processed."""


class ActivityChanges:
    """Changes open activities."""

    def __init__(self, runs: RunGateway) -> None:
        self._runs = runs

    # Activities of a workflow: one by ID, all of a type, or all

    async def pause_activity(self, request: PauseActivityRequest, call: CallContext) -> PauseActivityResponse:
        """Stop new attempts of an activity. A repeated request changes nothing."""
        entry, state, found = await self._selected(request, every=False)
        wanted = _request_id(request, "pause")
        ids = {each.activity_id: f"{wanted}/{each.activity_id}" for each in found}
        if any(each.paused and ids[each.activity_id] not in state.requests for each in found):
            raise precondition("activity is already paused")
        for activity_id, request_id in ids.items():
            if request_id not in state.requests:
                await self._runs.demand(entry, _pause(request, call, activity_id, request_id))
        return PauseActivityResponse()

    async def unpause_activity(self, request: UnpauseActivityRequest, call: CallContext) -> UnpauseActivityResponse:
        """Unpause an activity; on request, restart the count of its attempts."""

        def unpause(activity: PendingActivity, request_id: str) -> inputs.Request:
            if request.reset_attempts:
                return inputs.ActivityReset(
                    request_id=request_id, activity_id=activity.activity_id, heartbeat=request.reset_heartbeat
                )
            return _unpause(request, activity.activity_id, request_id)

        await self._change_all(request, request.unpause_all, unpause)
        return UnpauseActivityResponse()

    async def reset_activity(self, request: ResetActivityRequest, call: CallContext) -> ResetActivityResponse:
        """Restart the count of the attempts of an activity. A running one learns this from its next heartbeat."""
        await self._change_all(
            request, request.match_all, lambda each, request_id: _reset(request, each.activity_id, request_id)
        )
        return ResetActivityResponse()

    async def update_activity_options(
        self, request: UpdateActivityOptionsRequest, call: CallContext
    ) -> UpdateActivityOptionsResponse:
        """Change the options of an activity, or restore those that the workflow has set."""
        if request.restore_original and request.update_mask.paths:
            raise invalid("restore_original: cannot be used with update_mask")
        if not request.restore_original:
            _check_has(request, "activity_options", "update_mask")
        response = UpdateActivityOptionsResponse()

        paths = [path for path in map(snake, request.update_mask.paths) if path != "start_delay"]

        def change(activity: PendingActivity, request_id: str) -> inputs.Request:
            options = _options(request, activity, paths)
            current = options or activity.original or activities.options_of(activity)
            response.activity_options.CopyFrom(_message(current))
            if len(paths) < len(request.update_mask.paths):  # activities of workflows have no delay to change
                response.activity_options.start_delay.CopyFrom(request.activity_options.start_delay)
            return inputs.OptionsChanged(request_id=request_id, activity_id=activity.activity_id, options=options)

        await self._change_all(request, request.match_all, change)
        return response

    async def _change_all(
        self, request: Any, every: bool, change: Callable[[PendingActivity, str], inputs.Request]
    ) -> None:
        """Change the open activities that a request selects.

        Args:
            request: The request.
            every: Whether it selects all of them.
            change: Returns the change of an activity, with a new request ID.
        """
        entry, _, found = await self._selected(request, every)
        for activity in found:
            await self._runs.demand(entry, change(activity, uuid.uuid4().hex))

    async def _selected(self, request: Any, every: bool) -> tuple[Entry, RunState, list[PendingActivity]]:
        """The run of a request, its state, and the open activities that the request selects; at least one.

        Args:
            request: The request.
            every: Whether it selects all of them.

        Raises:
            RpcError: The run does not exist, or the request selects no open activity.
        """
        entry = await self._runs.find(request.namespace, request.execution)
        if not (request.id or every or request.type):
            raise invalid("Either Activity.Id or Activity.Type should be set on request.")
        state = (await self._runs.view(entry)).state
        open_ = list(state.open_activities()) if state is not None else []
        if request.id:
            found = [each for each in open_ if each.activity_id == request.id]
        else:
            found = [each for each in open_ if every or each.activity_type == request.type]
        if state is None or not found:
            raise not_found("activity not found")
        return entry, state, found

    # One activity, of a workflow or standalone

    async def pause_activity_execution(
        self, request: PauseActivityExecutionRequest, call: CallContext
    ) -> PauseActivityExecutionResponse:
        """Stop new attempts of an activity."""
        pause = _pause(request, call, request.activity_id, _request_id(request, "pause"))
        await self._change(request, pause, "Scheduled", "Started", why="activity is in non-pausable state {}")
        return PauseActivityExecutionResponse()

    async def unpause_activity_execution(
        self, request: UnpauseActivityExecutionRequest, call: CallContext
    ) -> UnpauseActivityExecutionResponse:
        """Let an activity continue."""
        unpause = _unpause(request, request.activity_id, _request_id(request, "unpause"))
        await self._change(request, unpause, "Paused", "PauseRequested", why="activity is in non-unpausable state {}")
        return UnpauseActivityExecutionResponse()

    async def reset_activity_execution(
        self, request: ResetActivityExecutionRequest, call: CallContext
    ) -> ResetActivityExecutionResponse:
        """Restart the count of the attempts of an activity. A running one learns this from its next heartbeat."""
        reset = _reset(request, request.activity_id, _request_id(request, "reset"))
        await self._change(request, reset, *_CHANGEABLE, why="cannot reset an activity in state {}")
        return ResetActivityExecutionResponse()

    async def update_activity_execution_options(
        self, request: UpdateActivityExecutionOptionsRequest, call: CallContext
    ) -> UpdateActivityExecutionOptionsResponse:
        """Change the options of an activity, or restore its original ones."""
        if request.restore_original and request.update_mask.paths:
            raise invalid("Both UpdateMask and RestoreOriginal are provided")
        if not request.restore_original and not request.update_mask.paths:
            raise invalid("UpdateMask must specify at least one path")
        activity = (await self._find(request)).activity
        change = inputs.OptionsChanged(
            request_id=_request_id(request, "options"),
            activity_id=request.activity_id,
            options=_options(request, activity, list(map(snake, request.update_mask.paths)))
            if activity is not None
            else None,
        )
        await self._change(request, change, *_CHANGEABLE, why="Cannot update options for activity in state {}")
        response = UpdateActivityExecutionOptionsResponse()
        found = (await self._find(request)).activity
        if found is not None:
            response.activity_options.CopyFrom(_message(activities.options_of(found)))
        return response

    async def _change(self, request: Any, change: inputs.Request, *states: str, why: str) -> None:
        """Change an activity. A repeated request changes nothing.

        Args:
            request: The request with the IDs of the activity.
            change: The change.
            states: The states of a standalone activity in which it can be changed.
            why: The error message for other states, with a placeholder for the state.
        """
        found = await self._find(request)
        if change.request_id in found.requests:
            return
        if found.entry.kind.standalone and found.state not in states:
            raise precondition(why.format(found.state))
        if found.activity is None:
            raise not_found("activity not found")
        await self._runs.demand(found.entry, change)

    async def _find(self, request: Any) -> _FoundActivity:
        """Find an activity of a workflow or, without a workflow ID, a standalone one."""
        entry = await self._runs.find_activity(request)
        state = (await self._runs.view(entry)).state
        if state is None:
            raise unavailable("the activity has not started yet")
        activity = activity_named(state, request.activity_id)
        status = pending_state(activity) if activity is not None else status_named(state.status.value)
        return _FoundActivity(entry, activity, status, state.requests)


def _pause(request: Any, call: CallContext, activity_id: str, request_id: str) -> inputs.PauseRequested:
    return inputs.PauseRequested(
        request_id=request_id,
        activity_id=activity_id,
        reason=request.reason,
        identity=request.identity or call.principal,
    )


def _unpause(request: Any, activity_id: str, request_id: str) -> inputs.UnpauseRequested:
    return inputs.UnpauseRequested(request_id=request_id, activity_id=activity_id, identity=request.identity)


def _reset(request: Any, activity_id: str, request_id: str) -> inputs.ActivityReset:
    return inputs.ActivityReset(
        request_id=request_id,
        activity_id=activity_id,
        heartbeat=request.reset_heartbeat,
        keep_paused=request.keep_paused,
        restore=request.restore_original_options,
    )


def _options(request: Any, activity: PendingActivity, paths: list[str]) -> OpenActivityOptions | None:
    """The options of an activity after a request changes those at some paths; None to restore the original ones."""
    if request.restore_original:
        return None
    return activities.completed(changed_options(activities.options_of(activity), request.activity_options, paths))


def changed_options(now: OpenActivityOptions, requested: ActivityOptions, paths: list[str]) -> OpenActivityOptions:
    """The options of an activity after the changes of a client.

    Args:
        now: The current options.
        requested: The requested options.
        paths: The fields to change: a field mask in snake_case.

    Raises:
        RpcError: An option cannot be changed like this.
        UnfitError: A value is not valid.
    """
    changes: dict[str, Any] = {}
    policy = histories.retry_policy(now.retry_policy)
    priority = data.message_from_json(now.priority or {}, Priority)
    for path in paths:
        field, _, part = path.partition(".")
        if path in _QUEUE_PATHS:
            changes["task_queue"] = requested.task_queue.name
        elif path in TIMEOUTS:
            changes[path] = duration_or_none(requested, path)
        elif path == "priority":
            changes["priority"] = requested_priority(requested)
        elif path == _POLICY_PATH:
            _check_has(requested, _POLICY_PATH)
            policy = ProtoRetryPolicy()
            policy.CopyFrom(requested.retry_policy)
        elif field == _POLICY_PATH and part in RETRY_FIELDS:
            _check_has(requested, _POLICY_PATH)
            policy.ClearField(part)  # type: ignore[arg-type]
            policy.MergeFrom(_only(requested.retry_policy, part))
        elif field == "priority" and part in Priority.DESCRIPTOR.fields_by_name:
            _check_has(requested, "priority")
            setattr(priority, part, getattr(requested.priority, part))
            changes["priority"] = requested_priority(ActivityOptions(priority=priority))
        else:
            raise invalid(f"update_mask: `{path}` cannot be changed")
    if any(path.startswith(_POLICY_PATH) for path in paths):
        try:
            changes[_POLICY_PATH] = retry_policy(policy)
        except UnfitError as error:
            raise invalid(f"activity_options.retry_policy: {error}") from error
    queue = changes.get("task_queue")
    if queue is not None and (not queue or queue.startswith(PODS_QUEUE)):
        raise invalid("activity_options.task_queue: must be one that workers poll")
    values.name(queue or "", "activity_options.task_queue", required=False)
    changed = msgspec.structs.replace(now, **changes)
    if changed.schedule_to_close_timeout is None and changed.start_to_close_timeout is None:
        raise invalid("activity_options: schedule_to_close_timeout or start_to_close_timeout must be set")
    return changed


def _check_has(message: Any, *fields: str) -> None:
    """Check that a message has fields.

    Raises:
        RpcError: It does not have one.
    """
    for field in fields:
        if not message.HasField(field):
            raise invalid(f"{field}: must be set")


def _only(policy: ProtoRetryPolicy, field: str) -> ProtoRetryPolicy:
    """Return a retry policy with only one of its fields."""
    made = ProtoRetryPolicy()
    value = getattr(policy, field)
    if hasattr(value, "CopyFrom"):
        getattr(made, field).CopyFrom(value)
    else:
        setattr(made, field, value)
    return made


def _message(options: OpenActivityOptions) -> ActivityOptions:
    made = ActivityOptions(retry_policy=histories.retry_policy(options.retry_policy))
    made.task_queue.name = options.task_queue
    made.task_queue.kind = TaskQueueKind.TASK_QUEUE_KIND_NORMAL
    for name in TIMEOUTS:
        getattr(made, name).FromTimedelta(getattr(options, name) or timedelta(0))
    if options.priority is not None:
        made.priority.CopyFrom(data.message_from_json(options.priority, type(made.priority)))
    return made


def _request_id(request: Any, kind: str) -> str:
    """The stored ID of a request, which includes its kind, because requests of different kinds may have the same ID."""
    return f"{kind}/{values.name(request.request_id, 'RequestId', required=False) or uuid.uuid4().hex}"


def snake(path: str) -> str:
    """A path of a field mask in snake_case."""
    return re.sub("[A-Z]", lambda letter: f"_{letter[0].lower()}", path)
