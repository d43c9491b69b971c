"""The interpreter of YAML workflows: a decider.

It processes events one by one and keeps its state in a `Memory` that is stored with the run, so it needs no history to continue
after a restart. It is deterministic: expressions only read the input, the records of earlier steps, and the time of the current
event.

In a decision, the event is applied to its task, timer, or compensation. This makes steps due, and the agenda starts them one by
one, until nothing is due, the run closes, or the decision has taken too much work. `perdure.language.execution` has the parts.

After the main steps compensations run, then `onCancel` or `onFailure`, then `finally`; then the run closes. Compensations are
recorded when tasks complete, and run one by one, the newest first, when the run fails or is canceled.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, assert_never

import msgspec

from perdure.api.times import show_duration
from perdure.engine import commands as cmd
from perdure.engine import events as ev
from perdure.engine.commands import Decision, UndecidableError
from perdure.engine.failures import MAX_SIZE, Failure, FailureKind, bounded, shorten
from perdure.language.execution import actions
from perdure.language.execution.actions import schedule_activity
from perdure.language.execution.context import WORK, DecisionContext, NullObserver, Observer, replace
from perdure.language.execution.flow import RunningFlows
from perdure.language.memory import (
    CANCELLED,
    Closing,
    Compensation,
    Memory,
    Outcome,
    Stage,
    Status,
    failed,
    load_memory,
    succeeded,
)
from perdure.language.program import CallBlock, Program, RunActivity
from perdure.language.step_failures import StepError, activity_failure, as_variable, child_failure, combined, timeout
from perdure.language.step_paths import MAIN, Path

_CONDITION = "?"
"""Prefix of an entry of the agenda: evaluate the condition that this task waits for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunScope:
    """The values of `run` and `schedule` in expressions."""

    name: str
    namespace: str
    workflow_id: str
    run_id: str
    attempt: int
    schedule: Mapping[str, Any] = field(default_factory=dict)
    """The value of `schedule` in expressions; empty unless a Schedule started the run, or the run that it repeats."""

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
        self.scope = {"input": input, "run": run.as_json(start_time), "schedule": dict(run.schedule)}

    def decide(self, memory: Any, event: ev.AnyEvent | None, *, continue_as_new_suggested: bool = False) -> Decision:
        """Decide what follows `event`; see `perdure.engine.commands.Decider`."""
        known = load_memory(memory)
        now = known.now if event is None else event.event_time
        if now is None:
            raise UndecidableError("there is no decision to continue")
        context = DecisionContext(self.program, self.scope, known, now, self._observer)
        execution = _Execution(context)
        if event is not None:
            if continue_as_new_suggested and not known.continue_as_new_suggested:
                context.update(continue_as_new_suggested=True)
            execution.apply(event)
        done = execution.run()
        context.update(agenda=() if done else tuple(context.agenda), now=None if done else now)
        return Decision(tuple(context.commands), context.memory, work=context.work, more=not done)


class _Execution:
    """The work of one decision."""

    def __init__(self, context: DecisionContext) -> None:
        self._context = context
        self._flows = RunningFlows(context)
        self._closing = ClosingSequence(context, self._flows)

    def apply(self, event: ev.AnyEvent) -> None:
        """Apply an event to its task, timer, or compensation. An event for a closed or unknown one changes nothing."""
        self._context.event = event
        match event:
            case ev.WorkflowExecutionStarted():
                self._flows.open(MAIN, "", steps_timeout=event.steps_timeout)
            case ev.WorkflowExecutionSignaled():
                self._signal_received(event)
            case ev.WorkflowExecutionCancelRequested():
                self._closing.cancel(stop=event.stop)
            case ev.TimerFired():
                self._timer_fired(Path.parse(event.timer_id))
            case (
                ev.ActivityTaskCompleted()
                | ev.ActivityTaskFailed()
                | ev.ActivityTaskTimedOut()
                | ev.ActivityTaskCanceled()
            ) if _is_of_service(event.activity_id):
                self._flows.service_changed(event)
            case ev.ActivityTaskCompleted() if Path.parse(event.activity_id).is_limits:
                self._flows.limits_taken(Path.parse(event.activity_id).owner)
            case ev.ActivityTaskCompleted():
                self._closed(event.activity_id, succeeded(event.result, event.artifacts or None))
            case ev.ActivityTaskFailed() | ev.ActivityTaskTimedOut() | ev.ActivityTaskCanceled():
                activity = self._activity_of(event.activity_id)
                self._closed(event.activity_id, failed(activity_failure(event, activity)))
            case ev.ChildWorkflowExecutionCompleted():
                self._closed(event.child_id, succeeded(event.result))
            case ev.StartChildWorkflowExecutionFailed() | ev.ChildNotCompleted():
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


def _is_of_service(activity_id: str) -> bool:
    path = Path.parse(activity_id)
    return bool(path.service or path.awaited)


def progress(program: Program, memory: Memory) -> tuple[int, int]:
    """Return the number of main steps that have succeeded or were skipped, and the number of all main steps."""
    main = memory.frames.get("")
    done = sum(record.status in {Status.SUCCEEDED, Status.SKIPPED} for record in main.steps.values()) if main else 0
    return done, len(program.main.steps)


def failing(memory: Memory) -> str:
    """Why a run will fail although it continues, as a sentence without a period; empty if no main step has failed."""
    main = memory.frames.get("")
    if main is None or main.failures is None or main.outcome is not None:
        return ""
    count = main.failures.count
    return (
        f"{count} step{'s' if count > 1 else ''} failed, and the run will fail when the others have ended: "
        + shorten(combined(main.failures).full_message)
    )


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


_MIN_SUPPRESSED: Final = 2_048
"""Bytes of JSON that are always allowed for each failure of a compensation or handler."""


class ClosingSequence:
    """Runs compensations and handlers after the main steps, and closes the run."""

    def __init__(self, context: DecisionContext, flows: RunningFlows) -> None:
        self._context = context
        self._flows = flows

    def cancel(self, *, stop: bool) -> None:
        """Cancel the run; with `stop`, without compensations and `onCancel`."""
        if self._context.memory.closing is None:
            if stop:
                self._context.update(stopped=True)
            self._flows.stop(MAIN, CANCELLED)

    def frame_closed(self, path: Path, outcome: Outcome) -> None:
        """Continue after the main steps, or after the block of a compensation or handler."""
        if not path.text:
            stopped = self._context.memory.stopped
            self._context.update(closing=Closing(outcome=outcome, handled=stopped), agenda=())
            self._context.agenda.clear()
            self._proceed()
        elif path.is_handler:
            self._context.cancel_timer(path.timeout)
            if outcome.failure:
                self._suppress(outcome.failure)
            self._proceed()
        else:
            self.compensation_closed(outcome)

    def _proceed(self) -> None:
        """Start the next compensation, handler, or `finally`, or close the run."""
        context = self._context
        while not context.closed:
            closing = self._closing
            compensate = closing.outcome.status is not Status.SUCCEEDED and not closing.handled
            if compensate and context.memory.compensations:
                if self._start_newest():
                    return
            elif compensate:
                context.update(closing=replace(closing, handled=True))
                name = "onCancel" if closing.outcome.status is Status.CANCELLED else "onFailure"
                if self._start_handler(name, closing):
                    return
            elif not closing.finalized:
                context.update(closing=replace(closing, finalized=True))
                if self._start_handler("finally", closing):
                    return
            else:
                context.finish(_last_command(closing))

    @property
    def _closing(self) -> Closing:
        closing = self._context.memory.closing
        assert closing is not None
        return closing

    def _suppress(self, failure: Failure) -> Failure:
        """Store a failure of a compensation or handler, to report it with the final failure of the run.

        There may be hundreds, so each takes at most half of the space that is left.

        Returns:
            The stored part of the failure.
        """
        closing = self._closing
        left = MAX_SIZE - len(msgspec.json.encode(closing.suppressed))
        kept = bounded(failure, max(left // 2, _MIN_SUPPRESSED))
        self._context.update(closing=replace(closing, compensating=None, suppressed=(*closing.suppressed, kept)))
        return kept

    # Handlers

    def _start_handler(self, name: str, closing: Closing) -> bool:
        """Start the block of a handler, if it is defined. Return whether it has started. Its failure is suppressed."""
        compiled = self._context.program.handlers.get(name)
        if compiled is None:
            return False
        context, path = self._context, Path.handler(name)
        context.observer.started(path, context.now)
        extra = {}
        if name == "onFailure" and closing.outcome.failure:
            extra["error"] = as_variable(closing.outcome.failure, [])
        try:
            params = context.evaluate_in_frame(compiled.input, MAIN.text, f"`{name}`", **extra)
            self._flows.open(path, compiled.handler.block, params)
        except StepError as error:
            kept = self._suppress(error.failure)
            context.observer.closed(path, failed(kept), context.now)
            return False
        context.start_timer(path.timeout, compiled.handler.timeout)
        return True

    def handler_timed_out(self, name: str) -> None:
        """Stop a handler whose timer has fired."""
        limit = show_duration(self._context.program.handlers[name].handler.timeout)
        self._flows.stop(Path.handler(name), failed(timeout(f"`{name}` has taken longer than {limit}")))

    # Compensations

    @property
    def compensating(self) -> str | None:
        """Return the path of the running compensation."""
        closing = self._context.memory.closing
        if closing is None or closing.compensating is None:
            return None
        return Path.parse(closing.compensating.path).compensation.text

    @property
    def compensating_activity(self) -> str | None:
        """Return the name of the activity of the running compensation, if it has one."""
        running = self._closing.compensating
        assert running is not None
        action = self._action(running)
        return action.call.name if isinstance(action, RunActivity) else None

    def _start_newest(self) -> bool:
        """Start the newest compensation. Return whether it has started. Its failure is suppressed."""
        context = self._context
        *rest, newest = context.memory.compensations
        path = Path.parse(newest.path).compensation
        context.observer.started(path, context.now)
        context.update(compensations=tuple(rest), closing=replace(self._closing, compensating=newest))
        try:
            match self._action(newest):
                case RunActivity(call):
                    schedule_activity(context, call, path, newest.input, newest.timeouts)
                case CallBlock(block):
                    self._flows.open(path, block, newest.input)
                case other:
                    assert_never(other)
        except StepError as error:
            kept = self._suppress(error.failure)
            context.observer.closed(path, failed(kept), context.now)
            return False
        return True

    def compensation_closed(self, outcome: Outcome) -> None:
        """Close the running compensation; the others run even if it has failed."""
        context = self._context
        running = self.compensating
        assert running is not None
        context.observer.closed(Path.parse(running), outcome, context.now)
        if outcome.failure:
            self._suppress(outcome.failure)
        context.update(closing=replace(self._closing, compensating=None))
        self._proceed()

    def _action(self, compensation: Compensation) -> RunActivity | CallBlock:
        flow = self._context.program.flows[compensation.block]
        action = flow.by_name[Path.parse(compensation.path).step].compensate
        assert action is not None
        return action


def _last_command(closing: Closing) -> cmd.ClosingCommand:
    """Return the command that closes the run, from the outcome of its main steps and the failures after them."""
    outcome, suppressed = closing.outcome, closing.suppressed
    if outcome.status is Status.SUCCEEDED and suppressed:
        first, *rest = suppressed
        return cmd.FailWorkflowExecution(failure=replace(first, suppressed=tuple(rest)))
    if outcome.status is Status.SUCCEEDED:
        return cmd.CompleteWorkflowExecution(result=outcome.output)
    if outcome.status is Status.CANCELLED:
        failures = suppressed if outcome.failure is None else (outcome.failure, *suppressed)
        failure = None
        if failures:
            message = shorten(f"cancelled, and {_listed(failures)}")
            failure = Failure(kind=FailureKind.CANCELLED, message=message, suppressed=failures)
        return cmd.CancelWorkflowExecution(failure=failure)
    failure = outcome.failure
    assert failure is not None
    if suppressed:
        message = shorten(f"{failure.message}; {_listed(suppressed)}")
        failure = replace(failure, message=message, suppressed=(*failure.suppressed, *suppressed))
    return cmd.FailWorkflowExecution(failure=failure)


def _listed(suppressed: tuple[Failure, ...]) -> str:
    return "; ".join(f"then failed as well: {failure.message}" for failure in suppressed)
