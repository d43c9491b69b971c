"""A run decided by workers and driven manually, for tests of workflow tasks."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from perdure.engine import commands as cmd
from perdure.engine import events as ev
from perdure.engine import history
from perdure.engine import inputs as inp
from perdure.engine.commands import Decision
from perdure.engine.failures import Failure, FailureKind
from perdure.engine.fold import apply, as_recorded
from perdure.engine.inputs import ActivityDispatched, Answer, TaskDispatched, TaskToken
from perdure.engine.state import Code, RunState, WorkflowTask
from perdure.engine.step import RunTransition, next_wake, start, step
from perdure.engine.tasks import reclaim

T0 = datetime(2026, 1, 1, tzinfo=UTC)
STICKY = "sticky-of-worker"


class NoDecider:
    """A decider that is never called."""

    def decide(self, memory: Any, event: Any, *, continue_as_new_suggested: bool = False) -> Decision:  # noqa: ARG002
        raise AssertionError("a run that workers decide asks nobody in this process")


@dataclass
class Coded:
    """The run. Times are seconds since its start."""

    state: RunState
    events: list[ev.AnyEvent]
    now: datetime = T0
    epoch: str = "one"
    requests: int = 0
    writes: int = 1
    last: RunTransition | None = field(default=None)

    @classmethod
    def begin(cls, **attributes: Any) -> "Coded":
        first = ev.WorkflowExecutionStarted(
            event_id=1,
            event_time=T0,
            workflow_type="Order",
            workflow_id="order-1",
            task_queue="orders",
            original_execution_run_id="run-1",
            first_execution_run_id="run-1",
            successor="next",
            **attributes,
        )
        begun = start(first, NoDecider())
        coded = cls(begun.state, list(begun.events))
        coded.check()
        return coded

    # Time and inputs

    def at(self, seconds: float, *inputs: inp.RunInput) -> RunTransition:
        self.now = max(self.now, T0 + timedelta(seconds=seconds))
        done = step(self.state, inputs, self.now, NoDecider())
        self.state = done.state
        self.events += done.events
        self.writes += done.durable
        self.last = done
        self.check()
        return done

    def ask(self, make: Any, seconds: float | None = None, **said: Any) -> Answer:
        self.requests += 1
        request = make(request_id=f"r{self.requests}", **said)
        done = self.at(0 if seconds is None else seconds, request)
        return done.answers[request.request_id]

    def restart(self, epoch: str) -> None:
        """Restart the operator: only written state is left."""
        self.epoch = epoch
        stored = history.decode_state(history.encode(self.state))
        self.state = reclaim(stored, epoch)
        self.at(0)

    # Tasks

    def take(self, seconds: float | None = None, identity: str = "worker") -> TaskToken:
        taken = self.ask(TaskDispatched, seconds, epoch=self.epoch, identity=identity)
        assert taken.ok, taken
        return self.token

    @property
    def code(self) -> Code:
        assert self.state.code is not None
        return self.state.code

    @property
    def task(self) -> WorkflowTask:
        assert self.code.task is not None
        return self.code.task

    @property
    def token(self) -> TaskToken:
        task = self.task
        return TaskToken(
            scheduled_event_id=task.number,
            started_event_id=task.started_event_id,
            attempt=task.attempt,
            epoch=task.epoch,
        )

    def complete(
        self, *commands: cmd.Command, token: TaskToken | None = None, seconds: float | None = None, **said: Any
    ) -> Answer:
        return self.ask(inp.TaskCompleted, seconds, token=token or self.token, commands=commands, **said)

    def decide(self, *commands: cmd.Command, seconds: float | None = None, **said: Any) -> Answer:
        """Take the task and complete it immediately."""
        self.take(seconds)
        return self.complete(*commands, **said)

    def signal(self, name: str = "go", seconds: float | None = None) -> Answer:
        return self.ask(inp.SignalRequested, seconds, signal_name=name)

    # What has happened

    @property
    def names(self) -> list[str]:
        return [type(event).__name__ for event in self.events]

    def since(self, name: str) -> list[str]:
        """The names of the events after the last event with a name."""
        last = len(self.names) - 1 - self.names[::-1].index(name)
        return self.names[last + 1 :]

    def check(self) -> None:
        """Check the invariants after every step: no gaps, the history folds to the state, and both survive the API server."""
        assert [event.event_id for event in self.events] == list(range(1, len(self.events) + 1))
        folded: RunState | None = None
        for event in history.decode_events(history.encode(self.events)):
            folded = apply(folded, event)
        assert folded is not None
        assert as_recorded(folded) == as_recorded(msgspec.structs.replace(self.state, memory=None))
        assert history.decode_state(history.encode(self.state)) == self.state
        wake = next_wake(self.state, self.now)
        assert wake is None or wake > self.now
        for event in self.events:
            if isinstance(event, ev.WorkflowTaskStarted):
                assert isinstance(self.events[event.scheduled_event_id - 1], ev.WorkflowTaskScheduled)
            if isinstance(event, ev.WorkflowTaskCompleted):
                assert isinstance(self.events[event.event_id - 2], ev.WorkflowTaskStarted)


def activity(name: str = "a", **said: Any) -> cmd.ScheduleActivityTask:
    said.setdefault("start_to_close_timeout", timedelta(seconds=60))
    return cmd.ScheduleActivityTask(activity_id=name, activity_type="work", task_queue="orders", **said)


def timer(name: str, seconds: float) -> cmd.StartTimer:
    return cmd.StartTimer(timer_id=name, start_to_fire_timeout=timedelta(seconds=seconds))


COMPLETE = cmd.CompleteWorkflowExecution(result="done")
WRONG = Failure(kind=FailureKind.APPLICATION, type="Wrong", message="no")


def taken(run: Coded, name: str = "a", fence: str = "f") -> dict[str, Any]:
    """A worker takes an attempt."""
    open_ = next(each for each in run.state.activities.values() if each.activity_id == name)
    named = {"scheduled_event_id": open_.scheduled_event_id, "attempt": open_.attempt, "fence": fence}
    assert run.ask(ActivityDispatched, **named).ok
    return named
