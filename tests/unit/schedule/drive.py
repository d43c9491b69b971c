"""A schedule in a simulated world: it is woken when due, its runs close on request, and it can be killed.

What is committed here is JSON, as it is in a cluster: nothing but that survives a crash.
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import msgspec

from perdure.api.kinds.schedule import ScheduleSpec
from perdure.engine.failures import Failure, FailureKind
from perdure.engine.inputs import Answer
from perdure.engine.retry import RetryPolicy
from perdure.schedule import inputs as inp
from perdure.schedule.inputs import Rules, RunOutcome
from perdure.schedule.state import ScheduledRun, ScheduleState, load_state
from perdure.schedule.step import ScheduleTransition, next_wake, step
from perdure.schedule.times import Times, times_hash
from unit.schedule.oracle import utc

T0 = utc(2026, 1, 1)
S = timedelta(seconds=1)
M = timedelta(minutes=1)


def rules(policy: RetryPolicy | None = None, **spec: Any) -> Rules:
    fields = {"cron": ["* * * * *"], "workflowRunTemplate": {"spec": {"workflow": {"name": "none"}}}, **spec}
    parsed = ScheduleSpec.parse(fields)
    return Rules(
        name="nightly",
        seed="default/nightly",
        spec=parsed,
        times_hash=times_hash(parsed),
        times=Times(parsed),
        retry_policy=policy,
        created=T0,
    )


@dataclass
class Drive:
    """One schedule."""

    rules: Rules
    now: datetime = T0
    status: dict[str, Any] = field(default_factory=dict)
    made: list[ScheduledRun] = field(default_factory=list)
    """Every run that was ever made. History limits remove what has closed at once: its name is free again."""
    handed: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    """The last completion result and the last failure that a run was given."""
    open: set[str] = field(default_factory=set)
    asked: list[tuple[str, str]] = field(default_factory=list)
    reported: list[str] = field(default_factory=list)
    commits: int = 0

    @property
    def state(self) -> ScheduleState:
        state = load_state(self.status)
        assert state is not None
        return state

    def edit(self, policy: RetryPolicy | None = None, **spec: Any) -> None:
        self.rules = rules(policy, **spec)

    def decide(self, *happened: inp.ScheduleInput) -> ScheduleTransition:
        return step(self.rules, load_state(self.status), happened, self.now)

    def commit(self, transition: ScheduleTransition) -> None:
        state = transition.state
        self.status = msgspec.json.decode(
            msgspec.json.encode(
                {"state": state.stored(), "lastCompletionResult": state.result, "lastFailure": state.failure}
            )
        )
        self.commits += 1
        self.reported += [note.reason.value for note in transition.notes]

    def do(self, count: int | None = None) -> None:
        """Execute the committed work; a crash limits the number of created runs."""
        for run in self.state.running:
            if run.name not in self.open:
                if count == 0:
                    return
                count = None if count is None else count - 1
                self.made.append(run)
                self.handed[run.name] = (self.state.result, self.state.failure)
                self.open.add(run.name)
            if run.name in self.open and run.terminate:
                self.asked.append(("terminate", run.name))
            elif run.name in self.open and run.cancel:
                self.asked.append(("cancel", run.name))

    def advance(self, *happened: inp.ScheduleInput) -> dict[str, Answer]:
        """One reconciliation, and further ones if requested."""
        answers: dict[str, Answer] = {}
        while True:
            transition = self.decide(*happened)
            answers |= transition.answers
            if transition.durable:
                self.commit(transition)
            self.do()
            if not transition.more:
                return answers
            happened = ()

    def until(self, end: datetime) -> None:
        """Advance time, waking the schedule when it is due."""
        self.advance()
        while (wake := next_wake(self.rules, self.state, self.now)) is not None and wake <= end:
            self.now = max(self.now, wake)
            self.advance()
        self.now = end
        self.advance()

    def close(
        self,
        name: str,
        outcome: RunOutcome = RunOutcome.COMPLETED,
        *,
        result: Any = None,
        message: str = "boom",
        at: datetime | None = None,
    ) -> dict[str, Answer]:
        self.open.discard(name)
        failed = outcome in {RunOutcome.FAILED, RunOutcome.TIMED_OUT}
        failure = Failure(kind=FailureKind.APPLICATION, type="Bug", message=message) if failed else None
        return self.advance(
            inp.RunClosed(
                name=name,
                outcome=outcome,
                time=at or self.now,
                result=result,
                failure=failure,
                status_failure={"kind": "Application", "message": message} if failed else None,
            )
        )

    def close_all(self) -> None:
        """Complete all open runs."""
        names, self.open = sorted(self.open), set()
        self.advance(*(inp.RunClosed(name=name, outcome=RunOutcome.COMPLETED, time=self.now) for name in names))

    def names(self) -> list[str]:
        return [run.name for run in self.made]

    def minutes(self) -> list[int]:
        """The nominal times of all runs, in minutes since the beginning."""
        return [(run.start.nominal - T0) // M for run in self.made]


NAME = "nightly-20260101t00{:02}00z"


def name(minute: int) -> str:
    return NAME.format(minute)


HOURLY = ["0 * * * *"]
H = timedelta(hours=1)
