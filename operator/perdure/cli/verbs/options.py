"""`options`: the options that every verb has."""

import typer

from perdure.cli.flags import GLOBAL

HELP = """List the options that you can pass to every command.

They have the same meaning as those of kubectl. -n, -A, and --context are
listed in the help of each command.

\b
Examples:
  {program} options
  {program} list --kubeconfig staging.yaml --request-timeout 10s
"""


def command() -> None:
    """List the global options."""
    names = [", ".join(filter(None, (flag.short, f"{flag.name} {flag.metavar}".rstrip()))) for flag in GLOBAL]
    width = max(map(len, names))
    for name, flag in zip(names, GLOBAL, strict=True):
        typer.echo(f"  {name.ljust(width)}  {flag.help}")
