"""Options that several verbs share, so that they have the same name everywhere."""

from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from enum import StrEnum
from typing import Annotated, Any, TypeVar

import typer

from perdure.api.times import parse_duration
from perdure.cli.completion import contexts, names_of
from perdure.cli.terminal import OBJECT_WORDS, REPORT_WORDS, Color, Output, TimeFormat

RunName = Annotated[
    str | None,
    typer.Argument(
        metavar="NAME",
        help="Name of the WorkflowRun; or use --workflow-id",
        show_default=False,
        autocompletion=names_of("workflowruns"),
    ),
]

OpenWorkflowIdOption = Annotated[
    str | None,
    typer.Option("--workflow-id", "-w", help="Instead of NAME: the open run with this workflow ID", show_default=False),
]

WorkflowIdOption = Annotated[
    str | None,
    typer.Option(
        "--workflow-id", "-w", help="Instead of NAME: the open or last run with this workflow ID", show_default=False
    ),
]

NamespaceOption = Annotated[
    str | None,
    typer.Option(
        "--namespace",
        "-n",
        help="Namespace; default: that of the kubeconfig",
        show_default=False,
        autocompletion=names_of("namespaces"),
    ),
]

ContextOption = Annotated[
    str | None,
    typer.Option(
        "--context",
        help="Context of the kubeconfig; default: the current one",
        show_default=False,
        autocompletion=contexts,
    ),
]


def _format_of(words: Sequence[str]) -> Callable[[str], Output]:
    """Create the parser of an output format: a word, or a valid template."""

    def read(text: str) -> Output:
        if text in words:
            return text
        from perdure.cli.templates import TEMPLATES, TemplateError, parse

        if not text.startswith(TEMPLATES):
            known = ", ".join(map(repr, (*words, *(f"{start}…" for start in TEMPLATES))))
            raise typer.BadParameter(f"{text!r} is not one of {known}")
        try:
            parse(text)
        except TemplateError as error:
            raise typer.BadParameter(str(error)) from error
        return text

    return read


def _output_option(words: Sequence[str]) -> Any:
    def complete(incomplete: str) -> list[str]:
        from perdure.cli.templates import TEMPLATES

        return [each for each in (*words, *TEMPLATES) if each.startswith(incomplete)]

    return typer.Option(
        "--output",
        "-o",
        metavar="FORMAT",
        help=f"Output format: {', '.join(words)}, jsonpath=TEMPLATE, or custom-columns=TITLE:PATH,…",
        parser=_format_of(words),
        autocompletion=complete,
    )


OutputOption = Annotated[Output, _output_option(OBJECT_WORDS)]
"""The output option of verbs that show or create objects."""

ReportOption = Annotated[Output, _output_option(REPORT_WORDS)]
"""The output option of verbs that show data without names."""

SystemNamespaceOption = Annotated[
    str, typer.Option("--system-namespace", metavar="NAMESPACE", help="Namespace that Perdure is installed in")
]

LocalPortOption = Annotated[int, typer.Option("--port", min=0, max=65535, help="Local port; 0: a free one")]

BrowserOption = Annotated[bool, typer.Option("--browser/--no-browser", help="Whether to open the browser")]

ColorOption = Annotated[Color, typer.Option("--color", help="When to use colors")]

TimeOption = Annotated[TimeFormat, typer.Option("--time-format", help="Format of times")]


def check_named(name: str | None, workflow_id: str | None) -> None:
    """Check that a run is selected either by name or by workflow ID.

    Raises:
        BadParameter: Neither or both are given.
    """
    if (name is None) == (workflow_id is None):
        raise typer.BadParameter("set either NAME or --workflow-id")


_Word = TypeVar("_Word", bound=StrEnum)


def word_of(words: type[_Word], elsewhere: Mapping[str, str] | None = None) -> Callable[[str], _Word]:
    """Create the parser of an option with a set of words, in any case.

    Args:
        words: The words.
        elsewhere: Names in other systems in lower case, and our word for each.

    Returns:
        A function that returns the word, or raises BadParameter if the text is not one of them.
    """

    def read(text: str) -> _Word:
        known = {word.casefold(): word for word in words}
        given = str(text).casefold()
        if given in known:
            return known[given]
        meant = (elsewhere or {}).get(given) or ", ".join(known[near] for near in get_close_matches(given, known, 1))
        hint = f"; did you mean {meant}?" if meant else ""
        raise typer.BadParameter(f"`{text}` is not one of {', '.join(words)}{hint}")

    return read


def words_shown(words: type[StrEnum]) -> str:
    """Return the words as a metavar for the help."""
    return f"[{'|'.join(words)}]"


def seconds_of(text: str, option: str) -> float:
    """Parse a duration from an option, in seconds.

    Args:
        text: The duration, such as ``90s``.
        option: Name of the option, for the message.

    Raises:
        BadParameter: The text is not a duration.
    """
    try:
        return parse_duration(text).total_seconds()
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from error
