"""`delete` and `prune`: delete runs, by name or by age and number."""

import asyncio
import time
from collections.abc import Iterable
from datetime import datetime, timedelta

import click
from click.exceptions import Exit

from perdure.api.phases import CLOSED, Phase
from perdure.cli.command import WholeNumber, option, verb
from perdure.cli.connection import connect
from perdure.cli.options import context_option, names_argument, namespace_option, seconds_of
from perdure.cli.selection import phase_option, selection_of, selector_option
from perdure.cli.terminal import Screen, program_of, reference
from perdure.client.cluster import Cluster
from perdure.client.errors import CliError, ExitCode, NotFoundError, UnreachableError
from perdure.client.requests import Object
from perdure.client.selection import phase_of
from perdure.kube import clock

_PAUSE = 0.25
"""Seconds between two reads."""


async def delete_runs(cluster: Cluster, runs: Iterable[Object], *, wait_seconds: float | None) -> None:
    """Delete runs with their dependents, and print their names.

    Args:
        cluster: The cluster; the runs are in its namespace.
        runs: The runs.
        wait_seconds: Maximum wait until they no longer exist, in seconds; None to return immediately.

    Raises:
        CliError: A run must not be deleted.
        Exit: A run still exists after that time.
    """
    remaining, screen = {}, Screen()
    for run in runs:
        meta = run["metadata"]
        await cluster.delete("WorkflowRun", "workflowruns", meta["name"], uid=meta["uid"])
        screen.write(f"{reference('WorkflowRun', meta['name'])} deleted")
        remaining[meta["name"]] = meta["uid"]
    if wait_seconds is None:
        return
    deadline = time.monotonic() + wait_seconds
    while remaining := {name: uid for name, uid in remaining.items() if await _exists(cluster, name, uid)}:
        if time.monotonic() > deadline:
            names = ", ".join(f"`{name}`" for name in remaining)
            click.echo(
                f"Error: these runs still exist after {wait_seconds:g}s: {names}; they are marked for deletion, and the operator "
                "deletes their pods first",
                err=True,
            )
            raise Exit(ExitCode.TIMEOUT)
        await asyncio.sleep(_PAUSE)


async def _exists(cluster: Cluster, name: str, uid: str) -> bool:
    try:
        found = await cluster.runs.get(name)
    except NotFoundError:
        return False
    except UnreachableError:
        return True
    return str(found["metadata"]["uid"]) == uid


@verb()
@names_argument("Names of runs")
@selector_option
@phase_option
@option("--all", "every", is_flag=True, help="All runs of the namespace")
@option("--ignore-not-found", "ignore", is_flag=True, help="Succeed if a run does not exist")
@option("--wait/--no-wait", default=True, help="Wait until they no longer exist")
@option("--timeout", default="2m", help="How long to wait")
@namespace_option
@context_option
@click.pass_context
def delete(
    context: click.Context,
    *,
    names: tuple[str, ...],
    selector: str | None,
    phases: tuple[Phase, ...],
    every: bool,
    ignore: bool,
    wait: bool,
    timeout: str,
    namespace: str | None,
    cluster: str | None,
) -> None:
    """Delete runs with their pods, children, and history.

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
    if bool(names) == (every or selector is not None or bool(phases)):
        raise CliError("set NAME, or choose runs with --selector, --phase, or --all")
    seconds = seconds_of(timeout, "--timeout") if wait else None
    selection = selection_of(phases=phases, selector=selector)

    async def run() -> None:
        async with connect(context=cluster, namespace=namespace, program=program_of(context)) as found:
            runs = list[Object]()
            for name in dict.fromkeys(names or ()):
                try:
                    runs.append(await found.runs.get(name))
                except NotFoundError:
                    if not ignore:
                        raise
            if not names:
                runs = await selection.read_metadata(found, clock.now())
            if not runs and not ignore:
                click.echo("No run matches.", err=True)
                raise Exit(1)
            await delete_runs(found, runs, wait_seconds=seconds)

    asyncio.run(run())


@verb()
@option("--older-than", "--older", help="Only runs that ended longer ago, such as 30d")
@option("--keep", type=WholeNumber(min=0), help="Keep the newest N closed runs")
@phase_option
@selector_option
@option("--dry-run", is_flag=True, help="Print what would be deleted, and delete nothing")
@namespace_option
@context_option
@click.pass_context
def prune(
    context: click.Context,
    *,
    older_than: str | None,
    keep: int | None,
    phases: tuple[Phase, ...],
    selector: str | None,
    dry_run: bool,
    namespace: str | None,
    cluster: str | None,
) -> None:
    """Delete closed runs that are old.

    --older-than counts from the end of a run. --keep keeps the newest closed runs,
    whatever their age. Open runs are never deleted. To have the operator delete
    runs by itself, set `ttlSecondsAfterFinished`.

    \b
    Examples:
      {program} prune --older-than 30d --dry-run
      {program} prune --phase Completed --older-than 7d
      {program} prune --keep 100 -l team=shop
    """
    if older_than is None and keep is None:
        raise CliError("set --older-than, --keep, or both")
    for phase in phases or ():
        if phase not in CLOSED:
            raise CliError(f"--phase {phase}: runs in this phase are open, and only closed runs are deleted")
    age = timedelta(seconds=seconds_of(older_than, "--older-than")) if older_than is not None else timedelta(0)
    selection = selection_of(phases=phases, selector=selector)

    async def run() -> None:
        async with connect(context=cluster, namespace=namespace, program=program_of(context)) as found:
            now = clock.now()
            closed = [each for each in await selection.read(found, now) if phase_of(each) in CLOSED]
            closed.sort(key=_ended, reverse=True)
            old = [each for each in closed[keep or 0 :] if _ended(each) <= now - age]
            if not old:
                click.echo("There is nothing to delete.", err=True)
            elif dry_run:
                for each in old:
                    Screen().write(f"{reference('WorkflowRun', each['metadata']['name'])} deleted (dry run)")
            else:
                await delete_runs(found, old, wait_seconds=None)

    asyncio.run(run())


def _ended(run: Object) -> datetime:
    """Return when a closed run ended."""
    status = run.get("status") or {}
    return datetime.fromisoformat(status.get("completionTime") or run["metadata"]["creationTimestamp"])
