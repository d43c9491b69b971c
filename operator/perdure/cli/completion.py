"""The completion of command lines in shells: the scripts that shells load, the answers to them, and names from the cluster.

A script sets `VARIABLE` to `complete_SHELL` and calls the command, which then prints what can follow. Click's own scripts are not
used: there is none for PowerShell, and they do not complete the names of files where the command knows nothing.
"""

import os
import re
import sys
from collections.abc import Callable
from typing import Any, Final

import click
from click.shell_completion import CompletionItem, ShellComplete, split_arg_string

from perdure.client.errors import ClientError
from perdure.kube.access import Overrides, config_files, merge_kubeconfigs
from perdure.lazy import lazily

with lazily():
    import asyncio

    from perdure.cli import connection

VARIABLE: Final = "_PERDURE_COMPLETE"
"""Environment variable that a shell sets when it requests completions."""
_LINE, _WORD, _ACTION = f"{VARIABLE}_ARGS", f"{VARIABLE}_WORD", f"{VARIABLE}_FISH_ACTION"
_SECONDS = 3.0
"""Maximum seconds for the response of the cluster: a shell must not hang."""

_BASH = """\
%(complete_func)s() {
    local IFS=$'\n'
    COMPREPLY=( $( env COMP_WORDS="${COMP_WORDS[*]}" \\
                   COMP_CWORD=$COMP_CWORD \\
                   %(complete_var)s=complete_bash $1 ) )
    return 0
}

complete -o default -F %(complete_func)s %(prog_name)s"""

_ZSH = """\
#compdef %(prog_name)s

%(complete_func)s() {
  eval $(env %(complete_var)s_ARGS="${words[1,$CURRENT]}" %(complete_var)s=complete_zsh %(prog_name)s)
}

compdef %(complete_func)s %(prog_name)s"""

_FISH_CALL = (
    "env %(complete_var)s=complete_fish %(complete_var)s_FISH_ACTION={} "
    "%(complete_var)s_ARGS=(commandline -cp) %(prog_name)s"
)
_FISH = (
    f'complete --command %(prog_name)s --no-files --arguments "({_FISH_CALL.format("get-args")})" '
    f'--condition "{_FISH_CALL.format("is-args")}"'
)

_POWERSHELL = """\
Import-Module PSReadLine
Set-PSReadLineKeyHandler -Chord Tab -Function MenuComplete
$scriptblock = {
    param($wordToComplete, $commandAst, $cursorPosition)
    $Env:%(complete_var)s = "complete_powershell"
    $Env:%(complete_var)s_ARGS = $commandAst.ToString()
    $Env:%(complete_var)s_WORD = $wordToComplete
    %(prog_name)s | ForEach-Object {
        $commandArray = $_ -Split ":::"
        $command = $commandArray[0]
        $helpString = $commandArray[1]
        [System.Management.Automation.CompletionResult]::new(
            $command, $command, 'ParameterValue', $helpString)
    }
    $Env:%(complete_var)s = ""
    $Env:%(complete_var)s_ARGS = ""
    $Env:%(complete_var)s_WORD = ""
}
Register-ArgumentCompleter -Native -CommandName %(prog_name)s -ScriptBlock $scriptblock"""

KUBECTL: Final = f"""#!/bin/sh
# Save as kubectl_complete-perdure, executable, in a folder of PATH.
{VARIABLE}=complete_fish {_ACTION}=get-args {_LINE}="perdure $*" perdure
echo ":4"
"""
"""The script for `kubectl perdure`: kubectl's own completion calls it."""


class _Bash(ShellComplete):
    source_template = _BASH

    def get_completion_args(self) -> tuple[list[str], str]:
        words, at = split_arg_string(os.environ["COMP_WORDS"]), int(os.environ["COMP_CWORD"])
        return words[1:at], words[at] if at < len(words) else ""

    def format_completion(self, item: CompletionItem) -> str:
        return str(item.value)


class _OfLine(ShellComplete):
    """A shell that sends the line up to the cursor."""

    def get_completion_args(self) -> tuple[list[str], str]:
        line = os.environ.get(_LINE, "")
        words = split_arg_string(line)[1:]
        return (words[:-1], words[-1]) if words and not line.endswith(" ") else (words, "")


class _Zsh(_OfLine):
    source_template = _ZSH

    def format_completion(self, item: CompletionItem) -> str:
        escapes = {'"': '""', "'": "''", "$": "\\$", "`": "\\`", ":": r"\\:"}
        value, text = (
            "".join(escapes.get(letter, letter) for letter in str(each or "")) for each in (item.value, item.help)
        )
        return f'"{value}":"{text}"' if text else f'"{value}"'

    def complete(self) -> str:
        found = super().complete()
        return f"_arguments '*: :(({found}))'" if found else "_files"


class _Fish(_OfLine):
    source_template = _FISH

    def format_completion(self, item: CompletionItem) -> str:
        text = re.sub(r"\s", " ", item.help or "")
        return f"{item.value}\t{text}" if text else str(item.value)

    def complete(self) -> str:
        """Answer either what can follow, or, with the exit status, whether anything but a file can."""
        found = super().complete()
        action = os.environ.get(_ACTION, "")
        if action == "is-args":
            sys.exit(0 if found else 1)
        return found if action == "get-args" else ""


class _PowerShell(ShellComplete):
    source_template = _POWERSHELL

    def get_completion_args(self) -> tuple[list[str], str]:
        words, incomplete = split_arg_string(os.environ.get(_LINE, "")), os.environ.get(_WORD, "")
        return words[1:-1] if incomplete else words[1:], incomplete

    def format_completion(self, item: CompletionItem) -> str:
        return f"{item.value}:::{item.help or ' '}"


SHELLS: Final[dict[str, type[ShellComplete]]] = {
    "bash": _Bash,
    "zsh": _Zsh,
    "fish": _Fish,
    "powershell": _PowerShell,
    "pwsh": _PowerShell,
}


def answer(command: click.Command, program: str) -> int:
    """Print what can follow on the command line of a shell.

    Returns:
        The exit status.
    """
    instruction, _, shell = os.environ[VARIABLE].partition("_")
    if shell not in SHELLS or instruction not in {"source", "complete"}:
        click.echo(f"`{os.environ[VARIABLE]}` is not supported", err=True)
        return 1
    completion = SHELLS[shell](command, {}, program, VARIABLE)
    click.echo(completion.source() if instruction == "source" else completion.complete())
    return 0


def script(shell: str) -> str:
    """Return the script that completes `perdure` in a shell."""
    return SHELLS[shell](click.Command("perdure"), {}, "perdure", VARIABLE).source()


Complete = Callable[[click.Context, click.Parameter, str], list[str]]


def names_of(plural: str) -> Complete:
    """Create the completion of an argument that names an object.

    Args:
        plural: Resource of the object, such as `schedules`.

    Returns:
        A function that Click calls with the context, the parameter, and the beginning of the word.
    """

    def complete(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
        async def read() -> list[str]:

            params = ctx.params
            where = connection.connect(
                context=params.get("cluster"), namespace=params.get("namespace"), program="perdure"
            )
            async with asyncio.timeout(_SECONDS), where as cluster:
                return await cluster.names(plural)

        return [name for name in _quietly(read) if name.startswith(incomplete)]

    return complete


def contexts(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    """Return the contexts of the kubeconfig that begin with the word."""
    try:
        known = merge_kubeconfigs(config_files(Overrides()))["contexts"]
    except (OSError, ValueError):
        return []
    return [name for name in known if name.startswith(incomplete)]


def _quietly(read: Callable[[], Any]) -> list[str]:
    """Run a request; completion shows nothing if it fails."""
    try:
        found: list[str] = asyncio.run(read())
    except (ClientError, TimeoutError):
        return []
    return found
