"""Evaluates the expressions of a step: builds their scope, and charges their work to the decision."""

from collections.abc import Mapping
from typing import Any

from perdure.language.cel import Meter
from perdure.language.cel.expression_limits import BUDGET
from perdure.language.execution.context import DecisionContext, Location
from perdure.language.expression_text import ExpressionError
from perdure.language.expressions import Template
from perdure.language.memory import Frame
from perdure.language.scope import outcome_as_json, step_as_json
from perdure.language.step_failures import EXPRESSION_ERROR, StepError, application


class Evaluation:
    """Evaluates templates in a frame."""

    def __init__(self, context: DecisionContext) -> None:
        self._context = context

    def of_step(self, at: Location, template: Template | None, **extra: Any) -> Any:
        """Evaluate a template of a step or item; None without a template. Raises StepError."""
        if template is None:
            return None
        loop = at.compiled.loop
        if at.path.index is not None and loop is not None:
            running = self._context.memory.loops[at.path.loop.text]
            extra = {loop.variable: running.item(at.path.index), "index": at.path.index, **extra}
        return self.in_frame(template, at.path.frame, at.where, **extra)

    def in_frame(self, template: Template, frame: str, where: str, **extra: Any) -> Any:
        """Evaluate a template in a frame; `where` is for messages. Raises StepError."""
        meter = Meter()
        try:
            return template.evaluate(self._names(template, frame, extra), meter)
        except ExpressionError as error:
            raise StepError(application(EXPRESSION_ERROR, f"{where}: {error}")) from error
        finally:
            self._context.work += BUDGET - meter.left

    def _names(self, template: Template, frame_path: str, extra: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of the names; costly values are only built if the template reads them."""
        context, reads = self._context, template.references
        memory = context.memory
        frame = memory.frames.get(frame_path) or Frame()
        names = {**context.scope, "now": context.now, "vars": memory.vars, "params": frame.params}
        if "run" in reads.roots:
            names["run"] = {
                **context.scope["run"],
                "continueAsNewSuggested": memory.continue_as_new_suggested,
                **outcome_as_json(memory.closing),
            }
        if "steps" in reads.roots:
            records = frame.steps
            wanted = sorted(records) if reads.every_step else reads.steps
            names["steps"] = {name: step_as_json(records[name]) for name in wanted if name in records}
            context.work += 20 * len(names["steps"])
        if "signals" in reads.roots:
            buffered: dict[str, list[Any]] = {name: [] for name in reads.signals}
            for signal in memory.signals:
                buffered.setdefault(signal.name, []).append(signal.input)
            names["signals"] = buffered
            context.work += 10 * len(memory.signals)
        return {**names, **extra}
