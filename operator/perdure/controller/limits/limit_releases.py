"""Release WorkflowLimits: remove runs that have ended or were deleted from the status of the limits.

An ended run keeps its place until none of its pods runs: a terminated run closes immediately, but its pods have their grace
period. This needs no memory: the next reconciliation of the limit finds anything that was missed.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

from perdure.api import labels
from perdure.api.workflowlimit import LimitEntry
from perdure.controller.directory import Directory
from perdure.controller.limits.workflow_limits import WorkflowLimits
from perdure.controller.pods.attempt_pods import has_ended
from perdure.controller.queue.keys import LimitKey
from perdure.controller.run_entries import Standing
from perdure.kube import client as kube
from perdure.runtime.chains import is_open
from perdure.runtime.limit_queue import LimitQueue

_LOOK_AGAIN: Final = timedelta(seconds=10)
"""Delay before the pods of an ended run are read again, unless a watch shows earlier that they have ended."""


class LimitReleases:
    """Reconciles the status of WorkflowLimits with the runs that exist."""

    def __init__(
        self, client: kube.Client, limits: WorkflowLimits, directory: Directory, wake: Callable[[LimitKey], None]
    ) -> None:
        """Create it without runs.

        Args:
            client: Reads unknown runs, and pods.
            limits: The known limits.
            directory: The directory of all runs.
            wake: Requests the reconciliation of a limit.
        """
        self._client = client
        self._limits = limits
        self._directory = directory
        self._wake = wake
        self._ending: set[str] = set()
        """UIDs of ended runs whose pods have not ended."""

    def observe_end(self, namespace: str, uid: str) -> None:
        """Wake the limits of a run that has closed or was deleted."""
        self._limits.forget_run(namespace, uid)
        for name in self._limits.naming(namespace, uid):
            self._wake(LimitKey(namespace, name))

    def observe_pod(self, pod: kube.Object) -> None:
        """Process the creation, change, or deletion of a pod of a run."""
        run_id = (pod["metadata"].get("labels") or {}).get(labels.RUN_ID_LABEL, "")
        if run_id in self._ending:
            self.observe_end(pod["metadata"]["namespace"], run_id)

    async def reconcile(self, namespace: str, name: str, now: datetime) -> datetime | None:
        """Remove ended runs from a limit; return when to check again, or None to wait for an event.

        Raises:
            ApiError, OSError, aiohttp.ClientError, TimeoutError: The Kubernetes API request failed. Call again to retry.
        """
        ending: set[str] = set()

        async def change(queue: LimitQueue, capacity: int) -> LimitQueue:
            ending.clear()
            over = {each.run_id for each in queue.waiters if await self._is_over(namespace, each)}
            for each in queue.holders:
                if not await self._is_over(namespace, each):
                    continue
                self._ending.add(each.run_id)  # before its pods are read, so that no watch event is missed
                if await self._has_pods(namespace, each.run_id):
                    ending.add(each.run_id)
                else:
                    over.add(each.run_id)
                    self._ending.discard(each.run_id)
            return queue.release(over).admit(capacity, now)

        await self._limits.change(namespace, name, change)
        return now + _LOOK_AGAIN if ending else None

    async def _is_over(self, namespace: str, entry: LimitEntry) -> bool:
        """Whether a run has closed or does not exist. A run that no watch has shown yet is read."""
        known = self._directory.get(entry.run_id)
        if known is not None:
            return known.standing is Standing.CLOSED
        try:
            run = await self._client.get(kube.path(kube.PERDURE, namespace, "workflowruns", entry.run))
        except kube.NotFoundError:
            return True
        return run["metadata"]["uid"] != entry.run_id or not is_open(run.get("status") or {})

    async def _has_pods(self, namespace: str, run_id: str) -> bool:
        """Whether a pod of the run has not ended."""
        url = kube.path(kube.CORE, namespace, "pods")
        async for pod in self._client.lists.each(url, labelSelector=f"{labels.RUN_ID_LABEL}={run_id}"):
            if not has_ended(pod):
                return True
        return False
