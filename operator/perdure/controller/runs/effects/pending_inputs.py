"""Inputs of the engine that wait for the next reconciliation of a run."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from perdure.engine.inputs import RunInput

MAX_AT_ONCE = 250
"""Maximum number of inputs for one step, so that the write of their events stays below the size limit."""


@dataclass(frozen=True, slots=True)
class _Pending:
    input: RunInput
    on_commit: Callable[[], None] | None = None


class PendingInputs:
    """The inputs that a run has not committed yet, in order."""

    def __init__(self, wake: Callable[[], None]) -> None:
        """Create it without inputs; `wake` requests another reconciliation."""
        self._wake = wake
        self._pending: list[_Pending] = []

    def __bool__(self) -> bool:
        return bool(self._pending)

    def enqueue(self, item: RunInput, on_commit: Callable[[], None] | None = None) -> None:
        """Add an input for another reconciliation. `on_commit` is called once the input is committed."""
        self._pending.append(_Pending(item, on_commit))
        self._wake()

    def add(self, items: Iterable[RunInput]) -> None:
        """Add inputs for the current reconciliation."""
        self._pending += map(_Pending, items)

    def first(self) -> list[RunInput]:
        """The inputs for the next step, in order, at most `MAX_AT_ONCE`."""
        return [pending.input for pending in self._pending[:MAX_AT_ONCE]]

    def committed(self, count: int) -> None:
        """Remove the first `count` inputs, which are committed."""
        for pending in self._pending[:count]:
            if pending.on_commit is not None:
                pending.on_commit()
        del self._pending[:count]
