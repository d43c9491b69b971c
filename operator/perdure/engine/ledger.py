"""The ledger collects the output of a step: events, the state after them, and the attempts that they end."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Protocol

import msgspec

from perdure.engine import events as ev
from perdure.engine.failures import Failure, TimeoutType, bounded
from perdure.engine.fold import apply
from perdure.engine.inputs import Answer
from perdure.engine.retry import is_retryable
from perdure.engine.state import CircuitReport, CircuitResult, PendingActivity, RunState


class AttemptOutcome(StrEnum):
    """The outcome of an attempt."""

    COMPLETED = "Completed"
    CACHED = "Cached"
    """It did not run: an earlier result was used."""
    FAILED = "Failed"
    TIMED_OUT = "TimedOut"
    LOST = "Lost"
    CANCELED = "Canceled"
    STOPPED = "Stopped"
    """Its run has closed."""


@dataclass(frozen=True, slots=True)
class Retired:
    """An attempt whose end this step has recorded. Its pod is no longer needed, and is stopped if it still runs."""

    scheduled_event_id: int
    attempt: int
    outcome: AttemptOutcome
    by_worker: bool = False
    """Whether it belonged to a worker, not to a pod."""
    waited: timedelta | None = None
    """How long it waited after the time when it could start; None if it has not started."""
    ran: timedelta | None = None
    """How long it ran; None if it has not started."""


OK = Answer(ok=True)
"""The answer to a successful request."""
Due = tuple[datetime, int, str, Callable[[], None]]
"""A due action: its deadline, a rank and a key that order equal deadlines, and the function to call."""


class TaskRecorder(Protocol):
    """The interface of the workflow task that the ledger needs."""

    @property
    def identity(self) -> str:
        """The worker that made the decision, while the decision is recorded."""
        ...

    def buffers(self, event: ev.AnyEvent) -> bool:
        """Buffer an event if it must wait until the worker has decided; return whether it was buffered."""
        ...

    def convert_speculative(self) -> None:
        """Write a speculative task, before an event that must follow it."""
        ...

    def close(self) -> None:
        """End the task with the run."""
        ...


class Ledger:
    """Collects the output of the parts of a step."""

    def __init__(self, state: RunState, now: datetime) -> None:
        self.state = state
        self.now = now
        self.events: list[ev.AnyEvent] = []
        self.queue = deque(state.undecided)
        self.retired: list[Retired] = []
        self.durable = False
        """Whether the step must be committed even without events."""
        self.has_new_events = False
        """Whether something has happened that needs a decision."""
        self.tasks: TaskRecorder | None = None
        """The workflow task, if workers decide the run."""

    def open(self) -> bool:
        """Whether the run is open."""
        return not self.state.closed

    def processes_deferrable(self) -> bool:
        """Whether to process deferrable inputs now, which leave events but have no waiting client: not while a worker decides."""
        return self.state.code is None or not self.state.code.task_started

    def change(self, **attributes: Any) -> None:
        """Change the state."""
        self.state = msgspec.structs.replace(self.state, **attributes)

    def emit(self, event: ev.AnyEvent, *, decide: bool) -> None:
        """Append an event. `decide`: whether the decider must decide about it, because it records no command."""
        failure: Failure | None = getattr(event, "failure", None)
        if failure is not None:
            event = msgspec.structs.replace(event, failure=bounded(failure))
        if self.tasks is not None:
            if self.tasks.buffers(event):
                return
            event = msgspec.structs.replace(event, event_id=self.state.next_event_id)
        self.state = apply(self.state, event)
        self.events.append(event)
        if decide and self.tasks is None:
            self.queue.append(event)
        self.has_new_events |= decide

    def close(self, event: ev.AnyEvent) -> None:
        """Append the closing event, and stop everything that is still open."""
        still_open = sorted(self.state.open_activities(), key=lambda a: a.scheduled_event_id)
        if self.tasks is not None:
            self.tasks.close()
            event = msgspec.structs.replace(event, event_id=self.state.next_event_id)
        for activity in still_open:
            self.retire(activity, AttemptOutcome.STOPPED)
        self.emit(event, decide=False)

    def retire(self, activity: PendingActivity, outcome: AttemptOutcome, failure: Failure | None = None) -> None:
        """Record that an attempt is over: its pod is no longer needed, and its circuit breaker gets a report."""
        if activity.takes_limits:
            return  # it has neither
        started = activity.started_time
        self.retired.append(
            Retired(
                activity.scheduled_event_id,
                activity.attempt,
                outcome,
                by_worker=activity.by_worker,
                waited=None if started is None else started - activity.scheduled_time,
                ran=None if started is None else self.now - started,
            )
        )
        policy = activity.retry_policy
        if not policy.circuit_breaker:
            return
        result = CircuitResult.RELEASED
        if outcome is AttemptOutcome.COMPLETED:
            result = CircuitResult.SUCCEEDED
        elif failure is not None and outcome is not AttemptOutcome.LOST and _counts(activity, failure):
            result = CircuitResult.FAILED
        report = CircuitReport(policy=policy.name, result=result, time=self.now)
        key = f"{activity.scheduled_event_id}/{activity.attempt}"
        self.change(reports={**self.state.reports, key: report})

    @property
    def position(self) -> dict[str, Any]:
        """ID and time of the next event."""
        return {"event_id": self.state.next_event_id, "event_time": self.now}


def _counts(activity: PendingActivity, failure: Failure) -> bool:
    """Whether a circuit breaker counts a failure: a retryable one, or the timeout of an attempt that ran."""
    if failure.timeout_type is TimeoutType.SCHEDULE_TO_CLOSE and activity.started_time is not None:
        return failure.type_names().isdisjoint(activity.retry_policy.non_retryable_error_types)
    return is_retryable(failure, activity.retry_policy)
