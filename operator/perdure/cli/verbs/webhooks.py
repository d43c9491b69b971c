"""`webhooks`: list Webhooks with their state."""

import asyncio
from typing import Annotated

import typer

from perdure.cli.connection import list_kind
from perdure.cli.options import ColorOption, ContextOption, NamespaceOption, OutputOption
from perdure.cli.terminal import Color, Screen, for_people, page_of, program_of

HELP = """List Webhooks: what they start or signal, and whether they are ready.

To see the runs of a Webhook, use `{program} list -l perdure.dev/webhook=NAME`.

\b
Examples:
  {program} webhooks
  {program} webhooks --all-namespaces --output wide
"""


def command(
    context: typer.Context,
    *,
    namespace: NamespaceOption = None,
    everywhere: Annotated[bool, typer.Option("--all-namespaces", "-A", help="List Webhooks of all namespaces")] = False,
    output: OutputOption = "text",
    color: ColorOption = Color.AUTO,
    cluster: ContextOption = None,
) -> None:
    """List Webhooks."""
    screen = Screen(color)
    items, searched = asyncio.run(
        list_kind("webhooks", context=cluster, namespace=namespace, program=program_of(context), everywhere=everywhere)
    )
    if not for_people(output):
        screen.write_objects(output, items)
    elif not items:
        where = "any namespace" if everywhere else f"namespace {searched}"
        typer.echo(f"There are no Webhooks in {where}.", err=True)
    else:
        from perdure.view.tables import webhooks

        screen.show(webhooks(items, page_of(context, screen), namespaces=everywhere, wide=output == "wide"))
