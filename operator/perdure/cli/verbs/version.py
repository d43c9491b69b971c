"""`version`: which version this is."""

import typer

from perdure import __version__

HELP = """Show the version of this command.

\b
Examples:
  {program} version
"""


def command() -> None:
    """Show the version of this command."""
    typer.echo(f"perdure {__version__}")
