"""`prune`: delete closed runs by age and number."""

import asyncio
from datetime import datetime, timedelta
from typing import Annotated

import typer

from perdure.cli.connection import connect
from perdure.cli.options import ContextOption, NamespaceOption, seconds_of
from perdure.cli.selection import PhaseOption, SelectorOption, chosen, phase_of
from perdure.cli.terminal import Screen, program_of, reference
from perdure.client.errors import CliError
from perdure.client.requests import Object
from perdure.kube import clock
from perdure.view.phases import CLOSED

HELP = """Delete closed runs that are old.

--older-than counts from the end of a run. --keep keeps the newest closed runs,
whatever their age. Open runs are never deleted. To have the operator delete
runs by itself, set `ttlSecondsAfterFinished`.

\b
Examples:
  {program} prune --older-than 30d --dry-run
  {program} prune --phase Completed --older-than 7d
  {program} prune --keep 100 -l team=shop
"""


def command(
    context: typer.Context,
    *,
    older_than: Annotated[
        str | None,
        typer.Option(
            "--older-than", "--older", help="Only runs that ended longer ago, such as 30d", show_default=False
        ),
    ] = None,
    keep: Annotated[
        int | None,
        typer.Option("--keep", help="Keep the newest N closed runs", min=0, metavar="N", show_default=False),
    ] = None,
    phases: PhaseOption = None,
    selector: SelectorOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be deleted, and delete nothing")] = False,
    namespace: NamespaceOption = None,
    cluster: ContextOption = None,
) -> None:
    """Delete closed runs."""
    if older_than is None and keep is None:
        raise CliError("set --older-than, --keep, or both")
    for phase in phases or ():
        if phase not in CLOSED:
            raise CliError(f"--phase {phase}: runs in this phase are open, and only closed runs are deleted")
    age = timedelta(seconds=seconds_of(older_than, "--older-than")) if older_than is not None else timedelta(0)
    choice = chosen(phases, selector)

    async def run() -> None:
        async with connect(context=cluster, namespace=namespace, program=program_of(context)) as found:
            from perdure.cli.deleting import delete

            now = clock.now()
            closed = [each for each in await choice.read(found, now) if phase_of(each) in CLOSED]
            closed.sort(key=_ended, reverse=True)
            old = [each for each in closed[keep or 0 :] if _ended(each) <= now - age]
            if not old:
                typer.echo("There is nothing to delete.", err=True)
            elif dry_run:
                for each in old:
                    Screen().write(f"{reference('WorkflowRun', each['metadata']['name'])} deleted (dry run)")
            else:
                await delete(found, old, wait_seconds=None)

    asyncio.run(run())


def _ended(run: Object) -> datetime:
    """Return when a closed run ended."""
    status = run.get("status") or {}
    return datetime.fromisoformat(status.get("completionTime") or run["metadata"]["creationTimestamp"])
