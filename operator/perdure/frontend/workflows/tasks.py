"""Workflow tasks and queries: dispatch to polling workers, and the workers' responses.

A task for a worker that polls at another member of the fleet may not arrive. It is remembered for a while, and offered again if
that member leaves.
"""

import hashlib
import uuid
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from temporalio.api.common.v1 import WorkflowExecution, WorkflowType
from temporalio.api.enums.v1 import CommandType, TaskQueueKind, WorkflowTaskFailedCause
from temporalio.api.history.v1 import History
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.update.v1 import Outcome
from temporalio.api.workflowservice.v1 import (
    PollActivityTaskQueueResponse,
    PollWorkflowTaskQueueRequest,
    PollWorkflowTaskQueueResponse,
    ResetStickyTaskQueueRequest,
    ResetStickyTaskQueueResponse,
    RespondQueryTaskCompletedRequest,
    RespondQueryTaskCompletedResponse,
    RespondWorkflowTaskCompletedRequest,
    RespondWorkflowTaskCompletedResponse,
    RespondWorkflowTaskFailedRequest,
    RespondWorkflowTaskFailedResponse,
    ShutdownWorkerRequest,
    ShutdownWorkerResponse,
)

from perdure.api.kinds.workflowlimit import LimitTaker, LimitTakers
from perdure.controller.directory import Directory, Entry
from perdure.controller.dispatch.runs import WorkflowRuns
from perdure.controller.limits import WorkflowLimits
from perdure.engine import commands as cmd
from perdure.engine import events as ev
from perdure.engine import inputs
from perdure.engine.failures import Failure, FailureKind
from perdure.engine.state import RunState
from perdure.engine.versioning import DeploymentVersion
from perdure.frontend.activities.tasks import ActivityTasks
from perdure.frontend.deployments import versions
from perdure.frontend.deployments.versions import Versions, version_of
from perdure.frontend.errors import invalid, not_found, precondition, unavailable
from perdure.frontend.matching.polls import LONGEST_POLL
from perdure.frontend.matching.queues import Kind, Matching, Offer, Poller, QueueName
from perdure.frontend.messages import failures
from perdure.frontend.messages import payloads as data
from perdure.frontend.messages.tokens import PageToken, QueryToken, WorkflowTaskToken, pack, unpack
from perdure.frontend.messages.values import duration_or_none, from_enum, name
from perdure.frontend.nexus.endpoints import EndpointRegistry, Endpoints
from perdure.frontend.runs.gateway import LargePayloads, RunGateway, refusal
from perdure.frontend.transport.rpc import CallContext
from perdure.frontend.visibility.index import Visibility
from perdure.frontend.visibility.search_attributes import SearchAttributeRegistry
from perdure.frontend.workers import KnownWorkers
from perdure.frontend.workflows.commands import (
    BadCommandError,
    CommandReader,
    KnownUpdates,
    TaskAnswer,
    recorded_request,
)
from perdure.frontend.workflows.queries import Queries, QueryDispatch, answer_query
from perdure.frontend.workflows.updates import Updates, outcome_of
from perdure.kube.clock import monotonic
from perdure.runtime.blobs import Room

PAGE = 1_000
"""Maximum number of events in a task; workers read the rest with GetWorkflowExecutionHistory."""

_TRANSIT_SECONDS: Final = 15.0
"""How long tasks count as in transit, which is longer than detecting the loss of a member takes."""


@dataclass(frozen=True, slots=True)
class _Sent:
    entry: Entry
    token: WorkflowTaskToken
    time: float


class TasksInTransit:
    """The tasks that this member must repeat if another member is lost."""

    def __init__(self) -> None:
        """Create it without tasks."""
        self._sent: dict[str, deque[_Sent]] = {}
        """The sent tasks by member, in order."""

    def add(self, member: str, entry: Entry, token: WorkflowTaskToken) -> None:
        """Record a task that is sent to a worker of a member."""
        time = monotonic()
        self._sent.setdefault(member, deque()).append(_Sent(entry, token, time))
        for other, sent in list(self._sent.items()):  # also of frontends that are gone, which nobody reports
            while sent and sent[0].time < time - _TRANSIT_SECONDS:
                sent.popleft()
            if not sent:
                del self._sent[other]

    def lost(self, member: str) -> list[tuple[Entry, WorkflowTaskToken]]:
        """Return the tasks that may not have arrived because a member is lost."""
        since = monotonic() - _TRANSIT_SECONDS
        return [(each.entry, each.token) for each in self._sent.pop(member, ()) if each.time >= since]


class TaskDispatch:
    """Dispatches workflow tasks and queries."""

    def __init__(
        self,
        *,
        directory: Directory,
        runs: RunGateway,
        matching: Matching,
        versions: Versions,
        payloads: LargePayloads,
        queries: Queries,
        updates: Updates,
        epoch: Callable[[], str],
        suggest_events: int,
    ) -> None:
        self._directory = directory
        self._runs = runs
        self._matching = matching
        self._versions = versions
        self._payloads = payloads
        self._queries = queries
        self._updates = updates
        self._epoch = epoch
        self._suggest_events = suggest_events
        self._in_transit = TasksInTransit()
        matching.register(Kind.WORKFLOW, self._take, self._return)
        matching.on_lost(self._reclaim)

    async def poll_workflow_task_queue(
        self, request: PollWorkflowTaskQueueRequest, call: CallContext
    ) -> PollWorkflowTaskQueueResponse:
        """Wait for a task; the response is empty if there is none in time."""
        if not request.task_queue.name:
            raise invalid("TaskQueue is not set on request.")
        named = QueueName(request.namespace, Kind.WORKFLOW, name(request.task_queue.name, "TaskQueue"))
        sticky = request.task_queue.kind == TaskQueueKind.TASK_QUEUE_KIND_STICKY
        queue = await self._versions.polled_queue(named, request.deployment_options, sticky=sticky)
        task: PollWorkflowTaskQueueResponse | None = await self._matching.poll(
            queue, request.identity, call.within(LONGEST_POLL), call.recheck, sticky=sticky, through=call.member
        )
        return task if task is not None else PollWorkflowTaskQueueResponse()

    async def take_now(self, entry: Entry, identity: str) -> PollWorkflowTaskQueueResponse | None:
        """Take the task of a run for a client that is also a worker; None if no task is available now."""
        return await self._take(Offer(entry.uid), Poller(identity))

    async def _take(self, offer: Offer, poller: Poller, /) -> PollWorkflowTaskQueueResponse | None:
        """Return the offered task or query, if it is still pending."""
        entry = self._directory.get(offer.run_id)
        if entry is None:
            return None
        if offer.query:
            return await self._query_task(entry, offer, sticky=poller.sticky)
        try:
            answer = await self._runs.request(entry, self.take_request(entry, poller.request_id, poller.identity))
            if not answer.ok:
                return None
            return await self._task(entry, sticky=poller.sticky, through=poller.through)
        except BaseException:
            self._requeue(entry)
            raise

    def take_request(self, entry: Entry, request_id: str, identity: str) -> inputs.TaskDispatched:
        """Build the request of a worker that takes the task of a run."""
        state = self._runs.state(entry.uid)
        return inputs.TaskDispatched(
            request_id=request_id,
            epoch=self._epoch(),
            identity=identity,
            suggest_events=self._suggest_events,
            target_version_changed=state is not None and self._versions.target_changed(entry.namespace, state),
        )

    def _requeue(self, entry: Entry) -> None:
        """Return a task whose worker disconnected before receiving it, so that another worker gets it immediately."""
        token = self._held(entry)
        if token is not None:
            returned = inputs.TaskReturned(request_id=uuid.uuid4().hex, token=token.engine())
            self._runs.send(entry, returned)

    def _return(self, offer: Offer, poller: Poller, /) -> None:
        """Return a task that a worker at another member did not receive."""
        entry = self._directory.get(offer.run_id)
        code = self._runs.code(offer.run_id)
        if (
            entry is not None
            and code is not None
            and code.task is not None
            and code.task.request_id == poller.request_id
        ):
            self._requeue(entry)

    def _held(self, entry: Entry) -> WorkflowTaskToken | None:
        """The token of a run's task, if a worker has the task."""
        code = self._runs.code(entry.uid)
        task = code.task if code is not None else None
        return token_of(entry, task) if task is not None and task.started_time is not None else None

    def _reclaim(self, member: str) -> None:
        """Return the tasks in transit to workers of a member that has left."""
        for entry, token in self._in_transit.lost(member):
            if self._held(entry) == token:
                self._requeue(entry)

    async def _task(
        self, entry: Entry, *, sticky: bool, through: str, prolonged: bool = False
    ) -> PollWorkflowTaskQueueResponse | None:
        """Build the task that a worker has taken. A task that only prolongs another one does not repeat its updates."""
        view = await self._runs.view_of_worker(entry)
        code = view.state.code if view.state is not None else None
        task = code.task if code is not None else None
        if view.state is None or code is None or task is None or task.started_time is None:
            return None
        first = code.previous_started_event_id + 1 if sticky and code.previous_started_event_id else 1
        events = [*await self._runs.history(view, first), *virtual_events(view.state)]
        page = await self._payloads.page(entry.namespace, events[:PAGE])
        token = token_of(entry, task)
        response = PollWorkflowTaskQueueResponse(
            task_token=pack(token),
            workflow_execution=WorkflowExecution(workflow_id=entry.workflow_id, run_id=entry.uid),
            workflow_type=WorkflowType(name=code.workflow_type),
            previous_started_event_id=code.previous_started_event_id,
            started_event_id=task.started_event_id,
            attempt=task.attempt,
            history=History(events=page),
            workflow_execution_task_queue=TaskQueue(name=code.task_queue, kind=TaskQueueKind.TASK_QUEUE_KIND_NORMAL),
            next_page_token=_next_page(entry, events[len(page) :]),
        )
        response.scheduled_time.FromDatetime(task.scheduled_time)
        response.started_time.FromDatetime(task.started_time)
        for query in self._queries.attached(entry.uid):
            response.queries[query.query_id].CopyFrom(query.query)
        for update in self._updates.undecided(entry.uid):
            if update.update_id in code.updates:
                continue  # already accepted; its caller is about to get the response
            if update.update_id in code.admitted:
                continue  # the event that admitted it informs the worker
            if not (prolonged and update.sent):
                response.messages.append(update.message(task.started_event_id - 1))
                update.sent = True
        if through:
            self._in_transit.add(through, entry, token)
        return response

    async def _query_task(self, entry: Entry, offer: Offer, *, sticky: bool) -> PollWorkflowTaskQueueResponse | None:
        query = self._queries.get(offer.run_id, offer.query)
        if query is None or query.answer.done():
            return None
        view = await self._runs.view(entry)
        code = view.state.code if view.state is not None else None
        if code is None:
            return None
        events = [] if sticky else list(await self._runs.history(view))
        page = await self._payloads.page(entry.namespace, events[:PAGE])
        return PollWorkflowTaskQueueResponse(
            task_token=pack(
                QueryToken(
                    namespace=entry.namespace, run_id=entry.uid, workflow_id=entry.workflow_id, query=offer.query
                )
            ),
            workflow_execution=WorkflowExecution(workflow_id=entry.workflow_id, run_id=entry.uid),
            workflow_type=WorkflowType(name=code.workflow_type),
            previous_started_event_id=code.previous_started_event_id,
            attempt=1,
            query=query.query,
            history=History(events=page),
            workflow_execution_task_queue=TaskQueue(name=code.task_queue, kind=TaskQueueKind.TASK_QUEUE_KIND_NORMAL),
            next_page_token=_next_page(entry, events[len(page) :]),
        )

    async def next_task(
        self, entry: Entry, take_request: inputs.TaskDispatched, *, through: str, prolonged: bool
    ) -> PollWorkflowTaskQueueResponse | None:
        """Build the task that was taken with a response, even if the response is repeated; None if no task is due."""
        code = self._runs.code(entry.uid)
        if code is None or code.task is None or code.task.request_id != take_request.request_id:
            return None
        try:
            return await self._task(entry, sticky=True, through=through, prolonged=prolonged)
        except BaseException:
            self._requeue(entry)
            raise


def token_of(entry: Entry, task: Any) -> WorkflowTaskToken:
    """The token of a task, which the worker sends back in its response."""
    return WorkflowTaskToken(
        namespace=entry.namespace,
        run_id=entry.uid,
        workflow_id=entry.workflow_id,
        scheduled=task.number,
        started=task.started_event_id,
        attempt=task.attempt,
        epoch=task.epoch,
    )


def _next_page(entry: Entry, rest: list[ev.AnyEvent]) -> bytes:
    if not rest:
        return b""
    return pack(PageToken(namespace=entry.namespace, run_id=entry.uid, from_event_id=rest[0].event_id))


def virtual_events(state: RunState) -> list[ev.AnyEvent]:
    """The unwritten events of a task, which are written with its outcome.

    This applies to a task that a worker has, and to a further attempt that waits for a worker.
    """
    code = state.code
    task = code.task if code is not None else None
    if code is None or task is None:
        return []
    waits_again = not task.scheduled_event_id and not task.speculative and task.attempt > 1
    if task.started_time is None and not waits_again:
        return []
    events: list[ev.AnyEvent] = []
    if not task.scheduled_event_id:
        events.append(
            ev.WorkflowTaskScheduled(
                event_id=task.number if task.started_time is not None else state.next_event_id,
                event_time=task.scheduled_time,
                task_queue=code.task_queue,
                start_to_close_timeout=task.start_to_close_timeout,
                attempt=task.attempt,
            )
        )
    if task.started_time is None:
        return events
    events.append(
        ev.WorkflowTaskStarted(
            event_id=task.started_event_id,
            event_time=task.started_time,
            scheduled_event_id=task.number,
            identity=task.identity,
            request_id=task.request_id,
            suggest_continue_as_new=task.suggest_continue_as_new,
            history_size_bytes=task.history_size_bytes,
            target_worker_deployment_version_changed=task.target_version_changed,
        )
    )
    return events


class WorkflowTasks:
    """Processes the responses of workers to workflow tasks and queries."""

    def __init__(
        self,
        *,
        directory: Directory,
        open_runs: WorkflowRuns,
        runs: RunGateway,
        dispatch: TaskDispatch,
        activities: ActivityTasks,
        matching: Matching,
        versions: Versions,
        payloads: LargePayloads,
        queries: Queries,
        query_dispatch: QueryDispatch,
        updates: Updates,
        endpoints: EndpointRegistry,
        search_attributes: SearchAttributeRegistry,
        visibility: Visibility,
        workers: KnownWorkers,
        limits: WorkflowLimits,
    ) -> None:
        self._directory = directory
        self._open_runs = open_runs
        self._runs = runs
        self._dispatch = dispatch
        self._activities = activities
        self._matching = matching
        self._versions = versions
        self._payloads = payloads
        self._queries = queries
        self._query_dispatch = query_dispatch
        self._updates = updates
        self._endpoints = endpoints
        self._search_attributes = search_attributes
        self._visibility = visibility
        self._workers = workers
        self._limits = limits

    # Responses

    async def respond_workflow_task_completed(
        self, request: RespondWorkflowTaskCompletedRequest, call: CallContext
    ) -> RespondWorkflowTaskCompletedResponse:
        """Process the decision of a worker."""
        if request.intermediate_page or request.page_number:  # which no capability of a namespace announces
            raise precondition("the completion of a workflow task cannot be divided into pages")
        token: WorkflowTaskToken = unpack(request.task_token, WorkflowTaskToken, request.namespace)
        entry = self._entry(token)
        versioned = versions.reported(request)
        try:
            record = self._visibility.get(entry.namespace, entry.uid)
            run = self._open_runs.get(entry.uid)
            reader = CommandReader(
                token.started,
                await self._search_attributes.types(request.namespace),
                request.namespace,
                self._known_updates(entry, token),
                record.task_queue if record is not None else "",
                await self._endpoints_for(request),
                Room(run.status_size if run is not None else 0),
            )
            answered = reader.read(request.commands, request.messages)
        except BadCommandError as error:
            # Let a further attempt time out; otherwise it would be rejected repeatedly without a delay.
            if token.attempt == 1 or error.terminates:
                failure = Failure(kind=FailureKind.APPLICATION, type=error.cause, message=str(error))
                who = {"identity": request.identity, "principal": call.principal}
                await self._fail(entry, token, cause=error.cause, failure=failure, **who)
                if error.terminates:
                    stop = inputs.TerminateRequested(
                        request_id=uuid.uuid4().hex, reason=f"{error.cause}: {error}", identity=inputs.OPERATOR
                    )
                    await self._runs.demand(entry, stop)
            raise invalid(f"{error.cause}: {error}") from error
        sticky = request.sticky_attributes
        next_task = None
        if request.return_new_workflow_task and self._keeps_worker(entry, versioned.get("deployment_version")):
            next_task = self._dispatch.take_request(entry, f"after/{token.engine().text()}", request.identity)
        completed = inputs.TaskCompleted(
            request_id=uuid.uuid4().hex,
            token=token.engine(),
            commands=tuple(self._attributed(entry, command) for command in answered.commands),
            identity=request.identity,
            principal=call.principal,
            sdk_metadata=data.message_to_json(request.sdk_metadata),
            metering_metadata=data.message_to_json(request.metering_metadata),
            worker_version=_worker_version(request),
            **versioned,
            binary_checksum=name(request.binary_checksum, "binary_checksum", required=False),
            sticky_queue=name(sticky.worker_task_queue.name, "sticky_attributes.worker_task_queue", required=False),
            sticky_timeout=duration_or_none(sticky, "schedule_to_start_timeout"),
            force_new_task=request.force_create_new_workflow_task,
            rejected=answered.rejected,
            receives_again=request.capabilities.discard_speculative_workflow_task_with_events,
            rejects_only=not request.commands and not answered.completed and not answered.accepted,
            following=next_task,
            eager=self._eager_activities(entry, request),
            digest=_digest(request),
        )
        answer = await self._runs.request(entry, completed)
        if not answer.ok:
            if answer.reason == "UnhandledCommand":
                raise invalid("UnhandledCommand")
            raise refusal(answer)
        await self._settle(entry, request, answered)
        response = RespondWorkflowTaskCompletedResponse(
            activity_tasks=await self._eager(entry, completed), reset_history_event_id=int(answer.message or 0)
        )
        if next_task is not None:
            prolonged = request.force_create_new_workflow_task
            task = await self._dispatch.next_task(entry, next_task, through=call.member, prolonged=prolonged)
            if task is not None:
                response.workflow_task.CopyFrom(task)
        return response

    def _keeps_worker(self, entry: Entry, version: DeploymentVersion | None) -> bool:
        """Whether the version that decided a run also makes the next decision."""
        state = self._runs.state(entry.uid)
        if state is None or state.code is None:
            return False
        return version is None or self._versions.of_task(entry.namespace, state) in {version, None}

    async def _endpoints_for(self, request: RespondWorkflowTaskCompletedRequest) -> Endpoints:
        """The Nexus endpoints, if a response requests an operation; otherwise none."""
        kinds = {command.command_type for command in request.commands}
        if CommandType.COMMAND_TYPE_SCHEDULE_NEXUS_OPERATION not in kinds:
            return {}
        return await self._endpoints.all()

    def _eager_activities(self, entry: Entry, request: RespondWorkflowTaskCompletedRequest) -> tuple[str, ...]:
        """The IDs of the activities that a worker requests with its response. An activity that takes a limit must wait for it.

        If the state is not known yet, the response can only be a repeated one, which an earlier process has recorded. The
        worker then gets those that it had started.
        """
        code, found = self._runs.code(entry.uid), list[str]()
        for command in request.commands:
            each = command.schedule_activity_task_command_attributes
            taker = LimitTaker(
                kind=LimitTakers.ACTIVITIES,
                type=each.activity_type.name,
                task_queue=each.task_queue.name or (code.task_queue if code is not None else ""),
            )
            if each.request_eager_execution and (code is None or not self._limits.selecting(entry.namespace, taker)):
                found.append(each.activity_id)
        return tuple(found)

    async def _eager(self, entry: Entry, completed: inputs.TaskCompleted) -> list[PollActivityTaskQueueResponse]:
        """The activities that a worker gets with the reply to its response (eager activities).

        Raises:
            RpcError: Another operator has taken over the run. The worker sends its response again, and gets them from there.
        """
        if not completed.eager:
            return []
        state = self._runs.state(entry.uid)
        activities = state.activities.values() if state is not None else ()
        events = {activity.activity_id: activity.scheduled_event_id for activity in activities}
        known = [(events[name], completed.fence(name)) for name in completed.eager if name in events]
        built = [await self._activities.build_task(entry, event_id, fence) for event_id, fence in known]
        if self._runs.state(entry.uid) is None and not self._runs.is_closed(entry.uid):
            raise unavailable("another operator has taken over the run; retry")
        return [task for task in built if task is not None]

    def _attributed(self, entry: Entry, command: cmd.Command) -> cmd.Command:
        """Add the request and its user to a command that accepts an update, because workers need not repeat them."""
        if not isinstance(command, cmd.AcceptUpdate):
            return command
        update = self._updates.get(entry.uid, command.update_id)
        if update is None:
            return command
        return replace(command, principal=update.principal, **recorded_request(update.request))

    def _known_updates(self, entry: Entry, token: WorkflowTaskToken) -> KnownUpdates | None:
        """The updates that a response can refer to; None for a late or repeated response, which changes nothing."""
        code = self._runs.code(entry.uid)
        if code is None or code.task is None or token_of(entry, code.task) != token:
            return None
        undecided = {update.update_id for update in self._updates.undecided(entry.uid)}
        return KnownUpdates(undecided | code.admitted.keys(), code.updates)

    async def _settle(self, entry: Entry, request: RespondWorkflowTaskCompletedRequest, answer: TaskAnswer) -> None:
        """Pass the results of queries and updates in a response to their callers."""
        for query_id, result in request.query_results.items():
            query = self._queries.get(entry.uid, query_id)
            if query is not None:
                answer_query(query, result.result_type, result.answer, result.failure, result.error_message)
        for query in self._queries.attached(entry.uid):
            if not query.answer.done() and query.query_id not in request.query_results:
                self._query_dispatch.dispatch(entry, query)
        await self._settle_updates(entry, answer)

    async def _settle_updates(self, entry: Entry, answer: TaskAnswer) -> None:
        updates = self._updates
        for update_id, failure in answer.rejected.items():
            update = updates.get(entry.uid, update_id)
            if update is not None:
                update.reject(Outcome(failure=failures.to_proto(failure)))
                updates.forget(entry.uid, update_id)
        for update_id in answer.accepted:
            update = updates.get(entry.uid, update_id)
            if update is not None:
                update.accept()
        if answer.completed:
            await self._end_updates(entry, answer.completed)
        if self._open_runs.get(entry.uid) is not None and updates.undecided(entry.uid):
            wanted = inputs.TaskRequested(request_id=uuid.uuid4().hex)  # an update waits for a worker
            self._runs.send(entry, wanted)

    async def _end_updates(self, entry: Entry, completed: list[str]) -> None:
        view = await self._runs.view(entry)
        known = view.state.code.updates if view.state is not None and view.state.code is not None else {}
        recorded = [known[name].completed_event_id for name in completed if name in known]
        events = await self._runs.history(view, min(filter(None, recorded))) if any(recorded) else ()
        ended = {e.update_id: e for e in events if isinstance(e, ev.WorkflowExecutionUpdateCompleted)}
        for update_id in completed:
            update, event = self._updates.get(entry.uid, update_id), ended.get(update_id)
            if update is not None and event is not None:
                update.end(await self._payloads.build(entry.namespace, partial(outcome_of, event)))
                self._updates.forget(entry.uid, update_id)

    async def _fail(self, entry: Entry, token: WorkflowTaskToken, **details: Any) -> None:
        failed = inputs.TaskFailed(request_id=uuid.uuid4().hex, token=token.engine(), **details)
        await self._runs.demand(entry, failed)

    async def respond_workflow_task_failed(
        self, request: RespondWorkflowTaskFailedRequest, call: CallContext
    ) -> RespondWorkflowTaskFailedResponse:
        """Process the failure of a workflow task."""
        token: WorkflowTaskToken = unpack(request.task_token, WorkflowTaskToken, request.namespace)
        await self._fail(
            self._entry(token),
            token,
            cause=from_enum(WorkflowTaskFailedCause, request.cause) or "Unspecified",
            failure=failures.to_json(request.failure) if request.HasField("failure") else None,
            identity=request.identity,
            principal=call.principal,
        )
        return RespondWorkflowTaskFailedResponse()

    async def respond_query_task_completed(
        self, request: RespondQueryTaskCompletedRequest, call: CallContext
    ) -> RespondQueryTaskCompletedResponse:
        """Process the response to a query."""
        token: QueryToken = unpack(request.task_token, QueryToken, request.namespace)
        entry = self._directory.get(token.run_id)
        query = self._queries.get(token.run_id, token.query)
        if query is None or query.answer.done() or entry is None or entry.namespace != token.namespace:
            raise not_found("query task not found, or has expired")
        answer_query(query, request.completed_type, request.query_result, request.failure, request.error_message)
        return RespondQueryTaskCompletedResponse()

    # Leaving

    async def shutdown_worker(self, request: ShutdownWorkerRequest, call: CallContext) -> ShutdownWorkerResponse:
        """Process the shutdown of a worker: return its sticky tasks to the task queue."""
        if request.sticky_task_queue:
            self._matching.queues.close(QueueName(request.namespace, Kind.WORKFLOW, request.sticky_task_queue))
            for run in self._open_runs.all():
                code = run.state.code if run.state is not None and not run.state.closed else None
                entry = self._directory.get(run.ref.uid)
                if entry is None or entry.namespace != request.namespace:
                    continue
                if code is not None and code.sticky_queue == request.sticky_task_queue:
                    reset = inputs.StickinessReset(request_id=uuid.uuid4().hex)
                    self._runs.send(entry, reset)
        if request.HasField("worker_heartbeat"):
            self._workers.record(request.namespace, [request.worker_heartbeat])
        return ShutdownWorkerResponse()

    async def reset_sticky_task_queue(
        self, request: ResetStickyTaskQueueRequest, call: CallContext
    ) -> ResetStickyTaskQueueResponse:
        """Let any worker of the task queue take the next task."""
        entry = await self._runs.find(request.namespace, request.execution)
        await self._runs.demand(entry, inputs.StickinessReset(request_id=uuid.uuid4().hex))
        return ResetStickyTaskQueueResponse()

    def _entry(self, token: WorkflowTaskToken) -> Entry:
        entry = self._directory.get(token.run_id)
        if entry is None or entry.namespace != token.namespace:
            raise not_found("Workflow task not found.")
        return entry


def _digest(request: RespondWorkflowTaskCompletedRequest) -> str:
    """The digest of a worker's commands and messages: a worker that sends its response again sends the same ones."""
    digest = hashlib.blake2b(digest_size=8)
    for each in (*request.commands, *request.messages):
        digest.update(each.SerializeToString(deterministic=True))
    return digest.hexdigest()


def _worker_version(request: RespondWorkflowTaskCompletedRequest) -> Any:
    """The build that the deciding worker reports, if any. SDKs show it to the workflow's code."""
    if version_of(request.deployment_options) is not None:
        return None
    build = request.worker_version_stamp.build_id or request.deployment_options.build_id
    return {"buildId": build} if build else None
