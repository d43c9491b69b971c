"""A decider for tests: commands, one after the other, each waiting for the one before. What fails, fails the run."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from perdure.engine import commands as cmd
from perdure.engine import events as ev
from perdure.engine.decider import Decision, UndecidableError
from perdure.engine.failures import Failure, FailureKind
from perdure.engine.inputs import AttemptCompleted, AttemptFailed, AttemptInput, AttemptLost, AttemptStarted
from perdure.engine.state import PendingActivity, State
from perdure.engine.step import Transition, start, step

T0 = datetime(2026, 1, 1, tzinfo=UTC)


def seconds(count: float) -> timedelta:
    return timedelta(seconds=count)


def activity(activity_id: str = "work", **options: Any) -> cmd.ScheduleActivityTask:
    options.setdefault("start_to_close_timeout", seconds(60))
    return cmd.ScheduleActivityTask(activity_id=activity_id, activity_type=activity_id, **options)


def timer(timer_id: str, length: float) -> cmd.StartTimer:
    return cmd.StartTimer(timer_id=timer_id, start_to_fire_timeout=seconds(length))


def application(message: str = "no", **options: Any) -> Failure:
    options.setdefault("type", "Declined")
    return Failure(kind=FailureKind.APPLICATION, message=message, **options)


class Script:
    """Decides by a list of commands. `broken` makes it unable to decide."""

    def __init__(self, *commands: cmd.Command) -> None:
        self.commands = commands
        self.broken = False

    def decide(self, memory: Any, events: Sequence[ev.AnyEvent]) -> Decision:
        if self.broken:
            raise UndecidableError("the script is broken")
        position = memory or 0
        decided: list[cmd.Command] = []
        for event in events:
            if decided and isinstance(decided[-1], cmd.CompleteWorkflowExecution | cmd.FailWorkflowExecution):
                break
            if isinstance(event, ev.ActivityTaskFailed | ev.ActivityTaskTimedOut):
                decided.append(cmd.FailWorkflowExecution(failure=event.failure))
            elif position < len(self.commands):
                decided.append(self.commands[position])
                position += 1
            else:
                decided.append(cmd.CompleteWorkflowExecution(result=position))
        return Decision(tuple(decided), position)


@dataclass
class Drive:
    """A run that a test drives: keeps state, history and time."""

    script: Script
    now: datetime = T0
    history: list[ev.AnyEvent] = field(default_factory=list)
    retired: list[tuple[int, int]] = field(default_factory=list)
    last: Transition | None = None

    @classmethod
    def of(cls, *commands: cmd.Command, **started: Any) -> "Drive":
        drive = cls(Script(*commands))
        first = ev.WorkflowExecutionStarted(
            event_id=1,
            event_time=T0,
            workflow_type="t",
            workflow_id="w",
            original_execution_run_id="r",
            first_execution_run_id="r",
            **started,
        )
        drive.take(start(first, drive.script))
        return drive

    def take(self, transition: Transition) -> Transition:
        self.last = transition
        self.history += transition.events
        self.retired += [(r.scheduled_event_id, r.attempt) for r in transition.retired]
        return transition

    @property
    def state(self) -> State:
        assert self.last is not None
        return self.last.state

    @property
    def result(self) -> Any:
        """What the run completed with."""
        return getattr(self.history[-1], "result", None)

    @property
    def failure(self) -> Failure | None:
        """Why the run failed, None if it did not."""
        return ev.failure_of(self.history[-1])

    @property
    def open(self) -> PendingActivity:
        (only,) = self.state.activities.values()
        return only

    def at(self, offset: float, *inputs: AttemptInput) -> Transition:
        """Step at `offset` seconds after the start."""
        self.now = T0 + seconds(offset)
        return self.take(step(self.state, inputs, self.now, self.script))

    def started(self, offset: float) -> Transition:
        a = self.open
        return self.at(
            offset,
            AttemptStarted(scheduled_event_id=a.scheduled_event_id, attempt=a.attempt, time=T0 + seconds(offset)),
        )

    def completed(self, offset: float, result: Any = None) -> Transition:
        a = self.open
        return self.at(
            offset, AttemptCompleted(scheduled_event_id=a.scheduled_event_id, attempt=a.attempt, result=result)
        )

    def failed(self, offset: float, failure: Failure | None = None) -> Transition:
        a = self.open
        return self.at(
            offset,
            AttemptFailed(
                scheduled_event_id=a.scheduled_event_id,
                attempt=a.attempt,
                failure=failure or application(),
                started_time=self.now,
            ),
        )

    def lost(self, offset: float) -> Transition:
        a = self.open
        failure = Failure(kind=FailureKind.SERVER, message="node gone")
        return self.at(offset, AttemptLost(scheduled_event_id=a.scheduled_event_id, attempt=a.attempt, failure=failure))

    def types(self) -> list[str]:
        return [type(event).__name__ for event in self.history]


__all__ = ["T0", "Drive", "Script", "activity", "application", "seconds", "timer"]
