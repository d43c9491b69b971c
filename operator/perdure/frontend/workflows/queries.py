"""Queries: a client waits in memory until a worker answers, with a workflow task or separately. They are not recorded."""

import asyncio
import uuid
from dataclasses import dataclass, field

from temporalio.api.common.v1 import Payloads
from temporalio.api.enums.v1 import (
    QueryRejectCondition,
    QueryResultType,
    WorkflowExecutionStatus,
)
from temporalio.api.failure.v1 import Failure
from temporalio.api.failure.v1 import Failure as ProtoFailure
from temporalio.api.query.v1 import QueryRejected, WorkflowQuery
from temporalio.api.workflowservice.v1 import (
    QueryWorkflowRequest,
    QueryWorkflowResponse,
)

from perdure.controller.directory import Entry
from perdure.engine.versioning import DeploymentVersion
from perdure.frontend.deployments.rules import WorkerDeployment
from perdure.frontend.deployments.versions import Versions, queue_of
from perdure.frontend.errors import (
    busy,
    invalid,
    not_found,
    not_ready,
    precondition,
    query_failed,
    too_late,
    unavailable,
)
from perdure.frontend.matching.offers import Destination, Matching, key_of
from perdure.frontend.matching.queues import Kind, Offer, QueueName
from perdure.frontend.messages.values import from_enum, to_enum
from perdure.frontend.registry import NamespaceRegistry
from perdure.frontend.runs.gateway import RunGateway, View
from perdure.frontend.transport.rpc import LONGEST_WAIT, CallContext
from perdure.frontend.visibility.index import Visibility, record_of
from perdure.frontend.workflows.step_queries import StepQueries

_STICKY_SECONDS = 5.0
"""How long a query waits for the worker that has the workflow in memory."""
QUERY_SECONDS = 30.0
"""The longest wait of a query for a worker, as on Temporal's server (client/history/client.go: DefaultTimeout)."""
_MAX_FAILED_ATTEMPTS = 3
"""Consecutive failures of the workflow's code after which queries fail immediately, because no worker could answer."""
MAX_QUERY_RESULT = 2 * 1024 * 1024
"""Maximum size of the response to a query, in bytes. It is not stored, so the limit is that of Temporal's server."""
MAX_WAITING = 10
"""Maximum number of queries that wait for the same workflow task. (Temporal's server allows one.)"""


@dataclass(slots=True)
class Query:
    """One query."""

    query: WorkflowQuery
    query_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    answer: "asyncio.Future[Payloads]" = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    attached: bool = False
    """Whether it waits for a workflow task, or is attached to one."""

    def answered(self, result: Payloads) -> None:
        """Pass the response of a worker to the caller."""
        if not self.answer.done():
            self.answer.set_result(result)

    def failed(self, failure: Failure) -> None:
        """Pass the failure that a worker has reported to the caller."""
        if not self.answer.done():
            self.answer.set_exception(QueryFailedError(failure))

    def abort(self) -> None:
        """End the query with an error, because no worker can answer it anymore."""
        if not self.answer.done():
            self.answer.set_exception(not_found("the workflow was deleted"))


class QueryFailedError(Exception):
    """The workflow's code has answered a query with a failure."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class Queries:
    """The queries of all runs, by run ID and query ID."""

    def __init__(self) -> None:
        self._of_run: dict[str, dict[str, Query]] = {}

    def add(self, run_id: str, query: WorkflowQuery) -> Query:
        """Add a query."""
        made = Query(query)
        self._of_run.setdefault(run_id, {})[made.query_id] = made
        return made

    def get(self, run_id: str, query_id: str) -> Query | None:
        """A query that is still waiting."""
        return self._of_run.get(run_id, {}).get(query_id)

    def attached(self, run_id: str) -> list[Query]:
        """The queries attached to the next or current workflow task of a run."""
        return [query for query in self._of_run.get(run_id, {}).values() if query.attached]

    def abort(self, run_id: str) -> None:
        """Abort the queries of a deleted run."""
        for query in self._of_run.pop(run_id, {}).values():
            query.abort()

    def leave(self, run_id: str) -> None:
        """End the waiting queries of a run that another operator owns now; they are sent there."""
        self._of_run.pop(run_id, None)

    def drop(self, run_id: str, query_id: str) -> None:
        """Remove a query whose caller no longer waits."""
        known = self._of_run.get(run_id, {})
        known.pop(query_id, None)
        if not known:
            self._of_run.pop(run_id, None)


class QueryDispatch:
    """Offers queries to workers."""

    def __init__(self, runs: RunGateway, matching: Matching, versions: Versions, visibility: Visibility) -> None:
        self._runs = runs
        self._matching = matching
        self._versions = versions
        self._visibility = visibility

    def dispatch(self, entry: Entry, query: Query) -> None:
        """Let a worker answer a query, with a due workflow task or separately."""
        state = self._runs.state(entry.uid)
        code = state.code if state is not None else None
        if state is not None and code is not None and not state.closed:
            if code.task is not None and not code.task_started:
                query.attached = True
                return
            if code.task_started or not code.previous_started_event_id:
                query.attached = True  # sent with the next task or, if none follows, separately after this one
                return
        query.attached = False
        version = (
            self._versions.of_task(entry.namespace, state) if state is not None else self._version_of_closed(entry)
        )
        sticky_queue = ""
        if code is not None and version == code.versioning.version:
            sticky_queue = code.sticky_queue
        self._offer_query(entry, query, sticky_queue, version)

    def _version_of_closed(self, entry: Entry) -> DeploymentVersion | None:
        """Return the version whose workers answer queries about a closed run."""
        record = self._visibility.get(entry.namespace, entry.uid)
        if record is None:
            return None
        return self._versions.of_closed(
            record.namespace, record.task_queue, record.workflow_id, record.search_attributes
        )

    def _offer_query(self, entry: Entry, query: Query, sticky_queue: str, version: DeploymentVersion | None) -> None:
        record = self._visibility.get(entry.namespace, entry.uid)
        normal = QueueName(entry.namespace, Kind.WORKFLOW, record.task_queue if record is not None else "")
        normal = queue_of(normal, version)
        offer = Offer(entry.uid, query=query.query_id)
        key = key_of(offer)
        self._matching.settle(key, {offer: Destination(normal, sticky_queue)})
        query.answer.add_done_callback(lambda _: self._matching.settle(key, {}))
        if sticky_queue:
            asyncio.get_running_loop().call_later(_STICKY_SECONDS, self._leave_sticky, query, offer, normal)

    def _leave_sticky(self, query: Query, offer: Offer, normal: QueueName) -> None:
        if not query.answer.done():
            self._matching.settle(key_of(offer), {offer: Destination(normal)})


def answer_query(query: Query, kind: int, result: Payloads, failure: ProtoFailure, message: str) -> None:
    """Pass a worker's answer to the caller. The query fails if the answer is too large, as on Temporal's server."""
    if result.ByteSize() > MAX_QUERY_RESULT:
        query.failed(ProtoFailure(message="Blob data size exceeds limit."))
        return
    if kind == QueryResultType.QUERY_RESULT_TYPE_ANSWERED:
        query.answered(result)
        return
    if not failure.message:
        failure = ProtoFailure(message=message, source=failure.source)
    query.failed(failure)


class WorkflowQueries:
    """Handles queries of clients."""

    def __init__(
        self,
        *,
        runs: RunGateway,
        deployments: NamespaceRegistry[WorkerDeployment],
        queries: Queries,
        dispatch: QueryDispatch,
        steps: StepQueries,
        visibility: Visibility,
    ) -> None:
        self._runs = runs
        self._deployments = deployments
        self._queries = queries
        self._dispatch = dispatch
        self._steps = steps
        self._visibility = visibility

    async def query_workflow(self, request: QueryWorkflowRequest, call: CallContext) -> QueryWorkflowResponse:
        """Query a workflow, open or closed."""
        if not request.query.query_type:
            raise invalid("WorkflowQuery is not set on request.")
        seconds = call.within(LONGEST_WAIT)
        entry = await self._runs.reach(request.namespace, request.execution, seconds)
        if not await self._runs.has_started(entry.uid, seconds):
            raise unavailable("the workflow has not started yet")
        view = await self._runs.view(entry)
        rejected = _rejected(request, view)
        if rejected is not None:
            return QueryWorkflowResponse(query_rejected=rejected)
        if view.state is None:
            raise unavailable("the workflow has not started yet")
        code = view.state.code
        if code is None:
            return await self._steps.answer(request, view, view.state)
        if view.state.closed and not code.previous_started_event_id:
            raise not_ready("Workflow execution closed before WorkflowTaskStarted event")
        if code.task is not None and code.task.attempt >= _MAX_FAILED_ATTEMPTS:
            raise precondition("Cannot query workflow due to Workflow Task in failed state.")
        await self._deployments.load(entry.namespace)  # now, so that nothing intervenes between count and addition
        if len(self._queries.attached(entry.uid)) >= MAX_WAITING:
            raise busy(
                "consistent query buffer is full, this may be caused by too many queries and workflow not responding"
            )
        return QueryWorkflowResponse(query_result=await self._query(entry, request, call))

    async def _query(self, entry: Entry, request: QueryWorkflowRequest, call: CallContext) -> Payloads:
        query = self._queries.add(entry.uid, request.query)
        try:
            self._dispatch.dispatch(entry, query)
            async with asyncio.timeout(call.within(QUERY_SECONDS)):
                return await query.answer
        except QueryFailedError as error:
            raise query_failed(error.failure) from error
        except TimeoutError:
            record = self._visibility.get(entry.namespace, entry.uid)
            queue = record.task_queue if record is not None else ""
            raise too_late(f"query timed out: no worker of task queue {queue!r} has answered") from None
        finally:
            query.answer.cancel()
            self._queries.drop(entry.uid, query.query_id)


def _rejected(request: QueryWorkflowRequest, view: View) -> QueryRejected | None:
    status = record_of(view.object).status
    condition = from_enum(QueryRejectCondition, request.query_reject_condition)
    unwanted = (condition == "NotOpen" and status != "Running") or (
        condition == "NotCompletedCleanly" and status not in {"Running", "Completed"}
    )
    return QueryRejected(status=to_enum(WorkflowExecutionStatus, status)) if unwanted else None
