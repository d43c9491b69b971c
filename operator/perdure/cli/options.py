"""Options that several verbs share, so that they are called the same everywhere."""

from enum import StrEnum
from typing import Annotated

import typer

from perdure.api.durations import parse_duration
from perdure.cli.terminal import Color


class TimeFormat(StrEnum):
    """How times are shown."""

    RELATIVE = "relative"
    ISO = "iso"


RunName = Annotated[str, typer.Argument(metavar="NAME", help="Name of the WorkflowRun", show_default=False)]

NamespaceOption = Annotated[
    str | None,
    typer.Option("--namespace", "-n", help="Namespace; the kubeconfig's own where none is given", show_default=False),
]

ContextOption = Annotated[
    str | None,
    typer.Option("--context", help="Context of the kubeconfig; its current one by default", show_default=False),
]

ColorOption = Annotated[Color, typer.Option("--color", help="When to use colours")]

TimeOption = Annotated[TimeFormat, typer.Option("--time-format", help="How times are shown")]


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
