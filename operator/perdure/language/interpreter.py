"""The interpreter of YAML workflows: a decider.

It takes events one by one and keeps its place in a `Memory` that is stored with the run, so that going on after a restart
needs no history. It is deterministic: expressions see only the input, what earlier steps left, and the time of the event being
decided.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from perdure.engine import commands as cmd
from perdure.engine import events as ev
from perdure.engine.decider import Decision, UndecidableError
from perdure.engine.failures import Failure, FailureKind
from perdure.language import bodies
from perdure.language.failures import activity_failure, child_failure
from perdure.language.memory import BufferedSignal, Ending, Memory, Status, failed, load_memory, succeeded
from perdure.language.program import Program
from perdure.language.walk import Walk

__all__ = ["Interpreter", "Refuser", "RunScope", "load_memory", "progress"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunScope:
    """What expressions know as `run`, and as `schedule`."""

    name: str
    namespace: str
    workflow_id: str
    run_id: str
    attempt: int
    schedule: Mapping[str, Any] = field(default_factory=dict)
    """Empty where no Schedule has started the run."""

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
        self.scope = {"input": input, "run": run.as_json(start_time), "schedule": dict(run.schedule)}

    def walk(self, memory: Memory, now: datetime) -> Walk:
        """What does the work of one decision."""
        return Walk(self.program, self.scope, memory, now)

    def decide(self, memory: Any, event: ev.AnyEvent | None, *, continue_as_new_suggested: bool = False) -> Decision:
        """Decide what follows `event`; see `perdure.engine.decider.Decider`."""
        known = load_memory(memory)
        if event is None:
            if known.now is None:
                raise UndecidableError("there is no decision to go on with")
            walk = self.walk(known, known.now)
        else:
            walk = self.walk(known, event.event_time)
            if continue_as_new_suggested and not known.suggested:
                walk.set(suggested=True)
            walk.event = event
            take(walk, event)
        done = walk.go_on()
        walk.set(agenda=tuple(walk.agenda) if not done else (), now=walk.now if not done else None)
        return Decision(tuple(walk.commands), walk.memory, work=walk.work, more=not done)


def take(walk: Walk, event: ev.AnyEvent) -> None:  # noqa: C901 (one case for each event)
    """Let an event end what it is about. What is not known (any more) is none of the program's affair."""
    match event:
        case ev.WorkflowExecutionStarted():
            walk.open_frame("", "")
        case ev.WorkflowExecutionSignaled():
            _signaled(walk, event)
        case ev.WorkflowExecutionCancelRequested():
            walk.cancel(stop=event.stop)
        case ev.TimerFired():
            walk.timer_fired(event.timer_id)
        case ev.ActivityTaskCompleted():
            _ended(walk, event.activity_id, succeeded(event.result))
        case ev.ActivityTaskFailed() | ev.ActivityTaskTimedOut() | ev.ActivityTaskCanceled():
            activity = _activity_of(walk, event.activity_id)
            _ended(walk, event.activity_id, failed(activity_failure(event, activity)))
        case ev.ChildWorkflowExecutionCompleted():
            _ended(walk, event.child_id, succeeded(event.result))
        case (
            ev.StartChildWorkflowExecutionFailed()
            | ev.ChildWorkflowExecutionFailed()
            | ev.ChildWorkflowExecutionCanceled()
            | ev.ChildWorkflowExecutionTimedOut()
            | ev.ChildWorkflowExecutionTerminated()
        ):
            _ended(walk, event.child_id, failed(child_failure(event)))
        case ev.ExternalWorkflowExecutionSignaled():
            _ended(walk, event.signal_id, succeeded())
        case ev.SignalExternalWorkflowExecutionFailed():
            _ended(walk, event.signal_id, failed(event.failure))
        case _:
            pass  # a request to cancel was recorded, or the run was paused


def _ended(walk: Walk, path: str, ending: Ending) -> None:
    """What the body of a task has waited for is there; or the compensation that runs has ended."""
    if path == walk.undo_path():
        walk.undo_ended(ending)
        return
    task = walk.memory.tasks.get(path)
    if task is not None and task.stage.value == "Body":
        walk.end_body(path, ending)


def _activity_of(walk: Walk, path: str) -> str:
    """Name of the activity that a task or a compensation runs."""
    closing = walk.memory.closing
    if path == walk.undo_path():
        assert closing is not None
        assert closing.undoing is not None
        compensate = bodies.compensation(walk.program, closing.undoing)
        return compensate.activity.name if compensate.activity else path
    if path not in walk.memory.tasks:
        return path
    call = walk.at(path).compiled.step.activity
    return call.name if call else path


def _signaled(walk: Walk, event: ev.WorkflowExecutionSignaled) -> None:
    """Give a signal to the step that has waited for it longest, or keep it."""
    for path in walk.memory.listeners:
        at = walk.at(path)
        wait = at.compiled.step.wait_for_signal
        if wait is not None and wait.name == event.signal_name:
            bodies.unwait(walk, at)
            walk.end_body(path, succeeded(event.input))
            return
    signal = BufferedSignal(name=event.signal_name, input=event.input, identity=event.identity, time=event.event_time)
    walk.set(signals=(*walk.memory.signals, signal))


def progress(program: Program, memory: Memory) -> tuple[int, int]:
    """How many of the main steps are done or skipped, and of how many."""
    main = memory.frames.get("")
    done = sum(record.status in {Status.SUCCEEDED, Status.SKIPPED} for record in main.steps.values()) if main else 0
    return done, len(program.main.steps)


class Refuser:
    """Decides for a run whose own definition or input cannot be run: it fails at once, and says why."""

    def __init__(self, message: str, type_: str = "InvalidWorkflow") -> None:
        self._failure = Failure(kind=FailureKind.APPLICATION, type=type_, message=message, non_retryable=True)

    def decide(
        self,
        memory: Any,
        event: ev.AnyEvent | None,  # noqa: ARG002 (the protocol)
        *,
        continue_as_new_suggested: bool = False,  # noqa: ARG002
    ) -> Decision:
        """Fail the run."""
        return Decision((cmd.FailWorkflowExecution(failure=self._failure),), memory)
