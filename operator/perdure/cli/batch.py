"""Requests to one run, or to all open runs with some labels. Shared by several verbs."""

import asyncio
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from perdure.cli.asking import DONE, How, Inquiry, ask, ask_several, asking_with
from perdure.cli.choosing import SelectorOption, chosen, newest
from perdure.cli.connection import connect
from perdure.cli.invocation import program_of
from perdure.cli.options import check_named
from perdure.cli.terminal import Screen, reference
from perdure.client.cluster import Cluster
from perdure.client.errors import CliError
from perdure.client.requests import Object
from perdure.kube import clock

_Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation")]
_DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the runs, and change nothing")]
_Rps = Annotated[
    float | None,
    typer.Option(
        "--rps", metavar="N", min=0.01, help="At most N requests per second; requires --selector", show_default=False
    ),
]

_OPTIONS = {
    "selector": (SelectorOption, None),
    "yes": (_Yes, False),
    "dry_run": (_DryRun, False),
    "rps": (_Rps, None),
}
"""The options of verbs that can send a request to many runs, after their own options."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchInquiry(How):
    """The options for sending a request, and its targets."""

    name: str | None
    workflow_id: str | None
    selector: str | None
    yes: bool
    dry_run: bool
    rps: float | None

    @property
    def one(self) -> Inquiry:
        """Return the options for sending the request to one run.

        Raises:
            BadParameter: No run or two runs are given.
        """
        check_named(self.name, self.workflow_id)
        shared = {key: getattr(self, key) for key in How.__slots__}
        return Inquiry(name=self.name, workflow_id=self.workflow_id, **shared)


def asking_runs(verb: Callable[..., None]) -> Callable[..., None]:
    """Create the command of a verb that sends a request to one run or to many, like `asking`.

    Args:
        verb: Takes the context from typer, a `BatchInquiry`, and its own options by keyword.

    Returns:
        The command.
    """
    return asking_with(verb, BatchInquiry, _OPTIONS)


def ask_runs(context: typer.Context, verb: str, request: Mapping[str, Any], given: BatchInquiry) -> None:
    """Send a request to the named run, or to all open runs with the labels after a confirmation.

    Args:
        context: The context from typer.
        verb: The field of the request in the spec, such as `cancel`.
        request: The value of that field; None values are omitted.
        given: The options for sending, and the targets.

    Raises:
        BadParameter: The options exclude each other.
        CliError: A request could not be sent.
        Exit: A result is negative or missing.
    """
    if given.selector is not None:
        if given.name is not None or given.workflow_id is not None:
            raise typer.BadParameter("leave out NAME and --workflow-id", param_hint="--selector")
        _ask_selected(context, verb, request, given)
        return
    if given.rps is not None:
        raise typer.BadParameter("requires --selector", param_hint="--rps")
    one = given.one
    if given.dry_run:
        asyncio.run(_show_one(context, verb, one))
    else:
        ask(context, verb, request, one)


def _ask_selected(context: typer.Context, verb: str, request: Mapping[str, Any], given: BatchInquiry) -> None:
    choice = chosen(selector=given.selector, running=True)

    async def choose(cluster: Cluster) -> list[Object]:
        runs = newest(await choice.read_briefly(cluster, clock.now()), None)
        if given.dry_run:
            _show(verb, runs)
            return []
        if runs and not given.yes:
            _confirm(verb, runs)
        return [{"kind": "WorkflowRun", "name": run["metadata"]["name"]} for run in runs]

    pause = 0.0 if given.rps is None else 1 / given.rps
    count = ask_several(context, verb, request, given, choose, pause=pause)
    if not count and not given.dry_run:
        typer.echo("No open run matches.", err=True)


async def _show_one(context: typer.Context, verb: str, inquiry: Inquiry) -> None:
    async with connect(context=inquiry.cluster, namespace=inquiry.namespace, program=program_of(context)) as cluster:
        _show(verb, [await cluster.runs.chosen(inquiry.name, inquiry.workflow_id)])


def _show(verb: str, runs: list[Object]) -> None:
    for run in runs:
        Screen().write(f"{reference('WorkflowRun', run['metadata']['name'])} {DONE[verb]} (dry run)")


def _confirm(verb: str, runs: list[Object]) -> None:
    """Ask the user whether to continue.

    Raises:
        CliError: The input is not a terminal.
        Abort: The user declines.
    """
    if not sys.stdin.isatty():
        raise CliError(f"{len(runs)} runs match; pass --yes to {verb} them, or --dry-run to list them")
    for run in runs:
        typer.echo(f"  {run['metadata']['name']}", err=True)
    typer.confirm(f"Do you want to {verb} these {len(runs)} runs?", abort=True, err=True)
