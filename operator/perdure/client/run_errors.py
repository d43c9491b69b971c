"""Runs that did not complete, as exceptions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure.api.json_values import mapping
from perdure.api.phases import Phase
from perdure.client.errors import CliError, ExitCode
from perdure.view import failure as failures

if TYPE_CHECKING:
    from perdure.api.json_values import Json
    from perdure.view.run import RunView

_MAX_CAUSES = 50


class RunEndedError(CliError):
    """A run has ended without a result."""

    status = ExitCode.NO

    def __init__(self, run: RunView) -> None:
        """`run`: the closed run."""
        why = failures.summary(run.failure) if run.failure else run.message
        super().__init__(f"the run `{run.name}` ended as {run.phase}{why and f': {why}'}")
        self.run = run.name
        """Name of the run; of a chain, that of the last one."""
        self.phase = run.phase
        """Its phase, such as `Failed`."""
        self.reason = run.reason
        """The reason of its condition `Succeeded`, as the reference of conditions lists them."""
        self.failure: Json | None = run.failure
        """Its failure as JSON, with `kind`, `type`, `message`, `details`, and `cause`; None if there is none."""

    @property
    def type(self) -> str:
        """The type of the innermost failure, such as `CardDeclined`; empty without a failure."""
        node = self.failure
        for _ in range(_MAX_CAUSES):
            cause = mapping(mapping(node).get("cause"))
            if not cause:
                break
            node = cause
        return failures.title(node) if node else ""


class RunFailedError(RunEndedError):
    """A run has failed."""


class RunCancelledError(RunEndedError):
    """A run has ended as cancelled."""


class RunTerminatedError(RunEndedError):
    """A run was terminated."""


class RunTimedOutError(RunEndedError):
    """A run has reached its timeout."""


_BY_PHASE = {
    Phase.FAILED: RunFailedError,
    Phase.CANCELLED: RunCancelledError,
    Phase.TERMINATED: RunTerminatedError,
    Phase.TIMED_OUT: RunTimedOutError,
}


def error_of(run: RunView) -> RunEndedError:
    """Return the error for a closed run that did not complete."""
    return next((kind for phase, kind in _BY_PHASE.items() if phase == run.phase), RunEndedError)(run)
