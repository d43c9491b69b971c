"""The seam between the engine and whatever decides: the YAML interpreter here, Temporal SDK workers later."""

from dataclasses import dataclass
from typing import Any, Protocol

from perdure.engine.commands import Command
from perdure.engine.events import AnyEvent


@dataclass(frozen=True, slots=True)
class Decision:
    """A decision: commands in order, and the state of the decider for the next one."""

    commands: tuple[Command, ...]
    memory: Any
    work: int = 0
    """Cost of the decision, in units of about 0.1 us, which limits the number of decisions of one step."""
    more: bool = False
    """The decider has stopped to let others have their turn, and must be asked to continue."""


class UndecidableError(Exception):
    """The decider cannot decide, for a reason that is not the run's failure.

    The run stays open; the decider is asked again, with backoff, until someone has fixed the reason.
    """

    def __init__(self, message: str, reason: str = "", *, cause: str = "Unspecified") -> None:
        """Say that nothing can be decided.

        Args:
            message: Why.
            reason: One CamelCase word for a condition, where there is a better one than that nothing could be decided.
            cause: The same for workers, as one of temporal.api.enums.v1.WorkflowTaskFailedCause, CamelCase.
        """
        super().__init__(message)
        self.reason = reason
        self.cause = cause


class Decider(Protocol):
    """Decides what a run does next. Deterministic: the same memory and event give the same decision, at any time and place."""

    def decide(self, memory: Any, event: AnyEvent | None, *, continue_as_new_suggested: bool = False) -> Decision:
        """Decide what follows an event that records no command.

        Args:
            memory: what the last decision left, None at first; as plain JSON after a restart, and then with the keys of its
                objects in any order.
            event: What has happened; None to continue the last decision, which stopped with `more`.
            continue_as_new_suggested: the history was long when the event was recorded.

        Raises:
            UndecidableError: it cannot decide now.
        """
        ...
