"""RPCs about standalone activities: single ones. Rules, messages and limits are Temporal's (chasm/lib/activity)."""

import asyncio
import uuid
from contextlib import suppress
from typing import Any

import msgspec
from temporalio.api.enums.v1 import ActivityIdConflictPolicy, ActivityIdReusePolicy
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

from perdure.api import labels
from perdure.api.durations import nearest_duration
from perdure.controller.directory import Entry, Standing
from perdure.engine import inputs
from perdure.engine.starts import StartExtras
from perdure.engine.state import PODS_QUEUE, RunState
from perdure.frontend import given, priorities
from perdure.frontend import payloads as data
from perdure.frontend.callbacks import callbacks_of, describe, own_links, to_engine
from perdure.frontend.core import Core
from perdure.frontend.enums import from_enum
from perdure.frontend.errors import CompletedError, RpcError, invalid, precondition, unavailable
from perdure.frontend.given import MAX_BLOB, MAX_ID, UnfitError, duration
from perdure.frontend.runs import View, not_open
from perdure.frontend.service.call import LONGEST_POLL, LONGEST_WAIT, CallContext
from perdure.frontend.service.making import RunMaker, StartedRun, run_name
from perdure.frontend.standalone import described, long_poll_token, outcome_of, token_is_of
from perdure.frontend.starts import check_beside, input_of
from perdure.frontend.visibility import record_of, status_named
from perdure.kube import client as kube
from perdure.kube.clock import now
from perdure.runtime.chains import retry_policy_json

_TIMEOUTS = (
    ("schedule_to_close_timeout", "scheduleToCloseTimeout"),
    ("schedule_to_start_timeout", "scheduleToStartTimeout"),
    ("start_to_close_timeout", "startToCloseTimeout"),
    ("heartbeat_timeout", "heartbeatTimeout"),
)
_METADATA = (("summary", 400), ("details", 20_000))
"""Bytes of what the metadata of a user may have."""
_CANCEL, _TERMINATE = "cancel/", "terminate/"
"""Before the IDs of requests, as a run keeps them: those of different kinds may be the same."""


class StandaloneActivities:
    """Starts standalone activities, tells of them, and stops them."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._maker = RunMaker(core)

    # Starting

    async def start_activity_execution(
        self, request: StartActivityExecutionRequest, call: CallContext
    ) -> StartActivityExecutionResponse:
        """Start a standalone activity, or find it open."""
        begun = await self._begin(request, call.principal)
        response = StartActivityExecutionResponse(run_id=begun.entry.uid, started=begun.started)
        link = response.link.activity
        link.namespace, link.activity_id, link.run_id = request.namespace, request.activity_id, begun.entry.uid
        return response

    async def _begin(self, request: StartActivityExecutionRequest, principal: str) -> StartedRun:
        manager, directory = self._core.runs.manager, self._core.runs.manager.directory
        _check(request)
        reuse = from_enum(ActivityIdReusePolicy, request.id_reuse_policy)
        conflict = from_enum(ActivityIdConflictPolicy, request.id_conflict_policy)
        if not reuse:
            raise invalid(f"unsupported ID reuse policy: {request.id_reuse_policy}")
        if not conflict:
            raise invalid(f"unsupported ID conflict policy: {request.id_conflict_policy}")
        reuse = "AllowDuplicate" if reuse == "Unspecified" else reuse
        conflict = "Fail" if conflict == "Unspecified" else conflict
        name = run_name(request.activity_id, request.request_id, kind="activity")
        body = await self._body(request, name)
        body["spec"] |= {"workflowIdReusePolicy": reuse, "workflowIdConflictPolicy": conflict}
        if principal:
            body["metadata"]["annotations"][labels.CREATED_BY_ANNOTATION] = principal
        await manager.first_lists.wait()
        known = directory.newest(request.namespace, request.activity_id, standalone=True)
        if known is not None and known.name == name and known.standing is not Standing.WAITING:
            return StartedRun(known, started=False)
        if known is not None and known.name != name:
            if known.standing is not Standing.CLOSED:
                if conflict == "UseExisting":
                    await self._attach(known, request, principal)
                    return StartedRun(known, started=False)
                raise await self._maker.taken(known, "")
            if reuse == "RejectDuplicate" or (reuse == "AllowDuplicateFailedOnly" and known.phase == "Completed"):
                raise await self._maker.taken(known, "")
        return await self._maker.make(body)

    async def _attach(self, known: Entry, request: StartActivityExecutionRequest, principal: str) -> None:
        """Have the end of an open activity complete the operations of this request, too, if that wants it."""
        options = request.on_conflict_options
        callbacks = request.completion_callbacks if options.attach_completion_callbacks else ()
        attached = inputs.CallbacksAttached(
            request_id=request.request_id or uuid.uuid4().hex,
            callbacks=to_engine(callbacks),
            identity=request.identity,
            principal=principal,
            links=own_links(request) if options.attach_links else None,
        )
        if attached.callbacks or attached.links:
            await self._demand(known, attached)

    async def _body(self, request: StartActivityExecutionRequest, name: str) -> kube.Object:
        spec, extras = _asked_for(request, await self._core.registry.types(request.namespace))
        callbacks = callbacks_of(request, self._core.runs.manager.served)
        extras = msgspec.structs.replace(extras, completion_callbacks=callbacks, links=own_links(request))
        check_beside(extras)
        return {
            "apiVersion": labels.API_VERSION,
            "kind": "WorkflowRun",
            "metadata": {
                "name": name,
                "namespace": request.namespace,
                "annotations": {labels.START_ANNOTATION: msgspec.json.encode(extras).decode()},
            },
            "spec": spec,
        }

    # Following

    async def poll_activity_execution(
        self, request: PollActivityExecutionRequest, call: CallContext
    ) -> PollActivityExecutionResponse:
        """Wait for the outcome; an empty answer if there is none in time."""
        entry = self._core.runs.activity(request.namespace, request.activity_id, request.run_id)

        def closed() -> bool:
            return self._core.runs.is_closed(entry.uid)

        if not await self._core.runs.wait_until(entry.uid, closed, call.within(LONGEST_POLL)):
            return PollActivityExecutionResponse()
        view = await self._core.runs.view(entry)
        history = await self._core.runs.history(view)
        return PollActivityExecutionResponse(run_id=entry.uid, outcome=outcome_of(history))

    async def describe_activity_execution(
        self, request: DescribeActivityExecutionRequest, call: CallContext
    ) -> DescribeActivityExecutionResponse:
        """What is known of an activity; with a token, once that has changed, and an empty answer if it does not in time."""
        token = request.long_poll_token
        if token and not request.run_id:
            raise invalid("run id is required when long poll token is provided")
        entry = self._core.runs.activity(request.namespace, request.activity_id, request.run_id)
        if token:
            _check_token(token, entry.uid)
        runs, seconds = self._core.runs, call.within(LONGEST_POLL if token else LONGEST_WAIT)
        if not await runs.has_begun(entry.uid, seconds):
            raise unavailable("the activity has not begun yet")
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while True:
                    with runs.next_change(entry.uid) as changed:
                        response = await self._described(await runs.view(entry), request)
                        if response.long_poll_token != token:
                            return response
                        await changed
        return DescribeActivityExecutionResponse()

    async def _described(
        self, view: View, request: DescribeActivityExecutionRequest
    ) -> DescribeActivityExecutionResponse:
        if view.state is None:
            raise unavailable("the activity has not begun yet")
        history = await self._core.runs.history(view)
        info = described(view.object, record_of(view.object), view.state, history, now())
        response = DescribeActivityExecutionResponse(
            run_id=view.entry.uid, info=info, long_poll_token=long_poll_token(info)
        )
        for pending in view.state.callbacks.values():
            told = response.callbacks.add()
            told.trigger.activity_closed.SetInParent()
            describe(told.info, pending, due=view.state.is_due(pending))
        if not request.include_heartbeat_details:
            response.info.ClearField("heartbeat_details")
        if not request.include_last_failure:
            response.info.ClearField("last_failure")
        given_input = data.payloads(view.object["spec"].get("input"))
        if request.include_input and given_input is not None:
            response.input.CopyFrom(given_input)
        if request.include_outcome and view.state.closed:
            response.outcome.CopyFrom(outcome_of(history))
        return response

    # Stopping

    async def request_cancel_activity_execution(
        self, request: RequestCancelActivityExecutionRequest, call: CallContext
    ) -> RequestCancelActivityExecutionResponse:
        """Ask an activity to cancel itself. One that no worker does is canceled at once."""
        entry = self._core.runs.activity(request.namespace, request.activity_id, request.run_id)
        asked = inputs.CancelRequested(
            request_id=_CANCEL + _request_id(request),
            reason=_reason(request),
            identity=request.identity,
            principal=call.principal,
        )
        state = await self._state(entry, call)
        if asked.request_id in state.requests:
            return RequestCancelActivityExecutionResponse()
        if state.closed:
            raise _terminal(state)
        if state.cancel_requested:
            before = next((each for each in state.requests if each.startswith(_CANCEL)), "")
            raise precondition(f"cancellation already requested with request ID {before.removeprefix(_CANCEL)}")
        await self._demand(entry, asked)
        return RequestCancelActivityExecutionResponse()

    async def terminate_activity_execution(
        self, request: TerminateActivityExecutionRequest, call: CallContext
    ) -> TerminateActivityExecutionResponse:
        """Stop an activity, without asking its worker."""
        entry = self._core.runs.activity(request.namespace, request.activity_id, request.run_id)
        asked = inputs.TerminateRequested(
            request_id=_TERMINATE + _request_id(request),
            reason=_reason(request),
            identity=request.identity,
            principal=call.principal,
        )
        state = await self._state(entry, call)
        if asked.request_id in state.requests:
            return TerminateActivityExecutionResponse()
        before = next((each for each in state.requests if each.startswith(_TERMINATE)), "")
        if before:
            raise precondition(f"already terminated with request ID {before.removeprefix(_TERMINATE)}")
        if state.closed:
            raise not_open(state)
        await self._demand(entry, asked)
        return TerminateActivityExecutionResponse()

    async def delete_activity_execution(
        self, request: DeleteActivityExecutionRequest, call: CallContext
    ) -> DeleteActivityExecutionResponse:
        """Remove an activity with its history; one that is open is stopped by that."""
        del call
        entry = self._core.runs.activity(request.namespace, request.activity_id, request.run_id)
        url = kube.path(kube.PERDURE, entry.namespace, "workflowruns", entry.name)
        await self._core.runs.manager.client.delete(url, uid=entry.uid)
        return DeleteActivityExecutionResponse()

    async def _state(self, entry: Entry, call: CallContext) -> RunState:
        await self._core.runs.has_begun(entry.uid, call.within(LONGEST_WAIT))
        state = (await self._core.runs.view(entry)).state
        if state is None:
            raise unavailable("the activity has not begun yet")
        return state

    async def _demand(self, entry: Entry, asked: inputs.Request) -> None:
        try:
            await self._core.runs.demand(entry, asked)
        except CompletedError:
            state = (await self._core.runs.view(entry)).state
            if state is None:
                raise
            raise _terminal(state) from None


def _terminal(state: RunState) -> RpcError:
    return precondition(f"activity is in terminal state {status_named(state.status.value)}")


def _check_token(token: bytes, run_id: str) -> None:
    try:
        matches = token_is_of(token, run_id)
    except ValueError:
        raise invalid("invalid long poll token") from None
    if not matches:
        raise invalid("long poll token does not match execution")


def _request_id(request: Any) -> str:
    found = request.request_id or uuid.uuid4().hex
    if len(found) > MAX_ID:
        raise invalid(f"request ID exceeds length limit. Length={len(found)} Limit={MAX_ID}")
    return str(found)


def _reason(request: Any) -> str:
    if len(request.reason.encode()) > MAX_BLOB:
        raise invalid("reason exceeds length limit")
    return str(request.reason)


def _check(request: StartActivityExecutionRequest) -> None:
    """See what a start must say, and what it cannot ask for.

    Raises:
        RpcError: it does not, or does.
    """
    if not request.task_queue.name:
        raise invalid("missing task queue name")
    for value, what in ((request.activity_id, "activityId"), (request.activity_type.name, "activityType")):
        if not value:
            raise invalid(f"{what} is not set")
        if len(value) > MAX_ID:
            raise invalid(f"{what} exceeds length limit. Length={len(value)} Limit={MAX_ID}")
    if len(request.request_id) > MAX_ID:
        raise invalid(f"request ID exceeds length limit. Length={len(request.request_id)} Limit={MAX_ID}")
    if not (duration(request, "schedule_to_close_timeout") or duration(request, "start_to_close_timeout")):
        raise invalid(
            "a valid StartToCloseTimeout or ScheduleToCloseTimeout must be set on the activity. "
            f"ActivityId={request.activity_id} ActivityType={request.activity_type.name}"
        )
    for name, most in _METADATA:
        size = getattr(request.user_metadata, name).ByteSize()
        if size > most:
            raise invalid(f"user_metadata.{name} exceeds size limit. Length={size} Limit={most}")
    _check_attaching(request)


def _check_attaching(request: StartActivityExecutionRequest) -> None:
    """Check what an activity that is open already would get.

    Raises:
        RpcError: it cannot.
    """
    options = request.on_conflict_options
    if options.attach_completion_callbacks and not options.attach_request_id:
        raise invalid("on_conflict_options: attach_completion_callbacks requires attach_request_id to be set")
    if options.attach_request_id and not (request.completion_callbacks or request.links):
        raise invalid("on_conflict_options: attach_request_id requires at least one completion callback or link")


def _asked_for(request: StartActivityExecutionRequest, types: dict[str, str]) -> tuple[dict[str, Any], StartExtras]:
    """The spec of the WorkflowRun of a standalone activity, and what there is beside it.

    Raises:
        UnfitError: it cannot be started so.
    """
    queue = request.task_queue.name
    if queue.startswith(PODS_QUEUE):
        raise UnfitError(f"TaskQueue: no worker polls {queue[:63]!r}")
    activity: dict[str, Any] = {"type": request.activity_type.name, "taskQueue": given.name(queue, "TaskQueue")}
    for field, ours in _TIMEOUTS:
        length = duration(request, field)
        if length:
            activity[ours] = nearest_duration(length)
    if request.HasField("retry_policy"):
        activity["retryPolicy"] = retry_policy_json(given.retry_policy(request.retry_policy))
    spec: dict[str, Any] = {"workflowId": request.activity_id, "activity": activity}
    try:
        kept = input_of(request.input.payloads, by_name=False)
    except UnfitError:
        raise UnfitError("input exceeds length limit") from None
    if kept is not None:
        spec["input"] = kept
    delay = duration(request, "start_delay")
    if delay:
        spec["startDelay"] = nearest_duration(delay)
    found_by = data.attributes_to_json(request.search_attributes.indexed_fields, types, request.namespace)
    if found_by:
        spec["searchAttributes"] = found_by
    extras = StartExtras(
        identity=request.identity,
        header=data.header_to_json(request),
        user_metadata=data.user_metadata_to_json(request.user_metadata),
        priority=priorities.asked_for(request),
        request_id=request.request_id,
    )
    return spec, extras
