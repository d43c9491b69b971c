"""Follows a run until it ends, and shows its progress."""

import asyncio
from typing import TYPE_CHECKING

import click

from perdure.cli.connection import connect
from perdure.cli.options import seconds_of
from perdure.cli.terminal import Screen, TimeFormat, page_of, program_of
from perdure.client.cluster import Cluster
from perdure.client.errors import ExitCode, NotFoundError
from perdure.client.requests import Object
from perdure.lazy import lazily

with lazily():
    from rich import console as rich_console
    from rich import live as rich_live
    from rich import text as rich_text

    from perdure.client import progress
    from perdure.view.runs import follow

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from perdure.cli.archive import ArchiveRoute
    from perdure.view.runs.run import RunView


class Waiter:
    """Follows a run, and shows its progress."""

    def __init__(
        self,
        context: click.Context,
        screen: Screen,
        times: TimeFormat,
        cluster: str | None,
        archive: "ArchiveRoute | None" = None,
    ) -> None:
        self.context = context
        self.screen = screen
        self.times = times
        self.cluster = cluster
        self.archive = archive
        """Where a run is that was deleted from the cluster; None: nowhere."""
        self.run: Object | None = None
        """The run as it was last read."""

    def to_the_end(
        self, name: str | None, workflow_id: str | None, namespace: str | None, limit: str | None
    ) -> ExitCode:
        """Follow the run; return the exit status for its outcome.

        Args:
            name: Name of the run; None if the workflow ID is given.
            workflow_id: The workflow ID.
            namespace: The namespace; None for the namespace of the kubeconfig.
            limit: Maximum wait, such as 5m; None for no limit.

        Raises:
            CliError: The run does not exist, or cannot be read.
        """
        seconds = None if limit is None else seconds_of(limit, "--timeout")
        phase = asyncio.run(self.wait(name, workflow_id, namespace, seconds))
        if phase is None:
            which = f"`{name}`" if name is not None else f"with workflow ID `{workflow_id}`"
            click.echo(f"Error: the run {which} has not ended within {limit}; it keeps running", err=True)
            return ExitCode.TIMEOUT
        return ExitCode.YES if phase == "Completed" else ExitCode.NO

    async def wait(
        self, name: str | None, workflow_id: str | None, namespace: str | None, seconds: float | None
    ) -> str | None:
        """Follow the run. Return its final phase, or None if it has not ended in time."""
        program = program_of(self.context)
        limit = asyncio.timeout(seconds)
        try:
            async with limit, connect(context=self.cluster, namespace=namespace, program=program) as cluster:
                reads = self._reads(cluster, await self._find(cluster, name, workflow_id))
                return await (self.draw(reads) if self.screen.interactive else self.print_changes(reads))
        except TimeoutError:
            if not limit.expired():
                raise
            return None

    async def draw(self, reads: "AsyncIterator[RunView]") -> str:
        """Redraw the steps at each poll."""
        run: RunView | None = None
        with rich_live.Live(console=self.screen.console, auto_refresh=False, transient=True) as live:
            async for run in reads:
                page = page_of(self.context, self.screen, times=self.times, cluster=self.cluster)
                live.update(rich_console.Group(*follow.window(run, page, self.screen.height)), refresh=True)
        assert run is not None, "the first look finds the run, or says why not"
        self.screen.show(follow.ended(run, page_of(self.context, self.screen, times=self.times, cluster=self.cluster)))
        return run.phase

    async def print_changes(self, reads: "AsyncIterator[RunView]") -> str:
        """Write a line for each change."""
        run: RunView | None = None
        changes = follow.Changes()
        async for run in reads:
            page = page_of(self.context, self.screen, times=self.times, cluster=self.cluster)
            self.screen.show(rich_text.Text(line) for line in changes.lines(run, page))
        assert run is not None, "the first look finds the run, or says why not"
        return run.phase

    async def _find(self, cluster: Cluster, name: str | None, workflow_id: str | None) -> Object:
        if self.archive is None:
            return await cluster.runs.find(name, workflow_id)
        return await self.archive.find(cluster, name, workflow_id)

    async def _reads(self, cluster: Cluster, found: Object) -> "AsyncIterator[RunView]":
        """Yield the run at each poll until it is closed, beginning with the given one."""
        self.run = found
        try:
            async for self.run, run in progress.follow(cluster, found, lambda text: click.echo(text, err=True)):
                yield run
        except NotFoundError as error:
            if self.archive is None:
                raise
            self.run = await self.archive.ended(cluster, self.run, error)
            yield await progress.view_of(cluster, self.run)
