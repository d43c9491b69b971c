"""The interpreter of YAML workflows: a decider.

It takes events one by one and keeps its place in a `Memory` that is stored with the run, so that going on after a restart
needs no history. It is deterministic: expressions see only the input, what earlier steps left, and the time of the event being
decided.
"""

import json
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

import msgspec

from perdure.api.durations import DURATION_MESSAGE, LONGEST, parse_duration
from perdure.api.fields import TIME_MESSAGE, parse_time
from perdure.engine import commands as cmd
from perdure.engine import events as ev
from perdure.engine.decider import Decision, UndecidableError
from perdure.engine.failures import Failure, FailureKind
from perdure.language.expressions import ExpressionError, Template
from perdure.language.program import CompiledStep, Program, retry_policy

EXPRESSION_ERROR = "ExpressionError"
"""Failure type of a step whose expression could not be evaluated. It is final: the definition of a run does not change."""

_COMPUTED_DURATION = re.compile("(-?)([0-9]{1,12})(?:[.]([0-9]{1,6}))?s")
"""How an expression writes a duration that it has computed: in seconds alone, also where they are days."""
_SHOWN = 120


class StepStatus(StrEnum):
    """How a step stands. A step that has not begun has no entry in the memory."""

    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


class StepMemory(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """What is remembered of a step."""

    status: StepStatus
    start_time: datetime
    end_time: datetime | None = None
    output: Any = None
    """Kept only where an expression may still ask for it."""


class Memory(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """Where a run stands in its program."""

    position: int = 0
    """Index of the step that runs or comes next."""
    steps: dict[str, StepMemory] = {}
    vars: dict[str, Any] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunScope:
    """What expressions know as `run`."""

    name: str
    namespace: str
    workflow_id: str
    run_id: str
    attempt: int

    def as_json(self, start_time: datetime) -> dict[str, Any]:
        """The value of `run` in expressions."""
        return {
            "name": self.name,
            "namespace": self.namespace,
            "workflowId": self.workflow_id,
            "runId": self.run_id,
            "attempt": self.attempt,
            "startTime": start_time,
        }


class Interpreter:
    """Decides for one run of a program."""

    def __init__(self, program: Program, run: RunScope, *, input: Any, start_time: datetime) -> None:  # noqa: A002
        self.program = program
        self._run = run.as_json(start_time)
        self._input = input

    def decide(self, memory: Any, events: Sequence[ev.AnyEvent]) -> Decision:
        """Decide what follows `events`; see `perdure.engine.decider.Decider`."""
        pass_ = _Pass(self, load_memory(memory))
        for event in events:
            pass_.take(event)
        return Decision(tuple(pass_.commands), pass_.memory)

    def scope(self, memory: Memory, now: datetime) -> dict[str, Any]:
        """What expressions see at `now`."""
        return {
            "input": self._input,
            "steps": {name: _step_as_json(step) for name, step in memory.steps.items()},
            "vars": memory.vars,
            "run": self._run,
            "now": now,
        }


def load_memory(memory: Any) -> Memory:
    """The memory, however it comes: None at first, plain JSON after a restart."""
    if isinstance(memory, Memory):
        return memory
    return Memory() if memory is None else msgspec.convert(memory, Memory)


def progress(program: Program, memory: Memory) -> tuple[int, int]:
    """How many steps are done, and of how many."""
    done = sum(step.status is StepStatus.SUCCEEDED for step in memory.steps.values())
    return done, len(program.steps)


def with_defaults(program: Program, given: Any) -> Any:
    """The input of a run: what is given, over the default of the definition."""
    default = program.spec.input.default if program.spec.input else None
    if given is None:
        return default
    if isinstance(given, dict) and isinstance(default, dict):
        return {**default, **given}
    return given


class _StepError(Exception):
    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class _Pass:
    """The work of one `decide`."""

    def __init__(self, interpreter: Interpreter, memory: Memory) -> None:
        self.interpreter = interpreter
        self.program = interpreter.program
        self.memory = memory
        self.commands: list[cmd.Command] = []
        self.closed = False

    def take(self, event: ev.AnyEvent) -> None:
        if self.closed:
            return
        match event:
            case ev.WorkflowExecutionStarted():
                pass
            case ev.ActivityTaskCompleted():
                self.end(event.activity_id, event.event_time, StepStatus.SUCCEEDED, event.result)
            case ev.ActivityTaskFailed() | ev.ActivityTaskTimedOut():
                self.end(event.activity_id, event.event_time, StepStatus.FAILED)
                self.fail(_activity_failure(event, self.step_of(event.activity_id)))
            case ev.TimerFired():
                self.end(event.timer_id, event.event_time, StepStatus.SUCCEEDED)
            case _:
                raise UndecidableError(f"the interpreter does not know what to do with {type(event).__name__}")
        self.advance(event.event_time)

    def step_of(self, name: str) -> CompiledStep:
        return next(compiled for compiled in self.program.steps if compiled.step.name == name)

    def advance(self, now: datetime) -> None:
        """Begin steps until one has to wait."""
        while not self.closed and self.memory.position < len(self.program.steps):
            compiled = self.program.steps[self.memory.position]
            name = compiled.step.name
            if name in self.memory.steps:
                return  # it runs
            self.remember(name, StepMemory(status=StepStatus.RUNNING, start_time=now))
            try:
                self.begin(compiled, now)
            except _StepError as error:
                self.end(name, now, StepStatus.FAILED)
                self.fail(error.failure)
        if not self.closed:
            self.complete(now)

    def begin(self, compiled: CompiledStep, now: datetime) -> None:
        step = compiled.step
        if step.activity:
            self.begin_activity(compiled, now)
        elif step.sleep:
            self.commands.append(
                cmd.StartTimer(timer_id=step.name, start_to_fire_timeout=self.sleep_time(compiled, now))
            )
        elif step.set_:
            values = self.evaluate(compiled, "set", now)
            self.memory = msgspec.structs.replace(self.memory, vars={**self.memory.vars, **values})
            self.end(step.name, now, StepStatus.SUCCEEDED, values)
        elif step.return_:
            output = self.evaluate(compiled, "output", now)
            self.end(step.name, now, StepStatus.SUCCEEDED, output)
            self.close(cmd.CompleteWorkflowExecution(result=output))
        elif step.fail:
            raise _StepError(
                Failure(
                    kind=FailureKind.APPLICATION,
                    type=step.fail.type,
                    message=_text(self.evaluate(compiled, "message", now)),
                    details=self.evaluate(compiled, "details", now),
                    non_retryable=step.fail.non_retryable,
                )
            )
        else:
            raise UndecidableError(f"step `{step.name}`: this version does not run steps of kind `{step.kind}`")

    def begin_activity(self, compiled: CompiledStep, now: datetime) -> None:
        call = compiled.step.activity
        assert call is not None
        definition = self.program.activities[call.name]
        self.commands.append(
            cmd.ScheduleActivityTask(
                activity_id=compiled.step.name,
                activity_type=call.name,
                input=self.evaluate(compiled, "input", now),
                schedule_to_close_timeout=call.schedule_to_close_timeout or definition.schedule_to_close_timeout,
                schedule_to_start_timeout=call.schedule_to_start_timeout or definition.schedule_to_start_timeout,
                start_to_close_timeout=call.start_to_close_timeout or definition.start_to_close_timeout,
                heartbeat_timeout=call.heartbeat_timeout or definition.heartbeat_timeout,
                retry_policy=retry_policy(call.retry_policy or definition.retry_policy),
            )
        )

    def sleep_time(self, compiled: CompiledStep, now: datetime) -> timedelta:
        sleep = compiled.step.sleep
        assert sleep is not None
        try:
            if sleep.duration is not None:
                value = self.evaluate(compiled, "duration", now) if isinstance(sleep.duration, str) else sleep.duration
                length = _length(value)
            else:
                until = self.evaluate(compiled, "until", now) if isinstance(sleep.until, str) else sleep.until
                length = _moment(until) - now
        except ValueError as error:
            raise _StepError(_expression_failure(f"step `{compiled.step.name}`: `sleep`: {error}")) from error
        return max(length, timedelta(0))

    def evaluate(self, compiled: CompiledStep, key: str, now: datetime) -> Any:
        """The value of one of the step's templates; None where the step has none."""
        template = compiled.templates.get(key)
        return None if template is None else self.value_of(template, f"step `{compiled.step.name}`", now)

    def value_of(self, template: Template, where: str, now: datetime) -> Any:
        try:
            return template.evaluate(self.interpreter.scope(self.memory, now))
        except ExpressionError as error:
            raise _StepError(_expression_failure(f"{where}: {error}")) from error

    def end(self, name: str, now: datetime, status: StepStatus, output: Any = None) -> None:
        """A step has ended: remember what may still be asked for, and move on."""
        done = msgspec.structs.replace(
            self.memory.steps[name],
            status=status,
            end_time=now,
            output=output if name in self.program.kept else None,
        )
        self.remember(name, done)
        if status is StepStatus.SUCCEEDED:
            self.memory = msgspec.structs.replace(self.memory, position=self.memory.position + 1)

    def remember(self, name: str, step: StepMemory) -> None:
        self.memory = msgspec.structs.replace(self.memory, steps={**self.memory.steps, name: step})

    def complete(self, now: datetime) -> None:
        try:
            if self.program.output is not None:
                result = self.value_of(self.program.output, "`output`", now)
            else:
                last = self.program.steps[-1].step.name
                result = self.memory.steps[last].output
        except _StepError as error:
            self.fail(error.failure)
        else:
            self.close(cmd.CompleteWorkflowExecution(result=result))

    def fail(self, failure: Failure) -> None:
        self.close(cmd.FailWorkflowExecution(failure=failure))

    def close(self, command: cmd.CompleteWorkflowExecution | cmd.FailWorkflowExecution) -> None:
        self.commands.append(command)
        self.closed = True


def _activity_failure(event: ev.ActivityTaskFailed | ev.ActivityTaskTimedOut, compiled: CompiledStep) -> Failure:
    call = compiled.step.activity
    activity = call.name if call else event.activity_id
    attempts = f"{event.attempt} attempt{'s' if event.attempt > 1 else ''}"
    return Failure(
        kind=FailureKind.ACTIVITY,
        message=(
            f"step `{event.activity_id}`: activity `{activity}` failed after {attempts} ({event.retry_state}): "
            f"{event.failure.message}"
        ),
        activity=activity,
        activity_id=event.activity_id,
        attempt=event.attempt,
        retry_state=event.retry_state,
        cause=event.failure,
    )


def _expression_failure(message: str) -> Failure:
    return Failure(kind=FailureKind.APPLICATION, type=EXPRESSION_ERROR, message=message, non_retryable=True)


def _length(value: Any) -> timedelta:
    """The length that a `sleep.duration` has come to; a negative one has passed already."""
    if isinstance(value, timedelta):
        return value
    if isinstance(value, str):
        if computed := _COMPUTED_DURATION.fullmatch(value):
            sign, whole, fraction = computed.groups("")
            length = timedelta(seconds=int(whole), microseconds=int(fraction.ljust(6, "0")))
            return timedelta(0) if sign else min(length, LONGEST)
        with suppress(ValueError):
            return parse_duration(value)
    raise ValueError(f"{_shown(value)} {DURATION_MESSAGE}")


def _moment(value: Any) -> datetime:
    """The time that a `sleep.until` has come to."""
    if isinstance(value, datetime):
        return value
    if isinstance(value, str):
        with suppress(ValueError):
            return parse_time(value)
    raise ValueError(f"{_shown(value)} {TIME_MESSAGE}")


def _text(value: Any) -> str:
    """A value where text is wanted, written as in longer text; nothing is no text."""
    if value is None:
        return ""
    return value if isinstance(value, str) else _json(value)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def _shown(value: Any) -> str:
    text = _json(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _step_as_json(step: StepMemory) -> dict[str, Any]:
    return {
        "status": step.status.value,
        "startTime": step.start_time,
        "endTime": step.end_time,
        "output": step.output,
    }


class Refuser:
    """Decides for a run whose own definition cannot be run: it fails at once, and says why."""

    def __init__(self, message: str) -> None:
        self._message = message

    def decide(self, memory: Any, events: Sequence[ev.AnyEvent]) -> Decision:  # noqa: ARG002
        """Fail the run."""
        failure = Failure(
            kind=FailureKind.APPLICATION, type="InvalidWorkflow", message=self._message, non_retryable=True
        )
        return Decision((cmd.FailWorkflowExecution(failure=failure),), memory)
