"""Queries: a client waits in memory until a worker answers, with a workflow task or separately. They are not recorded.

This process answers the queries to runs of Workflows itself: their steps, current actions, and details for the Web UI.
"""

import asyncio
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec
from google.protobuf.json_format import MessageToDict
from temporalio.api.common.v1 import Payloads
from temporalio.api.enums.v1 import (
    QueryRejectCondition,
    QueryResultType,
    WorkflowExecutionStatus,
)
from temporalio.api.failure.v1 import Failure as ProtoFailure
from temporalio.api.query.v1 import QueryRejected, WorkflowQuery
from temporalio.api.sdk.v1 import WorkflowMetadata
from temporalio.api.workflowservice.v1 import QueryWorkflowRequest, QueryWorkflowResponse

from perdure.api.names import pod_name
from perdure.archive.records import RunRecord, record_of
from perdure.controller.directory import Entry
from perdure.controller.errors import NotReadyError, NotYetError, when_ready
from perdure.controller.reconcile.newer_states import NewerStateError, message_for
from perdure.controller.workflows.definitions import Definition, Definitions, read_spec
from perdure.engine.failures import Failure
from perdure.engine.state import PendingActivity, RunState
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
from perdure.frontend.matching.polls import LONGEST_CLIENT_POLL
from perdure.frontend.matching.queues import Destination, Kind, Matching, Offer, QueueName, key_of
from perdure.frontend.messages import payloads as data
from perdure.frontend.messages.values import from_enum, to_enum
from perdure.frontend.registry import NamespaceRegistry
from perdure.frontend.runs.gateway import RunGateway, View
from perdure.frontend.transport.rpc import CallContext
from perdure.frontend.visibility.index import Visibility
from perdure.language.interpreter import progress
from perdure.language.memory import Memory, load_memory
from perdure.language.program import InvalidWorkflowError, Program
from perdure.language.signals import awaited, known_signals
from perdure.language.step_tree import OpenPaths, StepNode, open_steps, step_tree

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
_COMPILING_SECONDS = 10.0
"""How long a query waits for the definition to be compiled."""

STEPS, STACK, METADATA = "steps", "__stack_trace", "__temporal_workflow_metadata"
QUERIES = {
    STEPS: "The steps of the run as JSON: status, times, and the content of open steps",
    STACK: "The current steps of the run",
    METADATA: "Signals, queries, and current details of the run",
}

_ICONS = {
    "Succeeded": "✓",
    "Failed": "✗",
    "Cancelled": "-",
    "Skipped": "-",
    "Running": "▶",
    "Waiting": "○",
    "Stopped": "■",
    "Compensated": "↩",
}
_TARGETED = frozenset({"activity", "call", "childWorkflow", "fail", "waitForSignal"})
"""Kinds of steps that are shown with their targets."""
_MAX_PARTS = 20
"""Maximum number of shown open items or branches of a step, and of shown pods."""
_MAX_TEXT = 300


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

    def failed(self, failure: ProtoFailure) -> None:
        """Pass the failure that a worker has reported to the caller."""
        if not self.answer.done():
            self.answer.set_exception(QueryFailedError(failure))

    def abort(self) -> None:
        """End the query with an error, because no worker can answer it anymore."""
        if not self.answer.done():
            self.answer.set_exception(not_found("the workflow was deleted"))


class QueryFailedError(Exception):
    """The workflow's code has answered a query with a failure."""

    def __init__(self, failure: ProtoFailure) -> None:
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

    def waiting(self, run_id: str) -> bool:
        """Whether a query of a run waits for its answer."""
        return any(not query.answer.done() for query in self._of_run.get(run_id, {}).values())

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
        definitions: Definitions,
        deployments: NamespaceRegistry[WorkerDeployment],
        queries: Queries,
        dispatch: QueryDispatch,
        visibility: Visibility,
        console_url: str,
    ) -> None:
        self._runs = runs
        self._definitions = definitions
        self._deployments = deployments
        self._queries = queries
        self._dispatch = dispatch
        self._visibility = visibility
        self._console_url = console_url

    async def query_workflow(self, request: QueryWorkflowRequest, call: CallContext) -> QueryWorkflowResponse:
        """Query a workflow, open or closed."""
        if not request.query.query_type:
            raise invalid("WorkflowQuery is not set on request.")
        seconds = call.within(LONGEST_CLIENT_POLL)
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
            return await self._answer_steps(request, view, view.state)
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

    async def _answer_steps(self, request: QueryWorkflowRequest, view: View, state: RunState) -> QueryWorkflowResponse:
        """Answer a query of a run.

        Raises:
            RpcError: The query does not exist, or the definition of the run is not valid.
        """
        query = request.query.query_type
        if query not in QUERIES:
            raise invalid(f"unknown queryType {query}: a run of a Workflow answers {', '.join(QUERIES)}")
        definition = await self._definition(view)
        entry, phase = view.entry, str((view.object.get("status") or {}).get("phase", ""))
        url = self._console_url
        run = QueriedRun(entry.name, entry.namespace, phase, definition.program, state, url)
        return QueryWorkflowResponse(query_result=answer(run, query, definition.workflow_type))

    async def _definition(self, view: View) -> Definition:
        spec, status = view.object["spec"], view.object.get("status")

        async def find() -> Definition:
            return await self._definitions.pinned(
                view.entry.namespace, view.entry.name, read_spec(spec), spec.get("inline"), status
            )

        try:
            return await when_ready(find, seconds=_COMPILING_SECONDS)
        except NotYetError:
            raise unavailable("the definition of the run is being compiled; retry later") from None
        except NewerStateError as error:
            raise unavailable(message_for(str(error))) from error
        except NotReadyError as error:
            raise precondition(error.message) from error
        except InvalidWorkflowError as error:
            raise precondition(f"The definition that the run started with cannot be read: {error}") from error


def _rejected(request: QueryWorkflowRequest, view: View) -> QueryRejected | None:
    status = record_of(view.object, RunRecord).status
    condition = from_enum(QueryRejectCondition, request.query_reject_condition)
    unwanted = (condition == "NotOpen" and status != "Running") or (
        condition == "NotCompletedCleanly" and status not in {"Running", "Completed"}
    )
    return QueryRejected(status=to_enum(WorkflowExecutionStatus, status)) if unwanted else None


# The answers for runs of Workflows


@dataclass(frozen=True, slots=True)
class QueriedRun:
    """A run that answers queries."""

    name: str
    namespace: str
    phase: str
    program: Program
    state: RunState
    console_url: str = ""
    """Address of the console; empty for no link to it."""

    @property
    def memory(self) -> Memory:
        """The memory of the interpreter."""
        return load_memory(self.state.memory)

    def steps(self) -> tuple[StepNode, ...]:
        """The steps of the run, with the open parts of open ones."""
        memory, closed = msgspec.to_builtins(self.memory), self.state.closed
        # A step that waits for its limits is shown itself, with this wait.
        open_ = (
            set() if closed else {each.activity_id for each in self.state.activities.values() if not each.runs_nothing}
        )
        work = OpenPaths(activities=dict.fromkeys(open_, "Running"), timers=self.state.timers.keys())
        return step_tree(self.program.spec.dump(), memory, work=work, closed=closed, only_open=True)

    def pods(self, activity: PendingActivity) -> list[str]:
        """The created pods of an activity, the newest last."""
        if activity.by_worker or activity.runs_nothing:
            return []
        created = activity.attempt if activity.started_time else activity.attempt - 1
        first = max(1, created - _MAX_PARTS + 1)
        return [pod_name(self.name, activity.scheduled_event_id, number) for number in range(first, created + 1)]


def answer(run: QueriedRun, query: str, workflow_type: str) -> Payloads | None:
    """Answer a query; None if the query does not exist.

    Args:
        run: The run.
        query: Name of the query.
        workflow_type: Name of its Workflow, for clients.
    """
    answers: dict[str, Callable[[], Any]] = {
        STEPS: lambda: [_as_json(step) for step in run.steps()],
        STACK: lambda: "\n".join(_stack(run)),
        METADATA: lambda: MessageToDict(_metadata(run, workflow_type)),
    }
    return Payloads(payloads=[data.one_payload(answers[query]())]) if query in answers else None


def _as_json(step: StepNode) -> dict[str, Any]:
    shown: dict[str, Any] = {"path": step.path, "name": step.name, "kind": _kind(step), "target": _target(step)}
    shown["status"] = step.state
    if not step.part:  # those of a part are those of its steps
        shown |= {"startTime": _time(step.start), "endTime": _time(step.end)}
    if step.closed_items is not None:
        shown |= {"items": step.count, "closedItems": step.closed_items}
    shown["steps"] = [_as_json(each) for each in step.steps]
    return {name: value for name, value in shown.items() if value not in ("", None, [])}


def _kind(step: StepNode) -> str:
    """Return the kind of a step; a handler calls its block."""
    return "call" if step.kind == "handler" else step.kind


def _target(step: StepNode) -> str:
    """Return the target of a step whose kind alone does not say what it waits for or runs."""
    return step.target if _kind(step) in _TARGETED else ""


def _stack(run: QueriedRun) -> Iterator[str]:
    """Yield a line for each open step, with its details."""
    if run.state.closed:
        yield f"The run has closed: {run.phase}."
        return
    waits, activities = _waits(run), {each.activity_id: each for each in run.state.activities.values()}
    shown = list(open_steps(run.steps()))
    for step in shown[: 5 * _MAX_PARTS]:
        yield f"at {step.path} ({f'{_kind(step)} {_target(step)}'.strip()})"
        yield from (f"    {line}" for line in _now(run, step.path, activities, waits))
    for path in activities.keys() - {step.path for step in shown}:  # compensations, and limits of steps
        yield f"at {path} (activity {activities[path].activity_type})"
        yield from (f"    {line}" for line in _now(run, path, activities, waits))


def _now(
    run: QueriedRun, path: str, activities: dict[str, PendingActivity], waits: dict[str, list[str]]
) -> Iterator[str]:
    """Describe the current action of an open step."""
    activity = activities.get(path)
    if activity is not None:
        yield _attempt(activity)
        if activity.last_failure is not None:
            yield f"last failure: {_failure(activity.last_failure)}"
        if pods := run.pods(activity):
            yield f"pod: {pods[-1]}"
    yield from waits.get(path, ())
    timer = run.state.timers.get(path)
    if timer is not None and path not in waits:
        yield f"until {_time(timer.fire_time)}"
    yield from (
        f"child workflow {child.workflow_id}" for child in run.state.children.values() if child.child_id == path
    )


def _waits(run: QueriedRun) -> dict[str, list[str]]:
    """The awaited signals of each step."""
    waits: dict[str, list[str]] = {}
    for each in awaited(run.program, run.memory, run.state.timers):
        until = f" until {_time(each.until)}" if each.until else ""
        waits.setdefault(each.step, []).append(f"signal {each.signal}{until}")
    return waits


def _attempt(activity: PendingActivity) -> str:
    maximum = activity.retry_policy.maximum_attempts
    number = f"attempt {activity.tries}" + (f" of {maximum}" if maximum else "")
    if activity.paused and not activity.started_time:
        return f"{number}, paused"
    if activity.started_time:
        return f"{number}, running since {_time(activity.started_time)}"
    return f"{number}, starts at {_time(activity.scheduled_time)}" + (
        f" ({activity.waiting_reason})" if activity.waiting_reason else ""
    )


def _failure(failure: Failure) -> str:
    return " ".join(failure.full_message.split())[:_MAX_TEXT]


def _time(time: datetime | None) -> str | None:
    return None if time is None else time.isoformat(timespec="seconds").replace("+00:00", "Z")


# Details in the Web UI


def _metadata(run: QueriedRun, workflow_type: str) -> WorkflowMetadata:
    made = WorkflowMetadata(current_details=current_details(run))
    made.definition.type = workflow_type
    for name, description in QUERIES.items():
        if name != METADATA:
            made.definition.query_definitions.add(name=name, description=description)
    for name in sorted(known_signals(run.program) or ()):
        made.definition.signal_definitions.add(name=name)
    return made


def current_details(run: QueriedRun) -> str:
    """Describe the steps of a run, the reasons for waiting, and the commands for its logs, as Markdown."""
    done, count = progress(run.program, run.memory)
    activities = {each.activity_id: each for each in run.state.activities.values()}
    waits = _waits(run)
    lines = [f"**{run.phase}**, {done} of {count} steps done", "", *_tree(run, run.steps(), activities, waits, 0)]
    if not run.state.closed and any(waits.values()):
        signals = dict.fromkeys(each.signal for each in awaited(run.program, run.memory, run.state.timers))
        lines += ["", f"Waits for {', '.join(f'signal {_code(name)}' for name in signals)}"]
    lines += ["", "Logs", "", f"    perdure logs {run.name} -n {run.namespace}"]
    pods = [pod for activity in activities.values() for pod in run.pods(activity)[-1:]]
    lines += [f"    kubectl logs {pod} -n {run.namespace}" for pod in pods[:_MAX_PARTS]]
    if run.console_url:
        lines += ["", f"[Graph and logs]({run.console_url}/namespaces/{run.namespace}/runs/{run.name})"]
    return "\n".join(lines)


def _tree(
    run: QueriedRun,
    steps: Sequence[StepNode],
    activities: dict[str, PendingActivity],
    waits: dict[str, list[str]],
    depth: int,
) -> Iterator[str]:
    indent = "    " + "  " * depth  # four spaces make it a code block: nothing in it is Markdown or HTML
    for step in steps[:_MAX_PARTS] if depth else steps:
        what = f"{_kind(step)} {_target(step)}".strip()
        items = f", {step.closed_items} of {step.count} items done" if step.closed_items is not None else ""
        yield f"{indent}{_ICONS.get(step.state, '·')} {step.name} ({what}) {step.state}{items}"
        if step.state in {"Running", "Waiting"}:
            yield from (f"{indent}    {line}" for line in _now(run, step.path, activities, waits))
        yield from _tree(run, step.steps, activities, waits, depth + 1)
    if depth and len(steps) > _MAX_PARTS:
        yield f"{indent}… {len(steps) - _MAX_PARTS} more"


def _code(text: str) -> str:
    """The name of a signal as a code span: nothing in it is Markdown or HTML."""
    shown = " ".join(text.replace("`", "'").split())
    return f"`{shown[:_MAX_TEXT]}`" if shown else ""
