"""Tasks: a step, or one item of it, with its action, its timeout, its `catch` and its hooks."""

from typing import Any, Final

from perdure.engine import commands as cmd
from perdure.engine.failures import Failure, FailureKind
from perdure.engine.recording import MAX_PENDING
from perdure.engine.state import DEAD_LETTER
from perdure.language.compiled_actions import RunActivity, RunChild, SignalRun, Sleep, WaitForSignal, WaitUntil
from perdure.language.execution.context import Location, replace
from perdure.language.execution.parts import Parts
from perdure.language.memory import CANCELLED, Outcome, Stage, Status, Task, failed
from perdure.language.program import CompiledStep
from perdure.language.step_failures import StepError, application, as_json, as_variable, matches
from perdure.language.step_paths import Path

MAX_WAITING: Final = (MAX_PENDING - 1) // 2
"""Tasks of a run that may wait for something: an activity, a child, a timer, a signal. One more fails its step. Each has at
most two timers, and a handler has one, so the engine can always follow, unless abandoned activities use up its room."""


class Tasks:
    """Starts, stops and closes tasks."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._context = parts.context

    def start(self, path: Path) -> None:
        """Start the action of a step or item, and the timer of its timeout."""
        context = self._context
        context.observer.started(path, context.now)
        at = context.locate(path)
        crowded = _waits(at.compiled) and self._too_many_wait()
        context.put_task(path, Task())
        if crowded:
            self.part_closed(path, failed(_too_many(at)))
            return
        try:
            timeout = self._parts.timers.timeout(at, "timeout", at.compiled.timeout)
            if timeout is not None:
                context.put_task(path, replace(context.memory.tasks[path.text], timed=True))
                self._parts.timers.start(path.timeout, timeout)
            if self._parts.hooks.begin(at):
                return
        except StepError as error:
            self.part_closed(path, failed(error.failure))
            return
        self._act(at)

    def stop(self, path: Path, outcome: Outcome) -> None:
        """Cancel the running part of a task. The task closes with the outcome after that part."""
        task = self._context.memory.tasks[path.text]
        if task.outcome is not None or task.stage is Stage.ON_END:
            return  # `onEnd` is not interrupted
        self._context.put_task(path, replace(task, outcome=outcome))
        self._parts.timers.cancel_timeout(path)
        at = self._context.locate(path)
        if task.stage is Stage.LIMITS:
            self._parts.holds.give_up(path)
            self.part_closed(path, CANCELLED)
        elif task.stage is Stage.CATCH:
            self._parts.frames.stop(path.catch, CANCELLED)
        elif task.stage is Stage.ON_START:
            self._parts.frames.stop(path.on_start, CANCELLED)
        else:
            closed = self._parts.actions.cancel(at)
            if closed is not None:
                self.part_closed(path, closed)

    def part_closed(self, path: Path, outcome: Outcome) -> None:
        """Handle a failure or proceed after the action of a task, or the block of its `catch` or hook, has closed."""
        context = self._context
        task = context.task(path)
        if task is None or context.closed:
            return
        at = context.locate(path)
        if task.stage is Stage.ON_END:
            self._close(at, self._parts.hooks.ended(task, outcome))
        elif task.stage is Stage.ON_START and task.outcome is None and outcome.status is Status.SUCCEEDED:
            context.put_task(path, replace(task, stage=Stage.BODY))
            self._act(at)
        else:
            self._parts.holds.release(path)
            self._parts.timers.cancel_timeout(path)
            decided = self._decided(at, context.memory.tasks[path.text], outcome)
            ended = None if decided is None else self._parts.hooks.end(at, decided)
            if ended is not None:
                self._close(at, ended)

    def _decided(self, at: Location, task: Task, outcome: Outcome) -> Outcome | None:
        """Return the outcome of a task whose action, `catch`, or `onStart` has closed; None if a `catch` has started."""
        context, wanted = self._context, task.outcome
        done = outcome.status is Status.SUCCEEDED and task.stage in {Stage.BODY, Stage.CATCH}
        if done and isinstance(at.compiled.action, RunActivity):
            context.observer.activity_completed(at.path, outcome.output)
        if wanted is not None and not (wanted.status is Status.CANCELLED and done):
            outcome = wanted  # only the success of a stopped task counts, unless its timeout has passed
        cancelled = wanted is not None and wanted.status is Status.CANCELLED
        if outcome.failure and task.stage is not Stage.CATCH and not cancelled:
            unhandled = self._handle(at, task, outcome.failure)
            if unhandled is None:
                return None
            outcome = failed(unhandled)
        if outcome.status is Status.SUCCEEDED and task.stage is Stage.BODY and at.compiled.compensate:
            try:
                self._parts.compensations.record(at, outcome.output)
            except StepError as error:
                outcome = failed(error.failure)
        return outcome

    def limits_taken(self, path: Path) -> None:
        """Start the action of a task that holds its limits."""
        if self._parts.holds.taken(path):
            self._start_action(self._context.locate(path))

    def _act(self, at: Location) -> None:
        """Take the limits of a task first, if it has any, and then start the action."""
        if not at.compiled.step.limits:
            self._start_action(at)
            return
        try:
            self._parts.holds.take(at)
        except StepError as error:
            self.part_closed(at.path, failed(error.failure))

    def _start_action(self, at: Location) -> None:
        try:
            outcome = self._parts.actions.start(at)
        except StepError as error:
            outcome = failed(error.failure)
        if outcome is not None:
            self.part_closed(at.path, outcome)

    def _close(self, at: Location, outcome: Outcome) -> None:
        """Close the step or item."""
        self._context.put_task(at.path, None)
        if at.path.index is None:
            self._parts.steps.close(at.path, outcome)
        else:
            self._parts.loops.item_closed(at, outcome)
        self._parts.loops.unblock()

    def _handle(self, at: Location, task: Task, failure: Failure) -> Failure | None:
        """Handle a failure with a `catch`. Return the failure that remains; None if a block has started to handle it."""
        context = self._context
        context.observer.failed(at.path, failure)
        own = task.stage is Stage.BODY and failure.kind is FailureKind.ACTIVITY
        if own and at.compiled.step.dead_letter:
            context.commands.append(cmd.RecordMarker(marker_name=DEAD_LETTER, details=self._dead_letter(at, failure)))
        for clause in at.compiled.catch:
            if not matches(failure, clause.error_types):
                continue
            context.put_task(at.path, replace(task, stage=Stage.CATCH, timed=False, outcome=None, branches={}, size=0))
            try:
                error_seen = {clause.variable: as_variable(failure, clause.error_types)}
                params = self._parts.evaluation.of_step(at, clause.call.input, **error_seen)
                self._parts.frames.open(at.path.catch, clause.call.block, params, caller=at.path.frame, caught=failure)
            except StepError as error:
                return replace(error.failure, cause=failure)
            return None
        return failure

    def _dead_letter(self, at: Location, failure: Failure) -> dict[str, Any]:
        """Return the marker data for a permanently failed activity. Its input is in its Scheduled event."""
        return {
            "step": at.path.text,
            "activity": failure.activity,
            "scheduledEventId": getattr(self._context.event, "scheduled_event_id", 0),
            "failure": as_json(failure),
        }

    def _too_many_wait(self) -> bool:
        """Whether the limit of waiting tasks is reached."""
        tasks = self._context.memory.tasks
        if len(tasks) < MAX_WAITING:
            return False
        self._context.work += 10 * len(tasks)
        locate = self._context.locate
        waiting = (
            task.stage in {Stage.ON_START, Stage.LIMITS, Stage.BODY} and _waits(locate(Path.parse(path)).compiled)
            for path, task in tasks.items()
        )
        return sum(waiting) >= MAX_WAITING


def _waits(step: CompiledStep) -> bool:
    """Whether a step itself waits, at least for its timeout. Other steps run blocks or close as they start."""
    waiting = RunActivity | RunChild | WaitForSignal | Sleep | SignalRun | WaitUntil
    return isinstance(step.action, waiting) or step.timeout is not None or bool(step.step.limits)


def _too_many(at: Location) -> Failure:
    message = (
        f"{at.where}: {MAX_WAITING} steps and items of the run wait already, which is as many as may; let a `forEach` begin "
        "fewer at a time (`maxConcurrency`), or divide the work into child workflows"
    )
    return application("PendingLimitExceeded", message)
