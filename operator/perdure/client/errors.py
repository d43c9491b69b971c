"""Errors for users: one sentence with the problem and the fix. Verbs print it, and pages of the console show it.

A run that did not complete is one as well.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

from perdure.api.json_values import mapping
from perdure.api.phases import Phase
from perdure.lazy import lazily

with lazily():
    from perdure.view.runs import failure as failures

if TYPE_CHECKING:
    from perdure.api.json_values import Json
    from perdure.view.runs.run import RunView

_MAX_CAUSES = 50


class ExitCode(IntEnum):
    """The exit status of every verb: as with grep and diff, 1 is a negative answer and 2 is an error."""

    YES = 0
    """Success; the awaited run completed; the history replays."""

    NO = 1
    """A negative answer: the run failed, or the history does not replay."""

    TROUBLE = 2
    """An error: wrong usage, no cluster, no such run, or no permission."""

    TIMEOUT = 124
    """A timeout, as with the command `timeout`."""


class ClientError(Exception):
    """The base of all errors of `perdure.client`. The message is one sentence with the problem and the fix."""

    status = ExitCode.TROUBLE
    """The exit status of a verb that fails with it."""


class CliError(ClientError):
    """A verb failed."""


class UnreachableError(ClientError):
    """The API server cannot be reached, or cannot answer now."""


class ForbiddenError(ClientError):
    """The user does not have the permission."""


class NotFoundError(ClientError):
    """The object does not exist."""


class NoNamespaceError(ClientError):
    """The list is empty, and the namespace does not exist."""

    status = ExitCode.NO


class AlreadyExistsError(ClientError):
    """An object with this name already exists."""


class RefusedError(ClientError):
    """The operator refused a request, or does not start a run.

    `reason` is the reason in the status, such as `WorkflowExecutionCompleted` for a closed run.
    """

    status = ExitCode.NO

    def __init__(self, message: str, *, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason


class NotStartedError(RefusedError):
    """The run will never start. `reason` is that of its condition `Succeeded`, such as `InvalidInput`."""


class RunEndedError(ClientError):
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
