"""The interface for observing an execution."""

from datetime import datetime
from typing import Any, Protocol

from perdure.engine.failures import Failure
from perdure.language.memory import Outcome
from perdure.language.step_paths import Path


class Observer(Protocol):
    """Receives the starts and ends of steps, items, frames, and compensations."""

    def started(self, path: Path, now: datetime, block: str = "") -> None:
        """Something starts; with a block, that block does."""

    def activity_completed(self, path: Path, output: Any) -> None:
        """The activity of a step has completed."""

    def failed(self, path: Path, failure: Failure) -> None:
        """The action of a step has failed; a `catch` may handle it."""

    def closed(self, path: Path, outcome: Outcome, now: datetime) -> None:
        """Something has closed."""

    def discarded(self, path: Path) -> None:
        """A branch is discarded before any step of it has started."""


class NullObserver:
    """Ignores everything."""

    def started(self, path: Path, now: datetime, block: str = "") -> None:
        """Ignore it."""

    def activity_completed(self, path: Path, output: Any) -> None:
        """Ignore it."""

    def failed(self, path: Path, failure: Failure) -> None:
        """Ignore it."""

    def closed(self, path: Path, outcome: Outcome, now: datetime) -> None:
        """Ignore it."""

    def discarded(self, path: Path) -> None:
        """Ignore it."""
