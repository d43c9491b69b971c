"""The interpreter of YAML workflows: a decider.

It processes events one by one and keeps its state in a `Memory` that is stored with the run, so it needs no history to continue
after a restart. It is deterministic: expressions only read the input, the records of earlier steps, and the time of the current
event.

In a decision, the event is applied to its task, timer, or compensation. This makes steps due, and the agenda starts them one by
one, until nothing is due, the run closes, or the decision has taken too much work. `perdure.language.execution` has the parts.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from perdure.api.times import show_duration
from perdure.engine import commands as cmd
from perdure.engine import events as ev
from perdure.engine.decider import Decision, UndecidableError
from perdure.engine.failures import Failure, FailureKind
from perdure.language.execution import actions
from perdure.language.execution.closing import ClosingSequence
from perdure.language.execution.context import WORK, DecisionContext, replace
from perdure.language.execution.flow import RunningFlows
from perdure.language.execution.observer import NullObserver, Observer
from perdure.language.memory import Memory, Outcome, Stage, Status, failed, load_memory, succeeded
from perdure.language.program import Program
from perdure.language.step_failures import activity_failure, child_failure, timeout
from perdure.language.step_paths import MAIN, Path

__all__ = ["Interpreter", "Refuser", "RunScope", "load_memory", "progress"]


_CONDITION = "?"
"""Prefix of an entry of the agenda: evaluate the condition that this task waits for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunScope:
    """A run, as far as decisions depend on it: the values of `run` and `schedule` in expressions, and its `stepsTimeout`."""

    name: str
    namespace: str
    workflow_id: str
    run_id: str
    attempt: int
    schedule: Mapping[str, Any] = field(default_factory=dict)
    """The value of `schedule` in expressions; empty unless a Schedule started the run, or the run that it repeats."""
    steps_timeout: timedelta | None = None
    """The `stepsTimeout` of the run, which replaces that of its definition."""

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

    def __init__(
        self,
        program: Program,
        run: RunScope,
        *,
        input: Any,  # noqa: A002
        start_time: datetime,
        observer: Observer | None = None,
    ) -> None:
        self.program = program
        self._observer = observer or NullObserver()
        self._steps_timeout = run.steps_timeout
        self.scope = {"input": input, "run": run.as_json(start_time), "schedule": dict(run.schedule)}

    def decide(self, memory: Any, event: ev.AnyEvent | None, *, continue_as_new_suggested: bool = False) -> Decision:
        """Decide what follows `event`; see `perdure.engine.decider.Decider`."""
        known = load_memory(memory)
        now = known.now if event is None else event.event_time
        if now is None:
            raise UndecidableError("there is no decision to continue")
        context = DecisionContext(self.program, self.scope, known, now, self._observer)
        execution = _Execution(context, self._steps_timeout)
        if event is not None:
            if continue_as_new_suggested and not known.continue_as_new_suggested:
                context.update(continue_as_new_suggested=True)
            execution.apply(event)
        done = execution.run()
        context.update(agenda=() if done else tuple(context.agenda), now=None if done else now)
        return Decision(tuple(context.commands), context.memory, work=context.work, more=not done)


class _Execution:
    """The work of one decision."""

    def __init__(self, context: DecisionContext, steps_timeout: timedelta | None) -> None:
        self._context = context
        self._steps_timeout = steps_timeout
        self._flows = RunningFlows(context)
        self._closing = ClosingSequence(context, self._flows)

    def apply(self, event: ev.AnyEvent) -> None:  # noqa: C901 (one case for each event)
        """Apply an event to its task, timer, or compensation. An event for a closed or unknown one changes nothing."""
        self._context.event = event
        match event:
            case ev.WorkflowExecutionStarted():
                self._flows.open(MAIN, "", steps_timeout=self._steps_timeout)
            case ev.WorkflowExecutionSignaled():
                self._signal_received(event)
            case ev.WorkflowExecutionCancelRequested():
                self._closing.cancel(stop=event.stop)
            case ev.TimerFired():
                self._timer_fired(Path.parse(event.timer_id))
            case ev.ActivityTaskCompleted() if Path.parse(event.activity_id).is_limits:
                self._flows.limits_taken(Path.parse(event.activity_id).owner)
            case ev.ActivityTaskCompleted():
                self._closed(event.activity_id, succeeded(event.result, event.artifacts or None))
            case ev.ActivityTaskFailed() | ev.ActivityTaskTimedOut() | ev.ActivityTaskCanceled():
                activity = self._activity_of(event.activity_id)
                self._closed(event.activity_id, failed(activity_failure(event, activity)))
            case ev.ChildWorkflowExecutionCompleted():
                self._closed(event.child_id, succeeded(event.result))
            case (
                ev.StartChildWorkflowExecutionFailed()
                | ev.ChildWorkflowExecutionFailed()
                | ev.ChildWorkflowExecutionCanceled()
                | ev.ChildWorkflowExecutionTimedOut()
                | ev.ChildWorkflowExecutionTerminated()
            ):
                self._closed(event.child_id, failed(child_failure(event)))
            case ev.ExternalWorkflowExecutionSignaled():
                self._closed(event.signal_id, succeeded())
            case ev.SignalExternalWorkflowExecutionFailed():
                self._closed(event.signal_id, failed(event.failure))
            case _:
                pass  # such as a recorded request to cancel, or a pause

    def run(self) -> bool:
        """Process the agenda; return False if the decision must be split because it has taken too much work."""
        context = self._context
        while not context.closed:
            if context.ended is not None:
                path, outcome = context.ended
                context.ended = None
                self._closing.frame_closed(path, outcome)
            elif context.agenda:
                if context.work > WORK:
                    return False
                self._start(context.agenda.pop(0))
            elif context.conditions_stale:
                context.conditions_stale = False
                context.agenda += [f"{_CONDITION}{path}" for path in context.memory.condition_waiters]
            else:
                return True
        return True

    def _start(self, entry: str) -> None:
        """Process an entry of the agenda: start a step or items of a loop, or evaluate a condition."""
        if entry.startswith(_CONDITION):
            path = Path.parse(entry.removeprefix(_CONDITION))
            outcome = actions.condition_checked(self._context, path)
            if outcome is not None:
                self._flows.part_closed(path, outcome)
        elif entry in self._context.memory.loops:
            self._flows.start_items(Path.parse(entry))
        else:
            self._flows.start_step(Path.parse(entry))

    def _signal_received(self, event: ev.WorkflowExecutionSignaled) -> None:
        """Pass a signal to the task that has waited longest for it, or buffer it."""
        received = actions.signal_received(self._context, event)
        if received is not None:
            self._flows.part_closed(*received)

    def _closed(self, text: str, outcome: Outcome) -> None:
        """Handle the end of an activity or child of a task or of the running compensation."""
        if text == self._closing.compensating:
            self._closing.compensation_closed(outcome)
            return
        path = Path.parse(text)
        stage, path = (Stage.LIMITS, path.owner) if path.is_limits else (Stage.BODY, path)
        task = self._context.task(path)
        if task is not None and task.stage is stage:
            self._flows.part_closed(path, outcome)

    def _activity_of(self, text: str) -> str:
        """Return the name of the activity of a task or of the running compensation."""
        if text == self._closing.compensating:
            return self._closing.compensating_activity or text
        if text not in self._context.memory.tasks:
            return text
        return self._context.locate(Path.parse(text)).compiled.activity or text

    def _timer_fired(self, timer: Path) -> None:
        """Handle a fired timer: a sleep or a timeout."""
        if timer.is_steps_timeout:
            self._flows.steps_timed_out(timer.timed_frame)
            return
        if timer.is_handler:
            self._closing.handler_timed_out(timer.handler_name)
            return
        context, path = self._context, timer.owner
        task = context.task(path)
        if task is None or task.stage not in {Stage.ON_START, Stage.LIMITS, Stage.BODY} or task.outcome is not None:
            return
        at = context.locate(path)
        if not timer.is_timeout:
            self._flows.part_closed(path, actions.wait_timer_fired(context, at))
            return
        if task.timed:
            context.put_task(path, replace(task, timed=False))
            limit = show_duration(context.recorded_timeout(path, "timeout", at.compiled.timeout))
            message = f"{at.where} has taken longer than its timeout of {limit}"
            if task.stage is Stage.LIMITS:
                wanted = ", ".join(f"`{each.name}`" for each in at.compiled.step.limits)
                message += f", and has not begun: it waited for its limits {wanted}"
            self._flows.stop_task(path, failed(timeout(message)))


def progress(program: Program, memory: Memory) -> tuple[int, int]:
    """Return the number of main steps that have succeeded or were skipped, and the number of all main steps."""
    main = memory.frames.get("")
    done = sum(record.status in {Status.SUCCEEDED, Status.SKIPPED} for record in main.steps.values()) if main else 0
    return done, len(program.main.steps)


class Refuser:
    """Decides for a run whose definition or input is invalid: it fails immediately."""

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
