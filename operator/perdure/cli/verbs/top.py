"""`top`: the open runs by Workflow, and the load of the operators."""

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from perdure.cli.connection import connect
from perdure.cli.options import ColorOption, ContextOption, NamespaceOption, ReportOption, SystemNamespaceOption
from perdure.cli.terminal import Color, Screen, page_of, program_of
from perdure.kube import clock

if TYPE_CHECKING:
    from perdure.cli.load import Load

HELP = """Show open runs by Workflow, and the load of the operators.

ACTIVITIES are running, RETRYING ones wait for their next attempt. CPU is from
the metrics server of the cluster. Shards, runs, queue, and timers are from the
metrics of each operator; this requires the permission to get `pods/proxy` in
its namespace.

\b
Examples:
  {program} top
  {program} top --all-namespaces
  {program} top --all-namespaces --output json
"""


def command(
    context: typer.Context,
    *,
    namespace: NamespaceOption = None,
    everywhere: Annotated[
        bool, typer.Option("--all-namespaces", "-A", help="Count the runs of all namespaces")
    ] = False,
    system: SystemNamespaceOption = "perdure-system",
    output: ReportOption = "text",
    color: ColorOption = Color.AUTO,
    cluster: ContextOption = None,
) -> None:
    """Show open runs and the load of the operators."""
    from perdure.cli.load import read_load

    async def read() -> "Load":
        async with connect(context=cluster, namespace=namespace, program=program_of(context)) as found:
            return await read_load(found, system, everywhere=everywhere)

    load = asyncio.run(read())
    screen = Screen(color)
    from perdure.cli.load_report import as_data, operators, workflows, workflows_table

    page = page_of(context, screen)
    counted = workflows(load.runs, clock.now())
    if output != "text":
        screen.write_data(output, as_data(counted, load.operators))
        return
    if counted:
        screen.show(workflows_table(counted, page, namespaces=everywhere))
    else:
        typer.echo("No run is open.", err=True)
    if load.operators:
        screen.write("")
        screen.show(operators(load.operators, page))
    else:
        typer.echo(f"No operator can be read in namespace `{system}`.", err=True)
