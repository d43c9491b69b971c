"""`set-version`: move open runs of code to another version of their workers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import click

from perdure.cli.command import option, verb
from perdure.cli.connection import connect
from perdure.cli.operations import OPEN_PHASES, BatchOptions, request_to_runs, send_several
from perdure.cli.options import open_workflow_id_option, runs_argument
from perdure.cli.terminal import program_of, reference
from perdure.client import versions

if TYPE_CHECKING:
    from perdure.client.cluster import Cluster
    from perdure.client.requests import Object


@verb()
@runs_argument
@open_workflow_id_option
@option("--to", metavar="ID", default=versions.CURRENT, help="Build ID of the version, or `current`")
@option("--failing", is_flag=True, help="Only runs whose workflow task fails")
@request_to_runs
def set_version(context: click.Context, batch: BatchOptions, *, to: str, failing: bool) -> None:
    """Move open runs of code, such as flows in Python, to another version.

    A run that is pinned to a version stays on its code, also if that has an error.
    This command lets the workers of another version decide it: they replay its
    history, so that it continues where it was and repeats nothing. Their code must
    make the same decisions up to there. A failing workflow task is retried
    immediately. From then on, the run is on that version, with its activities.

    With --workflow or --selector, moves all open runs that match, after a
    confirmation; all must be runs of one worker deployment.

    Exit status: 0 done, 1 refused (for example, the version has no workers), 2
    error, 124 timeout.

    \b
    Examples:
      {program} set-version nightly-7
      {program} set-version --workflow nightly --failing --dry-run
      {program} set-version --workflow nightly --failing --yes
      {program} set-version nightly-7 --to 5f3c09d1a2
    """
    runs, request = asyncio.run(_chosen(context, batch, to, failing=failing))
    if not runs:
        click.echo(f"No open run matches{' and fails' if failing else ''}.", err=True)
        return
    if batch.dry_run:
        build = request["versioningOverride"]["buildId"]
        for run in runs:
            click.echo(f"{reference('WorkflowRun', run['metadata']['name'])} moved to version {build} (dry run)")
        return
    if batch.choice.matching:
        batch.choice.confirm("move", runs)

    async def targets(_: Cluster) -> list[Object]:
        return [{"kind": "WorkflowRun", "name": run["metadata"]["name"]} for run in runs]

    pause = 0.0 if batch.rps is None else 1 / batch.rps
    send_several(context, "updateOptions", request, batch, targets, pause=pause)


async def _chosen(
    context: click.Context, batch: BatchOptions, to: str, *, failing: bool
) -> tuple[list[Object], dict[str, Any]]:
    """Return the runs to move, and the request that moves them.

    Raises:
        CliError: The runs cannot be read, or cannot be moved.
    """
    choice = batch.choice
    async with connect(context=batch.cluster, namespace=batch.namespace, program=program_of(context)) as cluster:
        if choice.matching:
            names = [run["metadata"]["name"] for run in await choice.matches(cluster, OPEN_PHASES)]
            found = [await cluster.runs.get(name) for name in names]
        elif choice.names:
            found = [await cluster.runs.get(name) for name in dict.fromkeys(choice.names)]
        else:
            found = [await cluster.runs.find(None, choice.workflow_id)]
        if failing:
            found = [run for run in found if versions.is_failing(run)]
        return found, await versions.options_of_move(cluster, found, to) if found else {}
