"""`describe`: all details of one run."""

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
    output_option,
    run_argument,
    time_option,
    workflow_id_option,
)
from perdure.cli.progress import Waiter
from perdure.cli.selection import Selection, newest
from perdure.cli.terminal import Color, Output, Screen, TimeFormat, is_for_users, page_of, program_of, reference
from perdure.client.errors import CliError
from perdure.kube import clock

if TYPE_CHECKING:
    from perdure.client.requests import Object
    from perdure.view.run import RunView


@verb()
@run_argument
@workflow_id_option
@option("--last", "-L", is_flag=True, help="Instead of NAME: the newest run of the namespace")
@namespace_option
@option("--watch", "-W", is_flag=True, help="Show the progress until the run ends, then the whole run")
@output_option
@time_option
@color_option
@context_option
@click.pass_context
def describe(
    context: click.Context,
    *,
    name: str | None,
    workflow_id: str | None,
    last: bool,
    namespace: str | None,
    watch: bool,
    output: Output,
    times: TimeFormat,
    color: Color,
    cluster: str | None,
) -> None:
    """Show a run: its steps, what it waits for, why it failed.

    Shows each step with its attempts, times, pods or worker, and notes; then what
    the run waits for, the chain of causes if it failed, useful next commands, and
    the last Events.

    \b
    Examples:
      {program} describe order-42
      {program} describe --workflow-id A-1001
      {program} describe order-42 --namespace shop --time-format iso
      {program} describe --last
      {program} describe order-42 --output json
      {program} describe order-42 --watch
    """
    if last and (name or workflow_id):
        raise click.BadParameter("leave out NAME and --workflow-id", param_hint="--last")
    if last:
        name = asyncio.run(_newest(namespace, cluster, program_of(context)))
    check_named(name, workflow_id)
    screen = Screen(color)
    if watch:
        if not is_for_users(output):
            raise click.BadParameter("shows text only; leave out --output", param_hint="--watch")
        asyncio.run(Waiter(context, screen, times, cluster).wait(name, workflow_id, namespace, None))
    run, events = asyncio.run(_read(name, workflow_id, namespace, cluster, program_of(context)))
    page = page_of(context, screen, times=times, cluster=cluster)
    from perdure.view.describe import as_data, describe

    if is_for_users(output):
        from perdure.view.describe import event_lines

        screen.show(describe(run, page))
        screen.show(event_lines(events, page))
    else:
        screen.write_data(output, as_data(run, page), [reference("WorkflowRun", run.name)])


async def _newest(namespace: str | None, context: str | None, program: str) -> str:
    """Return the name of the newest run.

    Raises:
        CliError: There are no runs, or they cannot be read.
    """
    async with connect(context=context, namespace=namespace, program=program) as cluster:
        found = newest(await Selection().read_metadata(cluster, clock.now()), 1)
        if not found:
            raise CliError(f"there are no runs in namespace `{cluster.namespace}`; choose the namespace with -n")
        return str(found[0]["metadata"]["name"])


async def _read(
    name: str | None, workflow_id: str | None, namespace: str | None, context: str | None, program: str
) -> "tuple[RunView, list[Object]]":
    """Read a run and its Events."""
    async with connect(context=context, namespace=namespace, program=program) as cluster:
        found = await cluster.runs.with_history(await cluster.runs.find(name, workflow_id))
        live = await cluster.runs.live_state(found)
        events = await cluster.runs.events(found)
    from perdure.view.replay import trace
    from perdure.view.run import read_run

    return read_run(found, now=clock.now(), live=live, trace=trace(found)), events
