"""Options that several verbs share, so that they have the same name everywhere."""

from collections.abc import Callable, Sequence
from typing import Any, Final

import click
from click.shell_completion import CompletionItem

from perdure.api.labels import GROUP
from perdure.api.names import FRONTEND_AUDIENCE, SYSTEM_NAMESPACE
from perdure.api.times import parse_duration
from perdure.cli.command import Decorator, WholeNumber, Words, argument, option, stacked
from perdure.cli.completion import contexts, names_of
from perdure.cli.templates import TEMPLATES, TemplateError, parse
from perdure.cli.terminal import OBJECT_WORDS, REPORT_WORDS, Color, Output, TimeFormat

KINDS: Final = {
    "WorkflowRun": ("workflowruns", "wfr"),
    "Workflow": ("workflows", "pwf"),
    "Schedule": ("schedules", "wsch"),
    "DeadLetter": ("deadletters", "dlt"),
    "RetryPolicy": ("retrypolicies", "rpol"),
}
"""The kinds that commands take names of, with the other names that kubectl knows."""


class Named(click.ParamType[str]):
    """The name of an object, alone or as `--output name` and kubectl write it: `workflowrun.perdure.dev/order-1`."""

    name = "name"

    def __init__(self, kind: str, of_text: Callable[[str], str] = str) -> None:
        """`of_text`: converts the text that a user may write instead of the name."""
        self._kind = kind
        self._of_text = of_text

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the name."""
        word, slash, name = str(value).partition("/")
        resource = word.casefold().removesuffix(f".{GROUP}")
        kind = next((each for each, others in KINDS.items() if resource in {each.casefold(), *others}), None)
        if slash and name and kind == self._kind:
            return name
        if slash and (kind or self._of_text is str):
            takes_ids = ctx is not None and any("--workflow-id" in each.opts for each in ctx.command.params)
            hint = "; pass a workflow ID with `--workflow-id`" if takes_ids and kind is None else ""
            self.fail(f"{str(value)!r} is not a {self._kind}{hint}", param, ctx)
        return self._of_text(str(value))


run_argument = argument(
    "name",
    metavar="NAME",
    type=Named("WorkflowRun"),
    required=False,
    shell_complete=names_of("workflowruns"),
    help="Name of the WorkflowRun; or use --workflow-id",
)


def names_argument(text: str) -> Decorator:
    """An argument for the names of any number of runs, with its help."""
    return argument(
        "names",
        metavar="[NAME]...",
        type=Named("WorkflowRun"),
        nargs=-1,
        required=False,
        shell_complete=names_of("workflowruns"),
        help=text,
    )


runs_argument = names_argument("Names of WorkflowRuns; or use --workflow-id, --workflow, or --selector")

open_workflow_id_option = option("--workflow-id", "-w", help="Instead of NAME: the open run with this workflow ID")

to_version_option = option(
    "--to-version", metavar="ID", help="Run of code: the new run is on this version of its workers; or `current`"
)

workflow_id_option = option("--workflow-id", "-w", help="Instead of NAME: the open or last run with this workflow ID")

namespace_option = option(
    "--namespace", "-n", shell_complete=names_of("namespaces"), help="Namespace; default: that of the kubeconfig"
)

context_option = option(
    "--context", "cluster", shell_complete=contexts, help="Context of the kubeconfig; default: the current one"
)


class _Format(click.ParamType[Output]):
    """An output format: a word, or a valid template."""

    name = "format"

    def __init__(self, words: Sequence[str]) -> None:
        self._words = words

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Output:
        """Check the format."""
        text = str(value)
        if text in self._words:
            return text
        if not text.startswith(TEMPLATES):
            known = ", ".join(map(repr, (*self._words, *(f"{start}…" for start in TEMPLATES))))
            self.fail(f"{text!r} is not one of {known}", param, ctx)
        try:
            parse(text)
        except TemplateError as error:
            self.fail(str(error), param, ctx)
        return text

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Complete a word, or the beginning of a template."""
        known = (*self._words, *TEMPLATES)
        return [CompletionItem(each) for each in known if each.startswith(incomplete)]


def _output_option(words: Sequence[str]) -> Decorator:
    return option(
        "--output",
        "-o",
        metavar="FORMAT",
        type=_Format(words),
        default="text",
        help=f"Output format: {', '.join(words)}, jsonpath=TEMPLATE, or custom-columns=TITLE:PATH,…",
    )


output_option = _output_option(OBJECT_WORDS)
"""The output option of verbs that show or create objects."""

report_option = _output_option(REPORT_WORDS)
"""The output option of verbs that show data without names."""

system_namespace_option = option(
    "--system-namespace",
    "system",
    metavar="NAMESPACE",
    default=SYSTEM_NAMESPACE,
    help="Namespace that Perdure is installed in",
)

account_option = option(
    "--service-account",
    "account",
    metavar="NAME",
    help="Act as this ServiceAccount of the namespace; default: the token of the kubeconfig",
)

audience_option = option(
    "--audience", default=FRONTEND_AUDIENCE, help="Audience of the ServiceAccount's tokens, as configured in the chart"
)

browser_option = option("--browser/--no-browser", default=True, help="Whether to open the browser")

color_option = option("--color", type=Words(Color), default=Color.AUTO.value, help="When to use colors")

time_option = option(
    "--time-format", "times", type=Words(TimeFormat), default=TimeFormat.RELATIVE.value, help="Format of times"
)


archive_options = stacked(
    (
        option(
            "--address",
            metavar="URL",
            help="Where the HTTP API reads archived runs; default: through a port-forward",
        ),
        account_option,
        system_namespace_option,
    )
)
"""The options of commands that also find archived runs: where the frontend is, and the identity of the caller."""


def local_port_option(default: int) -> Decorator:
    """Return the option of the port of a server on this computer."""
    return option("--port", type=WholeNumber(min=0, max=65535), default=default, help="Local port; 0: a free one")


def everywhere_option(text: str) -> Decorator:
    """Return the option for all namespaces; `text` is its help."""
    return option("--all-namespaces", "-A", "everywhere", is_flag=True, help=text)


def check_named(name: str | None, workflow_id: str | None) -> None:
    """Check that a run is selected either by name or by workflow ID.

    Raises:
        BadParameter: Neither or both are given.
    """
    if (name is None) == (workflow_id is None):
        raise click.BadParameter("set either NAME or --workflow-id")


def seconds_of(text: str, option: str) -> float:
    """Parse a duration from an option, in seconds.

    Args:
        text: The duration, such as ``90s``; also ``0``.
        option: Name of the option, for the message.

    Raises:
        BadParameter: The text is not a duration.
    """
    try:
        return 0.0 if text == "0" else parse_duration(text).total_seconds()
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint=option) from error
