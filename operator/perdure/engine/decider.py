"""The seam between the engine and whatever decides: the YAML interpreter here, Temporal SDK workers later."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from perdure.engine.commands import Command
from perdure.engine.events import AnyEvent


@dataclass(frozen=True, slots=True)
class Decision:
    """What a decider answers: commands in order, and its own state for the next time."""

    commands: tuple[Command, ...]
    memory: Any


class UndecidableError(Exception):
    """The decider cannot decide, for a reason that is not the run's failure.

    The run stays open; the decider is asked again, with backoff, until someone has mended the reason.
    """


class Decider(Protocol):
    """Decides what a run does next. Deterministic: the same memory and events give the same decision, always and everywhere.

    It must take events one by one: deciding ``[a, b]`` at once gives the commands of ``[a]`` followed by those of ``[b]``.
    """

    def decide(self, memory: Any, events: Sequence[AnyEvent]) -> Decision:
        """Decide what follows `events`, none of which comes from a command.

        Args:
            memory: what the last decision left, None at first; as plain JSON after a restart.
            events: what has happened since, in order.

        Raises:
            UndecidableError: it cannot decide now.
        """
        ...
