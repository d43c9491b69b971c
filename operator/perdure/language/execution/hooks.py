"""Hooks: the blocks that run before and after a step."""

from perdure.language.execution.context import Location, replace
from perdure.language.execution.parts import Parts
from perdure.language.memory import Outcome, Stage, Status, Task, failed
from perdure.language.scope import ended_as_json
from perdure.language.step_failures import StepError


class Hooks:
    """Opens the frames of `onStart` and `onEnd`."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._context = parts.context

    def begin(self, at: Location) -> bool:
        """Open the block of `onStart`. Return whether it is defined. Raises StepError."""
        hook = at.compiled.on_start
        if hook is None:
            return False
        context = self._context
        context.put_task(at.path, replace(context.memory.tasks[at.path.text], stage=Stage.ON_START))
        params = self._parts.evaluation.of_step(at, hook.input)
        self._parts.frames.open(at.path.on_start, hook.block, params, caller=at.path.frame)
        return True

    def end(self, at: Location, outcome: Outcome) -> Outcome | None:
        """Open the block of `onEnd`. Return the outcome of the step if the block is not defined or cannot run."""
        hook = at.compiled.on_end
        if hook is None:
            return outcome
        self._context.put_task(at.path, Task(stage=Stage.ON_END, result=outcome))
        try:
            params = self._parts.evaluation.of_step(at, hook.input, step=ended_as_json(outcome))
            self._parts.frames.open(at.path.on_end, hook.block, params, caller=at.path.frame)
        except StepError as error:
            return _joined(outcome, failed(error.failure))
        return None

    def ended(self, task: Task, outcome: Outcome) -> Outcome:
        """Return the outcome of a step whose `onEnd` has closed."""
        assert task.result is not None, "set as its block was opened"
        return _joined(task.result, outcome)


def _joined(result: Outcome, hook: Outcome) -> Outcome:
    """Combine the outcomes of a step and its hook. A failed hook fails a successful step, and is added to another failure."""
    if hook.failure is None or result.status is Status.CANCELLED:
        return result
    if result.failure is None:
        return hook
    return failed(replace(result.failure, suppressed=(*result.failure.suppressed, hook.failure)))
