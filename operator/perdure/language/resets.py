"""The points from which resets and retries repeat a run, and the later results that a retry keeps. Pure.

A reset to the last workflow task begins before the decision that ended the run and before the failed work. A retry begins with
the history up to the first repeated step. Activities and children that completed later, in other branches and items, are not
repeated: their results are kept. Work that was cancelled only because a neighbor failed runs again: activities and timers that
were open at that point are open again, and children start again (`engine.resets.restarted`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import msgspec

from perdure.engine import events as ev
from perdure.engine import history
from perdure.engine.commands import Decision
from perdure.engine.failures import Failure, FailureKind
from perdure.engine.state import ACTIVITY_CLOSED
from perdure.language.interpreter import Interpreter, RunScope
from perdure.language.memory import Outcome, Status, load_memory
from perdure.language.program import Program
from perdure.language.step_failures import child_failure, steps_of
from perdure.language.step_paths import Path
from perdure.language.step_tree import TracedStep, Tracer


def last_task(
    events: Sequence[ev.AnyEvent],
    program: Program,
    run: RunScope,
    *,
    input: Any,  # noqa: A002
    start_time: datetime,
) -> int:
    """Find the newest decision after which a run can end differently.

    That is the newest decision of the main steps: compensations and handlers come after it. If that decision handled
    failed work or a cancellation request, the result is the newest earlier decision, so that the work is repeated.

    Args:
        events: The whole history of the run.
        program: The program that produced the history.
        run: The value of `run` in expressions.
        input: Input of the run.
        start_time: The start time of the run.

    Returns:
        The id of an event: one of `history.decision_points`.

    Raises:
        NondeterminismError, UndecidableError: The program decides differently than the history.
        ValueError: There is no decision yet.
    """
    points = history.decision_points(events)
    if not points:
        raise ValueError("nothing was decided yet")
    observer = _EndObserver(program, run, input=input, start_time=start_time)
    history.retrace(events, observer)
    outcome, point = observer.outcome, observer.point
    if outcome is None:
        return points[-1]
    if outcome.status is Status.CANCELLED:
        return newest_before(points, point)
    failure = outcome.failure
    if failure is None:  # what ran after the main steps may have failed
        failure = ev.failure_of(events[-1])
        point = points[-1] if failure is not None else point
    begun = _event_before_failure(events[:point], failure) if failure is not None else None
    return point if begun is None else newest_before(points, begun)


class _EndObserver(Interpreter):
    """Observes when and how the end of the main steps was determined."""

    def __init__(self, program: Program, run: RunScope, *, input: Any, start_time: datetime) -> None:  # noqa: A002
        super().__init__(program, run, input=input, start_time=start_time)
        self.point = 0
        """The event of the decision that ended the main steps; until then, the newest event."""
        self.outcome: Outcome | None = None

    def decide(self, memory: Any, event: ev.AnyEvent | None, *, continue_as_new_suggested: bool = False) -> Decision:
        decision = super().decide(memory, event, continue_as_new_suggested=continue_as_new_suggested)
        if self.outcome is None:
            self.point = event.event_id if event is not None else self.point
            known = load_memory(decision.memory)
            main = known.frames.get("")
            self.outcome = known.closing.outcome if known.closing else main.outcome if main else None
        return decision


def before_services(events: Sequence[ev.AnyEvent], points: Sequence[int], point: int) -> int:
    """The newest point, at most as late as another one, at which no service of steps runs.

    What the steps before have stored in a service is lost with its pod, so all of them are repeated.

    Args:
        events: The whole history of the run.
        points: The points of the history.
        point: The point to which a reset or a retry would go.
    """
    ends: dict[int, int] = {}
    for each in events:
        if isinstance(each, (*ACTIVITY_CLOSED, ev.ActivityTaskCancelRequested)):
            ends.setdefault(each.scheduled_event_id, each.event_id)
    for event in reversed(events):
        if event.event_id <= point and isinstance(event, ev.ActivityTaskScheduled) and _of_service(event.activity_id):
            decided = next((each for each in points if each > point), len(events))
            if ends.get(event.event_id, len(events) + 1) > decided:  # the decision at the point does not stop it
                point = newest_before(points, event.event_id)
    return point


def _of_service(activity_id: str) -> bool:
    path = Path.parse(activity_id)
    return bool(path.service or path.awaited)


def _served_frames(events: Sequence[ev.AnyEvent], point: int) -> Iterator[str]:
    """The frames with services that a retry from a point starts again: nothing in them is kept."""
    for event in events:
        if event.event_id > point and isinstance(event, ev.ActivityTaskScheduled) and _of_service(event.activity_id):
            yield Path.parse(event.activity_id).served_frame.text


def newest_before(points: Sequence[int], event_id: int) -> int:
    """The newest point before an event; the first one if there is none."""
    return max((point for point in points if point < event_id), default=points[0])


def _event_before_failure(events: Sequence[ev.AnyEvent], failure: Failure) -> int | None:
    """Return the event before which a reset must start to repeat the failed work; None if no work has failed."""
    found = (_event_before_one(events, each) for each in (failure, *failure.suppressed))
    return min((begun for begun in found if begun is not None), default=None)


def _event_before_one(events: Sequence[ev.AnyEvent], failure: Failure) -> int | None:
    for node in failure.chain():
        for event in reversed(events):
            begun = _event_before_node(event, node)
            if begun is not None:
                return begun
    return None


def _event_before_node(event: ev.AnyEvent, node: Failure) -> int | None:
    """Return that event for one node of the failure.

    An open activity starts again after a reset. Children, timers, and signals to other runs do not: their outcome is
    applied again.
    """
    match event:
        case ev.ActivityTaskFailed() | ev.ActivityTaskTimedOut() | ev.ActivityTaskCanceled():
            if node.kind is FailureKind.ACTIVITY and node.activity_id == event.activity_id:
                return event.event_id
        case ev.StartChildWorkflowExecutionFailed() | ev.ChildNotCompleted():
            if node.kind is FailureKind.CHILD_WORKFLOW and node.message == child_failure(event).message:
                return event.initiated_event_id
        case ev.TimerFired():
            return _event_before_timeout(event, node)
        case ev.SignalExternalWorkflowExecutionFailed():
            if node == event.failure:
                return event.initiated_event_id
        case _:
            pass
    return None


def _event_before_timeout(event: ev.TimerFired, node: Failure) -> int | None:
    timer = Path.parse(event.timer_id)
    if node.kind is not FailureKind.TIMEOUT:
        return None
    if timer.is_steps_timeout:  # it starts again with the run
        return event.event_id if node.message.startswith(f"{steps_of(timer.timed_frame)} have") else None
    return event.started_event_id if node.message.startswith(f"step `{timer.owner}`") else None


# Retries


MAX_KEPT: Final = 256 * 1024
"""Maximum bytes of the results that are kept from after that point, with their inputs: one commit records them."""
_EVENTS: Final = 600
"""Bytes of the events of an activity, without its input and result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPlan:
    """The start of a retry, and the later results that it keeps."""

    point: int
    """The last event to keep: one of `history.decision_points`."""
    kept: tuple[int, ...] = ()
    """Ids of later ActivityTaskCompleted and ChildWorkflowExecutionCompleted events whose results are kept."""
    repeated: tuple[int, ...] = ()
    """Ids of the events that initiated the children that start again because they have failed."""
    left_out: int = 0
    """Number of discarded results because their total size is too large."""


def plan_retry(
    events: Sequence[ev.AnyEvent],
    program: Program,
    run: RunScope,
    *,
    input: Any,  # noqa: A002
    start_time: datetime,
    steps: Sequence[str] = (),
) -> RetryPlan:
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
    tracer = _RetryTracer(program, run, input=input, start_time=start_time)
    history.retrace(events, tracer)
    trace, starts = tracer.trace, tracer.starts
    for step in steps:
        if step not in starts:
            known = ", ".join(f"`{path}`" for path in list(starts)[:10]) + (", …" if len(starts) > 10 else "")  # noqa: PLR2004
            raise ValueError(
                f"`from`: step `{step}` has not started in that run; choose one of {known or '(none has)'}"
            )
    completed = isinstance(events[-1], ev.WorkflowExecutionCompleted)
    if completed and not steps:
        raise ValueError("the run completed and no step failed; name steps in `from`, or start a new run")
    compensated = (path for path in map(Path.parse, trace) if path.is_compensation)
    repeated = {*steps, *(path.owner.text for path in compensated)}
    points = history.decision_points(events)
    if not points:
        raise ValueError("the run has not started, so there is nothing to retry")
    first = [newest_before(points, starts[path] + 1) for path in repeated if path in starts]
    failures = () if completed else tuple(_failures(events, tracer))
    first += [newest_before(points, failure.event_id) for failure in failures]
    if not completed and not failures:
        first.append(last_task(events, program, run, input=input, start_time=start_time))
    point = before_services(events, points, min(first))
    served = {*_served_frames(events, point)}
    kept = [] if "" in served else list(_kept_results(events, point, repeated | served, _Order(program, trace)))
    fitting, size = 0, 0
    while fitting < len(kept) and size + kept[fitting][1] <= MAX_KEPT:
        size += kept[fitting][1]
        fitting += 1
    return RetryPlan(
        point=point,
        kept=tuple(each for each, _ in kept[:fitting]),
        repeated=tuple(sorted(failure.child for failure in failures if 0 < failure.child <= point)),
        left_out=len(kept) - fitting,
    )


class _Trace(dict[str, TracedStep]):
    """The starts and ends of steps, and the event whose decision started each."""

    def __init__(self) -> None:
        super().__init__()
        self.point = 0
        self.starts: dict[str, int] = {}

    def __setitem__(self, path: str, traced: TracedStep) -> None:
        self.starts.setdefault(path, self.point)
        super().__setitem__(path, traced)


class _RetryTracer(Tracer):
    def __init__(self, program: Program, run: RunScope, *, input: Any, start_time: datetime) -> None:  # noqa: A002
        super().__init__(program, run, input=input, start_time=start_time)
        self.trace: _Trace = _Trace()

    @property
    def starts(self) -> dict[str, int]:
        return self.trace.starts

    def decide(self, memory: Any, event: ev.AnyEvent | None, **options: Any) -> Any:
        if event is not None:
            self.trace.point = event.event_id
        return super().decide(memory, event, **options)


@dataclass(frozen=True, slots=True)
class _Uncaught:
    """A failure that nothing has handled."""

    event_id: int
    """The event before which the failed work begins again."""
    child: int = 0
    """The event that initiated the child that has failed; 0 if a step of another kind has failed."""


def _failures(events: Sequence[ev.AnyEvent], tracer: _RetryTracer) -> Iterator[_Uncaught]:
    """The failures of steps that nothing has handled, including those in blocks that a neighbor's failure has cancelled."""
    trace = tracer.trace
    failed = [Path.parse(path) for path, each in trace.items() if each.status is Status.FAILED]
    failed = [path for path in failed if not path.is_compensation]
    failed = [path for path in failed if all(_uncaught(trace, above) for above in path.enclosing())]
    outer = {above for path in failed for above in path.enclosing()}
    ends = dict(_ends(events))
    for path in {path.text for path in failed} - outer:
        yield ends.get(path, _Uncaught(tracer.starts[path] + 1))


def _uncaught(trace: dict[str, TracedStep], path: str) -> bool:
    return path not in trace or trace[path].status in {Status.FAILED, Status.CANCELLED}


def _ends(events: Sequence[ev.AnyEvent]) -> Iterator[tuple[str, _Uncaught]]:
    """The ends of work that can begin again right before: activities, children, and blocks with a `stepsTimeout`; by path."""
    for event in events:
        match event:
            case ev.ActivityTaskFailed() | ev.ActivityTaskTimedOut() | ev.ActivityTaskCanceled():
                yield event.activity_id, _Uncaught(event.event_id)
            case ev.StartChildWorkflowExecutionFailed() | ev.ChildNotCompleted():
                yield event.child_id, _Uncaught(event.event_id, event.initiated_event_id)
            case ev.TimerFired() if Path.parse(event.timer_id).is_steps_timeout:
                yield Path.parse(event.timer_id).timed_frame.text, _Uncaught(event.event_id)
            case _:
                pass


def _kept_results(
    events: Sequence[ev.AnyEvent], point: int, repeated: set[str], order: "_Order"
) -> Iterator[tuple[int, int]]:
    """The activities and children that completed after a point and are not repeated: the event, and its size in bytes."""
    inputs: dict[int, Any] = {}
    for event in events:
        match event:
            case ev.ActivityTaskScheduled():
                inputs[event.event_id] = event.input
            case ev.StartChildWorkflowExecutionInitiated() if event.event_id > point:
                inputs[event.event_id] = event.start.input
            case ev.ActivityTaskCompleted() if event.event_id > point:
                if _is_kept(event.activity_id, repeated, order):
                    yield event.event_id, _size(inputs.get(event.scheduled_event_id), event.result, event.artifacts)
            case ev.ChildWorkflowExecutionCompleted() if event.initiated_event_id > point:
                if _is_kept(event.child_id, repeated, order):
                    yield event.event_id, _size(inputs.get(event.initiated_event_id), event.result)
            case _:
                pass


def _size(*values: Any) -> int:
    """The size of the events of an activity or child with these values, in bytes."""
    return len(msgspec.json.encode(values)) + _EVENTS


def _is_kept(path: str, repeated: set[str], order: "_Order") -> bool:
    return ":" not in path and not any(order.repeats(path, each) for each in repeated)


class _Order:
    """The order of the steps."""

    def __init__(self, program: Program, trace: dict[str, TracedStep]) -> None:
        self._program = program
        self._trace = trace

    def repeats(self, path: str, repeated: str) -> bool:
        """Whether a step is part of a repeated step, or comes after one."""
        mine, other = Path.parse(path).lineage, Path.parse(repeated).lineage
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
