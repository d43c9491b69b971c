"""The tree of steps: the definition, the decider's memory, the history, what is open, and how steps have ended.

The memory forgets blocks that have ended. A replay of the history shows how each step in them has ended. Where the history
cannot be replayed, the events of activities, timers, children and signals have to do: how a block has ended is then inferred
from what is in it, and steps that leave no event are left out.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from perdure.api.lenient import Json, integer, mapping, mappings
from perdure.api.names import pod_name
from perdure.cli.view.openings import OpenActivity, OpenChild, Openings, OpenOperation, Seen, Timer
from perdure.cli.view.recorded import HistoryEntry, ShownHistory
from perdure.cli.view.text import read_time
from perdure.engine.failures import FailureKind
from perdure.language.memory import Status
from perdure.language.step_failures import as_json, matches, timeout
from perdure.language.step_trace import Traced

OPEN = frozenset({"Running", "Scheduled", "BackingOff", "Waiting", "Paused", "CircuitOpen", "CancelRequested"})
"""The states of a step that has begun and has not ended."""

_MAX_LOST = 20
"""How many pods of an activity may have disappeared for those after them to be found."""
_MODIFIERS = frozenset({"name", "needs", "when", "forEach", "catch", "compensate", "timeout", "deadLetter"})
_HANDLERS = ("onCancel", "onFailure", "finally")
_LIMIT = ":timeout"
_WRAPPERS = frozenset({FailureKind.ACTIVITY, FailureKind.CHILD_WORKFLOW})
"""Kinds of failures that only repeat what an event of the step says."""
_SEGMENT = re.compile(r"([^\[.:]*)(?:\[(\d+)\])?(?:\.([^:]*))?(?::.*)?")
"""A part of a path between two slashes: name, item, branch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownStep:
    """A step of the definition, or a part of one: an item, a branch, what handles a failure of it, or undoes it."""

    path: str
    """Where in the run, such as `rooms[3]/ask`."""
    name: str
    """Its name below the step above it: `rooms`, `[3]`, `fast`, `catch`, `compensate`."""
    kind: str
    target: str
    """What it is about: the activity, the block, how long a sleep takes."""
    state: str
    attempt: int | None = None
    """Number of the last attempt; every pod is one."""
    maximum_attempts: int = 0
    losses: int = 0
    """How many of the attempts were lost to the infrastructure: they do not count."""
    start: datetime | None = None
    end: datetime | None = None
    last_start: datetime | None = None
    """When its last attempt started."""
    failure: Json | None = None
    """Why it failed for good; also where a `catch` has handled that."""
    remark: str = ""
    """What is doubtful about its result."""
    retry_state: str | None = None
    last_failure: Json | None = None
    """How the attempt before the last one ended."""
    count: int | None = None
    """Number of items of a step with `forEach`, if known."""
    pods: tuple[str, ...] = ()
    """The pods of its attempts, the first one first; whether they still exist is another question."""
    task_queue: str = ""
    """Where the workers poll that do it; empty where pods do."""
    worker: str = ""
    """The one that runs the last attempt, if known."""
    open: OpenActivity | None = None
    timer: Timer | None = None
    """Of its sleep, or of how long it waits."""
    limit: Timer | None = None
    """Of its `timeout`."""
    child: OpenChild | None = None
    operation: OpenOperation | None = None
    steps: "tuple[ShownStep, ...]" = ()
    """Its parts, and the steps in it."""

    def walk(self) -> "Iterator[ShownStep]":
        """It, and every step in it."""
        yield self
        for step in self.steps:
            yield from step.walk()


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """What the tree is made of."""

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
    trace: Mapping[str, Traced] | None = None
    """By path, how steps have begun and ended; None where that is not known."""


def read_steps(source: Source) -> tuple[ShownStep, ...]:
    """Read the steps of a run.

    Args:
        source: What a status tells.

    Returns:
        The main steps in the order of the definition, then what only the history knows, then handlers that have begun.
    """
    return tuple(_Reader(source).main())


class _Reader:
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
        """By the path of each frame, what is known to have begun in it."""
        parts: dict[str, dict[str, None]] = {}
        known: tuple[Iterable[str], ...] = (
            *(self.history.tasks, self.history.timers, self.activities, self.timers, self.children),
            *(self.frames, self.tasks, self.loops, self.trace),
        )
        for path in dict.fromkeys(p.removesuffix(_LIMIT) for paths in known for p in paths):
            rest = path
            while rest:
                frame, _, last = rest.rpartition("/")
                if last in parts.setdefault(frame, {}):
                    break
                parts[frame][last] = None
                rest = frame
        return parts

    def main(self) -> Iterator[ShownStep]:
        yield from self.frame("", mappings(self.source.definition.get("steps")), whole=True)
        for name in _HANDLERS:
            if f":{name}" in self.parts.get("", {}):
                yield self.handler(name)

    # Frames and parts

    def frame(self, path: str, steps: Sequence[Json], *, whole: bool = False) -> Iterator[ShownStep]:
        """The steps of a block; those of one that has ended as far as something is known of them."""
        begun: dict[str, list[str]] = {}
        for part in self.parts.get(path, {}):
            found = _SEGMENT.fullmatch(part)
            begun.setdefault(found[1] if found and not part.startswith(":") else part, []).append(part)
        named = {str(step.get("name")): step for step in steps}
        for name, definition in named.items():
            if whole or path in self.frames or name in begun:
                yield self.step(path, name, definition, begun.get(name, ()))
        # What the history knows and the definition does not: workflows that are code have no other steps.
        for name, parts in begun.items():
            if name not in named and not name.startswith(":"):
                yield self.step(path, name, {}, parts)

    def step(self, frame: str, name: str, definition: Json, begun: Sequence[str]) -> ShownStep:
        path = f"{frame}/{name}" if frame else name
        record = mapping(mapping(mapping(self.frames.get(frame)).get("steps")).get(name))
        items = sorted({int(found[2]) for part in begun if (found := _SEGMENT.fullmatch(part)) and found[2]})
        if not items and path not in self.loops and "forEach" not in definition:
            return self.task(path, name, definition, record)
        loop = mapping(self.loops.get(path))
        if loop:  # items that have ended without a trace are still counted
            items = sorted({*items, *range(min(integer(loop.get("next")) or 0, 10_000))})
        below = tuple(self.task(f"{path}[{i}]", f"[{i}]", definition, {}, unknown="Succeeded") for i in items)
        kind, target = kind_and_target(definition)
        output = record.get("output")
        count = integer(loop.get("count")) if loop else len(output) if isinstance(output, list) else None
        return self.node(
            path, name, kind, target, record, below, begun=bool(below), count=count or (len(items) if items else None)
        )

    def task(self, path: str, name: str, definition: Json, record: Json, *, unknown: str = "") -> ShownStep:
        kind, target = kind_and_target(definition)
        told = self.history.tasks.get(path) or self.history.timers.get(path)
        if told is not None and (not definition or kind == "sleep"):
            kind, target = kind or told.kind, told.target or target
        below = [*self.body(path, kind, definition, record)]
        if f"{path}:catch" in self.begun_parts(path):
            block = self.block_at(f"{path}:catch", _only_handler(definition))
            steps = tuple(self.frame(f"{path}:catch", self.steps_of(f"{path}:catch", block)))
            below.append(self.node(f"{path}:catch", "catch", "call", block, {}, steps))
        undo = self.compensation(path, mapping(definition.get("compensate")))
        if undo is not None:
            below.append(undo)
            unknown = unknown or "Succeeded"  # nothing else is undone
        return self.node(path, name, kind, target, record, tuple(below), definition=definition, unknown=unknown)

    def begun_parts(self, path: str) -> set[str]:
        frame, _, last = path.rpartition("/")
        before = f"{frame}/" if frame else ""
        return {f"{before}{part}" for part in self.parts.get(frame, {}) if part.startswith(last)}

    def body(self, path: str, kind: str, definition: Json, record: Json) -> Iterator[ShownStep]:
        """What is in a step that runs blocks."""
        if kind == "parallel":
            ended = mapping(mapping(self.tasks.get(path)).get("branches"))
            begun = self.begun_parts(path)
            for branch in mappings(mapping(definition.get("parallel")).get("branches")):
                name, block = str(branch.get("name")), str(branch.get("block") or "")
                at = f"{path}.{name}"
                if at in begun or name in ended or name in mapping(record.get("output")):
                    known = {"status": mapping(ended[name]).get("status")} if name in ended else {}
                    yield self.node(at, name, "call", block, known, tuple(self.frame(at, self.steps_of(at, block))))
        elif path in self.parts:
            block = str(mapping(definition.get("call")).get("block") or "")
            yield from self.frame(path, self.steps_of(path, block))

    def steps_of(self, path: str, block: str) -> Sequence[Json]:
        """The steps of the block that runs at a path; none where nobody knows any more which one that was."""
        return self.blocks.get(self.block_at(path, block), ())

    def block_at(self, path: str, block: str = "") -> str:
        """The block that runs, or has run, at a path; `block` where only the definition says so."""
        traced = self.trace.get(path)
        return str(mapping(self.frames.get(path)).get("block") or (traced.block if traced else "") or block)

    def compensation(self, path: str, definition: Json) -> ShownStep | None:
        at = f"{path}:compensate"
        if at not in self.begun_parts(path) and self.undoing != path:
            return None
        kind = next(iter(definition), "")
        target = str(mapping(definition.get(kind)).get("block" if kind == "call" else "name") or "")
        return self.node(at, "compensate", kind, target, {}, tuple(self.frame(at, self.steps_of(at, target))))

    def handler(self, name: str) -> ShownStep:
        """A handler that has begun: its time limit tells when it began and ended."""
        path = f":{name}"
        block = str(mapping(self.source.definition.get(name)).get("block") or "")
        timer = self.history.timers.get(f"{path}{_LIMIT}")
        failed = any(f"`{path}/" in told or told.startswith(f"`{name}`") for told in self.suppressed)
        status = "Running" if path in self.frames else "Failed" if failed else "Succeeded"
        record = {} if path in self.trace else {"status": status}
        steps = tuple(self.frame(path, self.steps_of(path, block)))
        return self.node(path, name, "handler", block, record, steps, times=timer)

    # One node

    def node(  # noqa: PLR0917 (what a node is made of)
        self,
        path: str,
        name: str,
        kind: str,
        target: str,
        record: Json,
        below: tuple[ShownStep, ...],
        *,
        definition: Json | None = None,
        times: HistoryEntry | None = None,
        count: int | None = None,
        begun: bool = False,
        unknown: str = "",
    ) -> ShownStep:
        told = self.history.tasks.get(path)
        activity = self.activities.get(path)
        spans = [span for span in (told, self.history.timers.get(path), times) if span is not None]
        traced = self.trace.get(path)
        state = self.state(path, kind, record, below, spans, begun=begun) or unknown
        state = state or ("NotReached" if self.over(path) else "Pending")
        if self.has_timed_out(path, record):
            state = "Succeeded" if _catches_timeouts(definition or {}) else "Failed"
        if state == "Succeeded" and self.undone(path, definition or {}):
            state = "Compensated"
        start = (
            read_time(record.get("startTime"))
            or (traced.start if traced else None)
            or _first(span.start for span in spans)
            or _first(s.start for s in below)
        )
        end = read_time(record.get("endTime")) or (traced.end if traced else None)
        end = end or next((span.end for span in spans if span.end), None)
        if end is None and state not in OPEN and record.get("status") != "Running":
            end = max((s.end for s in below if s.end), default=None)
        if state == "Stopped":
            end = self.source.end
        attempt = activity.attempt if activity else told.attempt if told else None
        return ShownStep(
            path=path,
            name=name,
            kind=kind,
            target=target,
            state=state,
            attempt=attempt,
            maximum_attempts=activity.maximum_attempts if activity else told.maximum_attempts if told else 0,
            losses=activity.losses if activity else told.losses if told else 0,
            start=start,
            end=None if state in OPEN else end,
            last_start=activity.started if activity else told.last_start if told else None,
            failure=self.failure(path, state, record, told, below),
            remark=traced.remark if traced else "",
            retry_state=told.retry_state if told else None,
            last_failure=activity.last_failure if activity else told.last_failure if told else None,
            count=count,
            # The pod of an attempt that is not due yet has not been made.
            pods=pods_of(self.source, told, attempt - 1 if attempt and state == "BackingOff" else attempt),
            task_queue=told.task_queue if told else "",
            worker=activity.worker if activity else told.worker if told else "",
            open=activity,
            timer=self.timers.get(path),
            limit=self.timers.get(f"{path}{_LIMIT}"),
            child=self.children.get(path),
            steps=below,
        )

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
        """How something stands; empty where nothing is known of it."""
        if path in self.activities:
            return self.activities[path].state
        status = str(record.get("status") or "")
        is_open = path in self.tasks or path in self.frames or path in self.loops or path in self.children
        if self.source.closed:
            if status == "Running" or is_open:
                return "Stopped"
        elif path in self.waiting or path in self.timers:
            return "Waiting"
        elif is_open:
            return "Running"
        if not status and path in self.trace:
            return _traced_state(self.trace[path], closed=self.source.closed)
        return status or (_joined(below, loop=begun) if below else self.told(kind, spans))

    def told(self, kind: str, spans: Sequence[HistoryEntry]) -> str:
        """How something ended by its own events."""
        if not spans:
            return ""
        ended = spans[0].ended
        if ended is None:
            return "Stopped" if self.source.closed else "Running"
        if kind in {"waitForSignal", "waitUntil"}:  # the timer is how long it waits
            return "Failed" if ended == "Succeeded" else "Succeeded"
        return ended

    def has_timed_out(self, path: str, record: Json) -> bool:
        """Whether a step of which only the history knows has not ended in time; what was in it was cancelled then."""
        if self.source.trace is not None:
            return False
        limit = self.history.timers.get(f"{path}{_LIMIT}")
        is_open = any(path in known for known in (self.activities, self.children, self.tasks, self.frames, self.loops))
        return limit is not None and limit.ended == "Succeeded" and not record.get("status") and not is_open

    def over(self, path: str) -> bool:
        """Whether nothing begins any more where that stands."""
        frame = mapping(self.frames.get(path.rpartition("/")[0]))
        return self.source.closed or bool(self.closing and "/" not in path) or bool(frame.get("ending"))

    def undone(self, path: str, definition: Json) -> bool:
        """Whether a step that has succeeded was undone since."""
        if "compensate" not in definition or self.ending.get("status") in {None, "Succeeded"}:
            return False
        if path in self.to_undo or path == self.undoing:
            return False
        if self.source.trace is not None:
            traced = self.trace.get(f"{path}:compensate")
            return traced is not None and traced.status is Status.SUCCEEDED
        told = self.history.tasks.get(f"{path}:compensate")
        failed = (told is not None and told.ended == "Failed") or any(
            f"`{path}:compensate" in s for s in self.suppressed
        )
        return not failed

    def failure(
        self, path: str, state: str, record: Json, told: HistoryEntry | None, below: Sequence[ShownStep]
    ) -> Json | None:
        if self.has_timed_out(path, record) and state in {"Failed", "Succeeded"}:
            limit = self.history.timers[f"{path}{_LIMIT}"]
            return {"kind": "Timeout", "type": "Timeout", "message": f"it did not end within {limit.target}"}
        traced = self.trace.get(path)
        whole = traced.failure if traced is not None else None
        if told is not None and told.failure and (whole is None or whole.kind in _WRAPPERS):
            return told.failure
        if whole is not None and not any(step.failure for step in below if step.name != "catch"):
            return as_json(whole)
        caught = mapping(mapping(self.frames.get(f"{path}:catch")).get("caught"))
        if caught:
            return caught
        # Of what is no activity the memory knows the failure that has ended the run, and nothing more.
        if state == "Failed" and not path.startswith(":") and "/" not in path and not any(s.failure for s in below):
            return mapping(self.ending.get("failure")) or None
        return None


def pods_of(source: Source, told: HistoryEntry | None, attempt: int | None) -> tuple[str, ...]:
    """Name the pods of an activity.

    Args:
        source: What a status tells.
        told: What the history says of it; None where it says nothing.
        attempt: Number of the last attempt that has a pod, where that is known.

    Returns:
        The pods of its attempts, the first one first; none for what workers do.
    """
    if told is None or told.kind != "activity" or told.task_queue or told.event_id is None:
        return ()
    run, number = source.run, told.event_id
    if attempt is not None:
        return tuple(pod_name(run, number, n) for n in range(1, attempt + 1))
    # A run that is closed from outside does not record how often its open activities were tried.
    there = source.seen.pods if source.seen else frozenset()
    tried = (pod_name(run, number, n) for n in range(1, len(there) + _MAX_LOST + 1))
    return tuple(name for name in tried if name in there)


def _traced_state(traced: Traced, *, closed: bool) -> str:
    """How a step stands by a replay; one that a closed run has left open was stopped."""
    return "Stopped" if closed and traced.status is Status.RUNNING else traced.status.value


def _only_handler(definition: Json) -> str:
    """The block that handles failures of a step; empty where there are several, or none."""
    blocks = {str(mapping(clause.get("call")).get("block")) for clause in mappings(definition.get("catch"))}
    return blocks.pop() if len(blocks) == 1 else ""


def _catches_timeouts(definition: Json) -> bool:
    """Whether a step continues after its timeout."""
    ended = timeout("")
    return any(
        matches(ended, [*map(str, clause.get("errorTypes") or ())]) for clause in mappings(definition.get("catch"))
    )


def _joined(below: Sequence[ShownStep], *, loop: bool) -> str:
    """How something stands of which only its parts are known."""
    states = [step.state for step in below if step.name != "compensate"]
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


def _first(times: Iterable[datetime | None]) -> datetime | None:
    return min((time for time in times if time is not None), default=None)


def kind_and_target(step: Mapping[str, Any]) -> tuple[str, str]:
    """What a step does, and about what.

    Args:
        step: The step as it stands in the definition.

    Returns:
        For instance `activity` and its name.
    """
    kind = next((key for key in step if key not in _MODIFIERS), "")
    body = mapping(step.get(kind))
    match kind:
        case "activity" | "waitForSignal" | "signal":
            target = body.get("name")
        case "sleep":
            target = body.get("duration") or f"until {body.get('until')}"
        case "call":
            target = body.get("block")
        case "parallel":
            target = body.get("wait")
        case "childWorkflow":
            reference = mapping(body.get("workflow"))
            target = reference.get("name") or reference.get("type")
        case "fail":
            target = body.get("type")
        case "set":
            target = ", ".join(map(str, body))
        case _:
            target = ""
    return kind, str(target or "")
