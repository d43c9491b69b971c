"""`trace`: the timeline of a run."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from perdure.api.labels import PARENT_RUN_ID_LABEL
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
from perdure.client.errors import CliError
from perdure.kube import clock

if TYPE_CHECKING:
    from perdure.client.requests import Object


@verb()
@run_argument
@workflow_id_option
@namespace_option
@report_option
@option("--otlp", is_flag=True, help="Write a closed run as OTLP in JSON")
@time_option
@color_option
@context_option
@click.pass_context
def trace(
    context: click.Context,
    *,
    name: str | None,
    workflow_id: str | None,
    namespace: str | None,
    output: Output,
    otlp: bool,
    times: TimeFormat,
    color: Color,
    cluster: str | None,
) -> None:
    """Show when each step of a run waited, started its pod, and ran.

    Attempts whose pod is deleted are not shown, except for the last one of a step.
    The JSON output is in the trace event format, which https://ui.perfetto.dev and
    chrome://tracing open. --otlp writes a closed run as spans of OpenTelemetry,
    which collectors accept. The ID of the trace is the ID of the run.

    \b
    Examples:
      {program} trace order-42
      {program} trace order-42 --time-format iso
      {program} trace order-42 --output json > order-42.trace.json
      {program} trace order-42 --otlp > order-42.otlp.json
    """
    check_named(name, workflow_id)
    if otlp and output != "text":
        raise click.BadParameter("has a format of its own; leave out --output", param_hint="--otlp")
    screen = Screen(color)
    found, pods = asyncio.run(_read(name, workflow_id, namespace, cluster, program_of(context)))
    from perdure.view import replay
    from perdure.view.run import read_run
    from perdure.view.timeline import as_chrome_trace, spans

    now = clock.now()
    run = read_run(found, now=now, trace=replay.trace(found))
    steps = spans(run, pods)
    if otlp:
        if run.start is None or run.end is None:
            raise CliError(
                f"the run `{run.name}` has not ended, and exported spans cannot change; wait for it with "
                f"`{program_of(context)} wait {run.name}`"
            )
        from perdure.view.timeline import as_otlp

        screen.write_data("json", as_otlp(run, steps, (found["metadata"].get("labels") or {}).get(PARENT_RUN_ID_LABEL)))
    elif output != "text":
        screen.write_data(output, as_chrome_trace(run.name, steps, run.start, run.end, now))
    elif not steps or run.start is None:
        click.echo(f"No step of the run `{run.name}` has started.", err=True)
    else:
        from perdure.view.timeline import timeline_lines

        screen.show(timeline_lines(steps, run.start, run.end or now, page_of(context, screen, times=times)))


async def _read(
    name: str | None, workflow_id: str | None, namespace: str | None, context: str | None, program: str
) -> tuple[Object, list[Object]]:
    """Read the run with its whole history, and its pods."""
    async with connect(context=context, namespace=namespace, program=program) as cluster:
        found = await cluster.runs.with_history(await cluster.runs.find(name, workflow_id))
        try:
            return found, await cluster.runs.pods(found)
        except CliError as error:
            click.echo(f"Warning: only the history is shown, because the pods cannot be read: {error}", err=True)
            return found, []
