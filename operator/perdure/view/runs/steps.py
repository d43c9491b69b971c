"""The steps of a run as users see them: the tree of its steps with the attempts, pods, and open work of each; or those of code.

A run of steps has the tree of `language.step_tree`. The history adds what the tree does not have: attempts, workers, failures of
attempts, cached results, and the earlier runs that a reset or a retry has kept. Without a trace, it also replaces that.

A run of code has no tree: its steps are activities, timers, children, Nexus operations, and signals, in the order in which they
started. Their IDs are not paths, and each kind has its own: activity `1` and timer `1` are unrelated.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from perdure.api.json_values import Json, mapping
from perdure.api.names import pod_name
from perdure.engine.failures import FailureKind
from perdure.language.step_failures import as_json
from perdure.language.step_paths import STEPS_TIMEOUT, TIMEOUT, Path, limited
from perdure.language.step_tree import (
    OPEN,
    OpenPaths,
    Recorded,
    StepNode,
    TracedStep,
    step_tree,
)
from perdure.view.runs.history import HistoryEntry, HistoryView
from perdure.view.runs.open_work import LiveState, OpenActivity, OpenChild, OpenOperation, OpenWork, Timer

_WRAPPERS = frozenset({FailureKind.ACTIVITY, FailureKind.CHILD_WORKFLOW})
"""Kinds of failures that only wrap an event of the step."""
_MAX_LOST = 20
"""Maximum number of missing pods of an activity before the search for later ones ends."""
_CHILD, _NEXUS = "childWorkflow", "nexus"
_PHASES = {
    "StartChildWorkflowExecutionFailed": "Failed",
    "ChildWorkflowExecutionCompleted": "Completed",
    "ChildWorkflowExecutionTimedOut": "TimedOut",
    "ChildWorkflowExecutionTerminated": "Terminated",
}
"""Outcomes of a child of code whose names differ from those of an activity."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepView:
    """A step of the definition, or a part of one: an item, a branch, a failure handler, or a compensation."""

    path: str
    """Its path in the run, such as `rooms[3]/ask`."""
    name: str
    """Its name within its parent: `rooms`, `[3]`, `fast`, `catch`, `compensate`."""
    kind: str
    target: str
    """Its target: the activity, the block, or the duration of a sleep."""
    state: str
    label: str = ""
    """For an item of a loop, what names its value, such as `lr=0.1`; empty if its index says as much, or if it is not known."""
    attempt: int | None = None
    """Number of the last attempt; every pod is an attempt, and so is the use of a cached result."""
    maximum_attempts: int = 0
    losses: int = 0
    """Number of attempts that were lost to the infrastructure: they do not count."""
    start: datetime | None = None
    end: datetime | None = None
    last_start: datetime | None = None
    """When its last attempt started."""
    failure: Json | None = None
    """Its permanent failure, even if a `catch` handled the failure."""
    cached: str = ""
    """The CachedResult that had its result; empty if its last attempt ran."""
    earlier_run: str = ""
    """Name of the earlier run in which it ran, if a reset or a retry has kept its result."""
    remark: str = ""
    """A warning about a doubtful result."""
    retry_state: str | None = None
    last_failure: Json | None = None
    """The outcome of the attempt before the last one."""
    count: int | None = None
    """Number of items of a step with `forEach`, if known."""
    pods: tuple[str, ...] = ()
    """The pods of its attempts in order; they may no longer exist."""
    task_queue: str = ""
    """The task queue of its workers; empty if it runs in a pod."""
    worker: str = ""
    """The worker of the last attempt, if known."""
    open: OpenActivity | None = None
    note: str = ""
    """A message for users while the step waits."""
    timer: Timer | None = None
    """The timer of its sleep or wait."""
    limit: Timer | None = None
    """The timer of its `timeout`."""
    child: OpenChild | None = None
    operation: OpenOperation | None = None
    recorded: HistoryEntry | None = None
    """Its activity, timer, child, operation, or signal according to the recorded events; None if they have none."""
    steps: "tuple[StepView, ...]" = ()
    """Its parts and nested steps."""

    def walk(self) -> "Iterator[StepView]":
        """Yield the step and every nested step."""
        yield self
        for step in self.steps:
            yield from step.walk()


def titles(steps: "Sequence[StepView]") -> dict[str, str]:
    """Name steps for users, by their paths: items of loops also by their values, as in `train[3: lr=0.1]/fit`."""
    found: dict[str, str] = {}

    def add(step: StepView, parent: str, title: str) -> None:
        title += step.path.removeprefix(parent)
        if step.label:
            title = f"{title.removesuffix(']')}: {step.label}]"
        found[step.path] = title
        for each in step.steps:
            add(each, step.path, title)

    for step in steps:
        add(step, "", "")
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSource:
    """The data about a run from which its steps are read."""

    run: str
    """Name of the run."""
    closed: bool
    end: datetime | None
    definition: Json
    memory: Json
    history: HistoryView
    work: OpenWork
    live: LiveState | None
    base_run: str = ""
    """Name of the run whose events this run continues, after a reset or a retry."""
    trace: Mapping[str, TracedStep] | None = None
    """The starts and ends of steps by path; None if unknown."""


def read_steps(source: StepSource) -> tuple[StepView, ...]:
    """Read the steps of a run of steps.

    Args:
        source: The data from a status.

    Returns:
        The main steps in the order of the definition, then steps that are only in the history, then started handlers.
    """
    work, history = source.work, source.history
    recorded = {**_recorded(history.timers), **_recorded(history.tasks)}
    for path, entry in history.timers.items():  # the timer of a handler shows when it started and ended
        if path.startswith(":") and "/" not in path and not path.endswith(STEPS_TIMEOUT):
            recorded[limited(path)] = _as_recorded(entry)
    paths = OpenPaths(
        activities={activity.step: activity.state for activity in work.activities},
        timers={timer.step for timer in work.timers},
        children={child.step for child in work.children},
    )
    nodes = step_tree(
        source.definition, source.memory, source.trace, recorded, paths, closed=source.closed, end=source.end
    )
    reader = _StepReader(source)
    return tuple(map(reader.step, nodes))


def _recorded(entries: Mapping[str, HistoryEntry]) -> dict[str, Recorded]:
    return {path: _as_recorded(entry) for path, entry in entries.items()}


def _as_recorded(entry: HistoryEntry) -> Recorded:
    return Recorded(start=entry.start, end=entry.end, ended=entry.ended)


class _StepReader:
    def __init__(self, source: StepSource) -> None:
        memory = source.memory
        self.source = source
        self.history = source.history
        self.frames = mapping(memory.get("frames"))
        self.tasks = mapping(memory.get("tasks"))
        self.ending = mapping(mapping(memory.get("closing")).get("ending"))
        self.activities = {activity.step: activity for activity in source.work.activities}
        self.timers = {timer.step: timer for timer in source.work.timers}
        self.children = {child.step: child for child in source.work.children}

    def step(self, node: StepNode) -> StepView:
        path, below = node.path, tuple(map(self.step, node.steps))
        entry, activity = self.history.tasks.get(path), self.activities.get(path)
        spans = [span for span in (entry, *self.timers_of(path)) if span is not None]
        kind, target, state = node.kind, node.target, node.state
        if spans and node.part != "handler" and (not kind or kind == "sleep"):
            kind, target = kind or spans[0].kind, spans[0].target or target
        start, end = node.start, node.end
        earlier = self.earlier_run(spans, below, end)
        if entry is not None and earlier:
            start, end = entry.start, entry.end
        elif start is not None and not earlier and self.history.reset_time is not None:
            start = max(start, self.history.reset_time)
        attempt = activity.attempt if activity else entry.attempt if entry else None
        attempt = None if kind in {"limits", "service"} else attempt
        if kind == "service" and activity is not None:
            service = Path.parse(path)
            awaiting = self.activities.get(service.served_frame.await_service(service.service).text)
            activity, state = awaiting or activity, "Waiting" if awaiting is not None else state
        return StepView(
            path=path,
            name=node.name,
            label=node.label,
            kind=kind,
            target=target,
            state=state,
            attempt=attempt,
            maximum_attempts=activity.maximum_attempts if activity else entry.maximum_attempts if entry else 0,
            losses=activity.losses if activity else entry.losses if entry else 0,
            start=start,
            end=None if state in OPEN else end,
            last_start=activity.started if activity else entry.last_start if entry else None,
            failure=self.failure(node, entry, below),
            cached=entry.cached if entry else "",
            earlier_run=earlier,
            remark=node.remark,
            retry_state=entry.retry_state if entry else None,
            last_failure=activity.last_failure if activity else entry.last_failure if entry else None,
            count=node.count,
            # An attempt that is not due yet has no pod.
            pods=_pods(self.source, entry, attempt - 1 if attempt and state == "BackingOff" else attempt),
            task_queue=entry.task_queue if entry else "",
            worker=activity.worker if activity else entry.worker if entry else "",
            open=activity,
            note=str(mapping(self.tasks.get(path)).get("note") or ""),
            timer=self.timers.get(path),
            limit=self.timers.get(f"{path}{TIMEOUT}"),
            child=self.children.get(path),
            recorded=entry or self.history.timers.get(path),
            steps=below,
        )

    def timers_of(self, path: str) -> Iterator[HistoryEntry | None]:
        """Yield the timer of a wait or sleep, and that of a handler."""
        yield self.history.timers.get(path)
        if path.startswith(":") and "/" not in path:
            yield self.history.timers.get(f"{path}{TIMEOUT}")

    def failure(self, node: StepNode, entry: HistoryEntry | None, below: Sequence[StepView]) -> Json | None:
        """Return why a step failed permanently, even if a `catch` handled the failure; None if it did not."""
        path = node.path
        if node.timed_out and node.state in {"Failed", "Succeeded"}:
            limit = self.history.timers[f"{path}{TIMEOUT}"]
            return {"kind": "Timeout", "type": "Timeout", "message": f"it did not end within {limit.target}"}
        if entry is not None and entry.failure and (node.failure is None or node.failure.kind in _WRAPPERS):
            return entry.failure
        if node.failure is not None and not any(step.failure for step in below if step.name != "catch"):
            return as_json(node.failure)
        caught = mapping(mapping(self.frames.get(f"{path}:catch")).get("caught"))
        if caught:
            return caught
        # Except for activities, the memory only has the failure that ended the run.
        if (
            node.state == "Failed"
            and not path.startswith(":")
            and "/" not in path
            and not any(s.failure for s in below)
        ):
            return mapping(self.ending.get("failure")) or None
        return None

    def earlier_run(self, spans: Sequence[HistoryEntry], below: Sequence[StepView], end: datetime | None) -> str:
        """Return the earlier run in which a step ran that a reset or a retry has kept; empty if it runs in this one."""
        if spans:
            return spans[0].earlier_run
        time = self.history.reset_time
        if time is None or end is None or end >= time:
            return ""
        return next((step.earlier_run for step in below if step.earlier_run), self.source.base_run)


def _pods(source: StepSource, entry: HistoryEntry | None, attempt: int | None) -> tuple[str, ...]:
    """Name the pods of an activity.

    Args:
        source: The data from a status.
        entry: The entry of the activity in the history; None if there is none.
        attempt: Number of the last attempt with a pod, if known.

    Returns:
        The pods of its attempts in order; empty if workers execute the activity, or if an earlier run did.
    """
    if entry is None or entry.kind != "activity" or entry.task_queue or entry.event_id is None or entry.earlier_run:
        return ()
    run, number = source.run, entry.event_id
    if attempt is not None:
        last = attempt - 1 if entry.cached else attempt
        return tuple(pod_name(run, number, n) for n in range(1, last + 1))
    # A run that is closed from outside does not record the attempts of its open activities.
    there = source.live.pods if source.live else frozenset()
    tried = (pod_name(run, number, n) for n in range(1, len(there) + _MAX_LOST + 1))
    return tuple(name for name in tried if name in there)


# Steps of code


def read_code_steps(source: StepSource) -> tuple[StepView, ...]:
    """Read the steps of a run of code.

    Args:
        source: The data from a status.

    Returns:
        One step for each activity, timer, child, Nexus operation, and signal.
    """
    reader = _CodeStepReader(source)
    return tuple(reader.step(entry) for entry in reader.entries())


class _CodeStepReader:
    def __init__(self, source: StepSource) -> None:
        self.source = source
        self.activities = {activity.step: activity for activity in source.work.activities}
        self.timers = {timer.step: timer for timer in source.work.timers}
        self.children = {child.workflow_id: child for child in source.work.children}
        self.operations = {operation.scheduled_event_id: operation for operation in source.work.operations}
        self.paths: set[str] = set()

    def entries(self) -> Iterator[HistoryEntry]:
        """Return all steps; the first ones opened before the available events."""
        recorded = self.source.history.entries.values()
        known = {(entry.kind, _id(entry)) for entry in recorded if entry.ended is None}
        for activity in self.activities.values():
            if ("activity", activity.step) not in known:
                yield HistoryEntry(
                    "activity",
                    path=activity.step,
                    event_id=self.source.work.scheduled.get(activity.step),
                    target=activity.activity,
                    task_queue=activity.task_queue,
                    start=activity.scheduled,
                )
        for timer in self.timers.values():
            if ("timer", timer.step) not in known:
                yield HistoryEntry("timer", path=timer.step)
        for child in self.children.values():
            if (_CHILD, child.workflow_id) not in known:
                yield HistoryEntry(_CHILD, workflow_id=child.workflow_id, has_started=bool(child.child_run_id))
        for number, operation in self.operations.items():
            if number not in self.source.history.entries:
                yield HistoryEntry(
                    _NEXUS,
                    path=operation.name,
                    event_id=number,
                    target=operation.endpoint,
                    has_started=operation.started is not None,
                    start=operation.scheduled,
                )
        yield from recorded

    def step(self, entry: HistoryEntry) -> StepView:
        is_open = entry.ended is None
        activity = self.activities.get(entry.path) if is_open and entry.kind == "activity" else None
        timer = self.timers.get(entry.path) if is_open and entry.kind == "timer" else None
        child = self.children.get(entry.workflow_id) if is_open and entry.kind == _CHILD else None
        operation = self.operations.get(entry.event_id or 0) if is_open and entry.kind == _NEXUS else None
        called = activity or operation
        state = self.state(entry, called)
        attempt = called.attempt if called else entry.attempt
        path = self.path(entry)
        return StepView(
            path=path,
            name=path if entry.kind == "timer" else _id(entry) or entry.target,
            kind="child" if entry.kind == _CHILD else entry.kind,
            target=entry.target,
            state=state,
            attempt=attempt,
            maximum_attempts=activity.maximum_attempts if activity else entry.maximum_attempts,
            losses=activity.losses if activity else entry.losses,
            start=entry.start,
            end=entry.end or (self.source.end if self.source.closed and not entry.earlier_run else None),
            last_start=activity.started if activity else entry.last_start,
            cached=entry.cached,
            earlier_run=entry.earlier_run,
            failure=entry.failure,
            retry_state=entry.retry_state,
            last_failure=called.last_failure if called else entry.last_failure,
            pods=_pods(self.source, entry, attempt - 1 if attempt and state == "BackingOff" else attempt),
            task_queue=entry.task_queue,
            worker=activity.worker if activity else entry.worker,
            open=activity,
            timer=timer,
            child=child,
            operation=operation,
            recorded=entry,
        )

    def path(self, entry: HistoryEntry) -> str:
        """Return the unique path: the ID of an activity, as for `complete`; for other kinds, the kind and the ID."""
        named = _id(entry) if entry.kind == "activity" else f"{entry.kind.removesuffix('Workflow')} {_id(entry)}"
        path = named if named not in self.paths else f"{named} ({entry.event_id})"
        self.paths.add(path)
        return path

    def state(self, entry: HistoryEntry, called: OpenActivity | OpenOperation | None) -> str:
        """Return the state from the events."""
        if called is not None:
            return called.state
        if entry.ended is not None:
            return _PHASES.get(entry.closed_by, entry.ended)
        if self.source.closed and not entry.abandoned:
            return "Stopped"
        if entry.kind == _CHILD:
            return "Running" if entry.has_started else "Pending"
        return "Waiting" if entry.kind == "timer" else "Running"


def _id(entry: HistoryEntry) -> str:
    """Return the ID for users."""
    return entry.path if entry.kind in {"activity", "timer", _NEXUS} else entry.workflow_id
