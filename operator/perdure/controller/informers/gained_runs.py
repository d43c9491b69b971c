"""Read the open runs of gained shards: page by page if there are many, otherwise one by one."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import structlog

from perdure.controller.directory import Directory, Entry
from perdure.kube import client as kube

_MANY: Final = 50
"""Fewer runs of a namespace than this are read one by one, concurrently."""
_FINISHED_EACH: Final = 8
"""The number of finished runs in a page that cost as much as a request for one run."""


class GainedRuns:
    """Reads the runs that this member has gained."""

    def __init__(
        self,
        client: kube.Client,
        directory: Directory,
        *,
        take: Callable[[kube.Object], None],
        wake: Callable[[Entry], None],
    ) -> None:
        """Create a reader without runs.

        Args:
            client: Lists runs.
            directory: The directory, for the number of finished runs.
            take: Takes a run from a page.
            wake: Wakes a run, which is then read individually unless it was taken.
        """
        self._client = client
        self._directory = directory
        self._take = take
        self._wake = wake
        self._tasks: set[asyncio.Task[None]] = set()
        self._log = structlog.get_logger("perdure.fleet")

    def read(self, entries: Iterable[Entry]) -> None:
        """Schedule the reading of runs."""
        gained: defaultdict[str, list[Entry]] = defaultdict(list)
        for entry in entries:
            gained[entry.namespace].append(entry)
        for namespace, runs in gained.items():
            if len(runs) < _MANY or self._directory.tally(namespace).runs > _FINISHED_EACH * len(runs):
                for entry in runs:
                    self._wake(entry)
                continue
            task = asyncio.get_running_loop().create_task(self._read_pages(namespace, runs), name="gained runs")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _read_pages(self, namespace: str, runs: Sequence[Entry]) -> None:
        try:
            async for page in self._client.lists.pages(kube.path(kube.PERDURE, namespace, "workflowruns")):
                for _, obj in self._client.lists.objects(page):
                    self._take(obj)
                await asyncio.sleep(0)
        except kube.RequestError as error:
            self._log.warning("Could not list the runs of the acquired shards", namespace=namespace, error=repr(error))
        for entry in runs:
            self._wake(entry)
