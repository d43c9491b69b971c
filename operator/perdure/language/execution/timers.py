"""Timers of sleeps, waits, steps, and handlers, and timeouts from expressions."""

from datetime import timedelta

from perdure.engine import commands as cmd
from perdure.language import timeouts
from perdure.language.compiled_actions import Timeout
from perdure.language.execution.context import DecisionContext, Location, replace
from perdure.language.execution.evaluation import Evaluation
from perdure.language.step_paths import Path


class Timers:
    """Starts and cancels timers."""

    def __init__(self, context: DecisionContext, evaluation: Evaluation) -> None:
        self._context = context
        self._evaluation = evaluation

    def start(self, timer: Path, length: timedelta) -> None:
        """Start a timer."""
        self._context.commands.append(
            cmd.StartTimer(timer_id=timer.text, start_to_fire_timeout=max(length, timedelta(0)))
        )

    def cancel(self, timer: Path) -> None:
        """Cancel a running timer."""
        self._context.commands.append(cmd.CancelTimer(timer_id=timer.text))

    def cancel_timeout(self, path: Path) -> None:
        """Cancel the timer of a task's `timeout`, if it is running."""
        task = self._context.memory.tasks[path.text]
        if task.timed:
            self.cancel(path.timeout)
            self._context.put_task(path, replace(task, timed=False))

    def timeout(self, at: Location, key: str, given: Timeout) -> timedelta | None:
        """Return the timeout of a starting task, and record the value of an expression under `key`. Raises StepError."""
        if given is None or isinstance(given, timedelta):
            return given
        length = timeouts.computed(at.where, "timeout", self._evaluation.of_step(at, given))
        task = self._context.memory.tasks[at.path.text]
        self._context.put_task(at.path, replace(task, limits={**task.limits, key: length}))
        return length

    def recorded_timeout(self, path: Path, key: str, given: Timeout) -> timedelta:
        """Return the timeout of a started task, for messages."""
        if isinstance(given, timedelta):
            return given
        return self._context.memory.tasks[path.text].limits.get(key, timedelta(0))
