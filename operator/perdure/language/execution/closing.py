"""Closing: after the main steps compensations run, then `onCancel` or `onFailure`, then `finally`; then the run closes.

Compensations are recorded when tasks complete, and run one by one, the newest first, when the run fails or is canceled.
"""

from typing import Final, assert_never

import msgspec

from perdure.api.times import show_duration
from perdure.engine import commands as cmd
from perdure.engine.failures import MAX_SIZE, Failure, FailureKind, bounded, shorten
from perdure.language.execution.actions import schedule_activity
from perdure.language.execution.context import DecisionContext, replace
from perdure.language.execution.flow import RunningFlows
from perdure.language.memory import CANCELLED, Closing, Compensation, Outcome, Status, failed
from perdure.language.program import CallBlock, RunActivity
from perdure.language.step_failures import StepError, as_variable, timeout
from perdure.language.step_paths import MAIN, Path

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
        failure = None
        if suppressed:
            message = shorten(f"cancelled, and {_listed(suppressed)}")
            failure = Failure(kind=FailureKind.CANCELLED, message=message, suppressed=suppressed)
        return cmd.CancelWorkflowExecution(failure=failure)
    failure = outcome.failure
    assert failure is not None
    if suppressed:
        message = shorten(f"{failure.message}; {_listed(suppressed)}")
        failure = replace(failure, message=message, suppressed=(*failure.suppressed, *suppressed))
    return cmd.FailWorkflowExecution(failure=failure)


def _listed(suppressed: tuple[Failure, ...]) -> str:
    return "; ".join(f"then failed as well: {failure.message}" for failure in suppressed)
