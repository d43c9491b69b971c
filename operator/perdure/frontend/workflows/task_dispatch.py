"""Dispatch workflow tasks and queries to polling workers."""

import uuid
from collections.abc import Callable
from typing import Any

from temporalio.api.common.v1 import WorkflowExecution, WorkflowType
from temporalio.api.enums.v1 import TaskQueueKind
from temporalio.api.history.v1 import History
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import (
    PollWorkflowTaskQueueRequest,
    PollWorkflowTaskQueueResponse,
)

from perdure.controller.directory import Entry
from perdure.engine import events as ev
from perdure.engine import inputs
from perdure.engine.state import RunState
from perdure.frontend.deployments.versions import Versions
from perdure.frontend.errors import invalid
from perdure.frontend.matching.offers import Matching, Poller
from perdure.frontend.matching.queues import Kind, Offer, QueueName
from perdure.frontend.messages.task_tokens import PageToken, QueryToken, WorkflowTaskToken, pack
from perdure.frontend.messages.values import name
from perdure.frontend.runs.gateway import RunGateway
from perdure.frontend.runs.large_payloads import LargePayloads
from perdure.frontend.transport.call import LONGEST_POLL, CallContext
from perdure.frontend.workflows.queries import Queries
from perdure.frontend.workflows.tasks_in_transit import TasksInTransit
from perdure.frontend.workflows.updates import Updates
from perdure.kube.clock import monotonic

PAGE = 1_000
"""Maximum number of events in a task; workers read the rest with GetWorkflowExecutionHistory."""


class TaskDispatch:
    """Dispatches workflow tasks and queries."""

    def __init__(
        self,
        *,
        runs: RunGateway,
        matching: Matching,
        versions: Versions,
        payloads: LargePayloads,
        queries: Queries,
        updates: Updates,
        epoch: Callable[[], str],
        suggest_events: int,
    ) -> None:
        self._runs = runs
        self._matching = matching
        self._versions = versions
        self._payloads = payloads
        self._queries = queries
        self._updates = updates
        self._epoch = epoch
        self._suggest_events = suggest_events
        self._in_transit = TasksInTransit()
        matching.takes(Kind.WORKFLOW, self._take, self._return)
        matching.lost = self._reclaim

    async def poll_workflow_task_queue(
        self, request: PollWorkflowTaskQueueRequest, call: CallContext
    ) -> PollWorkflowTaskQueueResponse:
        """Wait for a task; the response is empty if there is none in time."""
        if not request.task_queue.name:
            raise invalid("TaskQueue is not set on request.")
        named = QueueName(request.namespace, Kind.WORKFLOW, name(request.task_queue.name, "TaskQueue"))
        sticky = request.task_queue.kind == TaskQueueKind.TASK_QUEUE_KIND_STICKY
        queue = await self._versions.polled_queue(named, request.deployment_options, sticky=sticky)
        until = monotonic() + call.within(LONGEST_POLL)
        while (left := until - monotonic()) > 0:
            offer = await self._matching.queues.poll(queue, request.identity, left, call.recheck)
            if offer is None:
                break
            poller = Poller(request.identity, sticky, call.member)
            given: PollWorkflowTaskQueueResponse | None = await self._matching.take(Kind.WORKFLOW, offer, poller)
            if given is not None:
                return given
        return PollWorkflowTaskQueueResponse()

    async def take_at_once(self, entry: Entry, identity: str) -> PollWorkflowTaskQueueResponse | None:
        """Take the task of a run for a client that is also a worker; None if no task is available now."""
        return await self._take(Offer(entry.uid), Poller(identity))

    async def _take(self, offer: Offer, poller: Poller, /) -> PollWorkflowTaskQueueResponse | None:
        """Return the offered task or query, if it is still pending."""
        entry = self._runs.entry(offer.run_id)
        if entry is None:
            return None
        if offer.query:
            return await self._give_query(entry, offer, sticky=poller.sticky)
        try:
            answer = await self._runs.ask(entry, self.taken(entry, poller.request_id, poller.identity))
            if not answer.ok:
                return None
            return await self._task(entry, sticky=poller.sticky, through=poller.through)
        except BaseException:
            self._requeue(entry)
            raise

    def taken(self, entry: Entry, request_id: str, identity: str) -> inputs.TaskTaken:
        """Build the request of a worker that takes the task of a run."""
        run = self._runs.get(entry.uid)
        state = run.state if run is not None else None
        return inputs.TaskTaken(
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
        entry = self._runs.entry(offer.run_id)
        run = self._runs.get(offer.run_id)
        code = run.state.code if run is not None and run.state is not None else None
        if (
            entry is not None
            and code is not None
            and code.task is not None
            and code.task.request_id == poller.request_id
        ):
            self._requeue(entry)

    def _held(self, entry: Entry) -> WorkflowTaskToken | None:
        """The token of a run's task, if a worker has the task."""
        run = self._runs.get(entry.uid)
        code = run.state.code if run is not None and run.state is not None else None
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
            self._in_transit.note(through, entry, token)
        return response

    async def _give_query(self, entry: Entry, offer: Offer, *, sticky: bool) -> PollWorkflowTaskQueueResponse | None:
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

    async def following(
        self, entry: Entry, taken: inputs.TaskTaken, *, through: str, prolonged: bool
    ) -> PollWorkflowTaskQueueResponse | None:
        """Build the task that was taken with a response, even if the response is repeated; None if no task is due."""
        run = self._runs.get(entry.uid)
        code = run.state.code if run is not None and run.state is not None else None
        if code is None or code.task is None or code.task.request_id != taken.request_id:
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
