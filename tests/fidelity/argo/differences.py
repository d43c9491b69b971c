"""What differs between Argo and Perdure on purpose, each with its reason; the documentation lists them (docs/from-argo.md)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from fidelity.argo.observed import STUCK, Observed


@dataclass(frozen=True)
class Difference:
    """A difference that is known."""

    name: str
    """Its entry in the documentation."""
    applies: Callable[[Observed], bool]
    """Whether a workflow that went so on Argo has it."""


KNOWN: Final = (
    Difference("A workflow that Argo's controller never ends", lambda argo: argo.phase == STUCK),
    Difference(
        "A condition that Argo cannot read, because a value in it has quotes",
        lambda argo: any("Invalid 'when' expression" in each for each in argo.errors),
    ),
    Difference(
        "A tag of a hook that Argo leaves as it is",
        lambda argo: any("{{" in value for _, values in argo.attempts for value in values.values()),
    ),
)


def known(argo: Observed) -> Difference | None:
    """Return the known difference that a workflow has; None if it has none."""
    return next((each for each in KNOWN if each.applies(argo)), None)
