"""Compensations: recorded when steps complete, run one by one, the newest first, when the run fails or is canceled."""

from typing import Any, assert_never

from perdure.language import timeouts
from perdure.language.compiled_actions import CallBlock, RunActivity
from perdure.language.execution.context import Location, replace
from perdure.language.execution.parts import Parts
from perdure.language.execution.schedule_activity import schedule_activity
from perdure.language.expressions import Template
from perdure.language.memory import Compensation, Outcome, Status, failed
from perdure.language.scope import step_as_json
from perdure.language.step_failures import StepError
from perdure.language.step_paths import Path


class Compensations:
    """Records and runs compensations."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._context = parts.context

    @property
    def running(self) -> str | None:
        """Return the path of the running compensation."""
        closing = self._context.memory.closing
        if closing is None or closing.compensating is None:
            return None
        return Path.parse(closing.compensating.path).compensation.text

    @property
    def activity(self) -> str | None:
        """Return the name of the activity of the running compensation, if it has one."""
        closing = self._context.memory.closing
        assert closing is not None
        assert closing.compensating is not None
        action = self._action(closing.compensating)
        return action.call.name if isinstance(action, RunActivity) else None

    def record(self, at: Location, output: Any) -> None:
        """Evaluate and record the compensation of a task that has completed. Raises StepError."""
        context, name, action = self._context, at.path.step, at.compiled.compensate
        frame = context.memory.frames[at.path.frame]
        record = step_as_json(replace(frame.steps[name], status=Status.SUCCEEDED, end_time=context.now, output=output))

        def evaluate(template: Template | None) -> Any:
            wanted = template.references.steps if template else ()
            steps = {**{n: step_as_json(frame.steps[n]) for n in wanted if n in frame.steps}, name: record}
            return self._parts.evaluation.of_step(at, template, steps=steps)

        assert action is not None
        value = evaluate(action.input)
        limits = timeouts.of_activity(at.where, action.timeouts, evaluate) if isinstance(action, RunActivity) else {}
        if context.memory.closing is None:
            recorded = Compensation(
                path=at.path.text, block=frame.block, depth=frame.depth, input=value, timeouts=limits
            )
            context.update(compensations=(*context.memory.compensations, recorded))

    def start_newest(self) -> bool:
        """Start the newest compensation. Return whether it has started. Its failure is suppressed."""
        context = self._context
        *rest, newest = context.memory.compensations
        closing = context.memory.closing
        assert closing is not None
        path = Path.parse(newest.path).compensation
        context.observer.started(path, context.now)
        context.update(compensations=tuple(rest), closing=replace(closing, compensating=newest))
        try:
            self._start(newest, path)
        except StepError as error:
            kept = self._parts.closing.suppress(error.failure)
            context.observer.closed(path, failed(kept), context.now)
            return False
        return True

    def close(self, outcome: Outcome) -> None:
        """Close the running compensation; the others run even if it has failed."""
        context = self._context
        running = self.running
        assert running is not None
        context.observer.closed(Path.parse(running), outcome, context.now)
        if outcome.failure:
            self._parts.closing.suppress(outcome.failure)
        closing = context.memory.closing
        assert closing is not None
        context.update(closing=replace(closing, compensating=None))
        self._parts.closing.proceed()

    def _start(self, compensation: Compensation, path: Path) -> None:
        match self._action(compensation):
            case RunActivity(call):
                command = schedule_activity(
                    self._context.program, call, path, compensation.input, compensation.timeouts
                )
                self._context.commands.append(command)
            case CallBlock(block):
                self._parts.frames.open(path, block, compensation.input)
            case other:
                assert_never(other)

    def _action(self, compensation: Compensation) -> RunActivity | CallBlock:
        flow = self._context.program.flows[compensation.block]
        action = flow.by_name[Path.parse(compensation.path).step].compensate
        assert action is not None
        return action
