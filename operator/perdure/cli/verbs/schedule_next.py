"""`schedule next`: the next times of a Schedule."""

import asyncio
from typing import Annotated, Any

import typer

from perdure.api.names import schedule_name
from perdure.cli.completion import names_of
from perdure.cli.connection import connect
from perdure.cli.options import (
    ContextOption,
    NamespaceOption,
    ReportOption,
)
from perdure.cli.schedules import moment
from perdure.cli.terminal import Screen, program_of
from perdure.client.errors import ExitCode
from perdure.kube import clock

NEXT = """Show when a Schedule will start runs.

With --file, works offline; with NAME, reads the Schedule from the cluster.
NOMINAL is the time in the spec, ACTUAL includes jitter. NOTE marks clock
changes: a time that does not exist and runs later, and a time that occurs
twice. A time without an offset is in the time zone of the Schedule. Jitter
depends on namespace and name: if the file has no namespace, set --namespace.
If the Schedule is paused, prints a warning on stderr. Exit status 1: there
are no times; the message says why.

\b
Examples:
  {program} schedule next -f nightly.yaml
  {program} schedule next nightly --after 2026-03-28T00:00:00Z --count 3
  {program} schedule next -f nightly.yaml --output json
"""


def next_times(
    context: typer.Context,
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help="Name of the Schedule, or the ID from the Temporal client that created it",
            show_default=False,
            autocompletion=names_of("schedules"),
        ),
    ] = None,
    *,
    file: Annotated[
        str | None,
        typer.Option("--file", "-f", help="File with the Schedule; - for standard input", show_default=False),
    ] = None,
    after: Annotated[
        str | None, typer.Option("--after", help="Only times after this one; default: now", show_default=False)
    ] = None,
    count: Annotated[int, typer.Option("--count", help="Number of times to show", min=1, max=10_000)] = 10,
    namespace: NamespaceOption = None,
    output: ReportOption = "text",
    cluster: ContextOption = None,
) -> None:
    """Show when a schedule will start runs."""
    if file is None and name is None:
        raise typer.BadParameter("set either NAME or --file")
    stored = None if file else asyncio.run(read_schedule(str(name), namespace, cluster, program_of(context)))
    from perdure.cli.schedules import outlook_of, schedule_in, times_of, upcoming
    from perdure.view.schedules import is_paused, times_json, times_table

    found = stored if stored is not None else schedule_in(str(file), name)
    times = times_of(found)
    start = moment(after, times.zone.rules) if after else clock.now()
    dues = upcoming(times, found, namespace or "default", start, count)
    screen = Screen()
    if output != "text":
        screen.write_data(output, times_json(dues, times))
    elif dues:
        screen.show(times_table(dues, times))
    if dues and is_paused(found):
        typer.echo("The schedule is paused: no runs start at these times until it is unpaused.", err=True)
    if not dues:
        typer.echo(f"{outlook_of(found, start).message}.", err=True)
        raise typer.Exit(ExitCode.NO)


async def read_schedule(name: str, namespace: str | None, context: str | None, program: str) -> dict[str, Any]:
    """Read a Schedule from the cluster, by its name or its ID."""
    async with connect(context=context, namespace=namespace, program=program) as cluster:
        return await cluster.read("Schedule", "schedules", schedule_name(name))
