"""`history`: every event of a run."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from perdure.cli.command import option, verb
from perdure.cli.connection import connect
from perdure.cli.options import (
    check_named,
    color_option,
    context_option,
    namespace_option,
    report_option,
    run_argument,
    time_option,
    workflow_id_option,
)
from perdure.cli.terminal import Color, Output, Screen, TimeFormat, page_of, program_of
from perdure.client.errors import CliError, UnreachableError

if TYPE_CHECKING:
    from perdure.client.cluster import Cluster
    from perdure.client.requests import Object
    from perdure.view.events import Event


_PAUSE = 0.5
"""Seconds between two reads of a followed history."""


@verb()
@run_argument
@workflow_id_option
@option("--follow", "-f", is_flag=True, help="Print new events until the run ends")
@option("--reverse", is_flag=True, help="Show the newest event first")
@namespace_option
@report_option
@option("--detailed", is_flag=True, help="Show every attribute of every event")
@time_option
@color_option
@context_option
@click.pass_context
def history(
    context: click.Context,
    *,
    name: str | None,
    workflow_id: str | None,
    follow: bool,
    reverse: bool,
    namespace: str | None,
    output: Output,
    detailed: bool,
    times: TimeFormat,
    color: Color,
    cluster: str | None,
) -> None:
    """Show the event history of a run.

    Times count from the start of the run. With --follow, prints new events until
    the run ends. The JSON output is the stored history, which `{program} replay`
    reads; with --reverse, the newest event comes first in it too.

    \b
    Examples:
      {program} history order-42
      {program} history --workflow-id A-1001
      {program} history order-42 --follow
      {program} history order-42 --reverse --detailed --time-format iso
      {program} history order-42 --output json > order-42.json
    """
    check_named(name, workflow_id)
    if follow and (reverse or output != "text"):
        raise click.BadParameter("leave out --reverse and --output", param_hint="--follow")
    screen = Screen(color)

    async def read() -> None:
        async with connect(context=cluster, namespace=namespace, program=program_of(context)) as found:
            run, shown = await found.runs.find(name, workflow_id), 0
            while True:
                events = await _events(found, run)
                if output != "text":
                    screen.write_data(output, {"events": events[::-1] if reverse else events})
                elif len(events) > shown:
                    from perdure.view.events import table

                    page = page_of(context, screen, times=times)
                    screen.show(table(events, page, detailed=detailed, reverse=reverse, after=shown))
                    shown = len(events)
                elif not follow:
                    message = f"The run `{run['metadata']['name']}` has not started: it has no events yet."
                    click.echo(message, err=True)
                if not follow or (run.get("status") or {}).get("completionTime"):
                    return
                run = await _next(found, run)

    asyncio.run(read())


async def _events(cluster: Cluster, run: Object) -> list[Event]:
    """Read the whole history.

    Raises:
        CliError: A part of the history is missing.
    """
    past = await cluster.runs.history(run)
    from perdure.view import events as view

    wrong = [damage.message for damage in past.damage]
    try:
        view.check(past.events)
    except view.GapError as error:
        wrong.append(str(error))
    if wrong:
        raise CliError(
            f"the history of `{run['metadata']['name']}` is incomplete: {'; '.join(wrong)}; list its segments with "
            f"`kubectl get historysegments`"
        )
    return list(past.events)


async def _next(cluster: Cluster, run: Object) -> Object:
    """Read a run again until it has changed.

    Raises:
        CliError: The run was deleted, or cannot be read.
    """
    meta, away = run["metadata"], False
    while True:
        await asyncio.sleep(_PAUSE)
        try:
            found = await cluster.runs.get(meta["name"])
        except UnreachableError as error:
            if not away:
                click.echo(f"{error}; still following", err=True)
            away = True
            continue
        if found["metadata"]["uid"] != meta["uid"]:
            raise CliError(f"the run `{meta['name']}` was deleted, and another one of that name was created")
        if found["metadata"]["resourceVersion"] != meta["resourceVersion"]:
            return found
        away = False
