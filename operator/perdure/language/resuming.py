"""Finds the start of a reset to the last workflow task: before the decision that ended a run and before the failed work."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from perdure.engine import events as ev
from perdure.engine import history
from perdure.engine.decider import Decision
from perdure.engine.failures import Failure, FailureKind
from perdure.language.interpreter import Interpreter, RunScope
from perdure.language.memory import Outcome, Status, load_memory
from perdure.language.program import Program
from perdure.language.step_failures import child_failure
from perdure.language.step_paths import Path


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
    begun = _begun(events[:point], failure) if failure is not None else None
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


def newest_before(points: Sequence[int], event_id: int) -> int:
    """The newest point before an event; the first one if there is none."""
    return max((point for point in points if point < event_id), default=points[0])


def _begun(events: Sequence[ev.AnyEvent], failure: Failure) -> int | None:
    """Return the event before which a reset must start to repeat the failed work; None if no work has failed."""
    for node in failure.chain():
        for event in reversed(events):
            begun = _begun_by(event, node)
            if begun is not None:
                return begun
    return None


def _begun_by(event: ev.AnyEvent, node: Failure) -> int | None:
    """Return that event for one node of the failure.

    An open activity starts again after a reset. Children, timers, and signals to other runs do not: their outcome is
    applied again.
    """
    match event:
        case ev.ActivityTaskFailed() | ev.ActivityTaskTimedOut() | ev.ActivityTaskCanceled():
            if node.kind is FailureKind.ACTIVITY and node.activity_id == event.activity_id:
                return event.event_id
        case (
            ev.StartChildWorkflowExecutionFailed()
            | ev.ChildWorkflowExecutionFailed()
            | ev.ChildWorkflowExecutionCanceled()
            | ev.ChildWorkflowExecutionTimedOut()
            | ev.ChildWorkflowExecutionTerminated()
        ):
            if node.kind is FailureKind.CHILD_WORKFLOW and node.message == child_failure(event).message:
                return event.initiated_event_id
        case ev.TimerFired():
            path = Path.parse(event.timer_id).owner
            if node.kind is FailureKind.TIMEOUT and node.message.startswith(f"step `{path}`"):
                return event.started_event_id
        case ev.SignalExternalWorkflowExecutionFailed():
            if node == event.failure:
                return event.initiated_event_id
        case _:
            pass
    return None
