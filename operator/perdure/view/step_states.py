"""Determines the states of steps from the status of a run: open steps, steps in the memory, and ended steps."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from perdure.api.lenient import Json, mapping, mappings
from perdure.engine.failures import FailureKind
from perdure.language.memory import Status
from perdure.language.step_failures import as_json, matches, timeout
from perdure.language.step_trace import Traced
from perdure.view.openings import Openings, Seen
from perdure.view.recorded_steps import HistoryEntry, ShownHistory
from perdure.view.shown_step import OPEN, ShownStep

LIMIT = ":timeout"
"""Suffix of the path of a step: the timer of its `timeout`."""
_WRAPPERS = frozenset({FailureKind.ACTIVITY, FailureKind.CHILD_WORKFLOW})
"""Kinds of failures that only wrap an event of the step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The input of the tree."""

    run: str
    """Name of the run."""
    phase: str
    closed: bool
    end: datetime | None
    definition: Json
    memory: Json
    history: ShownHistory
    openings: Openings
    seen: Seen | None
    base_run: str = ""
    """Name of the run whose events this run continues, after a reset or a retry."""
    trace: Mapping[str, Traced] | None = None
    """The starts and ends of steps by path; None if unknown."""


class Knowledge:
    """A source, indexed by the paths of steps."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.history = source.history
        self.trace = source.trace or {}
        self.openings = source.openings
        self.memory = source.memory
        self.frames = mapping(self.memory.get("frames"))
        self.tasks = mapping(self.memory.get("tasks"))
        self.loops = mapping(self.memory.get("loops"))
        self.closing = mapping(self.memory.get("closing"))
        self.ending = mapping(self.closing.get("ending"))
        self.undoing = mapping(self.closing.get("undoing")).get("path")
        self.to_undo = {entry.get("path") for entry in mappings(self.memory.get("undo"))}
        self.suppressed = [str(one.get("message")) for one in mappings(self.closing.get("suppressed"))]
        self.waiting = {p for key in ("listeners", "watchers") for p in self.memory.get(key) or ()}
        self.blocks = {str(b.get("name")): mappings(b.get("steps")) for b in mappings(source.definition.get("blocks"))}
        self.activities = {a.step: a for a in self.openings.activities}
        self.timers = {t.step: t for t in self.openings.timers}
        self.children = {c.step: c for c in self.openings.children}
        self.parts = self._parts()

    def _parts(self) -> dict[str, dict[str, None]]:
        """Return the parts of each frame that are known to have started, by its path."""
        parts: dict[str, dict[str, None]] = {}
        known: tuple[Iterable[str], ...] = (
            *(self.history.tasks, self.history.timers, self.activities, self.timers, self.children),
            *(self.frames, self.tasks, self.loops, self.trace),
        )
        for path in dict.fromkeys(p.removesuffix(LIMIT) for paths in known for p in paths):
            rest = path
            while rest:
                frame, _, last = rest.rpartition("/")
                if last in parts.setdefault(frame, {}):
                    break
                parts[frame][last] = None
                rest = frame
        return parts


class States:
    """The states of steps."""

    def __init__(self, known: Knowledge) -> None:
        self._known = known

    def state(
        self,
        path: str,
        kind: str,
        record: Json,
        below: Sequence[ShownStep],
        spans: Sequence[HistoryEntry],
        *,
        begun: bool,
    ) -> str:
        """Return the state of a step or part; empty if unknown."""
        if path in self._known.activities:
            return self._known.activities[path].state
        status = str(record.get("status") or "")
        is_open = (
            path in self._known.tasks
            or path in self._known.frames
            or path in self._known.loops
            or path in self._known.children
        )
        if self._known.source.closed:
            if status == "Running" or is_open:
                return "Stopped"
        elif path in self._known.waiting or path in self._known.timers:
            return "Waiting"
        elif is_open:
            return "Running"
        if not status and path in self._known.trace:
            return _traced_state(self._known.trace[path], closed=self._known.source.closed)
        return status or (_joined(below, loop=begun) if below else self._recorded(kind, spans))

    def _recorded(self, kind: str, spans: Sequence[HistoryEntry]) -> str:
        """Return the outcome of a step according to its own events."""
        if not spans:
            return ""
        ended = spans[0].ended
        if ended is None:
            return "Stopped" if self._known.source.closed else "Running"
        if kind in {"waitForSignal", "waitUntil"}:  # the timer limits its wait
            return "Failed" if ended == "Succeeded" else "Succeeded"
        return ended

    def has_timed_out(self, path: str, record: Json) -> bool:
        """Whether a step that is only in the history has timed out; its parts were then canceled."""
        if self._known.source.trace is not None:
            return False
        limit = self._known.history.timers.get(f"{path}{LIMIT}")
        is_open = any(
            path in known
            for known in (
                self._known.activities,
                self._known.children,
                self._known.tasks,
                self._known.frames,
                self._known.loops,
            )
        )
        return limit is not None and limit.ended == "Succeeded" and not record.get("status") and not is_open

    def is_over(self, path: str) -> bool:
        """Whether nothing more can start at this path."""
        frame = mapping(self._known.frames.get(path.rpartition("/")[0]))
        return self._known.source.closed or bool(self._known.closing and "/" not in path) or bool(frame.get("ending"))

    def is_compensated(self, path: str, definition: Json) -> bool:
        """Whether a successful step was compensated later."""
        if "compensate" not in definition or self._known.ending.get("status") in {None, "Succeeded"}:
            return False
        if path in self._known.to_undo or path == self._known.undoing:
            return False
        if self._known.source.trace is not None:
            traced = self._known.trace.get(f"{path}:compensate")
            return traced is not None and traced.status is Status.SUCCEEDED
        entry = self._known.history.tasks.get(f"{path}:compensate")
        failed = (entry is not None and entry.ended == "Failed") or any(
            f"`{path}:compensate" in s for s in self._known.suppressed
        )
        return not failed

    def failure(
        self, path: str, state: str, record: Json, entry: HistoryEntry | None, below: Sequence[ShownStep]
    ) -> Json | None:
        """Return why a step failed permanently, even if a `catch` handled the failure; None if it did not."""
        if self.has_timed_out(path, record) and state in {"Failed", "Succeeded"}:
            limit = self._known.history.timers[f"{path}{LIMIT}"]
            return {"kind": "Timeout", "type": "Timeout", "message": f"it did not end within {limit.target}"}
        traced = self._known.trace.get(path)
        whole = traced.failure if traced is not None else None
        if entry is not None and entry.failure and (whole is None or whole.kind in _WRAPPERS):
            return entry.failure
        if whole is not None and not any(step.failure for step in below if step.name != "catch"):
            return as_json(whole)
        caught = mapping(mapping(self._known.frames.get(f"{path}:catch")).get("caught"))
        if caught:
            return caught
        # Except for activities, the memory only has the failure that ended the run.
        if state == "Failed" and not path.startswith(":") and "/" not in path and not any(s.failure for s in below):
            return mapping(self._known.ending.get("failure")) or None
        return None


def _traced_state(traced: Traced, *, closed: bool) -> str:
    """Return the state of a step according to a replay; an open step of a closed run was stopped."""
    return "Stopped" if closed and traced.status is Status.RUNNING else traced.status.value


def catches_timeouts(definition: Json) -> bool:
    """Whether a step continues after its timeout."""
    ended = timeout("")
    return any(
        matches(ended, [*map(str, clause.get("errorTypes") or ())]) for clause in mappings(definition.get("catch"))
    )


def _joined(below: Sequence[ShownStep], *, loop: bool) -> str:
    """Return the state of a step from its parts, if nothing else is known."""
    states = [step.state for step in below if step.name not in {"compensate", "limits", "onStart", "onEnd"}]
    if not states:
        return ""
    if "Stopped" in states:
        return "Stopped"
    if any(state in OPEN for state in states):
        return "Running"
    caught = [step.state for step in below if step.name == "catch"]
    if caught and not loop:
        return caught[0]
    if "Failed" in states:
        return "Failed"
    return "Cancelled" if all(state == "Cancelled" for state in states) else "Succeeded"
