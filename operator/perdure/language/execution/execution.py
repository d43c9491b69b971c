"""Executes a program for one decision: combines the parts, applies the event, and processes the agenda."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from perdure.api.times import show_duration
from perdure.engine import events as ev
from perdure.language.execution.actions import Actions
from perdure.language.execution.blocks import Blocks
from perdure.language.execution.closing import ClosingSequence
from perdure.language.execution.compensations import Compensations
from perdure.language.execution.context import CONDITION, WORK, DecisionContext, replace
from perdure.language.execution.evaluation import Evaluation
from perdure.language.execution.frames import Frames
from perdure.language.execution.holds import Holds
from perdure.language.execution.hooks import Hooks
from perdure.language.execution.loops import Loops
from perdure.language.execution.observer import Observer
from perdure.language.execution.steps import Steps
from perdure.language.execution.tasks import Tasks
from perdure.language.execution.timers import Timers
from perdure.language.execution.waits import Waits
from perdure.language.memory import Memory, Outcome, Stage, failed, succeeded
from perdure.language.program import Program
from perdure.language.step_failures import activity_failure, child_failure, timeout
from perdure.language.step_paths import MAIN, Path


class Execution:
    """The parts of an execution (`parts.Parts`)."""

    def __init__(
        self, program: Program, scope: Mapping[str, Any], memory: Memory, now: datetime, observer: Observer
    ) -> None:
        self.context = DecisionContext(program, scope, memory, now, observer)
        self.evaluation = Evaluation(self.context)
        self.timers = Timers(self.context, self.evaluation)
        self.frames = Frames(self)
        self.steps = Steps(self)
        self.loops = Loops(self)
        self.tasks = Tasks(self)
        self.blocks = Blocks(self)
        self.hooks = Hooks(self)
        self.holds = Holds(self)
        self.waits = Waits(self)
        self.actions = Actions(self, self.blocks, self.waits)
        self.compensations = Compensations(self)
        self.closing = ClosingSequence(self)

    def apply(self, event: ev.AnyEvent) -> None:  # noqa: C901 (one case for each event)
        """Apply an event to its task, timer, or compensation. An event for a closed or unknown one changes nothing."""
        self.context.event = event
        match event:
            case ev.WorkflowExecutionStarted():
                self.frames.open(MAIN, "")
            case ev.WorkflowExecutionSignaled():
                self.waits.signal_received(event)
            case ev.WorkflowExecutionCancelRequested():
                self.closing.cancel(stop=event.stop)
            case ev.TimerFired():
                self._timer_fired(Path.parse(event.timer_id))
            case ev.ActivityTaskCompleted() if Path.parse(event.activity_id).is_limits:
                self.tasks.limits_taken(Path.parse(event.activity_id).owner)
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
        context = self.context
        while not context.closed:
            if not context.agenda:
                if not context.conditions_stale:
                    return True
                context.conditions_stale = False
                context.agenda += [f"{CONDITION}{path}" for path in context.memory.condition_waiters]
                continue
            if context.work > WORK:
                return False
            entry = context.agenda.pop(0)
            if entry.startswith(CONDITION):
                self.waits.check_condition(Path.parse(entry.removeprefix(CONDITION)))
            elif entry in context.memory.loops:
                self.loops.start_items(Path.parse(entry))
            else:
                self.steps.start(Path.parse(entry))
        return True

    def _closed(self, text: str, outcome: Outcome) -> None:
        """Handle the end of an activity or child of a task or of the running compensation."""
        if text == self.compensations.running:
            self.compensations.close(outcome)
            return
        path = Path.parse(text)
        stage, path = (Stage.LIMITS, path.owner) if path.is_limits else (Stage.BODY, path)
        task = self.context.task(path)
        if task is not None and task.stage is stage:
            self.tasks.part_closed(path, outcome)

    def _activity_of(self, text: str) -> str:
        """Return the name of the activity of a task or of the running compensation."""
        if text == self.compensations.running:
            return self.compensations.activity or text
        if text not in self.context.memory.tasks:
            return text
        return self.context.locate(Path.parse(text)).compiled.activity or text

    def _timer_fired(self, timer: Path) -> None:
        """Handle a fired timer: a sleep or a timeout."""
        if timer.is_handler:
            self.closing.handler_timed_out(timer.handler_name)
            return
        path = timer.owner
        task = self.context.task(path)
        if task is None or task.stage not in {Stage.ON_START, Stage.LIMITS, Stage.BODY} or task.outcome is not None:
            return
        at = self.context.locate(path)
        if not timer.is_timeout:
            self.tasks.part_closed(path, self.waits.timer_fired(at))
            return
        if task.timed:
            self.context.put_task(path, replace(task, timed=False))
            limit = show_duration(self.timers.recorded_timeout(path, "timeout", at.compiled.timeout))
            message = f"{at.where} has taken longer than its timeout of {limit}"
            if task.stage is Stage.LIMITS:
                wanted = ", ".join(f"`{each.name}`" for each in at.compiled.step.limits)
                message += f", and has not begun: it waited for its limits {wanted}"
            self.tasks.stop(path, failed(timeout(message)))
