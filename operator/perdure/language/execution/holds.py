"""Holds: the WorkflowLimits that a step takes before its action, and releases when that has ended.

An activity without a pod takes them: it completes when the step holds all of them. A marker records the release.
"""

from datetime import timedelta
from typing import Final

from perdure.api.kinds.workflowlimit import MAX_KEY, StepLimit
from perdure.engine import commands as cmd
from perdure.engine.retry import RetryPolicy
from perdure.engine.state import LIMITS_RELEASED, TAKE_LIMITS
from perdure.language.coercion import as_text
from perdure.language.execution.context import Location, replace
from perdure.language.execution.parts import Parts
from perdure.language.limit_keys import wanted_limit
from perdure.language.memory import Stage
from perdure.language.step_failures import EXPRESSION_ERROR, StepError, application
from perdure.language.step_paths import Path

_ONCE: Final = RetryPolicy(maximum_attempts=1)
_MOMENT: Final = timedelta(seconds=10)
"""The time that the engine demands for an attempt. This one ends as it starts."""


class Holds:
    """Takes and releases the limits of tasks."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._context = parts.context

    def take(self, at: Location) -> None:
        """Ask for the limits of a task. Raises StepError."""
        context = self._context
        wanted = [wanted_limit(limit, self._key(at, limit, i)) for i, limit in enumerate(at.compiled.step.limits)]
        context.put_task(at.path, replace(context.memory.tasks[at.path.text], stage=Stage.LIMITS))
        context.commands.append(
            cmd.ScheduleActivityTask(
                activity_id=at.path.limits.text,
                activity_type=TAKE_LIMITS,
                input=wanted,
                start_to_close_timeout=_MOMENT,
                retry_policy=_ONCE,
            )
        )

    def give_up(self, path: Path) -> None:
        """Stop waiting for the limits of a task."""
        self._context.commands.append(cmd.RequestCancelActivityTask(activity_id=path.limits.text))

    def taken(self, path: Path) -> bool:
        """Record that a task holds its limits; return whether it waited for them. If it has ended, release them again."""
        task = self._context.task(path)
        if task is None or task.stage is not Stage.LIMITS:
            self._release(path)
            return False
        self._context.put_task(path, replace(task, stage=Stage.BODY, held=True))
        return True

    def release(self, path: Path) -> None:
        """Release the limits of a task whose action has ended, if it holds any."""
        task = self._context.memory.tasks[path.text]
        if task.held:
            self._context.put_task(path, replace(task, held=False))
            self._release(path)

    def _release(self, path: Path) -> None:
        self._context.commands.append(cmd.RecordMarker(marker_name=LIMITS_RELEASED, details=path.limits.text))

    def _key(self, at: Location, limit: StepLimit, index: int) -> str:
        key = as_text(self._parts.evaluation.of_step(at, at.compiled.templates[f"limits/{index}"]))
        if len(key) > MAX_KEY:
            message = f"{at.where}: the key of limit `{limit.name}` has {len(key)} characters; it may have {MAX_KEY}"
            raise StepError(application(EXPRESSION_ERROR, message))
        return key
