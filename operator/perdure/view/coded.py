"""Reads the steps of a run of code, in the order in which they started: activities, timers, children, Nexus operations, signals.

Their IDs are not paths, and each kind has its own: activity `1` and timer `1` are unrelated.
"""

from collections.abc import Iterator

from perdure.view.openings import OpenActivity, OpenOperation
from perdure.view.recorded_steps import HistoryEntry
from perdure.view.shown_step import ShownStep
from perdure.view.step_states import Source
from perdure.view.step_tree import pods_of

_CHILD, _NEXUS = "childWorkflow", "nexus"
_PHASES = {
    "StartChildWorkflowExecutionFailed": "Failed",
    "ChildWorkflowExecutionCompleted": "Completed",
    "ChildWorkflowExecutionTimedOut": "TimedOut",
    "ChildWorkflowExecutionTerminated": "Terminated",
}
"""Outcomes of a child whose names differ from those of an activity."""


def coded_steps(source: Source) -> tuple[ShownStep, ...]:
    """Read the steps of a run of code.

    Args:
        source: The data from a status.

    Returns:
        One step for each activity, timer, child, Nexus operation, and signal.
    """
    reader = _CodedStepReader(source)
    return tuple(reader.step(entry) for entry in reader.begun())


class _CodedStepReader:
    def __init__(self, source: Source) -> None:
        self.source = source
        self.activities = {activity.step: activity for activity in source.openings.activities}
        self.timers = {timer.step: timer for timer in source.openings.timers}
        self.children = {child.workflow_id: child for child in source.openings.children}
        self.operations = {operation.scheduled_event_id: operation for operation in source.openings.operations}
        self.paths: set[str] = set()

    def begun(self) -> Iterator[HistoryEntry]:
        """Return all steps; the first ones opened before the available events."""
        recorded = self.source.history.begun.values()
        known = {(entry.kind, _id(entry)) for entry in recorded if entry.ended is None}
        for activity in self.activities.values():
            if ("activity", activity.step) not in known:
                yield HistoryEntry(
                    "activity",
                    path=activity.step,
                    event_id=self.source.openings.scheduled.get(activity.step),
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
            if number not in self.source.history.begun:
                yield HistoryEntry(
                    _NEXUS,
                    path=operation.name,
                    event_id=number,
                    target=operation.endpoint,
                    has_started=operation.started is not None,
                    start=operation.scheduled,
                )
        yield from recorded

    def step(self, entry: HistoryEntry) -> ShownStep:
        is_open = entry.ended is None
        activity = self.activities.get(entry.path) if is_open and entry.kind == "activity" else None
        timer = self.timers.get(entry.path) if is_open and entry.kind == "timer" else None
        child = self.children.get(entry.workflow_id) if is_open and entry.kind == _CHILD else None
        operation = self.operations.get(entry.event_id or 0) if is_open and entry.kind == _NEXUS else None
        called = activity or operation
        state = self.state(entry, called)
        attempt = called.attempt if called else entry.attempt
        return ShownStep(
            path=self.path(entry),
            name=_id(entry) or entry.target,
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
            pods=pods_of(self.source, entry, attempt - 1 if attempt and state == "BackingOff" else attempt),
            task_queue=entry.task_queue,
            worker=activity.worker if activity else entry.worker,
            open=activity,
            timer=timer,
            child=child,
            operation=operation,
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
