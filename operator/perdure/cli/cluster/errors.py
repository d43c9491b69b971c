"""Errors of requests to the cluster."""

from perdure.cli.errors import CliError, ExitCode


class UnreachableError(CliError):
    """The API server cannot be reached, or cannot answer now."""


class ForbiddenError(CliError):
    """The user does not have the permission."""


class GoneError(CliError):
    """The object does not exist."""


class NoNamespaceError(CliError):
    """The list is empty, and the namespace does not exist."""

    status = ExitCode.NO


class ExistsError(CliError):
    """An object with this name already exists."""
