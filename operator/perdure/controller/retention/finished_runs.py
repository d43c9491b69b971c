"""Remove expired finished runs."""

from datetime import datetime, timedelta
from typing import Final

from perdure.controller.expiry import has_chores, remove_expired
from perdure.controller.informers.index import Index
from perdure.controller.informers.run_expiries import RunExpiries, expiry_of
from perdure.controller.informers.schedules import Schedules
from perdure.controller.informers.workflowruns import WorkflowRuns
from perdure.controller.queue.keys import ExpiryKey
from perdure.controller.recorded_state import distrust
from perdure.controller.retention.end_recorded import EndRecorded
from perdure.controller.run_entries import Entry
from perdure.kube import client as kube
from perdure.kube.clock import now

_CHORES_PAUSE: Final = timedelta(seconds=1)
"""Delay before a finished run with pending work is checked again."""


class FinishedRuns:
    """Removes expired runs."""

    def __init__(
        self, client: kube.Client, index: Index, runs: WorkflowRuns, schedules: Schedules, expiries: RunExpiries
    ) -> None:
        """Create it without runs.

        Args:
            client: Reads and deletes runs.
            index: The known objects.
            runs: The runs that this process works on.
            schedules: The Schedules, which remove their runs themselves.
            expiries: The expiries of runs.
        """
        self._client = client
        self._index = index
        self._runs = runs
        self._schedules = schedules
        self._expiries = expiries

    async def remove(self, key: ExpiryKey) -> None:
        """Remove an expired closed run, unless its spec was changed to keep it longer.

        The runs of a Schedule are kept according to its history limits. A run whose end others have not recorded yet stays.

        Raises:
            RequestError: The Kubernetes API request failed. Call again to retry.
        """
        entry = self._index.directory.get(key.uid)
        if entry is not None and entry.schedule_uid and await self._has_schedule(entry):
            return
        url = kube.path(kube.PERDURE, key.namespace, "workflowruns", key.name)
        again = await remove_expired(self._client, url, key.uid, self._expiry, EndRecorded(self._client).everywhere)
        if again is not None:
            self._expiries.add(key.uid, again)

    def is_over(self, run: kube.Object) -> bool:
        """Whether a run has closed and has no pending work."""
        return self._expiry(run) is not None and not has_chores(run)

    def _expiry(self, run: kube.Object) -> datetime | None:
        """When a run may be removed; None if it is open or must not be relied on. Such a run is reported and stays."""
        if distrust(run):
            self._runs.suspect(run)
            return None
        over = expiry_of(run)
        return max(over, now() + _CHORES_PAUSE) if over and has_chores(run) else over

    async def _has_schedule(self, entry: Entry) -> bool:
        """Whether the Schedule of a run exists. A Schedule that no watch has shown yet is read."""
        if entry.schedule_uid not in self._index.schedules:
            url = kube.path(kube.PERDURE, entry.namespace, "workflowruns", entry.name)
            try:
                owners = (await self._client.get(url))["metadata"].get("ownerReferences") or ()
            except kube.NotFoundError:
                return False
            for name in [owner["name"] for owner in owners if owner["uid"] == entry.schedule_uid]:
                await self._schedules.find(entry.namespace, name)
        return entry.schedule_uid in self._index.schedules
