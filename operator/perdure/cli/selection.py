"""The options that select runs, and the runs that a command acts on."""

from __future__ import annotations

import functools
import sys
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import click

from perdure.api.phases import CLOSED, Phase
from perdure.cli.command import AnyCase, option, stacked
from perdure.cli.options import Named, seconds_of
from perdure.client.errors import CliError
from perdure.client.selection import Selection, newest
from perdure.kube import clock
from perdure.lazy import lazily

with lazily():
    from perdure.runtime import chains

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from perdure.client.cluster import Cluster
    from perdure.client.requests import Object

phase_option = option(
    "--phase",
    "--status",
    "phases",
    metavar="PHASE",
    type=AnyCase(Phase),
    multiple=True,
    help=f"Only runs in this phase ({', '.join(Phase)}); repeatable",
)
selector_option = option("--selector", "-l", metavar="SELECTOR", help="Only runs with these labels, such as a=b,c!=d")
workflow_option = option(
    "--workflow",
    metavar="WORKFLOW",
    type=Named("Workflow", str.strip),  # a workflow type of code can have a slash
    help="Only runs of this Workflow, or of this workflow type",
)
since_option = option("--since", help="Only runs created within this time, such as 2h")
yes_option = option("--yes", "-y", is_flag=True, help="Do not ask for confirmation")
_selection_options = stacked(
    (
        phase_option,
        workflow_option,
        option("--running", "--open", is_flag=True, help="Only open runs"),
        option("--completed", "--closed", is_flag=True, help="Only closed runs, whatever the outcome"),
        selector_option,
        option(
            "--search-attribute",
            "attributes",
            metavar="NAME=VALUE",
            multiple=True,
            help="Only runs with this search attribute; repeatable",
        ),
        since_option,
        option("--older-than", "--older", "older", help="Only runs created longer ago than this, such as 30d"),
        option("--prefix", help="Only runs whose name begins with this"),
    )
)


def selection_of(
    *,
    phases: Iterable[Phase] | None = None,
    workflow: str | None = None,
    selector: str | None = None,
    attributes: Iterable[str] | None = None,
    since: str | None = None,
    older: str | None = None,
    prefix: str | None = None,
    running: bool = False,
    completed: bool = False,
) -> Selection:
    """Read the options.

    Raises:
        BadParameter: An option is invalid.
    """
    if bool(phases) + running + completed > 1:
        raise click.BadParameter("set one of the three", param_hint="--phase, --running, --completed")
    if running or completed:
        phases = CLOSED if completed else frozenset(Phase) - CLOSED
    pairs = []
    for text in attributes or ():
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"`{text}` does not have the form NAME=VALUE", param_hint="--search-attribute")
        pairs.append((name, value))
    return Selection(
        phases=frozenset(phase.value for phase in phases or ()),
        workflow=workflow,
        selector=selector,
        attributes=tuple(pairs),
        since=None if since is None else timedelta(seconds=seconds_of(since, "--since")),
        older=None if older is None else timedelta(seconds=seconds_of(older, "--older-than")),
        prefix=prefix or "",
    )


def selects_runs(verb: Callable[..., None]) -> Callable[..., None]:
    """Let a verb select runs: it takes the `selection` by keyword."""

    @functools.wraps(verb)
    def command(*arguments: Any, **values: Any) -> None:
        names = ("phases", "workflow", "selector", "attributes", "since", "older", "prefix", "running", "completed")
        options = {name: values.pop(name) for name in names}
        verb(*arguments, selection=selection_of(**options), **values)

    return _selection_options(command)


UNSUCCESSFUL: Final = (Phase.FAILED, Phase.TIMED_OUT)
"""The phases of the runs that `retry` and `rerun` select by default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The runs that a command acts on: one or several by name, the one with a workflow ID, or all that match."""

    names: tuple[str, ...]
    workflow_id: str | None
    workflow: str | None
    selector: str | None
    since: str | None = None
    yes: bool = False
    """Whether not to ask for confirmation."""

    @property
    def matching(self) -> bool:
        """Whether the command acts on all runs that match.

        Raises:
            BadParameter: No runs are chosen, or in two ways.
        """
        found = self.workflow is not None or self.selector is not None
        if found and (self.names or self.workflow_id is not None):
            option = "--workflow" if self.selector is None else "--selector"
            raise click.BadParameter("leave out NAME and --workflow-id", param_hint=option)
        if self.since is not None and not found:
            raise click.BadParameter("requires --workflow or --selector", param_hint="--since")
        if not found and bool(self.names) == (self.workflow_id is not None):
            raise click.BadParameter("set either NAME or --workflow-id, or choose runs with --workflow or --selector")
        return found

    @property
    def single(self) -> bool:
        """Whether the command acts on one run, and the user has named it."""
        return not self.matching and len(dict.fromkeys(self.names)) <= 1

    async def matches(self, cluster: Cluster, phases: Iterable[Phase]) -> list[Object]:
        """Read the metadata of all runs that match and are in one of the phases, newest first.

        Of a closed run and those that reset, retry, or continue it, only the last one counts: a run can be retried twice,
        and what the first retry did not complete, the second one may have.

        Raises:
            CliError: The runs cannot be read.
        """
        now = clock.now()
        wanted = selection_of(phases=phases, workflow=self.workflow, selector=self.selector, since=self.since)
        if not wanted.phases & {phase.value for phase in CLOSED}:
            return newest(await wanted.read_metadata(cluster, now), None)
        rows = await replace(wanted, phases=frozenset(), since=None).read_metadata(cluster, now)
        earlier = {run_id for row in rows for run_id in _earlier_runs(row)}
        ends = newest([row for row in rows if row["metadata"]["uid"] not in earlier], None)
        last = {chains.first_run_id(row): row for row in reversed(ends)}
        return newest([row for row in last.values() if wanted.matches(row, now)], None)

    def confirm(self, verb: str, runs: Sequence[Object]) -> None:
        """Ask the user whether to continue, unless that was not wanted.

        Raises:
            CliError: The input is not a terminal.
            Abort: The user declines.
        """
        if self.yes or not runs:
            return
        if not sys.stdin.isatty():
            raise CliError(f"{len(runs)} runs match; pass --yes to {verb} them, or --dry-run to list them")
        for run in runs:
            click.echo(f"  {run['metadata']['name']}", err=True)
        click.confirm(f"Do you want to {verb} these {len(runs)} runs?", abort=True, err=True)


def _earlier_runs(run: Object) -> Iterable[str]:
    """Yield the UIDs of the runs that a run resets, retries, or continues."""
    before, reset = chains.continuation_of(run), chains.reset_of(run)
    if before is not None:
        yield before.run_id
    for ancestor in reset.lineage if reset is not None else ():
        yield ancestor.run_id
