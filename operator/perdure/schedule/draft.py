"""The draft that one step writes: the next state, recent actions, Events, and answers to requests."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from perdure.api.reasons import EventReason
from perdure.engine.inputs import Answer
from perdure.schedule.inputs import Rules
from perdure.schedule.state import AnsweredRequest, Recent, ScheduledRun, ScheduleState

MAX_ANSWERS = 100
"""How many answers the state keeps, for requests that arrive again."""
MAX_RECENT = 10
"""The number of recent actions in the status."""


@dataclass(frozen=True, slots=True)
class Note:
    """An Event to emit once the state is committed."""

    reason: EventReason
    text: str
    warning: bool = False


class ScheduleDraft:
    """The state of a schedule during a step."""

    def __init__(self, rules: Rules, state: ScheduleState | None, now: datetime) -> None:
        """Start from the committed state, or from the state of a new schedule."""
        created = min(rules.created, now)
        self.rules = rules
        self.now = now
        self.state = state or ScheduleState(
            cursor=created,
            handled_after=created,
            times=rules.times_hash,
            configured_remaining=rules.spec.remaining_actions,
            remaining=rules.spec.remaining_actions,
        )
        self.notes: list[Note] = []
        self.answers: dict[str, Answer] = {}
        self.triggered: dict[str, str | None] = {}
        """The run that each trigger started, by request ID: empty while it waits, None if it was skipped."""
        self.more = False
        """Whether another step must follow immediately because work is left."""

    @property
    def blocked(self) -> bool:
        """Whether no scheduled run starts: the schedule is paused, out of actions, or its times are invalid."""
        rules, state = self.rules, self.state
        return rules.times is None or rules.spec.paused or state.paused is not None or state.remaining == 0

    def change(self, **changes: Any) -> None:
        """Set fields of the state."""
        self.state = replace(self.state, **changes)

    def change_run(self, name: str, change: Callable[[ScheduledRun], ScheduledRun]) -> None:
        """Change an open run. Do nothing if the schedule does not know it."""
        self.change(running=tuple(change(run) if run.name == name else run for run in self.state.running))

    def record_action(self, run: ScheduledRun) -> None:
        """Add a run to the recent actions. A retry replaces the run that failed."""
        nominal = None if run.start.triggered else run.start.nominal
        entry = Recent(name=run.name, started=run.started, nominal=nominal)
        before = run.start.run_name(self.rules.name, run.attempt - 1, run.instead) if run.attempt > 1 else ""
        recent = [entry if each.name == before else each for each in self.state.recent]
        if entry not in recent:
            recent.append(entry)
        self.change(recent=tuple(recent[-MAX_RECENT:]))

    def change_action(self, run_name: str, **changes: Any) -> None:
        """Set fields of the recent action of a run, if it is still shown."""
        self.change(recent=tuple(replace(e, **changes) if e.name == run_name else e for e in self.state.recent))

    def count(self, name: str, by: int = 1) -> None:
        """Increase one of the counters in the status."""
        counts = self.state.counts
        self.change(counts=replace(counts, **{name: getattr(counts, name) + by}))

    def note(self, reason: EventReason, text: str, *, warning: bool = False) -> None:
        """Emit an Event once the state is committed."""
        self.notes.append(Note(reason, text, warning))

    def answer(self, request_id: str, answer: Answer) -> None:
        """Answer a request, and keep the answer in case the request arrives again."""
        self.answers[request_id] = answer
        kept = AnsweredRequest(
            request=request_id, ok=answer.ok, reason=answer.reason, message=answer.message, result=answer.result
        )
        self.change(answered=(*self.state.answered, kept)[-MAX_ANSWERS:])


def time_text(time: datetime) -> str:
    """Format a time for a message: RFC 3339, in seconds."""
    return time.isoformat(timespec="seconds").replace("+00:00", "Z")
