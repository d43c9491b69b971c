"""Waits: `sleep`, `waitForSignal` and `waitUntil`."""

from datetime import datetime, timedelta
from typing import Any, assert_never

from perdure.api.times import show_duration
from perdure.engine import events as ev
from perdure.engine.failures import Failure, FailureKind, shorten
from perdure.language.coercion import as_length, as_moment, as_text
from perdure.language.compiled_actions import Sleep, Timeout, WaitForSignal, WaitUntil
from perdure.language.execution.context import Location, replace
from perdure.language.execution.parts import Parts
from perdure.language.memory import BufferedSignal, Outcome, failed, succeeded
from perdure.language.step_failures import EXPRESSION_ERROR, StepError, application, timeout
from perdure.language.step_paths import Path

_TIMEOUT = "waitTimeout"
"""Key under which a task records the timeout of its wait."""


class Waits:
    """Starts and ends waits."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._context = parts.context

    # Start and cancel

    def sleep(self, at: Location, action: Sleep) -> None:
        """Start the timer. Raises StepError."""
        try:
            length = self._length(at, action)
        except ValueError as error:
            raise StepError(application(EXPRESSION_ERROR, f"{at.where}: `sleep`: {error}")) from error
        self._parts.timers.start(at.path, length)

    def for_signal(self, at: Location, action: WaitForSignal) -> Outcome | None:
        """Consume the oldest signal with the name, or wait. Raises StepError."""
        memory = self._context.memory
        for i, signal in enumerate(memory.signals):
            if signal.name == action.name:
                self._context.update(signals=(*memory.signals[:i], *memory.signals[i + 1 :]))
                self._context.conditions_stale = True
                return _received(at, action, signal.input, signal.principal)
        self._start_timeout(at, action.timeout)
        if action.message is not None:
            note = shorten(as_text(self._parts.evaluation.of_step(at, action.message)))
            self._context.put_task(at.path, replace(self._context.memory.tasks[at.path.text], note=note))
        self._context.update(signal_waiters=(*memory.signal_waiters, at.path.text))
        return None

    def until(self, at: Location, action: WaitUntil) -> Outcome | None:
        """Evaluate the condition; if it is false, evaluate it again after each change. Raises StepError."""
        if self._parts.evaluation.of_step(at, action.condition):
            return succeeded()
        self._start_timeout(at, action.timeout)
        self._context.update(condition_waiters=(*self._context.memory.condition_waiters, at.path.text))
        return None

    def cancel(self, at: Location, action: Sleep | WaitForSignal | WaitUntil) -> None:
        """Stop waiting."""
        if isinstance(action, Sleep):
            self._parts.timers.cancel(at.path)
        else:
            self._stop(at, action)

    # Events that end a wait

    def timer_fired(self, at: Location) -> Outcome:
        """Return the outcome of a wait whose timer has fired. Other kinds of steps have no such timer."""
        action = at.compiled.action
        assert isinstance(action, Sleep | WaitForSignal | WaitUntil)
        if isinstance(action, Sleep):
            return succeeded()
        limit = show_duration(self._parts.timers.recorded_timeout(at.path, _TIMEOUT, action.timeout))
        self._stop(at, action)
        match action:
            case WaitForSignal(name):
                return failed(timeout(f"{at.where}: no signal `{name}` came within {limit}"))
            case WaitUntil():
                return failed(timeout(f"{at.where}: the condition did not hold within {limit}"))
            case other:
                assert_never(other)

    def signal_received(self, event: ev.WorkflowExecutionSignaled) -> None:
        """Pass a signal to the task that has waited longest for it, or buffer it."""
        memory = self._context.memory
        for path in map(Path.parse, memory.signal_waiters):
            at = self._context.locate(path)
            action = at.compiled.action
            if isinstance(action, WaitForSignal) and action.name == event.signal_name:
                self._stop(at, action)
                self._parts.tasks.part_closed(path, _received(at, action, event.input, event.principal))
                return
        signal = BufferedSignal(
            name=event.signal_name,
            input=event.input,
            identity=event.identity,
            principal=event.principal,
            time=event.event_time,
        )
        self._context.update(signals=(*memory.signals, signal))

    def check_condition(self, path: Path) -> None:
        """Evaluate the condition that a task waits for, and end the wait if it is true."""
        if path.text not in self._context.memory.condition_waiters:
            return
        at = self._context.locate(path)
        action = at.compiled.action
        assert isinstance(action, WaitUntil)
        try:
            outcome = succeeded() if self._parts.evaluation.of_step(at, action.condition) else None
        except StepError as error:
            outcome = failed(error.failure)
        if outcome is not None:
            self._stop(at, action)
            self._parts.tasks.part_closed(path, outcome)

    def _length(self, at: Location, action: Sleep) -> timedelta:
        if action.duration is not None:
            given = action.duration
            return as_length(given if isinstance(given, timedelta) else self._parts.evaluation.of_step(at, given))
        until = action.until
        value = until if isinstance(until, datetime) else self._parts.evaluation.of_step(at, until)
        return as_moment(value) - self._context.now

    def _start_timeout(self, at: Location, given: Timeout) -> None:
        length = self._parts.timers.timeout(at, _TIMEOUT, given)
        if length is not None:
            self._parts.timers.start(at.path, length)

    def _stop(self, at: Location, action: WaitForSignal | WaitUntil) -> None:
        """Remove a task from the waiting tasks, and cancel the timer of its wait."""
        memory, text = self._context.memory, at.path.text
        self._context.update(
            signal_waiters=tuple(path for path in memory.signal_waiters if path != text),
            condition_waiters=tuple(path for path in memory.condition_waiters if path != text),
        )
        if action.timeout is not None:
            self._parts.timers.cancel(at.path)


def _received(at: Location, action: WaitForSignal, given: Any, principal: str) -> Outcome:
    """Return the outcome of a step that has received its signal."""
    if not action.approval:
        return succeeded(given)
    answer = given if isinstance(given, dict) else {}
    decision = {"approved": answer.get("approved") is True, "comment": answer.get("comment"), "by": principal}
    if decision["approved"]:
        return succeeded(decision)
    why = f": {as_text(answer['comment'])}" if answer.get("comment") else ""
    message = shorten(f"{at.where}: {principal or 'an unknown user'} rejected it{why}")
    return failed(
        Failure(kind=FailureKind.APPLICATION, type="Rejected", message=message, details=decision, non_retryable=True)
    )
