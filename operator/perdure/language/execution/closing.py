"""Closing: after the main steps compensations run, then `onCancel` or `onFailure`, then `finally`; then the run closes."""

from typing import Final

import msgspec

from perdure.api.times import show_duration
from perdure.engine import commands as cmd
from perdure.engine.failures import MAX_SIZE, Failure, FailureKind, bounded, shorten
from perdure.language.execution.context import replace
from perdure.language.execution.parts import Parts
from perdure.language.memory import CANCELLED, Closing, Outcome, Status, failed
from perdure.language.step_failures import StepError, as_variable, timeout
from perdure.language.step_paths import MAIN, Path

_SMALLEST_SUPPRESSED: Final = 2_048
"""Bytes of JSON that are always allowed for each failure of a compensation or handler."""


class ClosingSequence:
    """Runs compensations and handlers after the main steps."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._context = parts.context

    def cancel(self, *, stop: bool) -> None:
        """Cancel the run; with `stop`, without compensations and `onCancel`."""
        if self._context.memory.closing is None:
            if stop:
                self._context.update(stopped=True)
            self._parts.frames.stop(MAIN, CANCELLED)

    def main_closed(self, outcome: Outcome) -> None:
        """After the main steps: run compensations and handlers, and close the run."""
        self._context.update(closing=Closing(outcome=outcome, handled=self._context.memory.stopped), agenda=())
        self._context.agenda.clear()
        self.proceed()

    def proceed(self) -> None:
        """Start the next compensation, handler, or `finally`, or close the run."""
        context = self._context
        while not context.closed:
            closing = self._closing
            compensate = closing.outcome.status is not Status.SUCCEEDED and not closing.handled
            if compensate and context.memory.compensations:
                if self._parts.compensations.start_newest():
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
                self._close(closing)

    def handler_closed(self, path: Path, outcome: Outcome) -> None:
        """Continue after the block of a handler has closed."""
        self._parts.timers.cancel(path.timeout)
        if outcome.failure:
            self.suppress(outcome.failure)
        self.proceed()

    def handler_timed_out(self, name: str) -> None:
        """Stop a handler whose timer has fired."""
        limit = show_duration(self._context.program.handlers[name].handler.timeout)
        self._parts.frames.stop(Path.handler(name), failed(timeout(f"`{name}` has taken longer than {limit}")))

    def suppress(self, failure: Failure) -> Failure:
        """Store a failure of a compensation or handler, to report it with the final failure of the run.

        There may be hundreds, so each takes at most half of the space that is left.

        Returns:
            The stored part of the failure.
        """
        closing = self._closing
        left = MAX_SIZE - len(msgspec.json.encode(closing.suppressed))
        kept = bounded(failure, max(left // 2, _SMALLEST_SUPPRESSED))
        self._context.update(closing=replace(closing, compensating=None, suppressed=(*closing.suppressed, kept)))
        return kept

    def finish(self, command: cmd.ClosingCommand) -> None:
        """Emit the last command."""
        self._context.commands.append(command)
        self._context.closed = True

    @property
    def _closing(self) -> Closing:
        closing = self._context.memory.closing
        assert closing is not None
        return closing

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
            params = self._parts.evaluation.in_frame(compiled.input, MAIN.text, f"`{name}`", **extra)
            self._parts.frames.open(path, compiled.handler.block, params)
        except StepError as error:
            kept = self.suppress(error.failure)
            context.observer.closed(path, failed(kept), context.now)
            return False
        self._parts.timers.start(path.timeout, compiled.handler.timeout)
        return True

    def _close(self, closing: Closing) -> None:
        outcome, suppressed = closing.outcome, closing.suppressed
        if outcome.status is Status.SUCCEEDED and suppressed:
            first, *rest = suppressed
            self.finish(cmd.FailWorkflowExecution(failure=replace(first, suppressed=tuple(rest))))
        elif outcome.status is Status.SUCCEEDED:
            self.finish(cmd.CompleteWorkflowExecution(result=outcome.output))
        elif outcome.status is Status.CANCELLED:
            failure = None
            if suppressed:
                message = shorten(f"cancelled, and {_listed(suppressed)}")
                failure = Failure(kind=FailureKind.CANCELLED, message=message, suppressed=suppressed)
            self.finish(cmd.CancelWorkflowExecution(failure=failure))
        else:
            failure = outcome.failure
            assert failure is not None
            if suppressed:
                message = shorten(f"{failure.message}; {_listed(suppressed)}")
                failure = replace(failure, message=message, suppressed=(*failure.suppressed, *suppressed))
            self.finish(cmd.FailWorkflowExecution(failure=failure))


def _listed(suppressed: tuple[Failure, ...]) -> str:
    return "; ".join(f"then failed as well: {failure.message}" for failure in suppressed)
