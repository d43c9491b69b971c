"""Plays a program with its interpreter alone: a test sends events, and checks the commands.

Between any two decisions the memory goes through JSON with its keys sorted, as it comes back from the API server after a restart.
"""

import json
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import msgspec
import yaml

from perdure.api.kinds.workflow import WorkflowSpec
from perdure.engine import commands as cmd
from perdure.engine import events as ev
from perdure.engine.failures import Failure, FailureKind, RetryState
from perdure.engine.starts import CarriedSignal
from perdure.language.compiler import compile_program
from perdure.language.interpreter import Interpreter, RunScope
from perdure.language.memory import Memory, load_memory
from perdure.language.program import with_defaults

T0 = datetime(2026, 1, 1, tzinfo=UTC)
SCOPE = RunScope(name="order-1", namespace="shop", workflow_id="order", run_id="uid-1", attempt=1)
ACTIVITIES = [{"name": name, "container": {"image": "i"}, "startToCloseTimeout": "60s"} for name in ("work", "undo")]
Command = TypeVar("Command")


class Play:
    """A run of a program that is given in YAML, begun."""

    def __init__(
        self, text: str, input_: Any = None, *, begin: bool = True, steps_timeout: float | None = None
    ) -> None:
        spec = {"activities": ACTIVITIES, **yaml.safe_load(text)}
        self.program = compile_program(WorkflowSpec.parse(spec))
        self.interpreter = Interpreter(self.program, SCOPE, input=with_defaults(self.program, input_), start_time=T0)
        self.now = T0
        self.next_id = 1
        self.stored_memory: Any = None
        """As a run stores it."""
        self.commands: list[cmd.Command] = []
        self.splits = 0
        if begin:
            self.happens(
                ev.WorkflowExecutionStarted,
                workflow_type="t",
                workflow_id="order",
                original_execution_run_id="uid-1",
                first_execution_run_id="uid-1",
                steps_timeout=None if steps_timeout is None else timedelta(seconds=steps_timeout),
            )

    @property
    def memory(self) -> Memory:
        return load_memory(self.stored_memory)

    def happens(self, kind: type[ev.Event], **fields: Any) -> list[cmd.Command]:
        """Send an event, and return the resulting commands of the program."""
        event = kind(event_id=self.next_id, event_time=self.now, **fields)
        self.next_id += 1
        asked: list[cmd.Command] = []
        following: Any = event
        while True:
            decision = self.interpreter.decide(self.stored_memory, following)
            asked += decision.commands
            self.stored_memory = json.loads(
                json.dumps(json.loads(msgspec.json.encode(decision.memory)), sort_keys=True)
            )
            if not decision.more:
                break
            self.splits += 1
            following = None
        self.commands += asked
        return asked

    def later(self, seconds: float) -> "Play":
        self.now += timedelta(seconds=seconds)
        return self

    # Events

    def completes(self, path: str, result: Any = None) -> list[cmd.Command]:
        return self.happens(
            ev.ActivityTaskCompleted,
            scheduled_event_id=1,
            started_event_id=2,
            activity_id=path,
            attempt=1,
            result=result,
        )

    def fails(self, path: str, type_: str = "Declined", message: str = "no") -> list[cmd.Command]:
        failure = Failure(kind=FailureKind.APPLICATION, type=type_, message=message)
        return self.happens(
            ev.ActivityTaskFailed,
            scheduled_event_id=7,
            started_event_id=2,
            activity_id=path,
            attempt=1,
            failure=failure,
            retry_state=RetryState.NON_RETRYABLE_FAILURE,
        )

    def is_cancelled(self, path: str) -> list[cmd.Command]:
        return self.happens(
            ev.ActivityTaskCanceled, scheduled_event_id=1, started_event_id=2, activity_id=path, attempt=1
        )

    def fires(self, timer_id: str) -> list[cmd.Command]:
        return self.happens(ev.TimerFired, timer_id=timer_id, started_event_id=1)

    def signal(self, name: str, value: Any = None) -> list[cmd.Command]:
        return self.happens(ev.WorkflowExecutionSignaled, signal_name=name, input=value)

    def cancel(self) -> list[cmd.Command]:
        return self.happens(ev.WorkflowExecutionCancelRequested)

    def child(self, path: str, kind: type[ev.Event], **fields: Any) -> list[cmd.Command]:
        common = {"initiated_event_id": 1, "child_id": path, "workflow_id": "w", **fields}
        if kind is not ev.StartChildWorkflowExecutionFailed:
            common = {"started_event_id": 2, "run_id": "r", **common}
        return self.happens(kind, **common)

    # Commands

    def all(self, kind: type[Command]) -> list[Command]:
        return [command for command in self.commands if isinstance(command, kind)]

    @property
    def scheduled(self) -> dict[str, Any]:
        """Activities by path, with their inputs."""
        return {c.activity_id: c.input for c in self.all(cmd.ScheduleActivityTask)}

    @property
    def timers(self) -> dict[str, float]:
        """Timers by id, in seconds."""
        return {c.timer_id: c.start_to_fire_timeout.total_seconds() for c in self.all(cmd.StartTimer)}

    @property
    def cancelled(self) -> list[str]:
        """Timers and activities that were cancelled."""
        return [
            c.timer_id if isinstance(c, cmd.CancelTimer) else c.activity_id
            for c in self.commands
            if isinstance(c, cmd.CancelTimer | cmd.RequestCancelActivityTask)
        ]

    @property
    def last(self) -> cmd.Command:
        return self.commands[-1]

    @property
    def closed(self) -> bool:
        return isinstance(
            self.last,
            cmd.CompleteWorkflowExecution
            | cmd.FailWorkflowExecution
            | cmd.CancelWorkflowExecution
            | cmd.ContinueAsNewWorkflowExecution,
        )

    @property
    def result(self) -> Any:
        assert isinstance(self.last, cmd.CompleteWorkflowExecution), self.last
        return self.last.result

    @property
    def failure(self) -> Failure:
        assert isinstance(self.last, cmd.FailWorkflowExecution), self.last
        return self.last.failure

    @property
    def carried(self) -> tuple[CarriedSignal, ...]:
        assert isinstance(self.last, cmd.ContinueAsNewWorkflowExecution)
        return self.last.signals


def do(name: str, value: str = "null", **modifiers: str) -> str:
    more = "".join(f", {key}: {quoted(text)}" for key, text in modifiers.items())
    return f"{{name: {name}, activity: {{name: work, input: {quoted(value)}}}{more}}}"


def quoted(text: str) -> str:
    return f"'{text}'" if text.startswith("$") else text


# Blocks

ECHO = "blocks: [{name: echo, steps: [" + do("inner", "${params}") + "], output: '${steps.inner.output}'}]"
SEES = """
blocks:
- name: see
  steps:
  - name: note
    activity:
      name: work
      input:
        status: "${run.status}"
        type: "${run.failure == null ? 'none' : run.failure.type}"
        suppressed: "${run.status == 'Failed' ? run.failure.failure.?suppressed.orValue([]).size() : 0}"
finally: {block: see}
"""
