"""RPCs about attempts of activities: from workers that execute them, and from clients that complete them asynchronously.

Large heartbeat details are stored without a commit of the run.
"""

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from temporalio.api.common.v1 import ActivityType, Payloads, WorkflowExecution
from temporalio.api.workflowservice.v1 import (
    PollActivityTaskQueueRequest,
    PollActivityTaskQueueResponse,
    RecordActivityTaskHeartbeatByIdRequest,
    RecordActivityTaskHeartbeatByIdResponse,
    RecordActivityTaskHeartbeatRequest,
    RecordActivityTaskHeartbeatResponse,
    RespondActivityTaskCanceledByIdRequest,
    RespondActivityTaskCanceledByIdResponse,
    RespondActivityTaskCanceledRequest,
    RespondActivityTaskCanceledResponse,
    RespondActivityTaskCompletedByIdRequest,
    RespondActivityTaskCompletedByIdResponse,
    RespondActivityTaskCompletedRequest,
    RespondActivityTaskCompletedResponse,
    RespondActivityTaskFailedByIdRequest,
    RespondActivityTaskFailedByIdResponse,
    RespondActivityTaskFailedRequest,
    RespondActivityTaskFailedResponse,
)

from perdure.api.phases import RunKind
from perdure.controller.directory import Directory, Entry
from perdure.controller.dispatch.runs import WorkflowRuns
from perdure.controller.payloads import Blobs, Saved
from perdure.controller.reconcile.record import encoded
from perdure.controller.runs.run import Run
from perdure.engine import inputs
from perdure.engine.failures import Failure, FailureKind
from perdure.engine.payloads import referred_to
from perdure.frontend.deployments.versions import Versions
from perdure.frontend.errors import RpcError, invalid, not_found
from perdure.frontend.matching.dispatch import effective_priority
from perdure.frontend.matching.polls import LONGEST_POLL
from perdure.frontend.matching.queues import Kind, Matching, Offer, Poller, QueueName
from perdure.frontend.messages import failures
from perdure.frontend.messages import payloads as data
from perdure.frontend.messages.histories import retry_policy
from perdure.frontend.messages.tokens import ActivityToken, pack, unpack
from perdure.frontend.messages.values import UnfitError, name
from perdure.frontend.runs.gateway import NO_RUN, LargePayloads, RunGateway, not_open
from perdure.frontend.transport.rpc import CallContext
from perdure.runtime.blobs import Reference, owner, reference_in, with_content


@asynccontextmanager
async def stored_details(
    blobs: Blobs, run: Run | None, entry: Entry, scheduled_event_id: int, details: object
) -> AsyncIterator[None]:
    """Store large heartbeat details before the block that passes them to a run, and remove the previous ones after it.

    Heartbeats need no commit, so the details would otherwise stay in memory until the next one. Details that a commit has
    recorded are kept.

    Args:
        blobs: Stores the details.
        run: The run, if this process works on it.
        entry: Its entry.
        scheduled_event_id: The ID of the activity's ActivityTaskScheduled.
        details: The details as JSON, or a reference with their bytes.
    """
    reference = next(with_content(details), None)
    if reference is None or run is None or run.state is None or run.state.code is None:
        yield
        return
    owned_by = owner(entry.name, entry.uid)
    activity = run.state.activity(scheduled_event_id)
    before = reference_in(activity.heartbeat_details) if activity is not None else None
    saved = await blobs.save(entry.namespace, reference, owned_by)
    try:
        yield
    except RpcError:
        if saved is not None:
            await blobs.remove(entry.namespace, saved)
        raise
    blobs.cache.put(entry.namespace, reference.name, reference.content or b"")
    reference.content, reference.version = None, saved
    old = before.version if isinstance(before, Reference) else None
    if isinstance(old, Saved) and old.name not in referred_to(encoded(run.record.status)):
        await blobs.remove(entry.namespace, old)


class ActivityTasks:
    """Dispatches attempts, and processes the reports about them."""

    def __init__(
        self,
        *,
        blobs: Blobs,
        directory: Directory,
        open_runs: WorkflowRuns,
        runs: RunGateway,
        matching: Matching,
        versions: Versions,
        payloads: LargePayloads,
    ) -> None:
        self._blobs = blobs
        self._directory = directory
        self._open_runs = open_runs
        self._runs = runs
        self._matching = matching
        self._versions = versions
        self._payloads = payloads
        matching.register(Kind.ACTIVITY, self._take, self._return)

    # Dispatch

    async def poll_activity_task_queue(
        self, request: PollActivityTaskQueueRequest, call: CallContext
    ) -> PollActivityTaskQueueResponse:
        """Wait for an attempt; the response is empty if there is none in time."""
        if not request.task_queue.name:
            raise invalid("TaskQueue is not set on request.")
        named = QueueName(request.namespace, Kind.ACTIVITY, name(request.task_queue.name, "TaskQueue"))
        queue = await self._versions.polled_queue(named, request.deployment_options)
        metadata = request.task_queue_metadata
        rate = metadata.max_tasks_per_second.value if metadata.HasField("max_tasks_per_second") else None
        task: PollActivityTaskQueueResponse | None = await self._matching.poll(
            queue, request.identity, call.within(LONGEST_POLL), call.recheck, through=call.member, per_second=rate
        )
        return task if task is not None else PollActivityTaskQueueResponse()

    async def _take(self, offer: Offer, poller: Poller, /) -> PollActivityTaskQueueResponse | None:
        entry = self._directory.get(offer.run_id)
        if entry is None:
            return None
        fence = poller.request_id
        take_request = inputs.ActivityDispatched(
            request_id=fence,
            scheduled_event_id=offer.scheduled_event_id,
            attempt=offer.attempt,
            fence=fence,
            identity=poller.identity,
        )
        try:
            answer = await self._runs.request(entry, take_request)
            return await self.build_task(entry, offer.scheduled_event_id, fence) if answer.ok else None
        except BaseException:
            self._return(offer, poller)
            raise

    def _return(self, offer: Offer, poller: Poller, /) -> None:
        """Return an attempt that a worker did not receive."""
        entry = self._directory.get(offer.run_id)
        if entry is None:
            return
        returned = inputs.ActivityReturned(
            request_id=f"{poller.request_id}/returned",
            scheduled_event_id=offer.scheduled_event_id,
            attempt=offer.attempt,
            fence=poller.request_id,
        )
        self._runs.send(entry, returned)

    async def build_task(
        self, entry: Entry, scheduled_event_id: int, fence: str
    ) -> PollActivityTaskQueueResponse | None:
        """The attempt of an activity for a worker; None if another worker got it or it has ended."""
        return await self._payloads.build(entry.namespace, lambda: self._build_task(entry, scheduled_event_id, fence))

    def _build_task(self, entry: Entry, scheduled_event_id: int, fence: str) -> PollActivityTaskQueueResponse | None:
        state = self._runs.state(entry.uid)
        activity = state.activity(scheduled_event_id) if state is not None else None
        if state is None or activity is None or activity.fence != fence or activity.started_time is None:
            return None
        token = ActivityToken(
            namespace=entry.namespace,
            run_id=entry.uid,
            workflow_id=entry.workflow_id,
            scheduled=activity.scheduled_event_id,
            attempt=activity.attempt,
            fence=fence,
            activity_id=activity.activity_id,
        )
        response = PollActivityTaskQueueResponse(
            task_token=pack(token),
            workflow_namespace=entry.namespace,
            workflow_execution=WorkflowExecution(),
            activity_type=ActivityType(name=activity.activity_type),
            activity_id=activity.activity_id,
            header=data.header(activity.header),
            input=data.payloads(activity.input),
            heartbeat_details=data.payloads(activity.heartbeat_details),
            attempt=activity.tries,
            retry_policy=retry_policy(activity.retry_policy),
        )
        if state.standalone:
            response.activity_run_id = entry.uid
        else:
            response.workflow_type.name = state.code.workflow_type if state.code else entry.name
            response.workflow_execution.workflow_id, response.workflow_execution.run_id = entry.workflow_id, entry.uid
        inherited = state.code.priority if state.code is not None else None
        if inherited or activity.priority:
            response.priority.CopyFrom(effective_priority(inherited, activity.priority))
        response.scheduled_time.FromDatetime(state.start_time if state.standalone else activity.first_scheduled_time)
        response.current_attempt_scheduled_time.FromDatetime(activity.scheduled_time)
        response.started_time.FromDatetime(activity.started_time)
        for timeout in ("schedule_to_close_timeout", "start_to_close_timeout", "heartbeat_timeout"):
            length = getattr(activity, timeout)
            field = getattr(response, timeout)
            field.SetInParent()
            if length is not None:
                field.FromTimedelta(length)
        return response

    # By token

    async def record_activity_task_heartbeat(
        self, request: RecordActivityTaskHeartbeatRequest, call: CallContext
    ) -> RecordActivityTaskHeartbeatResponse:
        """Record a heartbeat of an attempt; the response says whether it should stop."""
        response = await self._beat(*self._attempt(request), request, call)
        return RecordActivityTaskHeartbeatResponse(**response)

    async def _beat(self, entry: Entry, token: ActivityToken, request: Any, call: CallContext) -> dict[str, bool]:
        try:
            details = data.to_json(request.details.payloads, allow_blob=True)
        except UnfitError:  # as on Temporal's server
            await self._report(entry, token, request, call, failure=_too_large("Heartbeat details exceed size limit."))
            return {"cancel_requested": True}
        beat = inputs.ActivityHeartbeat(
            request_id=uuid.uuid4().hex,
            scheduled_event_id=token.scheduled,
            attempt=token.attempt,
            fence=token.fence,
            details=details,
        )
        async with stored_details(self._blobs, self._open_runs.get(entry.uid), entry, token.scheduled, details):
            await self._runs.demand(entry, beat)
        state = self._runs.state(entry.uid)
        activity = state.activity(token.scheduled) if state is not None else None
        if state is None or activity is None:
            raise not_found("activity task not found, or it has ended")
        return {
            "cancel_requested": activity.cancel_requested,
            "activity_paused": activity.paused,
            "activity_reset": activity.reset,
        }

    async def respond_activity_task_completed(
        self, request: RespondActivityTaskCompletedRequest, call: CallContext
    ) -> RespondActivityTaskCompletedResponse:
        """Record the success of an attempt."""
        await self._report(*self._attempt(request), request, call, **completion(request.result))
        return RespondActivityTaskCompletedResponse()

    async def respond_activity_task_failed(
        self, request: RespondActivityTaskFailedRequest, call: CallContext
    ) -> RespondActivityTaskFailedResponse:
        """Record the failure of an attempt."""
        await self._report(*self._attempt(request), request, call, **_failure(request))
        return RespondActivityTaskFailedResponse()

    async def respond_activity_task_canceled(
        self, request: RespondActivityTaskCanceledRequest, call: CallContext
    ) -> RespondActivityTaskCanceledResponse:
        """Record that an attempt has stopped after a cancellation request."""
        await self._report(*self._attempt(request), request, call, **_cancellation(request))
        return RespondActivityTaskCanceledResponse()

    async def _report(
        self, entry: Entry, token: ActivityToken, request: Any, call: CallContext, **result_fields: Any
    ) -> None:
        await self._runs.demand(
            entry,
            inputs.ActivityReported(
                request_id=uuid.uuid4().hex,
                scheduled_event_id=token.scheduled,
                attempt=token.attempt,
                fence=token.fence,
                identity=request.identity,
                principal=call.principal,
                **result_fields,
            ),
        )

    def _attempt(self, request: Any) -> tuple[Entry, ActivityToken]:
        """Find the attempt that the token of a request names."""
        token: ActivityToken = unpack(request.task_token, ActivityToken, request.namespace)
        entry = self._directory.get(token.run_id)
        if entry is None or entry.namespace != token.namespace:
            raise not_found("activity task not found, or it has ended")
        return entry, token

    # By ID

    async def _named(self, request: Any, *, unstarted: bool = False) -> tuple[Entry, ActivityToken]:
        """Find an open activity by ID, regardless of the attempt; without a workflow ID, a standalone one.

        Args:
            request: The request with the IDs.
            unstarted: Whether to also find a standalone activity that no worker runs.
        """
        if not request.activity_id:
            raise invalid("ActivityId is not set on request.")
        entry = await self._runs.find_activity(request)
        state = (await self._runs.view(entry)).state
        for activity in state.open_activities() if state is not None else ():
            if activity.activity_id == request.activity_id:
                if entry.kind.standalone and activity.started_time is None and not unstarted:
                    break
                return entry, ActivityToken(
                    namespace=entry.namespace,
                    run_id=entry.uid,
                    scheduled=activity.scheduled_event_id,
                    attempt=activity.attempt,
                    fence="",
                )
        if not entry.kind.standalone:
            raise not_found(f"cannot find pending activity with ActivityID {request.activity_id}")
        if unstarted and state is not None and state.closed:
            raise not_open(state)
        raise not_found(NO_RUN[RunKind.ACTIVITY].format(request.activity_id))

    async def record_activity_task_heartbeat_by_id(
        self, request: RecordActivityTaskHeartbeatByIdRequest, call: CallContext
    ) -> RecordActivityTaskHeartbeatByIdResponse:
        """Record a heartbeat of an activity by its ID."""
        response = await self._beat(*await self._named(request), request, call)
        return RecordActivityTaskHeartbeatByIdResponse(**response)

    async def respond_activity_task_completed_by_id(
        self, request: RespondActivityTaskCompletedByIdRequest, call: CallContext
    ) -> RespondActivityTaskCompletedByIdResponse:
        """Record the success of an activity by its ID."""
        await self._report(*await self._named(request, unstarted=True), request, call, **completion(request.result))
        return RespondActivityTaskCompletedByIdResponse()

    async def respond_activity_task_failed_by_id(
        self, request: RespondActivityTaskFailedByIdRequest, call: CallContext
    ) -> RespondActivityTaskFailedByIdResponse:
        """Record the failure of an attempt of an activity by its ID."""
        await self._report(*await self._named(request), request, call, **_failure(request))
        return RespondActivityTaskFailedByIdResponse()

    async def respond_activity_task_canceled_by_id(
        self, request: RespondActivityTaskCanceledByIdRequest, call: CallContext
    ) -> RespondActivityTaskCanceledByIdResponse:
        """Record that an activity has stopped after a cancellation request, by its ID."""
        await self._report(*await self._named(request), request, call, **_cancellation(request))
        return RespondActivityTaskCanceledByIdResponse()


def completion(payloads: Payloads) -> dict[str, Any]:
    """The outcome of an attempt. A result that is too large is a failure, as on Temporal's server."""
    try:
        return {"result": data.to_json(payloads.payloads, allow_blob=True)}
    except UnfitError:
        return {"failure": _too_large("Complete result exceeds size limit.")}


def _cancellation(request: Any) -> dict[str, Any]:
    return {"cancelled": True, "result": data.to_json(request.details.payloads, allow_blob=True)}


def _too_large(message: str) -> Failure:
    return Failure(kind=FailureKind.SERVER, message=message, non_retryable=True)


def _failure(request: Any) -> dict[str, Any]:
    return {
        "failure": failures.to_json(request.failure),
        "heartbeat_details": data.to_json(request.last_heartbeat_details.payloads, allow_blob=True),
    }
