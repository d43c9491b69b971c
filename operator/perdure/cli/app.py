"""The `perdure` command; as `kubectl-perdure` it is a plugin of kubectl, with `kubectl perdure` in its help."""

import functools
import importlib
import inspect
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import PurePath
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

from perdure import __version__
from perdure.cli import flags
from perdure.cli.completion import VARIABLE
from perdure.cli.elsewhere import OTHER_NAMES, OTHER_SCHEDULE_NAMES
from perdure.cli.option_help import use_plain_types
from perdure.cli.option_values import use_light_coercion
from perdure.cli.repeated_options import check_repeated
from perdure.client.errors import CliError

VERBS = {
    "artifacts": "perdure.cli.verbs.artifacts",
    "cancel": "perdure.cli.verbs.cancel",
    "complete": "perdure.cli.verbs.complete",
    "completion": "perdure.cli.verbs.completion",
    "console": "perdure.cli.verbs.console",
    "count": "perdure.cli.verbs.count",
    "deadletters": "perdure.cli.verbs.deadletters",
    "delete": "perdure.cli.verbs.delete",
    "describe": "perdure.cli.verbs.describe",
    "doctor": "perdure.cli.verbs.doctor",
    "explain": "perdure.cli.verbs.explain",
    "fleet": "perdure.cli.verbs.fleet",
    "history": "perdure.cli.verbs.history",
    "import": "perdure.cli.verbs.import_",
    "lint": "perdure.cli.verbs.lint",
    "list": "perdure.cli.verbs.list_runs",
    "logs": "perdure.cli.verbs.logs",
    "operations": "perdure.cli.verbs.operations",
    "options": "perdure.cli.verbs.options",
    "pause": "perdure.cli.verbs.pause",
    "prune": "perdure.cli.verbs.prune",
    "query": "perdure.cli.verbs.query",
    "replay": "perdure.cli.verbs.replay",
    "schedule": "perdure.cli.verbs.schedule",
    "schemas": "perdure.cli.verbs.schema_files",
    "search-attributes": "perdure.cli.verbs.search_attributes",
    "rerun": "perdure.cli.verbs.rerun",
    "reset": "perdure.cli.verbs.reset",
    "reset-activity": "perdure.cli.verbs.reset_activity",
    "result": "perdure.cli.verbs.result",
    "retry": "perdure.cli.verbs.retry",
    "retrypolicy": "perdure.cli.verbs.retrypolicy",
    "signal": "perdure.cli.verbs.signal",
    "simulate": "perdure.cli.verbs.simulate",
    "stack": "perdure.cli.verbs.stack",
    "start": "perdure.cli.verbs.start",
    "stop": "perdure.cli.verbs.stop",
    "terminate": "perdure.cli.verbs.terminate",
    "test": "perdure.cli.verbs.test",
    "top": "perdure.cli.verbs.top",
    "trace": "perdure.cli.verbs.trace",
    "ui": "perdure.cli.verbs.ui",
    "unpause": "perdure.cli.verbs.unpause",
    "update": "perdure.cli.verbs.update",
    "version": "perdure.cli.verbs.version",
    "wait": "perdure.cli.verbs.wait",
    "webhooks": "perdure.cli.verbs.webhooks",
}
"""The module of each verb, in the order of the help. A module has `HELP` and `command`, a function for typer; a verb with
subcommands has `COMMANDS`: the function and the help of each, by name."""

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


def build(program: str, verbs: Iterable[str] = tuple(VERBS)) -> typer.Typer:
    """Build the command.

    Args:
        program: Name of the program in help and hints.
        verbs: The verbs to include; other modules are not imported.

    Returns:
        The command.
    """
    settings = {"help_option_names": ["-h", "--help"], "max_content_width": 80}
    app = typer.Typer(
        name=program,
        cls=_Group,
        help=_HELP.format(program=program),
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings=settings,
    )
    app.callback()(_program)
    for name in verbs:
        module = importlib.import_module(VERBS[name])
        text = module.HELP.format(program=program)
        if not hasattr(module, "COMMANDS"):
            app.command(name, help=text, context_settings=settings, cls=_Verb)(_reporting(module.command))
            continue
        group = typer.Typer(cls=_Group, no_args_is_help=True, rich_markup_mode=None, context_settings=settings)
        group.callback()(_root)
        for verb, (command, verb_help) in module.COMMANDS.items():
            verb_text = verb_help.format(program=program)
            group.command(verb, help=verb_text, context_settings=settings, cls=_Verb)(_reporting(command))
        app.add_typer(group, name=name, help=text)
    return app


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
        from typer.completion import completion_init  # type: ignore[attr-defined]

        completion_init()
    named = arguments[:1]
    only = named if VERBS.keys() >= set(named) and named else VERBS
    build(program, only)(arguments, prog_name=program, complete_var=VARIABLE)


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
    length = 2 if hasattr(importlib.import_module(VERBS[rest[0]]), "COMMANDS") else 1
    return [*rest[:length], *moved, *rest[length:]]


def _length(argument: str) -> int:
    """Return the number of words of an option that can precede the verb; 0 for any other word."""
    name, equals, _ = argument.partition("=")
    with_value = not equals if name in _BEFORE else flags.takes_value(argument)
    return 0 if with_value is None else 1 + with_value


class _Completion(NamedTuple):
    """A completion, in the format for the scripts of the shells."""

    value: str
    help: str
    type: str = "plain"


class _Verb(TyperCommand):
    """A verb that also takes the global options, and reads its options without pydantic."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the options."""
        own = {name for parameter in self.params for name in parameter.opts}
        try:
            rest = flags.take(args, own)
            if not ctx.resilient_parsing:
                _, _, given = self.make_parser(ctx).parse_args(list(rest))
                check_repeated(given)
            return super().parse_args(ctx, rest)
        except typer.BadParameter:
            if ctx.resilient_parsing:
                return []
            raise

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        """Complete an option; global options come after those of the verb."""
        found = super().shell_complete(ctx, incomplete)
        if not incomplete.startswith("--"):
            return found
        matching = [flag for flag in flags.GLOBAL if flag.name.startswith(incomplete)]
        return [*found, *(_Completion(flag.name, flag.help) for flag in matching)]

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the options."""
        return use_plain_types(use_light_coercion(super().get_params(ctx)))

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the parts of the usage, with required arguments as `NAME`, not as `{NAME}`."""
        return [piece.replace("{", "").replace("}", "") for piece in super().collect_usage_pieces(ctx)]


class _Group(TyperGroup):
    """A group of verbs that reads its options without pydantic, and recognizes the names of its verbs in other commands."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the verb."""
        others = {"schedule": OTHER_SCHEDULE_NAMES}.get(ctx.info_name, {}) if ctx.parent else OTHER_NAMES
        if args and args[0] in others and args[0] not in self.commands:
            advice = others[args[0]].format(program=ctx.find_root().info_name)
            ctx.fail(f"there is no command `{args[0]}`; {advice}")
        return super().resolve_command(ctx, args)

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the options."""
        return use_light_coercion(super().get_params(ctx))


def _show_version(requested: bool) -> None:
    if requested:
        typer.echo(f"perdure {__version__}")
        raise typer.Exit


def _program(
    *,
    _version: Annotated[
        bool, typer.Option("--version", help="Show the version of this command", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Take the options of the program."""


def _root() -> None:
    """Do nothing; with a callback, typer keeps the verb even if there is only one."""


def _reporting(verb: Callable[..., None]) -> Callable[..., None]:
    """Report errors as one sentence, and exit with their status."""

    @functools.wraps(verb)
    def run(*arguments: Any, **options: Any) -> None:
        try:
            verb(*arguments, **options)
        except CliError as error:
            typer.echo(f"Error: {' '.join(str(error).split())}", err=True)
            raise typer.Exit(error.status) from error

    run.__signature__ = inspect.signature(verb, eval_str=True)  # type: ignore[attr-defined]
    return run
