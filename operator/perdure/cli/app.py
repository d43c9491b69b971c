"""The `perdure` command; as `kubectl-perdure` it is a plugin of kubectl, with `kubectl perdure` in its help."""

import importlib
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import PurePath
from typing import Final

import click

from perdure import __version__
from perdure.cli import flags
from perdure.cli.command import Group
from perdure.cli.completion import VARIABLE, answer

VERBS: Final = {
    "cancel": "requests:cancel",
    "complete": "requests:complete",
    "completion": "reference:completion",
    "console": "browser:console",
    "count": "lists:count",
    "delete": "delete:delete",
    "describe": "show:describe",
    "doctor": "installation:doctor",
    "explain": "reference:explain",
    "fleet": "installation:fleet",
    "history": "show:history",
    "lint": "files:lint",
    "list": "lists:list_",
    "logs": "show:logs",
    "migrate": "migrate:migrate",
    "operations": "lists:operations",
    "options": "reference:options",
    "pause": "requests:pause",
    "prune": "delete:prune",
    "query": "calls:query",
    "replay": "files:replay",
    "schemas": "reference:schemas",
    "rerun": "start:rerun",
    "reset": "requests:reset",
    "reset-activity": "requests:reset_activity",
    "result": "wait:result",
    "retry": "start:retry",
    "signal": "requests:signal",
    "simulate": "files:simulate",
    "stack": "calls:stack",
    "start": "start:start",
    "stop": "requests:stop",
    "terminate": "requests:terminate",
    "test": "files:test",
    "top": "installation:top",
    "trace": "show:trace",
    "ui": "browser:ui",
    "unpause": "requests:unpause",
    "update": "calls:update",
    "version": "reference:version",
    "wait": "wait:wait",
    "webhooks": "lists:webhooks",
    "artifacts": "artifacts:artifacts",
    "batch": "batches:batch",
    "deadletters": "deadletters:deadletters",
    "deployment": "workers:deployment",
    "import": "files:import_",
    "schedule": "schedules:schedule",
    "search-attributes": "search_attributes:search_attributes",
    "retrypolicy": "retrypolicies:retrypolicy",
    "task-queue": "workers:task_queue",
    "worker": "workers:worker",
}
"""The module and the name of each verb, in the order of the help. Only the module of the called verb is imported."""

OTHER_NAMES: Final = {
    "apply": "`kubectl apply -f FILE` creates Workflows, runs, and Schedules",
    "archive": "`{program} list` shows closed runs until their `ttlSecondsAfterFinished` expires",
    "convert": "use `{program} import argo FILE`, or `import tekton`",
    "create": "use `{program} start WORKFLOW`, or `{program} start -f FILE` for a manifest",
    "cron": "use `{program} schedule`",
    "dag": "use `{program} describe NAME`, which shows the tree of steps",
    "edit": "use `kubectl edit workflow NAME`; the spec of a run cannot change",
    "execute": "use `{program} start WORKFLOW --wait`",
    "get": "use `{program} describe NAME` for a run, and `{program} list` for all of them",
    "log": "use `{program} logs NAME`",
    "ls": "use `{program} list`",
    "node": "use `{program} complete NAME --step STEP`, or `{program} signal`",
    "ps": "use `{program} list`",
    "redo": "use `{program} retry NAME` for the failed steps, or `{program} rerun NAME` for the whole run",
    "restart": "use `{program} retry NAME` for the failed steps, or `{program} rerun NAME` for the whole run",
    "resubmit": "use `{program} rerun NAME`",
    "resume": "use `{program} unpause NAME`; if the run waits for a signal, `{program} signal NAME --name SIGNAL`",
    "run": "use `{program} start WORKFLOW`",
    "show": "use `{program} history NAME` for the events, or `{program} describe NAME` for the steps",
    "status": "use `{program} describe NAME`",
    "submit": "use `{program} start WORKFLOW`, or `{program} start -f FILE` for a manifest",
    "suspend": "use `{program} pause NAME`",
    "template": "use `kubectl get workflows`",
    "tree": "use `{program} describe NAME`",
    "validate": "use `{program} lint -f FILE`",
    "watch": "use `{program} wait NAME`, or `{program} describe NAME --watch`",
    "workflow": "leave out `workflow`: `{program} list`, `{program} describe NAME`, `{program} start`",
}
"""What to use in place of the commands of argo, tkn, temporal, gcloud, and kubectl, by the name of the command."""

_BEFORE = frozenset({"-n", "--namespace", "--context"})
"""Options of verbs that can precede the verb, like the global ones."""

_HELP = """Durable workflows on Kubernetes: start, inspect, and control runs.

You can do all of this with kubectl too; this command shows more at a glance.
`{program} options` lists the options that every command has, such as --as.

Exit status: 0 success, 1 negative result (the run failed, the history does
not replay, the request was refused), 2 error (usage, no cluster, run not
found), 124 timeout.

\b
Examples:
  {program} list --all-namespaces
  {program} describe order-42
  {program} wait order-42 --timeout 5m
  {program} signal order-42 --name approved --input true
  {program} simulate --file order.yaml
"""


def build(program: str, verbs: Iterable[str] = tuple(VERBS)) -> Group:
    """Build the command.

    Args:
        program: Name of the program in help and hints.
        verbs: The verbs to include; other modules are not imported.

    Returns:
        The command.
    """
    command = Group(
        program,
        help=_HELP,
        advice=OTHER_NAMES,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80, "show_default": True},
    )
    for name in verbs:
        command.add_command(verb_of(name), name)
    show_version = click.version_option(
        __version__, message="perdure %(version)s", help="Show the version of this command"
    )
    return show_version(command)


def verb_of(name: str) -> click.Command:
    """Import a verb."""
    module, _, attribute = VERBS[name].partition(":")
    found: click.Command = getattr(importlib.import_module(f"perdure.cli.verbs.{module}"), attribute)
    return found


def program_name(called: str) -> str:
    """Return the name of the program in help and hints.

    Args:
        called: The path of the executable.

    Returns:
        `kubectl perdure` for the plugin, `perdure` otherwise.
    """
    return "kubectl perdure" if PurePath(called).stem == "kubectl-perdure" else "perdure"


def main() -> None:
    """Run the command line."""
    program, arguments = program_name(sys.argv[0]), verb_first(sys.argv[1:])
    if VARIABLE in os.environ:
        sys.exit(answer(build(program), program))
    named = arguments[:1]
    only = named if VERBS.keys() >= set(named) and named else VERBS
    build(program, only)(arguments, prog_name=program)


def verb_first(arguments: Sequence[str]) -> list[str]:
    """Move global options behind the verb; as with kubectl, they can precede it.

    Args:
        arguments: The command line.

    Returns:
        The arguments with the verb first; unchanged if anything else precedes the verb.
    """
    rest, moved = list(arguments), list[str]()
    while rest and (length := _length(rest[0])):
        moved, rest = [*moved, *rest[:length]], rest[length:]
    if not rest or rest[0] not in VERBS:
        return list(arguments)
    length = 2 if isinstance(verb_of(rest[0]), click.Group) else 1
    return [*rest[:length], *moved, *rest[length:]]


def _length(argument: str) -> int:
    """Return the number of words of an option that can precede the verb; 0 for any other word."""
    name, equals, _ = argument.partition("=")
    with_value = not equals if name in _BEFORE else flags.takes_value(argument)
    return 0 if with_value is None else 1 + with_value
