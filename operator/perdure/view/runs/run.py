"""A WorkflowRun as users see it: the run, its steps, its open work, and the workflow task of a run of code.

Reading is lenient: a status may come from a newer operator, or lack fields of an older one. Unknown parts are omitted.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import Any

from perdure.api.json_values import MAX_DEPTH, Json, integer, mapping, mappings, nests_deeper
from perdure.api.kinds.workflowrun import definition_of
from perdure.api.labels import CONTINUES_ANNOTATION, PARENT_ANNOTATION
from perdure.api.names import claim_name
from perdure.api.phases import Phase, workflow_of
from perdure.api.search_attributes import search_attributes_of
from perdure.api.stored import name_in
from perdure.api.times import read_kubernetes_time
from perdure.engine.payloads import readable
from perdure.engine.state import WORKFLOWS_QUEUE
from perdure.engine.versioning import ONE_TIME, PINNED
from perdure.language.step_tree import TracedStep
from perdure.runtime.chains import extras_of, reset_of
from perdure.runtime.retention import Policy, ttl_of
from perdure.view import text
from perdure.view.page import Page
from perdure.view.runs.failure import task_failure
from perdure.view.runs.history import HistoryView, read_history
from perdure.view.runs.open_work import (
    LiveState,
    OpenActivity,
    OpenChild,
    OpenOperation,
    OpenSignal,
    Timer,
    read_open_work,
)
from perdure.view.runs.steps import StepSource, StepView, read_code_steps, read_steps, titles
from perdure.view.runs.summaries import RunSummary, read_summary


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionFailure:
    """The reason why a run cannot continue, and the time at which the operator retries."""

    message: str
    attempt: int
    next_attempt: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenRequest:
    """A request to a run: a cancellation or a pause."""

    time: datetime | None
    reason: str
    identity: str
    """The requester; empty if unknown."""
    effect: str = ""
    """When it takes effect, as a sentence; empty if it has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConditionView:
    """A condition in the status of the run."""

    type: str
    status: str
    reason: str
    message: str
    time: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainView:
    """The related runs: its parent, and the previous and next run of its chain."""

    attempt: int = 1
    """Number of the attempt, if the run has a retry policy."""
    first_run_id: str = ""
    """ID of the first run; empty if this is the first one."""
    continues: str = ""
    """Name of the previous run."""
    continued_as: str = ""
    """Name of the next run."""
    parent: str = ""
    """Name of the parent run, which started it or must start it."""
    base: str = ""
    """Name of the run that it retries, or that was reset to create it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """A run that retries another one, or that a reset of it created."""

    name: str
    phase: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowTask:
    """A workflow task for a worker."""

    attempt: int
    scheduled: datetime | None
    started: datetime | None
    """When a worker started it, if the status records the start: usually it only records the response."""
    worker: str
    failed: str
    """The failure of an attempt, if the history records it: of consecutive failures, it only records the first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeView:
    """The state of a run of code."""

    task_queue: str
    task: WorkflowTask | None
    """The pending workflow task; None if no task is pending."""
    deployment: str
    """The worker deployment whose version decides it; empty if no versioned worker has decided yet."""
    build_id: str
    """The build ID of that version; empty as well."""
    behavior: str
    """Pinned or AutoUpgrade, as the worker has reported or an override says; OneTime for a run that moves; empty as well."""

    @property
    def pinned(self) -> bool:
        """Whether it stays on that version."""
        return self.behavior in {PINNED, ONE_TIME}

    @property
    def failing(self) -> bool:
        """Whether the last attempts at its pending workflow task have failed, or were not answered in time."""
        return self.task is not None and (bool(self.task.failed) or self.task.attempt > 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView(RunSummary):
    """A run with all that its object says."""

    uid: str
    endpoint: str
    """Endpoint of a standalone Nexus operation; empty for any other run."""
    code: CodeView | None
    """The state of a run of code; None for a run of steps."""
    task_queue: str
    """The task queue of its workers; empty if pods do the work."""
    versioning: str
    """The version of its workers and its versioning behavior; empty if it has none."""
    observed: bool
    """Whether an operator has processed the run."""
    deleting: bool
    input: Any
    output: Any
    failure: Json | None
    chain: ChainView
    retries: tuple[Retry, ...]
    """The runs that retry it, or that resets of it created, the oldest first, if the cluster was queried."""
    revision: str
    """Name of the WorkflowRevision that it executes; empty if it has its own definition."""
    sources: tuple[Json, ...]
    """What its definition has copied from other Workflows: `workflow`, `generation`, `activities`, and `blocks`."""
    claims: tuple[tuple[str, str], ...]
    """Its workspaces with PersistentVolumeClaims, and the names of the claims."""
    search_attributes: Json | None
    """The search attributes with their current values, by name; None if there are none."""
    memo: Json | None
    """The values of the memo, by name; None if there is none."""
    artifacts: Json | None
    """References to the output artifacts of its steps, by step and name; None if there are none."""
    conditions: tuple[ConditionView, ...]
    paused: OpenRequest | None
    """The pause; None if the run is not paused."""
    cancel: OpenRequest | None
    """The cancellation request; None if there is none."""
    steps: tuple[StepView, ...]
    titles: Mapping[str, str]
    """The names of all steps for users, by their paths: items of loops also by their values, as in `train[3: lr=0.1]/fit`."""
    activities: tuple[OpenActivity, ...]
    timers: tuple[Timer, ...]
    children: tuple[OpenChild, ...]
    operations: tuple[OpenOperation, ...]
    """The open Nexus operations."""
    signals: tuple[OpenSignal, ...]
    failed_from: int | None
    """The event at which the workflow task began that started what failed last in a failed run of code; None if nothing did."""
    undecided: DecisionFailure | None
    removed_at: datetime | None
    """When the run will be removed, if it is closed and this is known. A history limit may remove it sooner."""
    live: LiveState | None
    """The state in the cluster; None if the cluster was not queried."""

    def every_step(self) -> Iterator[StepView]:
        """Yield all steps, including nested ones."""
        for step in self.steps:
            yield from step.walk()

    def name_of(self, step: StepView) -> str:
        """Return the name of a step for users; that of an activity of code has its type, because its ID may be a number."""
        name = self.titles[step.path]
        has_type = self.code is None or step.kind != "activity" or step.target in name
        return name if has_type else f"{name} ({step.target})"


def read_run(
    obj: Mapping[str, Any],
    *,
    now: datetime,
    live: LiveState | None = None,
    trace: Mapping[str, TracedStep] | None = None,
    retention: Policy | None = None,
    retries: Iterable[Mapping[str, Any]] = (),
) -> RunView:
    """Read a WorkflowRun.

    Args:
        obj: The object from the API server.
        now: The time.
        live: The state of its attempts in the cluster, if the cluster was queried.
        trace: The outcomes of its steps by path; None to use only the object.
        retention: How long its namespace keeps runs; None if this is not known.
        retries: The WorkflowRuns that retry it, or that resets of it created, if the cluster was queried.

    Returns:
        The run.
    """
    metadata, spec, status = (mapping(obj.get(key)) for key in ("metadata", "spec", "status"))
    state, listed = mapping(status.get("state")), read_summary(obj)
    events = mappings(mapping(status.get("history")).get("events"))
    reset = reset_of({"metadata": metadata})
    history = read_history(events, reset)
    open_ = read_open_work(listed.name, status, state, now, live)
    conditions = tuple(map(_condition, mappings(status.get("conditions"))))
    reference, standalone = mapping(spec.get("workflow")), mapping(spec.get("activity"))
    operation = mapping(spec.get("nexusOperation"))
    failure = mapping(status.get("failure"))
    code = read_code(reference, state, history.task_failed)
    source = StepSource(
        run=listed.name,
        closed=listed.closed,
        end=listed.end,
        definition=definition_of(obj),
        memory=mapping(state.get("memory")),
        history=history,
        work=open_,
        live=live,
        base_run=reset.base.name if reset is not None else "",
        trace=trace,
    )
    by_workers = code is not None or standalone or operation
    steps = read_code_steps(source) if by_workers else read_steps(source)
    return RunView(
        **{field.name: getattr(listed, field.name) for field in fields(listed)},
        uid=str(metadata.get("uid") or ""),
        endpoint=str(operation.get("endpoint") or ""),
        task_queue=str((code.task_queue if code is not None else standalone.get("taskQueue")) or ""),
        versioning=_versioning(mapping(mapping(state.get("code")).get("versioning"))),
        code=code,
        observed=bool(status),
        deleting=bool(metadata.get("deletionTimestamp")),
        input=_shown(readable(history.first.get("input", spec.get("input")))),
        output=readable(status.get("output")),
        failure=failure or None,
        chain=_chain(metadata, status, history),
        retries=tuple(Retry(name=each.name, phase=each.phase) for each in sorted(map(read_summary, retries), key=_age)),
        revision=str(mapping(status.get("revision")).get("name") or ""),
        sources=tuple(mappings(status.get("sources"))),
        claims=tuple(_claims(obj, source.definition)),
        search_attributes=search_attributes_of(obj) or None,
        memo=_memo(metadata, mapping(state.get("code"))) or None,
        artifacts=artifacts_of(events) or None,
        conditions=conditions,
        paused=_pause(state, conditions) if listed.phase == "Paused" else None,
        cancel=_cancel(state, history, conditions),
        steps=steps,
        titles=titles(steps),
        activities=open_.activities,
        timers=open_.timers,
        children=open_.children,
        operations=open_.operations,
        signals=open_.signals,
        failed_from=_failed_from(events, history) if code is not None and listed.phase == Phase.FAILED else None,
        undecided=_undecided(state),
        removed_at=_removed_at(spec, listed.phase, listed.end, retention),
        live=live,
    )


def _age(run: RunSummary) -> tuple[str, str]:
    return text.iso(run.created) if run.created else "", run.name


def _versioning(versioning: Mapping[str, Any]) -> str:
    """Format the versioning of a run, such as ``shop:v1 (Pinned)``; empty if it has none."""
    override = mapping(versioning.get("override"))
    behavior = str(override.get("behavior") or versioning.get("behavior") or "")
    if not behavior:
        return ""
    version = _version(versioning)
    name = (
        f"{version['deploymentName']}:{version.get('buildId', '')}" if version.get("deploymentName") else "any version"
    )
    return f"{name} ({behavior}{', by an override' if override else ''})"


def _version(versioning: Mapping[str, Any]) -> Json:
    """Return the version of a run of code: of its override, or of the worker that decided last."""
    return mapping(mapping(versioning.get("override")).get("version") or versioning.get("version"))


def _memo(metadata: Json, code: Json) -> Json:
    """Return the memo of a run of code, or of a run that has not started."""
    found = code.get("memo") if code else extras_of({"metadata": metadata}).memo
    return {name: _shown(readable(value)) for name, value in mapping(found).items()}


def _shown(value: Any) -> Any:
    """Return a value, or a note instead of a value that is nested too deeply for JSON."""
    return f"(nests more than {MAX_DEPTH} levels deep)" if nests_deeper(value) else value


def _condition(entry: Json) -> ConditionView:
    return ConditionView(
        type=str(entry.get("type") or ""),
        status=str(entry.get("status") or ""),
        reason=str(entry.get("reason") or ""),
        message=str(entry.get("message") or ""),
        time=read_kubernetes_time(entry.get("lastTransitionTime")),
    )


def _chain(metadata: Json, status: Json, history: HistoryView) -> ChainView:
    first, uid = str(status.get("firstRunId") or ""), metadata.get("uid")
    annotations, reset = mapping(metadata.get("annotations")), reset_of({"metadata": metadata})
    return ChainView(
        attempt=integer(status.get("attempt")) or 1,
        first_run_id="" if first == uid else first,
        continues=name_in(annotations.get(CONTINUES_ANNOTATION)),
        continued_as=str(history.last.get("newWorkflowRun") or ""),
        parent=name_in(annotations.get(PARENT_ANNOTATION)),
        base=reset.base.name if reset is not None else "",
    )


def _claims(obj: Mapping[str, Any], definition: Json) -> Iterator[tuple[str, str]]:
    metadata = mapping(obj.get("metadata"))
    reset = reset_of({"metadata": metadata})
    name, uid = str(metadata.get("name") or ""), str(metadata.get("uid") or "")
    if reset is not None:
        name, uid = reset.original.name, reset.original.run_id
    for workspace in mappings(definition.get("workspaces")):
        called = str(workspace.get("name") or "")
        if workspace.get("volumeClaimTemplate"):
            yield called, claim_name(name, uid, called)
        elif existing := mapping(workspace.get("persistentVolumeClaim")).get("claimName"):
            yield called, str(existing)


def _pause(state: Json, conditions: tuple[ConditionView, ...]) -> OpenRequest:
    open_ = mapping(state.get("activities")).values() if state.get("standalone") else ()
    of_activity = next((mapping(each).get("pause") for each in open_), None)
    pause = mapping(state.get("paused") or of_activity)
    since = next((c.time for c in conditions if c.type == "Paused" and c.status == "True"), None)
    return OpenRequest(time=since, reason=str(pause.get("reason") or ""), identity=str(pause.get("identity") or ""))


def _cancel(state: Json, history: HistoryView, conditions: tuple[ConditionView, ...]) -> OpenRequest | None:
    found = next((c for c in conditions if c.type == "CancelRequested" and c.status == "True"), None)
    if found is None and not state.get("cancelRequested"):
        return None
    event = history.cancel
    time = read_kubernetes_time(event.get("eventTime")) or (found.time if found else None)
    return OpenRequest(
        time=time,
        reason=str(event.get("cause") or ""),
        identity=str(event.get("identity") or ""),
        effect=found.message if found else "",
    )


def _failed_from(events: Iterable[Json], history: HistoryView) -> int | None:
    """Return the ID of the WorkflowTaskStarted event to reset to; None if nothing that the run started has failed."""
    failed = [entry for entry in history.entries.values() if entry.ended == "Failed" and not entry.earlier_run]
    if not failed:
        return None
    return _task_before(events, max(failed, key=lambda entry: entry.closing_id).event_id or 0)


def task_that_started(events: Sequence[Json], activity_id: str) -> int | None:
    """Return the ID of the WorkflowTaskStarted event of the task that scheduled an activity last; None if none did.

    Args:
        events: The history of a run of code.
        activity_id: The ID of the activity.
    """
    scheduled = [
        integer(event.get("eventId")) or 0
        for event in events
        if event.get("eventType") == "ActivityTaskScheduled" and event.get("activityId") == activity_id
    ]
    return _task_before(events, scheduled[-1]) if scheduled else None


def _task_before(events: Iterable[Json], begun: int) -> int | None:
    tasks = (integer(event.get("eventId")) or 0 for event in events if event.get("eventType") == "WorkflowTaskStarted")
    return max((task for task in tasks if task < begun), default=None)


def _undecided(state: Json) -> DecisionFailure | None:
    task = mapping(state.get("task"))
    if not task:
        return None
    return DecisionFailure(
        message=str(task.get("message") or ""),
        attempt=integer(task.get("attempt")) or 1,
        next_attempt=read_kubernetes_time(task.get("nextAttemptTime")),
    )


def _removed_at(spec: Json, phase: str, end: datetime | None, retention: Policy | None) -> datetime | None:
    seconds = ttl_of(spec, phase)
    if seconds is None and retention is not None:
        seconds = retention.ttl(workflow_of(spec), phase)
    return None if end is None or seconds is None else end + timedelta(seconds=seconds)


def artifacts_of(events: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the references to the output artifacts in a history, by step and name, in the order in which the steps started.

    Args:
        events: The events, as stored.
    """
    completed = [event for event in events if event.get("eventType") == "ActivityTaskCompleted"]
    return {
        f"{event.get('activityId')}/{name}": reference
        for event in sorted(completed, key=lambda event: int(event.get("scheduledEventId") or 0))
        for name, reference in mapping(event.get("artifacts")).items()
    }


def read_code(reference: Json, state: Json, failed: Json) -> CodeView | None:
    """Read the specific state of a run of code.

    Args:
        reference: The reference to the workflow in its spec.
        state: The engine's state; empty if the run has not started.
        failed: The event with the failure of its last workflow task; empty if the task has not failed.

    Returns:
        The state; None for a run of steps.
    """
    code = mapping(state.get("code"))
    queue: Any = code.get("taskQueue") or reference.get("taskQueue")
    if not queue or (not code and queue == WORKFLOWS_QUEUE):
        return None
    task, versioning = mapping(code.get("task")), mapping(code.get("versioning"))
    version, behavior = _version(versioning), mapping(versioning.get("override")).get("behavior")
    return CodeView(
        task_queue=str(queue),
        task=_task(task, failed) if task else None,
        deployment=str(version.get("deploymentName") or ""),
        build_id=str(version.get("buildId") or ""),
        behavior=str(behavior or versioning.get("behavior") or ""),
    )


def _task(task: Json, failed: Json) -> WorkflowTask:
    return WorkflowTask(
        attempt=integer(task.get("attempt")) or 1,
        scheduled=read_kubernetes_time(task.get("scheduledTime")),
        started=read_kubernetes_time(task.get("startedTime")),
        worker=str(task.get("identity") or ""),
        failed=task_failure(failed) if failed else "",
    )


def task_state(task: WorkflowTask, page: Page) -> str:
    """Describe the state of a workflow task.

    Args:
        task: The workflow task.
        page: The page for the output.

    Returns:
        For instance `attempt 2, no worker has answered since 2026-01-01T12:00:00Z (5s ago)`.
    """
    if task.started is not None:
        status = text.join(("running", f"by {task.worker}" if task.worker else None), " ")
        since: datetime | None = task.started
    else:
        status, since = "no worker has answered", task.scheduled
    status = text.join((status, f"since {page.timestamp(since)}" if since else None), " ")
    attempt = f"attempt {task.attempt}" if task.attempt > 1 or task.failed else None
    return text.join((text.join((attempt, status), ", "), f"failed before: {task.failed}" if task.failed else None))
