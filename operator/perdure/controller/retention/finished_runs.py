"""Finished runs are removed when their time to live is over, or when their namespace has too many of them."""

from perdure.controller.directory import Entry
from perdure.controller.expiry import has_chores, remove_expired
from perdure.controller.informers.index import Index
from perdure.controller.informers.schedules import Schedules
from perdure.controller.informers.workflowruns import WorkflowRuns
from perdure.controller.queue.keys import ExpiryKey
from perdure.controller.retention.end_recorded import EndRecorded
from perdure.kube import client as kube


class FinishedRuns:
    """Removes runs whose time to live is over."""

    def __init__(self, client: kube.Client, index: Index, runs: WorkflowRuns, schedules: Schedules) -> None:
        """Begin to look after finished runs.

        Args:
            client: Reads and deletes.
            index: What is known.
            runs: The runs that are worked on.
            schedules: The Schedules; they remove their runs themselves.
        """
        self._client = client
        self._index = index
        self._runs = runs
        self._schedules = schedules

    async def remove(self, key: ExpiryKey) -> None:
        """Remove a closed run whose time to be kept is over; its spec may have been given more time since.

        The runs of a Schedule are kept as long as its history limits say. One whose end is still to be recorded elsewhere waits.

        Raises:
            ApiError, OSError, aiohttp.ClientError, TimeoutError: the API server did not do its part; to be called again.
        """
        entry = self._index.directory.get(key.uid)
        if entry is not None and entry.schedule_uid and await self._has_schedule(entry):
            return
        url = kube.path(kube.PERDURE, key.namespace, "workflowruns", key.name)
        again = await remove_expired(self._client, url, key.uid, self._runs.over, EndRecorded(self._client).everywhere)
        if again is not None:
            self._runs.remove_at(key.uid, again)

    def is_over(self, run: kube.Object) -> bool:
        """Whether a run has closed and nothing is left to do for it."""
        return self._runs.over(run) is not None and not has_chores(run)

    async def _has_schedule(self, entry: Entry) -> bool:
        """Whether the Schedule that a run belongs to exists; one that no watch has shown yet is read."""
        if entry.schedule_uid not in self._index.schedules:
            url = kube.path(kube.PERDURE, entry.namespace, "workflowruns", entry.name)
            try:
                owners = (await self._client.get(url))["metadata"].get("ownerReferences") or ()
            except kube.NotFoundError:
                return False
            for name in [owner["name"] for owner in owners if owner["uid"] == entry.schedule_uid]:
                await self._schedules.find(entry.namespace, name)
        return entry.schedule_uid in self._index.schedules
