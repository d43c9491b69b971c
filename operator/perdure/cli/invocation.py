"""The name of the program, and the page for its output."""

from typing import TYPE_CHECKING

import typer

from perdure.cli.options import TimeFormat
from perdure.cli.terminal import Screen
from perdure.kube import clock

if TYPE_CHECKING:
    from perdure.view.page import Page


def program_of(context: typer.Context) -> str:
    """Return the name of the program.

    Args:
        context: The context of the verb.

    Returns:
        `perdure` or `kubectl perdure`.
    """
    return str(context.find_root().info_name or "perdure")


def page_of(
    context: typer.Context, screen: Screen, *, times: TimeFormat = TimeFormat.RELATIVE, cluster: str | None = None
) -> "Page":
    """Create the page for the output of a verb.

    Args:
        context: The context of the verb.
        screen: The screen to print to.
        times: Format of times.
        cluster: The requested context of the kubeconfig.

    Returns:
        The page at the current time.
    """
    from perdure.view.page import Page

    return Page(
        now=clock.now(),
        width=screen.width,
        glyphs=screen.glyphs,
        iso=times is TimeFormat.ISO,
        program=program_of(context),
        context=cluster,
    )
