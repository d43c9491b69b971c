"""`operations`: list Operations with their results."""

import asyncio
from typing import Annotated

import typer

from perdure.cli.connection import list_kind
from perdure.cli.options import ColorOption, ContextOption, NamespaceOption, OutputOption, TimeOption
from perdure.cli.terminal import Color, Screen, TimeFormat, for_people, page_of, program_of

HELP = """List Operations, newest first, with their results.

\b
Examples:
  {program} operations
  {program} operations --all-namespaces --output wide
"""


def command(
    context: typer.Context,
    *,
    namespace: NamespaceOption = None,
    everywhere: Annotated[
        bool, typer.Option("--all-namespaces", "-A", help="List Operations of all namespaces")
    ] = False,
    output: OutputOption = "text",
    times: TimeOption = TimeFormat.RELATIVE,
    color: ColorOption = Color.AUTO,
    cluster: ContextOption = None,
) -> None:
    """List Operations."""
    screen = Screen(color)
    items, searched = asyncio.run(
        list_kind(
            "operations", context=cluster, namespace=namespace, program=program_of(context), everywhere=everywhere
        )
    )
    from perdure.runtime.operation_requests import arrival
    from perdure.view.tables import operations

    items.sort(key=arrival, reverse=True)
    if not for_people(output):
        screen.write_objects(output, items)
    elif not items:
        where = "any namespace" if everywhere else f"namespace {searched}"
        typer.echo(f"There are no Operations in {where}.", err=True)
    else:
        page = page_of(context, screen, times=times)
        screen.show(operations(items, page, namespaces=everywhere, wide=output == "wide"))
