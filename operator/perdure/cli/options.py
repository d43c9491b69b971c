"""Options that several verbs share, so that they are called the same everywhere."""

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from enum import StrEnum
from typing import Annotated, Literal, TypeVar

import typer

from perdure.api.durations import parse_duration
from perdure.cli.terminal import Color


class TimeFormat(StrEnum):
    """How times are shown."""

    RELATIVE = "relative"
    ISO = "iso"


RunName = Annotated[
    str | None,
    typer.Argument(metavar="NAME", help="Name of the WorkflowRun; or give --workflow-id", show_default=False),
]

OpenWorkflowIdOption = Annotated[
    str | None,
    typer.Option("--workflow-id", "-w", help="Instead of NAME: the open run of a workflow id", show_default=False),
]

WorkflowIdOption = Annotated[
    str | None,
    typer.Option(
        "--workflow-id", "-w", help="Instead of NAME: the open or last run of a workflow id", show_default=False
    ),
]

NamespaceOption = Annotated[
    str | None,
    typer.Option("--namespace", "-n", help="Namespace; the kubeconfig's own where none is given", show_default=False),
]

ContextOption = Annotated[
    str | None,
    typer.Option("--context", help="Context of the kubeconfig; its current one by default", show_default=False),
]

_OUTPUT = typer.Option("--output", "-o", help="Output format")

OutputOption = Annotated[Literal["text", "json"], _OUTPUT]

NamedOutput = Literal["text", "json", "name"]
NamedOutputOption = Annotated[NamedOutput, _OUTPUT]

WideOutputOption = Annotated[Literal["text", "wide", "json", "name"], _OUTPUT]

YamlOutputOption = Annotated[Literal["text", "json", "yaml"], _OUTPUT]

ColorOption = Annotated[Color, typer.Option("--color", help="When to use colours")]

TimeOption = Annotated[TimeFormat, typer.Option("--time-format", help="How times are shown")]


def check_named(name: str | None, workflow_id: str | None) -> None:
    """Make sure that a run is named in one way.

    Raises:
        BadParameter: it is named in none, or in both.
    """
    if (name is None) == (workflow_id is None):
        raise typer.BadParameter("name the run, or give --workflow-id; one of the two")


_Word = TypeVar("_Word", bound=StrEnum)


def word_of(words: type[_Word], elsewhere: Mapping[str, str] | None = None) -> Callable[[str], _Word]:
    """Make a reader for an option that takes one of some words, in whatever case.

    Args:
        words: The words.
        elsewhere: What others call them: by their word, in small letters, ours.

    Returns:
        Reads a word, or raises BadParameter: it is none of them.
    """

    def read(text: str) -> _Word:
        known = {word.casefold(): word for word in words}
        given = str(text).casefold()
        if given in known:
            return known[given]
        meant = (elsewhere or {}).get(given) or ", ".join(known[near] for near in get_close_matches(given, known, 1))
        hint = f"; did you mean {meant}?" if meant else ""
        raise typer.BadParameter(f"`{text}` is none of {', '.join(words)}{hint}")

    return read


def words_shown(words: type[StrEnum]) -> str:
    """The words as help shows them."""
    return f"[{'|'.join(words)}]"


def seconds_of(text: str, option: str) -> float:
    """Seconds of a duration that was given as an option.

    Args:
        text: The duration, such as ``90s``.
        option: Name of the option, for the message.

    Raises:
        BadParameter: it is none.
    """
    try:
        return parse_duration(text).total_seconds()
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from error
