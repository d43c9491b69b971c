"""Errors for users: one sentence with the problem and the fix. Verbs print it, and pages of the console show it."""

from enum import IntEnum


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


class CliError(ClientError):
    """A request, or a verb, failed."""

    status = ExitCode.TROUBLE
    """The resulting exit status."""


class UnreachableError(CliError):
    """The API server cannot be reached, or cannot answer now."""


class ForbiddenError(CliError):
    """The user does not have the permission."""


class NotFoundError(CliError):
    """The object does not exist."""


class NoNamespaceError(CliError):
    """The list is empty, and the namespace does not exist."""

    status = ExitCode.NO


class AlreadyExistsError(CliError):
    """An object with this name already exists."""


class RefusedError(CliError):
    """The operator refused a request, or does not start a run.

    `reason` is the reason in the status, such as `WorkflowExecutionCompleted` for a closed run.
    """

    status = ExitCode.NO

    def __init__(self, message: str, *, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason
