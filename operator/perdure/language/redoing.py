"""Determines the work that a retry of a run repeats, and the results that it keeps. Pure.

The new run begins with the history up to the first repeated step. Activities that completed later, in other branches and items,
are not repeated: their results are kept.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import msgspec

from perdure.engine import events as ev
from perdure.engine import history
from perdure.language.interpreter import RunScope
from perdure.language.memory import Status
from perdure.language.program import Program
from perdure.language.resuming import last_task, newest_before
from perdure.language.step_paths import Path
from perdure.language.step_trace import Traced, Tracer

MAX_KEPT: Final = 256 * 1024
"""Maximum bytes of the results that are kept from after that point, with their inputs: one commit records them."""
_EVENTS: Final = 600
"""Bytes of the events of an activity, without its input and result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Redo:
    """The start of a retry, and the later results that it keeps."""

    point: int
    """The last event to keep: one of `history.decision_points`."""
    kept: tuple[int, ...] = ()
    """Ids of later ActivityTaskCompleted events whose results are kept."""
    left_out: int = 0
    """Number of discarded results because their total size is too large."""


def redo(
    events: Sequence[ev.AnyEvent],
    program: Program,
    run: RunScope,
    *,
    input: Any,  # noqa: A002
    start_time: datetime,
    steps: Sequence[str] = (),
) -> Redo:
    """Determine the work that a retry of a closed run repeats: failed work, compensated work, and the named steps.

    Args:
        events: The whole history of the run.
        program: The program that produced the history.
        run: The value of `run` in expressions.
        input: Input of the run.
        start_time: The start time of the run.
        steps: Paths of steps to repeat, with everything after them.

    Raises:
        NondeterminismError, UndecidableError: The program decides differently than the history.
        ValueError: There is nothing to repeat, or a step has not started. The message is a sentence for users.
    """
    seen = _RedoTracer(program, run, input=input, start_time=start_time)
    history.retrace(events, seen)
    trace, begun = seen.trace, seen.begun
    for step in steps:
        if step not in begun:
            known = ", ".join(f"`{path}`" for path in list(begun)[:10]) + (", …" if len(begun) > 10 else "")  # noqa: PLR2004
            raise ValueError(
                f"`from`: step `{step}` has not started in that run; choose one of {known or '(none has)'}"
            )
    completed = isinstance(events[-1], ev.WorkflowExecutionCompleted)
    if completed and not steps:
        raise ValueError("the run completed and no step failed; name steps in `from`, or start a new run")
    compensated = (path for path in map(Path.parse, trace) if path.is_compensation)
    again = {*steps, *(path.owner.text for path in compensated)}
    points = history.decision_points(events)
    if not points:
        raise ValueError("the run has not started, so there is nothing to retry")
    first = [newest_before(points, begun[path] + 1) for path in again if path in begun]
    if not completed:
        first.append(last_task(events, program, run, input=input, start_time=start_time))
        first += _before_failures(events, points, seen)
    point = min(first)
    kept = list(_kept(events, point, again, _Order(program, trace)))
    fitting, size = 0, 0
    while fitting < len(kept) and size + kept[fitting][1] <= MAX_KEPT:
        size += kept[fitting][1]
        fitting += 1
    return Redo(point=point, kept=tuple(each for each, _ in kept[:fitting]), left_out=len(kept) - fitting)


class _Trace(dict[str, Traced]):
    """The starts and ends of steps, and the event whose decision started each."""

    def __init__(self) -> None:
        super().__init__()
        self.point = 0
        self.begun: dict[str, int] = {}

    def __setitem__(self, path: str, traced: Traced) -> None:
        self.begun.setdefault(path, self.point)
        super().__setitem__(path, traced)


class _RedoTracer(Tracer):
    def __init__(self, program: Program, run: RunScope, *, input: Any, start_time: datetime) -> None:  # noqa: A002
        super().__init__(program, run, input=input, start_time=start_time)
        self.trace: _Trace = _Trace()

    @property
    def begun(self) -> dict[str, int]:
        return self.trace.begun

    def decide(self, memory: Any, event: ev.AnyEvent | None, **options: Any) -> Any:
        if event is not None:
            self.trace.point = event.event_id
        return super().decide(memory, event, **options)


def _before_failures(events: Sequence[ev.AnyEvent], points: Sequence[int], seen: _RedoTracer) -> Iterator[int]:
    """The points before uncaught failures: before the failure of an activity, or before the start of anything else."""
    trace = seen.trace
    failed = [Path.parse(path) for path, each in trace.items() if each.status is Status.FAILED]
    failed = [path for path in failed if not path.is_compensation]
    failed = [path for path in failed if all(_failed(trace, above) for above in path.enclosing())]
    outer = {above for path in failed for above in path.enclosing()}
    ends = {
        event.activity_id: event.event_id
        for event in events
        if isinstance(event, ev.ActivityTaskFailed | ev.ActivityTaskTimedOut | ev.ActivityTaskCanceled)
    }
    for path in {path.text for path in failed} - outer:
        yield newest_before(points, ends.get(path, seen.begun[path] + 1))


def _failed(trace: dict[str, Traced], path: str) -> bool:
    return path not in trace or trace[path].status is Status.FAILED


def _kept(events: Sequence[ev.AnyEvent], point: int, again: set[str], order: "_Order") -> Iterator[tuple[int, int]]:
    """The activities that completed after a point and are not repeated: the event, and its size in bytes."""
    inputs = {event.event_id: event.input for event in events if isinstance(event, ev.ActivityTaskScheduled)}
    for event in events[point:]:
        if not isinstance(event, ev.ActivityTaskCompleted) or ":" in event.activity_id:
            continue
        if any(order.concerns(event.activity_id, path) for path in again):
            continue
        size = len(msgspec.json.encode([inputs.get(event.scheduled_event_id), event.result, event.artifacts]))
        yield event.event_id, size + _EVENTS


class _Order:
    """The order of the steps."""

    def __init__(self, program: Program, trace: dict[str, Traced]) -> None:
        self._program = program
        self._trace = trace

    def concerns(self, path: str, again: str) -> bool:
        """Whether a step is part of a repeated step, or comes after one."""
        mine, other = Path.parse(path).lineage, Path.parse(again).lineage
        for here, there in zip(mine, other, strict=False):
            if here == there:
                continue
            if here.step == there.step:  # an item or branch of it
                return there is other[-1] and here.text.startswith((f"{there}[", f"{there}."))
            return self._needs(here.frame, here.step, there.step)
        return len(mine) >= len(other)

    def _needs(self, frame: str, name: str, before: str) -> bool:
        """Whether a step of a frame needs another one, directly or indirectly."""
        block = self._trace[frame].block if frame in self._trace else ""
        flow = self._program.flows.get(block)
        todo, known = [name], set[str]()
        while flow is not None and todo:
            step = flow.by_name.get(todo.pop())
            for need in step.needs if step else ():
                if need == before:
                    return True
                if need not in known:
                    known.add(need)
                    todo.append(need)
        return False
