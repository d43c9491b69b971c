"""Deciders for tests, and a run that a test drives manually."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

import msgspec

from perdure.api.policies import ParentClosePolicy
from perdure.engine import commands as cmd
from perdure.engine import events as ev
from perdure.engine import history
from perdure.engine.commands import Decision, UndecidableError
from perdure.engine.failures import Failure, FailureKind
from perdure.engine.fold import as_recorded
from perdure.engine.inputs import (
    Answer,
    AttemptCompleted,
    AttemptFailed,
    AttemptLost,
    AttemptStarted,
    RunInput,
    SignalRequested,
)
from perdure.engine.starts import CarriedSignal, WorkflowStart
from perdure.engine.state import PendingActivity, RunState
from perdure.engine.step import RunTransition, start, step

T0 = datetime(2026, 1, 1, tzinfo=UTC)


def seconds(count: float) -> timedelta:
    return timedelta(seconds=count)


def activity(activity_id: str = "work", **options: Any) -> cmd.ScheduleActivityTask:
    options.setdefault("start_to_close_timeout", seconds(60))
    return cmd.ScheduleActivityTask(activity_id=activity_id, activity_type=activity_id, **options)


def timer(timer_id: str, length: float) -> cmd.StartTimer:
    return cmd.StartTimer(timer_id=timer_id, start_to_fire_timeout=seconds(length))


def child(
    child_id: str = "kid", policy: ParentClosePolicy = ParentClosePolicy.TERMINATE
) -> cmd.StartChildWorkflowExecution:
    start = WorkflowStart(workflow_type="other", workflow_id=f"w-{child_id}")
    return cmd.StartChildWorkflowExecution(child_id=child_id, start=start, parent_close_policy=policy)


def application(message: str = "no", **options: Any) -> Failure:
    options.setdefault("type", "Declined")
    return Failure(kind=FailureKind.APPLICATION, message=message, **options)


Batch: TypeAlias = tuple[cmd.Command, ...]

CLOSING = (
    cmd.CancelWorkflowExecution,
    cmd.CompleteWorkflowExecution,
    cmd.ContinueAsNewWorkflowExecution,
    cmd.FailWorkflowExecution,
)


class Script:
    """Decides by a list of commands. `broken` makes it unable to decide."""

    def __init__(self, *commands: cmd.Command) -> None:
        self.commands = commands
        self.broken = False

    def decide(
        self,
        memory: Any,
        event: ev.AnyEvent | None,
        *,
        continue_as_new_suggested: bool = False,  # noqa: ARG002 (the protocol)
    ) -> Decision:
        if self.broken:
            raise UndecidableError("the script is broken")
        position = memory["vars"]["position"] if memory else 0
        if isinstance(event, ev.ActivityTaskFailed | ev.ActivityTaskTimedOut):
            return Decision((cmd.FailWorkflowExecution(failure=event.failure),), memory)
        if position < len(self.commands):
            return Decision(
                (self.commands[position],), {"vars": {"position": position + 1}}
            )  # as the interpreter's memory
        return Decision((cmd.CompleteWorkflowExecution(result=position),), memory)


class Reacting:
    """Decides by what happens: for each event of a type, one after the other, the commands given for it; then nothing.

    A list of batches in the place of one batch is a decision with breaks in it.
    """

    def __init__(self, first: Batch = (), /, **reactions: Sequence[Batch | list[Batch]]) -> None:
        self.reactions = {"WorkflowExecutionStarted": [first], **reactions}
        self.heard: list[tuple[str, bool]] = []
        """Every event it was asked about (empty: to go on), and whether it should continue as new."""
        self.broken = False
        self.work = 0

    @property
    def asked(self) -> list[str]:
        return [name for name, _ in self.heard]

    def decide(self, memory: Any, event: ev.AnyEvent | None, *, continue_as_new_suggested: bool = False) -> Decision:
        if self.broken:
            raise UndecidableError("the script is broken")
        known = memory["vars"] if memory else {"counts": {}, "rest": None}  # as the interpreter's memory
        counts, rest = known["counts"], known["rest"]
        if event is None:
            self.heard.append(("", False))
            name, number, part = rest
        else:
            assert rest is None, "it should have been asked to go on"
            name = type(event).__name__
            self.heard.append((name, continue_as_new_suggested))
            number, part = counts.get(name, 0), 0
            counts = {**counts, name: number + 1}
        batches = self.reactions.get(name, ())
        batch: Any = batches[number] if number < len(batches) else ()
        parts = batch if isinstance(batch, list) else [batch]
        more = part + 1 < len(parts)
        return Decision(
            parts[part],
            {"vars": {"counts": counts, "rest": [name, number, part + 1] if more else None}},
            work=self.work,
            more=more,
        )


def first_event(**started: Any) -> ev.WorkflowExecutionStarted:
    return ev.WorkflowExecutionStarted(
        event_id=1,
        event_time=T0,
        workflow_type="t",
        workflow_id="w",
        original_execution_run_id="r",
        first_execution_run_id="r",
        **started,
    )


@dataclass
class Drive:
    """A run that a test drives: keeps state, history and time."""

    script: Any
    now: datetime = T0
    history: list[ev.AnyEvent] = field(default_factory=list)
    retired: list[tuple[int, int]] = field(default_factory=list)
    last: RunTransition | None = None

    @classmethod
    def of(cls, *commands: cmd.Command, **started: Any) -> "Drive":
        return cls.by(Script(*commands), **started)

    @classmethod
    def by(
        cls,
        decider: Any,
        /,
        *,
        signals: Sequence[CarriedSignal] = (),
        applied: Sequence[str] = (),
        paused: bool = False,
        **started: Any,
    ) -> "Drive":
        drive = cls(decider)
        drive.take(start(first_event(**started), decider, signals, applied=applied, paused=paused))
        return drive

    def take(self, transition: RunTransition) -> RunTransition:
        self.last = transition
        self.history += transition.events
        self.retired += [(r.scheduled_event_id, r.attempt) for r in transition.retired]
        return transition

    @property
    def state(self) -> RunState:
        assert self.last is not None
        return self.last.state

    def assume(self, **fields: Any) -> None:
        """Change fields of the state, as if more had happened than the history has: a limit is near."""
        assert self.last is not None
        self.last = replace(self.last, state=msgspec.structs.replace(self.state, **fields))

    @property
    def result(self) -> Any:
        """The output of the run."""
        return getattr(self.history[-1], "result", None)

    @property
    def failure(self) -> Failure | None:
        """The failure of the run; None if it did not fail."""
        return ev.failure_of(self.history[-1])

    @property
    def open(self) -> PendingActivity:
        (only,) = self.state.activities.values()
        return only

    def at(self, offset: float, *inputs: RunInput) -> RunTransition:
        """Step at `offset` seconds after the start."""
        self.now = T0 + seconds(offset)
        return self.take(step(self.state, inputs, self.now, self.script))

    def ask(self, offset: float, request: Any) -> Answer:
        """Step with one request, and return its answer."""
        return self.at(offset, request).answers[request.request_id]

    def signal(self, offset: float, name: str = "go", **options: Any) -> Answer:
        options.setdefault("request_id", f"{name}@{offset}")
        return self.ask(offset, SignalRequested(signal_name=name, **options))

    def started(self, offset: float) -> RunTransition:
        a = self.open
        return self.at(
            offset,
            AttemptStarted(scheduled_event_id=a.scheduled_event_id, attempt=a.attempt, time=T0 + seconds(offset)),
        )

    def completed(self, offset: float, result: Any = None) -> RunTransition:
        a = self.open
        return self.at(
            offset, AttemptCompleted(scheduled_event_id=a.scheduled_event_id, attempt=a.attempt, result=result)
        )

    def failed(self, offset: float, failure: Failure | None = None) -> RunTransition:
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

    def lost(self, offset: float) -> RunTransition:
        a = self.open
        failure = Failure(kind=FailureKind.SERVER, message="node gone")
        return self.at(offset, AttemptLost(scheduled_event_id=a.scheduled_event_id, attempt=a.attempt, failure=failure))

    def types(self) -> list[str]:
        return [type(event).__name__ for event in self.history]

    def new(self) -> list[str]:
        """Types of the events of the last step."""
        assert self.last is not None
        return [type(event).__name__ for event in self.last.events]

    def check_replay(self) -> None:
        """Check that the history replays to the state with the same decider."""
        self.script.broken = False
        replayed = history.replay(
            self.history, self.script, undecided=len(self.state.undecided), unfinished=self.state.unfinished
        )
        assert as_recorded(replayed) == as_recorded(self.state)


__all__ = [
    "CLOSING",
    "T0",
    "Batch",
    "Drive",
    "Reacting",
    "Script",
    "activity",
    "application",
    "child",
    "first_event",
    "seconds",
    "timer",
]
