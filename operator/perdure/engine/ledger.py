"""What a step writes: events, the state after them, and the attempts that they end."""

from collections import deque
from collections.abc import Callable
from datetime import datetime
from typing import Any, Protocol

import msgspec

from perdure.engine import events as ev
from perdure.engine.failures import Failure, TimeoutType, bounded
from perdure.engine.inputs import Answer
from perdure.engine.retired import AttemptOutcome, Retired
from perdure.engine.retry import is_retryable
from perdure.engine.state import CircuitReport, CircuitResult, PendingActivity, RunState, apply

OK = Answer(ok=True)
"""It was done."""
Due = tuple[datetime, int, str, Callable[[], None]]
"""What is due: a deadline, a rank and a key, which order equal deadlines, and what to do."""


class TaskRecorder(Protocol):
    """What the ledger needs of the workflow task of an SDK workflow."""

    @property
    def identity(self) -> str:
        """While a decision is recorded: the worker that made it."""
        ...

    def buffers(self, event: ev.AnyEvent) -> bool:
        """Whether an event waits until the worker has decided; if so, it is in the buffer now."""
        ...

    def convert_speculative(self) -> None:
        """Write a speculative task, before an event that must follow it."""
        ...

    def close(self) -> None:
        """End the task with the run."""
        ...


class Ledger:
    """Collects what the parts of a step write."""

    def __init__(self, state: RunState, now: datetime) -> None:
        self.state = state
        self.now = now
        self.events: list[ev.AnyEvent] = []
        self.queue = deque(state.undecided)
        self.retired: list[Retired] = []
        self.durable = False
        """Whether the step must be committed even without events."""
        self.news = False
        """Whether something has happened that has to be decided about."""
        self.tasks: TaskRecorder | None = None
        """The workflow task, of code that workers run."""

    def open(self) -> bool:
        """Whether the run is open."""
        return not self.state.closed

    def takes_others(self) -> bool:
        """Whether inputs that leave events and that nobody waits for are processed now: not while a worker decides."""
        return self.state.code is None or not self.state.code.deciding

    def change(self, **attributes: Any) -> None:
        """Change the state."""
        self.state = msgspec.structs.replace(self.state, **attributes)

    def emit(self, event: ev.AnyEvent, *, decide: bool) -> None:
        """Append an event. `decide`: whether the decider must be asked about it, because it records no command."""
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
        self.news |= decide

    def close(self, event: ev.AnyEvent) -> None:
        """Append the closing event; whatever is still open is stopped."""
        if self.tasks is not None:
            self.tasks.close()
            event = msgspec.structs.replace(event, event_id=self.state.next_event_id)
        still_open = sorted(self.state.activities.values(), key=lambda a: a.scheduled_event_id)
        for activity in still_open:
            self.retire(activity, AttemptOutcome.STOPPED)
        self.emit(event, decide=False)

    def retire(self, activity: PendingActivity, outcome: AttemptOutcome, failure: Failure | None = None) -> None:
        """Record that an attempt is over: its pod is no longer needed, and its circuit breaker gets a report."""
        self.retired.append(Retired(activity.scheduled_event_id, activity.attempt, outcome))
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
    def here(self) -> dict[str, Any]:
        """Id and time of the next event."""
        return {"event_id": self.state.next_event_id, "event_time": self.now}


def _counts(activity: PendingActivity, failure: Failure) -> bool:
    """Whether a circuit breaker counts a failure: one that might be retried, or that an attempt which ran took too long."""
    if failure.timeout_type is TimeoutType.SCHEDULE_TO_CLOSE and activity.started_time is not None:
        return failure.type_names().isdisjoint(activity.retry_policy.non_retryable_error_types)
    return is_retryable(failure, activity.retry_policy)
