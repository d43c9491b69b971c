"""RPCs of workers about workflow tasks and queries."""

import hashlib
import uuid
from dataclasses import replace
from functools import partial
from typing import Any

from temporalio.api.common.v1 import Payloads
from temporalio.api.enums.v1 import CommandType, QueryResultType, WorkflowTaskFailedCause
from temporalio.api.failure.v1 import Failure as ProtoFailure
from temporalio.api.update.v1 import Outcome
from temporalio.api.workflowservice.v1 import (
    PollActivityTaskQueueResponse,
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

from perdure.controller.directory import Entry
from perdure.engine import commands as cmd
from perdure.engine import events as ev
from perdure.engine import inputs
from perdure.engine.failures import Failure, FailureKind
from perdure.engine.versioning import DeploymentVersion
from perdure.frontend.activities.tasks import ActivityTasks
from perdure.frontend.deployments import versions
from perdure.frontend.deployments.versions import Versions, version_of
from perdure.frontend.errors import invalid, not_found
from perdure.frontend.matching.offers import Matching
from perdure.frontend.matching.queues import Kind, QueueName
from perdure.frontend.messages import failures
from perdure.frontend.messages import payloads as data
from perdure.frontend.messages.enums import from_enum
from perdure.frontend.messages.task_tokens import QueryToken, WorkflowTaskToken, unpack
from perdure.frontend.messages.values import duration_or_none, name
from perdure.frontend.nexus.endpoints import EndpointRegistry, Endpoints
from perdure.frontend.runs.gateway import RunGateway, refusal
from perdure.frontend.runs.large_payloads import LargePayloads
from perdure.frontend.transport.call import CallContext
from perdure.frontend.visibility.index import Visibility
from perdure.frontend.visibility.search_attributes import SearchAttributeRegistry
from perdure.frontend.workers.registry import KnownWorkers
from perdure.frontend.workflows.command_conversion import BadCommandError
from perdure.frontend.workflows.commands import CommandReader
from perdure.frontend.workflows.queries import Queries, Query
from perdure.frontend.workflows.query_dispatch import QueryDispatch
from perdure.frontend.workflows.recorded_updates import outcome_of
from perdure.frontend.workflows.task_dispatch import TaskDispatch, token_of
from perdure.frontend.workflows.update_messages import KnownUpdates, TaskAnswer, recorded_request
from perdure.frontend.workflows.updates import Updates

MAX_QUERY_RESULT = 2 * 1024 * 1024
"""Maximum size of the response to a query, in bytes. It is not stored, so the limit is that of Temporal's server."""


class WorkflowTasks:
    """Processes the responses of workers to workflow tasks and queries."""

    def __init__(
        self,
        *,
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
        registry: SearchAttributeRegistry,
        visibility: Visibility,
        workers: KnownWorkers,
    ) -> None:
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
        self._registry = registry
        self._visibility = visibility
        self._workers = workers

    # Responses

    async def respond_workflow_task_completed(
        self, request: RespondWorkflowTaskCompletedRequest, call: CallContext
    ) -> RespondWorkflowTaskCompletedResponse:
        """Process the decision of a worker."""
        token: WorkflowTaskToken = unpack(request.task_token, WorkflowTaskToken, request.namespace)
        entry = self._entry(token)
        versioned = versions.reported(request)
        try:
            record = self._visibility.get(entry.namespace, entry.uid)
            run = self._runs.get(entry.uid)
            reader = CommandReader(
                token.started,
                await self._registry.types(request.namespace),
                request.namespace,
                self._known_updates(entry, token),
                record.task_queue if record is not None else "",
                endpoints=await self._endpoints_for(request),
                status_size=run.status_size if run is not None else 0,
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
        following = None
        if request.return_new_workflow_task and self._keeps_worker(entry, versioned.get("deployment_version")):
            following = self._dispatch.taken(entry, f"after/{token.engine().text()}", request.identity)
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
            following=following,
            eager=_eager(request),
            digest=_digest(request),
        )
        answer = await self._runs.ask(entry, completed)
        if not answer.ok:
            if answer.reason == "UnhandledCommand":
                raise invalid("UnhandledCommand")
            raise refusal(answer)
        await self._settle(entry, request, answered)
        response = RespondWorkflowTaskCompletedResponse(
            activity_tasks=await self._eager(entry, completed), reset_history_event_id=int(answer.message or 0)
        )
        if following is not None:
            prolonged = request.force_create_new_workflow_task
            task = await self._dispatch.following(entry, following, through=call.member, prolonged=prolonged)
            if task is not None:
                response.workflow_task.CopyFrom(task)
        return response

    def _keeps_worker(self, entry: Entry, version: DeploymentVersion | None) -> bool:
        """Whether the version that decided a run also makes the next decision."""
        run = self._runs.get(entry.uid)
        state = run.state if run is not None else None
        if state is None or state.code is None:
            return False
        return version is None or self._versions.of_task(entry.namespace, state) in {version, None}

    async def _endpoints_for(self, request: RespondWorkflowTaskCompletedRequest) -> Endpoints | None:
        """The Nexus endpoints, if a response requests an operation."""
        kinds = {command.command_type for command in request.commands}
        if CommandType.COMMAND_TYPE_SCHEDULE_NEXUS_OPERATION not in kinds:
            return None
        return await self._endpoints.all()

    async def _eager(self, entry: Entry, completed: inputs.TaskCompleted) -> list[PollActivityTaskQueueResponse]:
        """The activities that a worker gets with the reply to its response (eager activities)."""
        run = self._runs.get(entry.uid)
        if not completed.eager or run is None or run.state is None:
            return []
        events = {activity.activity_id: activity.scheduled_event_id for activity in run.state.activities.values()}
        known = [(events[name], completed.fence(name)) for name in completed.eager if name in events]
        given = [await self._activities.handed_out(entry, event_id, fence) for event_id, fence in known]
        return [task for task in given if task is not None]

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
        run = self._runs.get(entry.uid)
        code = run.state.code if run is not None and run.state is not None else None
        if code is None or code.task is None or token_of(entry, code.task) != token:
            return None
        undecided = {update.update_id for update in self._updates.undecided(entry.uid)}
        return KnownUpdates(undecided | code.admitted.keys(), code.updates)

    async def _settle(self, entry: Entry, request: RespondWorkflowTaskCompletedRequest, answered: TaskAnswer) -> None:
        """Pass the results of queries and updates in a response to their callers."""
        for query_id, result in request.query_results.items():
            query = self._queries.get(entry.uid, query_id)
            if query is not None:
                answer_query(query, result.result_type, result.answer, result.failure, result.error_message)
        for query in self._queries.attached(entry.uid):
            if not query.answer.done() and query.query_id not in request.query_results:
                self._query_dispatch.dispatch(entry, query)
        await self._settle_updates(entry, answered)

    async def _settle_updates(self, entry: Entry, answered: TaskAnswer) -> None:
        updates = self._updates
        for update_id, failure in answered.rejected.items():
            update = updates.get(entry.uid, update_id)
            if update is not None:
                update.reject(Outcome(failure=failures.to_proto(failure)))
                updates.forget(entry.uid, update_id)
        for update_id in answered.accepted:
            update = updates.get(entry.uid, update_id)
            if update is not None:
                update.accept()
        if answered.completed:
            await self._end_updates(entry, answered.completed)
        run = self._runs.get(entry.uid)
        if run is not None and updates.undecided(entry.uid):
            wanted = inputs.TaskWanted(request_id=uuid.uuid4().hex)  # an update waits for a worker
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
                update.end(await self._payloads.whole(entry.namespace, partial(outcome_of, event)))
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
        del call
        token: QueryToken = unpack(request.task_token, QueryToken, request.namespace)
        entry = self._runs.entry(token.run_id)
        query = self._queries.get(token.run_id, token.query)
        if query is None or query.answer.done() or entry is None or entry.namespace != token.namespace:
            raise not_found("query task not found, or has expired")
        answer_query(query, request.completed_type, request.query_result, request.failure, request.error_message)
        return RespondQueryTaskCompletedResponse()

    # Leaving

    async def shutdown_worker(self, request: ShutdownWorkerRequest, call: CallContext) -> ShutdownWorkerResponse:
        """Process the shutdown of a worker: return its sticky tasks to the task queue."""
        del call
        if request.sticky_task_queue:
            self._matching.queues.close(QueueName(request.namespace, Kind.WORKFLOW, request.sticky_task_queue))
            for run in self._runs.all():
                code = run.state.code if run.state is not None and not run.state.closed else None
                entry = self._runs.entry(run.ref.uid)
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
        del call
        entry = await self._runs.find(request.namespace, request.execution)
        await self._runs.demand(entry, inputs.StickinessReset(request_id=uuid.uuid4().hex))
        return ResetStickyTaskQueueResponse()

    def _entry(self, token: WorkflowTaskToken) -> Entry:
        entry = self._runs.entry(token.run_id)
        if entry is None or entry.namespace != token.namespace:
            raise not_found("Workflow task not found.")
        return entry


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


def _eager(request: RespondWorkflowTaskCompletedRequest) -> tuple[str, ...]:
    scheduled = (command.schedule_activity_task_command_attributes for command in request.commands)
    return tuple(each.activity_id for each in scheduled if each.request_eager_execution)


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
