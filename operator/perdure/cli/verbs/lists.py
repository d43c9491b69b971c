"""`list`, `count`, `operations`, and `webhooks`: lists of objects."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from perdure.api.phases import Phase
from perdure.cli.archive import has_archive
from perdure.cli.command import WholeNumber, option, verb
from perdure.cli.connection import connect, list_kind
from perdure.cli.options import (
    color_option,
    context_option,
    everywhere_option,
    namespace_option,
    output_option,
    report_option,
    time_option,
)
from perdure.cli.routes import RouteOptions, routed
from perdure.cli.selection import selects_runs
from perdure.cli.terminal import Color, Output, Screen, TimeFormat, is_for_users, page_of, program_of
from perdure.client.errors import ClientError, UnreachableError
from perdure.client.selection import Selection, newest, phase_of
from perdure.kube import clock
from perdure.lazy import lazily

with lazily():
    from perdure.runtime import operation_requests
    from perdure.view import tables
    from perdure.view.runs import summaries as runs_view

if TYPE_CHECKING:
    from perdure.client.cluster import Cluster
    from perdure.client.requests import Object
    from perdure.view.runs.summaries import GrowingTable, RunSummary


async def _of_revision(
    selection: Selection, revision: str, route: RouteOptions, program: str, *, everywhere: bool
) -> Selection:
    """Select only the runs of a revision.

    Raises:
        BadParameter: The Workflow is not named, or is in no particular namespace.
        CliError: The revision does not exist.
    """
    if selection.workflow is None:
        raise click.BadParameter("requires --workflow, the Workflow of the revision", param_hint="--revision")
    if everywhere:
        raise click.BadParameter("a revision is of one namespace; leave out --all-namespaces", param_hint="--revision")
    async with connect(context=route.cluster, namespace=route.namespace, program=program) as cluster:
        return replace(selection, revision=await cluster.revisions.name_of(selection.workflow, revision))


_PAGE_SIZE = "1000"
query_option = option("--query", "-q", metavar="FILTER", help="Only runs that match this filter of Temporal clients")


@verb("list")
@everywhere_option("List the runs of all namespaces")
@selects_runs
@option("--revision", metavar="REV", help="With --workflow: only runs of this revision, by number or name")
@option("--limit", type=WholeNumber(min=1), help="Only the newest N runs")
@option("--reverse", is_flag=True, help="List the oldest run first")
@option("--watch", "-W", is_flag=True, help="Then print a line for each change")
@query_option
@option("--archived", is_flag=True, help="Also list runs that are only in the archive")
@option("--month", metavar="YYYY-MM", help="With --archived: the archived runs that closed in this month")
@output_option
@time_option
@color_option
@routed
def list_(
    context: click.Context,
    route: RouteOptions,
    *,
    everywhere: bool,
    selection: Selection,
    revision: str | None,
    query: str | None,
    limit: int | None,
    reverse: bool,
    watch: bool,
    archived: bool,
    month: str | None,
    output: Output,
    times: TimeFormat,
    color: Color,
) -> None:
    """List runs, newest first.

    --query takes a filter of Temporal clients, which the Temporal frontend
    evaluates: through a port-forward (requires kubectl), or at --address.

    --archived adds the workflows that were deleted from the cluster and are in the
    archive, which the frontend reads as well: the newest 1,000, or --limit. An
    archive of files is listed by month: --month, or the newest one. Without it, a
    sentence on stderr says that there is an archive.

    With --watch, prints a line for each run whose phase, progress, or reason
    changes, until Ctrl-C.

    \b
    Examples:
      {program} list
      {program} list --all-namespaces --output wide
      {program} list --phase Failed --phase TimedOut --since 2h
      {program} list --prefix nightly-
      {program} list -l team=shop --search-attribute Customer=C-7
      {program} list --query "WorkflowType = 'Order' AND Amount > 7"
      {program} list --workflow order-flow --revision 3 --running
      {program} list --archived --since 90d --phase Failed
      {program} list --archived --month 2026-11
      {program} list --running --watch
      {program} list --completed --older-than 7d --reverse --output name
      {program} list --output custom-columns=RUN:.metadata.name
    """
    screen = Screen(color)
    if archived:
        _check_archived(selection, revision, watch=watch, everywhere=everywhere)
    elif month is not None:
        raise click.BadParameter("requires --archived", param_hint="--month")
    if revision is not None:
        selection = asyncio.run(_of_revision(selection, revision, route, program_of(context), everywhere=everywhere))
    if watch:
        if not is_for_users(output):
            raise click.BadParameter("shows text only; leave out --output", param_hint="--watch")
        if query is not None:
            raise click.BadParameter("cannot be watched; leave out --watch", param_hint="--query")
        if reverse:
            raise click.BadParameter("the newest change comes last; leave out --reverse", param_hint="--watch")

        watcher = RunWatcher(context, screen, times, selection, wide=output == "wide")
        asyncio.run(watcher.watch(route.cluster, route.namespace, limit, everywhere=everywhere))
        return
    _check_query(query, everywhere)

    async def read() -> tuple[list[Object], str, bool]:
        async with connect(context=route.cluster, namespace=route.namespace, program=program_of(context)) as found:
            if query is not None:
                matching = await _matching(found, route, query)
                items = [run for run in await selection.read(found, clock.now()) if run["metadata"]["uid"] in matching]
                items = newest(items, limit)
            elif output == "name":
                items = newest(await selection.read_metadata(found, clock.now(), everywhere=everywhere), limit)
            elif limit is not None:
                items = await selection.read_newest(found, clock.now(), limit, everywhere=everywhere)
            else:
                items = newest(await selection.read(found, clock.now(), everywhere=everywhere), None)
            if archived:
                items = newest([*items, *await _archived(found, route, selection, query, limit, month)], limit)
            is_whole = archived or not is_for_users(output) or not selection.includes_closed or len(items) == limit
            return items, found.namespace, not is_whole and await _may_lack(found, route)

    items, searched, lacks = asyncio.run(read())
    if reverse:
        items.reverse()
    if not is_for_users(output):
        screen.write_objects(output, items)
        return
    if not items:
        where = "any namespace" if everywhere else f"namespace {searched}"
        what = f"runs in phase {' or '.join(sorted(selection.phases))}" if selection.phases else "runs"
        advice = (
            " that match"
            if selection.filters or query
            else ""
            if selection.phases
            else "; start one with `kubectl apply -f run.yaml`"
        )
        click.echo(f"There are no {what} in {where}{advice}.", err=True)
    else:
        page = page_of(context, screen, times=times)
        summaries = [runs_view.read_summary(item) for item in items]
        screen.show(runs_view.table(summaries, page, namespaces=everywhere, wide=output == "wide", archived=archived))
    if lacks:
        click.echo("Runs that were deleted from the cluster are in the archive; list them with --archived.", err=True)


async def _may_lack(cluster: Cluster, route: RouteOptions) -> bool:
    """Whether selected runs may be in the archive only, as far as the user may know."""
    try:
        return await has_archive(cluster, route.system)
    except ClientError:
        return False


_MOST_ARCHIVED = 1_000
"""Maximum number of archived runs without --limit."""


def _check_archived(selection: Selection, revision: str | None, *, watch: bool, everywhere: bool) -> None:
    """Check that the archive can select runs in this way.

    Raises:
        BadParameter: It cannot.
    """
    if watch:
        raise click.BadParameter("archived runs do not change; leave out --watch", param_hint="--archived")
    if everywhere:
        raise click.BadParameter("works in one namespace; leave out --all-namespaces", param_hint="--archived")
    unsupported = {
        "--selector": selection.selector,
        "--search-attribute": selection.attributes,
        "--prefix": selection.prefix,
        "--revision": revision,
    }
    if other := next((name for name, value in unsupported.items() if value), None):
        raise click.BadParameter(
            f"the archive cannot select by {other}; use --query, such as --query \"Customer = 'C-7'\"",
            param_hint="--archived",
        )


async def _archived(
    cluster: Cluster, route: RouteOptions, selection: Selection, query: str | None, limit: int | None, month: str | None
) -> list[Object]:
    """Read what the archive lists of the selected runs. If that is not all, say so on stderr.

    Raises:
        CliError: The installation has no archive, or it cannot be read.
    """
    wanted = selection.archive_query(clock.now(), query)
    if wanted is None:
        return []
    async with route.reach(cluster) as api:
        runs = await api.archived_runs(wanted, limit or _MOST_ARCHIVED, month or "")
    if runs.month and month is None:
        click.echo(
            f"Of the archive, only runs that closed in {runs.month} are listed; choose another month with --month.",
            err=True,
        )
    if runs.more and limit is None:
        which = "" if runs.month else "the newest "
        click.echo(f"Only {which}{_MOST_ARCHIVED:,} archived runs are listed; use --limit or --since.", err=True)
    return runs.found


def _check_query(query: str | None, everywhere: bool) -> None:
    if query is not None and everywhere:
        raise click.BadParameter("works in one namespace; leave out --all-namespaces", param_hint="--query")


async def _matching(cluster: Cluster, route: RouteOptions, query: str) -> set[str]:
    """The IDs of the runs that match a filter of Temporal clients.

    Raises:
        CliError: The filter is not valid, or the frontend cannot be reached.
    """
    async with route.reach(cluster) as api:
        executions = await api.each("executions", "workflows", query=query, pageSize=_PAGE_SIZE)
    return {each["execution"]["runId"] for each in executions}


@verb()
@everywhere_option("Count the runs of all namespaces")
@selects_runs
@query_option
@report_option
@routed
def count(
    context: click.Context,
    route: RouteOptions,
    *,
    everywhere: bool,
    selection: Selection,
    query: str | None,
    output: Output,
) -> None:
    """Count runs by phase.

    --query takes a filter of Temporal clients, which the Temporal frontend
    evaluates: through a port-forward (requires kubectl), or at --address.

    \b
    Examples:
      {program} count
      {program} count --all-namespaces --since 24h
      {program} count --phase Failed --output json
      {program} count --query "WorkflowType = 'Order'"
    """
    _check_query(query, everywhere)

    async def read() -> Counter[str]:
        async with connect(context=route.cluster, namespace=route.namespace, program=program_of(context)) as found:
            if query is None:
                return await selection.count(found, clock.now(), everywhere=everywhere)
            matching = await _matching(found, route, query)
            runs = await selection.read(found, clock.now())
            return Counter(phase_of(run) for run in runs if run["metadata"]["uid"] in matching)

    counts = asyncio.run(read())
    ordered = {phase: counts[phase] for phase in (*Phase, *sorted(counts.keys() - set(Phase))) if counts[phase]}
    screen = Screen()
    if output != "text":
        screen.write_data(output, {"total": counts.total(), "phases": ordered})
        return
    width = max(map(len, ("Total", *ordered)))
    for name, number in {**ordered, "Total": counts.total()}.items():
        screen.write(f"{name.ljust(width)}  {number}")


@verb()
@namespace_option
@everywhere_option("List Operations of all namespaces")
@output_option
@time_option
@color_option
@context_option
@click.pass_context
def operations(
    context: click.Context,
    *,
    namespace: str | None,
    everywhere: bool,
    output: Output,
    times: TimeFormat,
    color: Color,
    cluster: str | None,
) -> None:
    """List Operations, newest first, with their results.

    \b
    Examples:
      {program} operations
      {program} operations --all-namespaces --output wide
    """
    screen = Screen(color)
    items, searched = asyncio.run(
        list_kind(
            "operations", context=cluster, namespace=namespace, program=program_of(context), everywhere=everywhere
        )
    )

    items.sort(key=operation_requests.arrival, reverse=True)
    where = "any namespace" if everywhere else f"namespace {searched}"
    screen.show_all(
        output,
        items,
        lambda: tables.operations(
            items, page_of(context, screen, times=times), namespaces=everywhere, wide=output == "wide"
        ),
        otherwise=f"There are no Operations in {where}.",
    )


@verb()
@namespace_option
@everywhere_option("List Webhooks of all namespaces")
@output_option
@color_option
@context_option
@click.pass_context
def webhooks(
    context: click.Context,
    *,
    namespace: str | None,
    everywhere: bool,
    output: Output,
    color: Color,
    cluster: str | None,
) -> None:
    """List Webhooks: what they start or signal, and whether they are ready.

    To see the runs of a Webhook, use `{program} list -l perdure.dev/webhook=NAME`.

    \b
    Examples:
      {program} webhooks
      {program} webhooks --all-namespaces --output wide
    """
    screen = Screen(color)
    items, searched = asyncio.run(
        list_kind("webhooks", context=cluster, namespace=namespace, program=program_of(context), everywhere=everywhere)
    )
    where = "any namespace" if everywhere else f"namespace {searched}"
    screen.show_all(
        output,
        items,
        lambda: tables.webhooks(items, page_of(context, screen), namespaces=everywhere, wide=output == "wide"),
        otherwise=f"There are no Webhooks in {where}.",
    )


_PAUSE = 1.0
"""Seconds before the next watch starts: the API server ends each watch after a while."""


class RunWatcher:
    """Prints the selected runs, and then each change of a run."""

    def __init__(
        self, context: click.Context, screen: Screen, times: TimeFormat, selection: Selection, *, wide: bool
    ) -> None:
        self._context = context
        self._screen = screen
        self._times = times
        self._selection = selection
        self._wide = wide
        self._shown: dict[str, tuple[object, ...]] = {}
        """The contents of the last line of each run, by UID."""

    async def watch(self, cluster: str | None, namespace: str | None, limit: int | None, *, everywhere: bool) -> None:
        """Print the newest runs, and then each change until the process is interrupted.

        Args:
            cluster: Context of the kubeconfig.
            namespace: Namespace of the runs.
            limit: Number of runs to print at first; None for all.
            everywhere: Whether to watch all namespaces.

        Raises:
            CliError: The runs cannot be read or watched.
        """
        async with connect(context=cluster, namespace=namespace, program=program_of(self._context)) as found:
            runs = newest(await self._selection.read(found, clock.now(), everywhere=everywhere), None)

            table = runs_view.GrowingTable(namespaces=everywhere, wide=self._wide)
            for run in runs[limit:] if limit else ():
                self._changed_line(run)
            self._print(table, runs[:limit])
            while True:
                await self._follow(found, table, everywhere=everywhere)
                await asyncio.sleep(_PAUSE)

    async def _follow(self, cluster: Cluster, table: GrowingTable, *, everywhere: bool) -> None:
        """Print changes until the watch ends, including changes between two watches."""
        selectors = {"labelSelector": self._selection.selector} if self._selection.selector else {}
        try:
            async for kind, run in cluster.watch("workflowruns", everywhere=everywhere, **selectors):
                uid = run["metadata"]["uid"]
                if kind == "DELETED":
                    self._shown.pop(uid, None)
                # Print a run that the selection no longer matches a last time, in its current state.
                elif uid in self._shown or self._selection.matches(run, clock.now()):
                    self._print(table, [run])
                    if not self._selection.matches(run, clock.now()):
                        del self._shown[uid]
        except UnreachableError as error:
            click.echo(f"{error}; still watching", err=True)

    def _print(self, table: GrowingTable, runs: list[Object]) -> None:
        """Print the runs whose line has changed."""
        changed = [shown for run in runs if (shown := self._changed_line(run)) is not None]
        page = page_of(self._context, self._screen, times=self._times)
        if changed or not runs:
            self._screen.show(table.lines(changed, page))

    def _changed_line(self, run: Object) -> RunSummary | None:
        """Record the contents of the line of a run, and return it; None if it equals the last line."""
        shown = runs_view.read_summary(run)
        contents = (shown.listed_phase, shown.progress, shown.reason, shown.start)
        uid = run["metadata"]["uid"]
        if self._shown.get(uid) == contents:
            return None
        self._shown[uid] = contents
        return shown
