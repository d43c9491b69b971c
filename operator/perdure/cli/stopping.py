"""The verbs that end runs: `cancel`, `stop`, and `terminate`, for one run or for all selected runs."""

import asyncio
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

import typer

from perdure.cli.asking import DONE, How, Inquiry, ReasonOption, ask, ask_several, asking_several
from perdure.cli.choosing import Chosen, SelectorOption, chosen, newest
from perdure.cli.cluster import Cluster, Object, connect
from perdure.cli.errors import CliError
from perdure.cli.invocation import program_of
from perdure.cli.options import OpenWorkflowIdOption, RunName, check_named
from perdure.cli.terminal import Screen, reference
from perdure.kube import clock

_YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation")]
_DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Print the runs, and change nothing")]


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRequest:
    """The runs to end, and the options for ending them."""

    verb: str
    reason: str
    yes: bool
    dry_run: bool

    @property
    def request(self) -> dict[str, str | None]:
        """The request of the Operation."""
        return {"reason": self.reason or None}


def stopping(verb: str) -> Callable[..., None]:
    """Create the command of a verb that ends runs.

    Args:
        verb: The field of the spec of an Operation.

    Returns:
        The command.
    """

    @asking_several
    def command(
        context: typer.Context,
        how: How,
        *,
        name: RunName = None,
        workflow_id: OpenWorkflowIdOption = None,
        selector: SelectorOption = None,
        reason: ReasonOption = "",
        yes: _YesOption = False,
        dry_run: _DryRunOption = False,
    ) -> None:
        wanted = StopRequest(verb=verb, reason=reason, yes=yes, dry_run=dry_run)
        if selector is not None:
            if name is not None or workflow_id is not None:
                raise typer.BadParameter("leave out NAME and --workflow-id", param_hint="--selector")
            _end_chosen(context, how, wanted, chosen(selector=selector, running=True))
            return
        check_named(name, workflow_id)
        if dry_run:
            asyncio.run(_show_one(context, how, wanted, name, workflow_id))
            return
        shared = {key: getattr(how, key) for key in How.__slots__}
        ask(context, verb, wanted.request, Inquiry(name=name, workflow_id=workflow_id, **shared))

    return command


def _end_chosen(context: typer.Context, how: How, wanted: StopRequest, choice: Chosen) -> None:
    """End all selected open runs, after a confirmation."""

    async def choose(cluster: Cluster) -> list[Object]:
        runs = newest(await choice.read_briefly(cluster, clock.now()), None)
        if wanted.dry_run:
            _show(wanted, runs)
            return []
        if runs and not wanted.yes:
            _confirm(wanted, runs)
        return [{"kind": "WorkflowRun", "name": run["metadata"]["name"]} for run in runs]

    count = ask_several(context, wanted.verb, wanted.request, how, choose)
    if not count and not wanted.dry_run:
        typer.echo("No open run matches.", err=True)


async def _show_one(
    context: typer.Context, how: How, wanted: StopRequest, name: str | None, workflow_id: str | None
) -> None:
    async with connect(context=how.cluster, namespace=how.namespace, program=program_of(context)) as cluster:
        _show(wanted, [await cluster.runs.chosen(name, workflow_id)])


def _show(wanted: StopRequest, runs: list[Object]) -> None:
    for run in runs:
        Screen().write(f"{reference('WorkflowRun', run['metadata']['name'])} {DONE[wanted.verb]} (dry run)")


def _confirm(wanted: StopRequest, runs: list[Object]) -> None:
    """Ask the user whether to continue.

    Raises:
        CliError: The input is not a terminal.
        Abort: The user declines.
    """
    if not sys.stdin.isatty():
        raise CliError(f"{len(runs)} runs match; pass --yes to {wanted.verb} them, or --dry-run to list them")
    for run in runs:
        typer.echo(f"  {run['metadata']['name']}", err=True)
    typer.confirm(f"Do you want to {wanted.verb} these {len(runs)} runs?", abort=True, err=True)
