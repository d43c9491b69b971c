"""How the command was called, and the page that goes with it."""

import typer

from perdure.cli.options import TimeFormat
from perdure.cli.terminal import Screen
from perdure.cli.view.page import Page
from perdure.kube import clock


def program_of(context: typer.Context) -> str:
    """Tell how the command was called.

    Args:
        context: What typer hands to a verb.

    Returns:
        `perdure` or `kubectl perdure`.
    """
    return str(context.find_root().info_name or "perdure")


def page_of(
    context: typer.Context, screen: Screen, *, times: TimeFormat = TimeFormat.RELATIVE, cluster: str | None = None
) -> Page:
    """Make the page that a verb shows things on.

    Args:
        context: What typer hands to a verb.
        screen: Where it is printed.
        times: How times are shown.
        cluster: The context of the kubeconfig that was asked for.

    Returns:
        The page, as of now.
    """
    return Page(
        now=clock.now(),
        width=screen.width,
        glyphs=screen.glyphs,
        iso=times is TimeFormat.ISO,
        program=program_of(context),
        context=cluster,
    )
