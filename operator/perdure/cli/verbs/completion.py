"""`completion`: scripts for the completion of commands in shells."""

from enum import StrEnum
from typing import Annotated

import typer

from perdure.cli.completion import VARIABLE

HELP = """Print a script that makes your shell complete this command.

The shell then completes verbs, options, values, and the names of runs,
Schedules, and other objects in the cluster. For `kubectl perdure`, save the
script of the shell `kubectl` as `kubectl_complete-perdure` in your PATH; it
requires kubectl's own completion.

\b
Examples:
  source <({program} completion bash)
  {program} completion zsh > ~/.zfunc/_perdure
  {program} completion fish > ~/.config/fish/completions/perdure.fish
  {program} completion powershell | Out-String | Invoke-Expression
"""

_KUBECTL = f"""#!/bin/sh
# Save as kubectl_complete-perdure, executable, in a folder of PATH.
{VARIABLE}=complete_fish _TYPER_COMPLETE_FISH_ACTION=get-args _TYPER_COMPLETE_ARGS="perdure $*" perdure
echo ":4"
"""


class Shell(StrEnum):
    """A shell."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"
    POWERSHELL = "powershell"
    KUBECTL = "kubectl"


def command(
    shell: Annotated[Shell, typer.Argument(metavar="SHELL", help=f"One of {', '.join(Shell)}", show_default=False)],
) -> None:
    """Print the script of a shell."""
    if shell is Shell.KUBECTL:
        typer.echo(_KUBECTL, nl=False)
        return
    from typer.completion import get_completion_script  # type: ignore[attr-defined]

    typer.echo(get_completion_script(prog_name="perdure", complete_var=VARIABLE, shell=shell.value))
