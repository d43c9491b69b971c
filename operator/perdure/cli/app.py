"""The `perdure` command; as `kubectl-perdure` it is a plugin of kubectl, with `kubectl perdure` in its help."""

import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path, PurePath
from typing import Final

import click

from perdure import __version__
from perdure.cli import flags
from perdure.cli.command import Group
from perdure.cli.completion import VARIABLE, answer

VERBS: Final = {
    "cancel": ("requests:cancel", "Request the cancellation of runs, by name, or of all open runs that match."),
    "complete": ("requests:complete", "Complete a pending activity from outside."),
    "completion": ("reference:completion", "Print a script that makes your shell complete this command."),
    "console": ("browser:console", "Open the console in the browser."),
    "count": ("lists:count", "Count runs by phase."),
    "delete": ("delete:delete", "Delete runs with their pods, children, and history."),
    "deploy": ("deploy:deploy", "Deploy the flows of a Python module: a worker, and the activities."),
    "describe": ("show:describe", "Show a run: its steps, what it waits for, why it failed."),
    "doctor": ("installation:doctor", "Check the installation, and find stuck runs."),
    "explain": ("reference:explain", "Explain a field of a kind, or a reason of a condition or an Event."),
    "fleet": ("installation:fleet", "List the operators that share the work."),
    "history": ("show:history", "Show the event history of a run."),
    "lint": ("files:lint", "Check manifests without a cluster."),
    "list": ("lists:list_", "List runs, newest first."),
    "logs": ("show:logs", "Show the logs of the pods of a run."),
    "migrate": ("migrate:migrate", "Move what can be moved from a running Temporal server."),
    "operations": ("lists:operations", "List Operations, newest first, with their results."),
    "options": ("reference:options", "List the options that you can pass to every command."),
    "pause": ("requests:pause", "Pause runs, by name, or all open runs that match."),
    "prune": ("delete:prune", "Delete closed runs that are old."),
    "query": ("calls:query", "Query a run."),
    "replay": ("files:replay", "Check that a definition still replays a recorded history."),
    "schemas": ("reference:schemas", "Write the JSON Schemas of all kinds, for editors, kubeconform, and kustomize."),
    "rerun": ("start:rerun", "Start runs with the spec of others, from the beginning."),
    "reset": ("requests:reset", "Start a new run from a point in the history of a run."),
    "reset-activity": ("requests:reset_activity", "Count the attempts of a pending activity from 1 again."),
    "result": ("wait:result", "Wait until a run ends, and print only its output."),
    "retry": ("start:retry", "Run the failed steps of closed runs again, and keep the rest."),
    "set-version": ("versions:set_version", "Move open runs of code, such as flows in Python, to another version."),
    "signal": ("requests:signal", "Send a signal to runs, by name, or to all open runs that match."),
    "simulate": ("files:simulate", "Run a workflow in virtual time, without a cluster."),
    "stack": ("calls:stack", "Show where a run is now."),
    "start": ("start:start", "Start a run of a Workflow, of code, or from a file."),
    "stop": ("requests:stop", "Stop runs: cancel their open steps, and run only `finally`."),
    "terminate": ("requests:terminate", "Close runs immediately, without handlers, and delete their pods."),
    "test": ("files:test", "Simulate every scenario of a folder, and report differences."),
    "top": ("installation:top", "Show open runs by Workflow, and the load of the operators."),
    "trace": ("show:trace", "Show when each step of a run waited, started its pod, and ran."),
    "ui": ("browser:ui", "Open the Web UI in the browser."),
    "unpause": ("requests:unpause", "Unpause runs, by name, or all open runs that match."),
    "update": ("calls:update", "Update a run of a workflow as code, and print the result."),
    "version": ("reference:version", "Show the version of this command, and with --server those of the cluster."),
    "wait": ("wait:wait", "Wait until a run ends, and show its progress."),
    "webhooks": ("lists:webhooks", "List Webhooks: what they start or signal, and whether they are ready."),
    "artifacts": ("artifacts:artifacts", "List and download the output artifacts of a run."),
    "batch": ("batches:batch", "Send one request to all workflows that match a filter."),
    "deadletters": ("deadletters:deadletters", "List, show, re-drive, and delete DeadLetters."),
    "deployment": ("workers:deployment", "Show and change which versions of SDK workers get tasks."),
    "import": ("files:import_", "Convert manifests of other workflow systems."),
    "move": ("move:move", "Move a namespace with its open runs to another cluster."),
    "schedule": ("schedules:schedule", "Create, inspect, and control Schedules."),
    "search-attributes": ("search_attributes:search_attributes", "Register search attributes for workflows as code."),
    "retrypolicy": ("retrypolicies:retrypolicy", "Preview retry policies."),
    "task-queue": ("workers:task_queue", "Show task queues that SDK workers poll."),
    "worker": ("workers:worker", "Show SDK workers."),
    "workflow": ("workflows:workflow", "Show and compare the revisions of a Workflow, and roll it back."),
}
"""The module and function of each verb, and the first sentence of its help, in the order of the help.

The module of a verb is imported when the verb is called.
"""

OTHER_NAMES: Final = {
    "apply": "`kubectl apply -f FILE` creates Workflows, runs, and Schedules",
    "archive": "use `{program} list --archived`",
    "convert": "use `{program} import argo FILE`, `import tekton`, or `import airflow`",
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
    "undo": "use `{program} workflow rollback NAME`",
    "rollout": "use `{program} workflow history NAME`, or `{program} workflow rollback NAME`",
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


class _Program(Group):
    """The command itself. It lists its verbs from the table, and imports one when it is called."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the verb."""
        if args and args[0] in VERBS:
            self.add_command(verb_of(args[0]), args[0])
        return super().resolve_command(ctx, args)


def build(program: str) -> Group:
    """Build the command.

    Args:
        program: Name of the program in help and hints.

    Returns:
        The command.
    """
    command = _Program(
        program,
        help=_HELP,
        advice=OTHER_NAMES,
        commands=[click.Command(name, help=summary) for name, (_, summary) in VERBS.items()],
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80, "show_default": True},
    )
    show_version = click.version_option(
        __version__, message="perdure %(version)s", help="Show the version of this command"
    )
    return show_version(command)


def verb_of(name: str) -> click.Command:
    """Import a verb."""
    module, _, attribute = VERBS[name][0].partition(":")
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
    if sys.stdin is None:  # it is closed
        sys.stdin = Path(os.devnull).open(encoding="utf-8")  # noqa: SIM115 - until the process ends
    program, arguments = program_name(sys.argv[0]), verb_first(sys.argv[1:])
    if VARIABLE in os.environ:
        sys.exit(answer(build(program), program))
    build(program)(arguments, prog_name=program)


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
