"""Watches runs, and prints a line for each change."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import typer

from perdure.cli.connection import connect
from perdure.cli.selection import newest
from perdure.cli.terminal import page_of, program_of
from perdure.client.errors import UnreachableError
from perdure.kube import clock

if TYPE_CHECKING:
    from perdure.cli.selection import Chosen
    from perdure.cli.terminal import Screen, TimeFormat
    from perdure.client.cluster import Cluster
    from perdure.client.requests import Object
    from perdure.view.runs import GrowingTable, ListedRun

_PAUSE = 1.0
"""Seconds before the next watch starts: the API server ends each watch after a while."""


class RunWatcher:
    """Prints the selected runs, and then each change of a run."""

    def __init__(
        self, context: typer.Context, screen: Screen, times: TimeFormat, choice: Chosen, *, wide: bool
    ) -> None:
        self._context = context
        self._screen = screen
        self._times = times
        self._choice = choice
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
            runs = newest(await self._choice.read(found, clock.now(), everywhere=everywhere), None)
            from perdure.view.runs import GrowingTable

            table = GrowingTable(namespaces=everywhere, wide=self._wide)
            for run in runs[limit:] if limit else ():
                self._note(run)
            self._print(table, runs[:limit])
            while True:
                await self._follow(found, table, everywhere=everywhere)
                await asyncio.sleep(_PAUSE)

    async def _follow(self, cluster: Cluster, table: GrowingTable, *, everywhere: bool) -> None:
        """Print changes until the watch ends, including changes between two watches."""
        selectors = {"labelSelector": self._choice.selector} if self._choice.selector else {}
        try:
            async for kind, run in cluster.watch("workflowruns", everywhere=everywhere, **selectors):
                uid = run["metadata"]["uid"]
                if kind == "DELETED":
                    self._shown.pop(uid, None)
                # A run that is no longer selected is printed once more, in its current state.
                elif uid in self._shown or self._choice.takes(run, clock.now()):
                    self._print(table, [run])
                    if not self._choice.takes(run, clock.now()):
                        del self._shown[uid]
        except UnreachableError as error:
            typer.echo(f"{error}; still watching", err=True)

    def _print(self, table: GrowingTable, runs: list[Object]) -> None:
        """Print the runs whose line has changed."""
        changed = [shown for run in runs if (shown := self._note(run)) is not None]
        page = page_of(self._context, self._screen, times=self._times)
        if changed or not runs:
            self._screen.show(table.lines(changed, page))

    def _note(self, run: Object) -> ListedRun | None:
        """Record the contents of the line of a run, and return it; None if it equals the last line."""
        from perdure.view.runs import read_listed

        shown = read_listed(run)
        contents = (shown.phase, shown.progress, shown.reason, shown.start)
        uid = run["metadata"]["uid"]
        if self._shown.get(uid) == contents:
            return None
        self._shown[uid] = contents
        return shown
