"""Builds the tree of steps from the definition, the decider's memory, the history, the open work, and the outcomes of steps.

The memory does not keep blocks that have ended. A replay of the history finds the outcome of each step in them. If the history
cannot be replayed, the events of activities, timers, children, and signals are used instead: the outcome of a block is inferred
from its parts, and steps without events are omitted.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

from perdure.api.lenient import Json, integer, mapping, mappings
from perdure.api.names import pod_name
from perdure.view.recorded_steps import HistoryEntry
from perdure.view.shown_step import OPEN, ShownStep, kind_and_target
from perdure.view.step_states import LIMIT, Knowledge, Source, States, catches_timeouts
from perdure.view.text import read_time

_MAX_LOST = 20
"""Maximum number of missing pods of an activity before the search for later ones ends."""
_HANDLERS = ("onCancel", "onFailure", "finally")
_SEGMENT = re.compile(r"([^\[.:]*)(?:\[(\d+)\])?(?:\.([^:]*))?(?::.*)?")
"""A part of a path between two slashes: name, item, branch."""


def read_steps(source: Source) -> tuple[ShownStep, ...]:
    """Read the steps of a run.

    Args:
        source: The data from a status.

    Returns:
        The main steps in the order of the definition, then steps that are only in the history, then started handlers.
    """
    return tuple(_StepReader(source).main())


class _StepReader:
    def __init__(self, source: Source) -> None:
        self.source = source
        self.known = Knowledge(source)
        self.states = States(self.known)

    def main(self) -> Iterator[ShownStep]:
        yield from self.frame("", mappings(self.source.definition.get("steps")), whole=True)
        for name in _HANDLERS:
            if f":{name}" in self.known.parts.get("", {}):
                yield self.handler(name)

    # Frames and parts

    def frame(self, path: str, steps: Sequence[Json], *, whole: bool = False) -> Iterator[ShownStep]:
        """Return the steps of a block; of an ended block, the known steps."""
        begun: dict[str, list[str]] = {}
        for part in self.known.parts.get(path, {}):
            found = _SEGMENT.fullmatch(part)
            begun.setdefault(found[1] if found and not part.startswith(":") else part, []).append(part)
        named = {str(step.get("name")): step for step in steps}
        for name, definition in named.items():
            if whole or path in self.known.frames or name in begun:
                yield self.step(path, name, definition, begun.get(name, ()))
        # Steps that only the history has: those of code.
        for name, parts in begun.items():
            if name not in named and not name.startswith(":"):
                yield self.step(path, name, {}, parts)

    def step(self, frame: str, name: str, definition: Json, begun: Sequence[str]) -> ShownStep:
        path = f"{frame}/{name}" if frame else name
        record = mapping(mapping(mapping(self.known.frames.get(frame)).get("steps")).get(name))
        items = sorted({int(found[2]) for part in begun if (found := _SEGMENT.fullmatch(part)) and found[2]})
        if not items and path not in self.known.loops and "forEach" not in definition:
            return self.task(path, name, definition, record)
        loop = mapping(self.known.loops.get(path))
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
        entry = self.known.history.tasks.get(path) or self.known.history.timers.get(path)
        if entry is not None and (not definition or kind == "sleep"):
            kind, target = kind or entry.kind, entry.target or target
        below = [
            *self.hook(path, "onStart", definition),
            *self.limits(path),
            *self.body(path, kind, definition, record),
        ]
        if f"{path}:catch" in self.begun_parts(path):
            block = self.block_at(f"{path}:catch", _only_handler(definition))
            steps = tuple(self.frame(f"{path}:catch", self.steps_of(f"{path}:catch", block)))
            below.append(self.node(f"{path}:catch", "catch", "call", block, {}, steps))
        below += self.hook(path, "onEnd", definition)
        undo = self.compensation(path, mapping(definition.get("compensate")))
        if undo is not None:
            below.append(undo)
            unknown = unknown or "Succeeded"  # nothing else is compensated
        return self.node(path, name, kind, target, record, tuple(below), definition=definition, unknown=unknown)

    def hook(self, path: str, name: str, definition: Json) -> Iterator[ShownStep]:
        """Return the block that runs before or after a step, once it has started."""
        at = f"{path}:{name}"
        if at in self.begun_parts(path):
            block = self.block_at(at, str(mapping(definition.get(name)).get("block") or ""))
            yield self.node(at, name, "call", block, {}, tuple(self.frame(at, self.steps_of(at, block))))

    def limits(self, path: str) -> Iterator[ShownStep]:
        """Return the wait of a step for its WorkflowLimits, once it has begun."""
        at = f"{path}:limits"
        if at in self.begun_parts(path):
            yield self.node(at, "limits", "limits", "", {}, ())

    def begun_parts(self, path: str) -> set[str]:
        frame, _, last = path.rpartition("/")
        before = f"{frame}/" if frame else ""
        return {f"{before}{part}" for part in self.known.parts.get(frame, {}) if part.startswith(last)}

    def body(self, path: str, kind: str, definition: Json, record: Json) -> Iterator[ShownStep]:
        """Return the parts of a step that runs blocks."""
        if kind == "parallel":
            ended = mapping(mapping(self.known.tasks.get(path)).get("branches"))
            begun = self.begun_parts(path)
            for branch in mappings(mapping(definition.get("parallel")).get("branches")):
                name, block = str(branch.get("name")), str(branch.get("block") or "")
                at = f"{path}.{name}"
                if at in begun or name in ended or name in mapping(record.get("output")):
                    known = {"status": mapping(ended[name]).get("status")} if name in ended else {}
                    yield self.node(at, name, "call", block, known, tuple(self.frame(at, self.steps_of(at, block))))
        elif path in self.known.parts:
            block = str(mapping(definition.get("call")).get("block") or "")
            yield from self.frame(path, self.steps_of(path, block))

    def steps_of(self, path: str, block: str) -> Sequence[Json]:
        """Return the steps of the block at a path; empty if the block is no longer known."""
        return self.known.blocks.get(self.block_at(path, block), ())

    def block_at(self, path: str, block: str = "") -> str:
        """Return the block that runs, or has run, at a path; `block` if only the definition determines it."""
        traced = self.known.trace.get(path)
        return str(mapping(self.known.frames.get(path)).get("block") or (traced.block if traced else "") or block)

    def compensation(self, path: str, definition: Json) -> ShownStep | None:
        at = f"{path}:compensate"
        if at not in self.begun_parts(path) and self.known.undoing != path:
            return None
        kind = next(iter(definition), "")
        target = str(mapping(definition.get(kind)).get("block" if kind == "call" else "name") or "")
        return self.node(at, "compensate", kind, target, {}, tuple(self.frame(at, self.steps_of(at, target))))

    def handler(self, name: str) -> ShownStep:
        """Return a started handler; its timer shows when it started and ended."""
        path = f":{name}"
        block = str(mapping(self.source.definition.get(name)).get("block") or "")
        timer = self.known.history.timers.get(f"{path}{LIMIT}")
        failed = any(f"`{path}/" in entry or entry.startswith(f"`{name}`") for entry in self.known.suppressed)
        status = "Running" if path in self.known.frames else "Failed" if failed else "Succeeded"
        record = {} if path in self.known.trace else {"status": status}
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
        entry = self.known.history.tasks.get(path)
        activity = self.known.activities.get(path)
        spans = [span for span in (entry, self.known.history.timers.get(path), times) if span is not None]
        traced = self.known.trace.get(path)
        state = self.states.state(path, kind, record, below, spans, begun=begun) or unknown
        state = state or ("NotReached" if self.states.is_over(path) else "Pending")
        if self.states.has_timed_out(path, record):
            state = "Succeeded" if catches_timeouts(definition or {}) else "Failed"
        if state == "Succeeded" and self.states.is_compensated(path, definition or {}):
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
        earlier = self.earlier_run(spans, below, end)
        if entry is not None and earlier:
            start, end = entry.start, entry.end
        elif start is not None and not earlier and self.known.history.reset_time is not None:
            start = max(start, self.known.history.reset_time)
        attempt = activity.attempt if activity else entry.attempt if entry else None
        attempt = None if kind == "limits" else attempt
        return ShownStep(
            path=path,
            name=name,
            kind=kind,
            target=target,
            state=state,
            attempt=attempt,
            maximum_attempts=activity.maximum_attempts if activity else entry.maximum_attempts if entry else 0,
            losses=activity.losses if activity else entry.losses if entry else 0,
            start=start,
            end=None if state in OPEN else end,
            last_start=activity.started if activity else entry.last_start if entry else None,
            failure=self.states.failure(path, state, record, entry, below),
            cached=entry.cached if entry else "",
            earlier_run=earlier,
            remark=traced.remark if traced else "",
            retry_state=entry.retry_state if entry else None,
            last_failure=activity.last_failure if activity else entry.last_failure if entry else None,
            count=count,
            # An attempt that is not due yet has no pod.
            pods=pods_of(self.source, entry, attempt - 1 if attempt and state == "BackingOff" else attempt),
            task_queue=entry.task_queue if entry else "",
            worker=activity.worker if activity else entry.worker if entry else "",
            open=activity,
            note=str(mapping(self.known.tasks.get(path)).get("note") or ""),
            timer=self.known.timers.get(path),
            limit=self.known.timers.get(f"{path}{LIMIT}"),
            child=self.known.children.get(path),
            steps=below,
        )

    def earlier_run(self, spans: Sequence[HistoryEntry], below: Sequence[ShownStep], end: datetime | None) -> str:
        """Return the earlier run in which a step ran that a reset or a retry has kept; empty if it runs in this one."""
        if spans:
            return spans[0].earlier_run
        time = self.known.history.reset_time
        if time is None or end is None or end >= time:
            return ""
        return next((step.earlier_run for step in below if step.earlier_run), self.source.base_run)


def pods_of(source: Source, entry: HistoryEntry | None, attempt: int | None) -> tuple[str, ...]:
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
    there = source.seen.pods if source.seen else frozenset()
    tried = (pod_name(run, number, n) for n in range(1, len(there) + _MAX_LOST + 1))
    return tuple(name for name in tried if name in there)


def _only_handler(definition: Json) -> str:
    """Return the block that handles failures of a step; empty if there is not exactly one."""
    blocks = {str(mapping(clause.get("call")).get("block")) for clause in mappings(definition.get("catch"))}
    return blocks.pop() if len(blocks) == 1 else ""


def _first(times: Iterable[datetime | None]) -> datetime | None:
    return min((time for time in times if time is not None), default=None)
