"""What can go wrong when the cluster is asked."""

from perdure.cli.errors import CliError, ExitCode


class UnreachableError(CliError):
    """The API server could not be asked, or could not answer; it may be able to later."""


class GoneError(CliError):
    """There is no such object."""


class NoNamespaceError(CliError):
    """There is nothing to list, nor such a namespace."""

    status = ExitCode.NO


class ExistsError(CliError):
    """There is an object of that name already."""
