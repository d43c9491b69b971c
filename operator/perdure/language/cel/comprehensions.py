"""The loops of comprehensions as closures."""

from dataclasses import dataclass
from typing import Any

from perdure.language.cel.closures import ABSORBED, Frame, Raised, Run, boolean
from perdure.language.cel.errors import EvaluationError
from perdure.language.cel.lookup import loop_items


@dataclass(frozen=True, slots=True)
class CompiledComprehension:
    """A compiled loop: its range, the slots of item and result, and the cost of one round."""

    over: Run
    item: int
    """Slot of the item."""
    result: int
    """Slot of the result."""
    cost: int


def collect(loop: CompiledComprehension, keep: Run | None, make: Run) -> Run:
    """`map` and `filter`: append each result, instead of copying the list each time as CEL's own definition does."""
    over, item, result, cost = loop.over, loop.item, loop.result, loop.cost

    def run(frame: Frame) -> None:
        charge = frame[0].charge
        made: list[Any] = []
        for value in loop_items(frame[0], over(frame)):
            charge(cost)
            frame[item] = value
            if keep is None or boolean(keep(frame), "filter"):
                made.append(make(frame))
        frame[result] = made

    return run


def fold(loop: CompiledComprehension, condition: Run, step: Run, *, absorbs: bool) -> Run:
    """`all`, `exists`, `exists_one` and `cel.bind`, by CEL's definition."""
    over, item, result, cost = loop.over, loop.item, loop.result, loop.cost

    def run(frame: Frame) -> None:
        charge = frame[0].charge
        for value in loop_items(frame[0], over(frame)):
            charge(cost)
            frame[item] = value
            if not condition(frame):
                break
            try:
                frame[result] = step(frame)
            except EvaluationError as error:
                if not absorbs:
                    raise
                charge(ABSORBED)
                frame[result] = Raised(error.with_traceback(None))

    return run
