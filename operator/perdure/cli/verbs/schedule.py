"""`schedule`: schedules, and when they fire."""

import asyncio
from enum import StrEnum
from typing import Annotated, Any

import typer

from perdure.cli.cluster import connect
from perdure.cli.options import ContextOption, NamespaceOption
from perdure.cli.page import program_of
from perdure.cli.terminal import Screen
from perdure.kube import clock

HELP = """Schedules: when they start runs, and what became of that.

\b
Examples:
  {program} schedule next -f nightly.yaml --count 3
  {program} schedule next nightly --after 2026-03-28
"""

_NEXT = """Show when a schedule will start runs.

Offline for a file; for a NAME, the schedule is read from the cluster.
Nominal is the time that the spec names, actual the same with jitter. The
actual time depends on namespace and name: give the namespace of a file that
has none with --namespace.

\b
Examples:
  {program} schedule next -f nightly.yaml
  {program} schedule next nightly --after 2026-03-28T00:00:00Z --count 3
  {program} schedule next -f nightly.yaml --output json
"""


class Output(StrEnum):
    """How times are printed."""

    TEXT = "text"
    JSON = "json"


def next_times(
    context: typer.Context,
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Name of the Schedule", show_default=False)] = None,
    *,
    file: Annotated[
        str | None,
        typer.Option("--file", "-f", help="File that has the Schedule; - for standard input", show_default=False),
    ] = None,
    after: Annotated[
        str | None, typer.Option("--after", help="Only times later than this one; now by default", show_default=False)
    ] = None,
    count: Annotated[int, typer.Option("--count", help="How many", min=1, max=10_000)] = 10,
    namespace: NamespaceOption = None,
    output: Annotated[Output, typer.Option("--output", "-o", help="How to print them")] = Output.TEXT,
    cluster: ContextOption = None,
) -> None:
    """Show when a schedule will start runs."""
    from perdure.cli.upcoming import moment, schedule_in, upcoming  # noqa: PLC0415 - slow to import, and not for `--help`
    from perdure.cli.view.schedules import times_json, times_table  # noqa: PLC0415

    if file is None and name is None:
        raise typer.BadParameter("name a Schedule, or a file that has one with --file")
    start = moment(after) if after else clock.now()
    found = schedule_in(file, name) if file else asyncio.run(_read(str(name), namespace, cluster, program_of(context)))
    times, dues = upcoming(found, namespace or "default", start, count)
    screen = Screen()
    if output is Output.JSON:
        screen.write_json(times_json(dues))
    elif dues:
        screen.show(times_table(dues, times.zone.name))
    else:
        typer.echo("There are no such times: the end has passed, or no time fits.", err=True)


async def _read(name: str, namespace: str | None, context: str | None, program: str) -> dict[str, Any]:
    async with connect(context=context, namespace=namespace, program=program) as cluster:
        return await cluster.schedule(name)


COMMANDS = {"next": (next_times, _NEXT)}
"""Each verb: its function, and its help."""
