"""`delete`: delete runs."""

import asyncio
from typing import Annotated

import typer

from perdure.cli.completion import names_of
from perdure.cli.connection import connect
from perdure.cli.options import ContextOption, NamespaceOption, seconds_of
from perdure.cli.selection import PhaseOption, SelectorOption, chosen
from perdure.cli.terminal import program_of
from perdure.client.errors import CliError, GoneError
from perdure.client.requests import Object
from perdure.kube import clock

HELP = """Delete runs with their pods, children, and history.

Like kubectl, waits until they no longer exist. An open run is deleted without
running its handlers: use `cancel` or `terminate` first if they must run.

Exit status: 0 deleted, 1 no run matches, 2 error, 124 they still exist after
--timeout.

\b
Examples:
  {program} delete order-42 order-43
  {program} delete -l team=shop --phase Completed
  {program} delete order-42 --ignore-not-found --no-wait
"""


def command(
    context: typer.Context,
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME]...", help="Names of runs", autocompletion=names_of("workflowruns"), show_default=False
        ),
    ] = None,
    *,
    selector: SelectorOption = None,
    phases: PhaseOption = None,
    every: Annotated[bool, typer.Option("--all", help="All runs of the namespace")] = False,
    ignore: Annotated[bool, typer.Option("--ignore-not-found", help="Succeed if a run does not exist")] = False,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until they no longer exist")] = True,
    timeout: Annotated[str, typer.Option("--timeout", help="How long to wait")] = "2m",
    namespace: NamespaceOption = None,
    cluster: ContextOption = None,
) -> None:
    """Delete runs."""
    if bool(names) == (every or selector is not None or bool(phases)):
        raise CliError("set NAME, or choose runs with --selector, --phase, or --all")
    seconds = seconds_of(timeout, "--timeout") if wait else None
    choice = chosen(phases, selector)

    async def run() -> None:
        async with connect(context=cluster, namespace=namespace, program=program_of(context)) as found:
            from perdure.cli.deleting import delete

            runs = list[Object]()
            for name in dict.fromkeys(names or ()):
                try:
                    runs.append(await found.runs.named(name))
                except GoneError:
                    if not ignore:
                        raise
            if not names:
                runs = await choice.read_briefly(found, clock.now())
            if not runs and not ignore:
                typer.echo("No run matches.", err=True)
                raise typer.Exit(1)
            await delete(found, runs, wait_seconds=seconds)

    asyncio.run(run())
