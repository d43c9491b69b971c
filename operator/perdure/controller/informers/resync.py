"""The resync: compare lists from the API server with the objects from the watches.

A watch may miss changes: kopf does not report deletions during a gap, and a connection can hang. So once a minute, all objects
are listed by name and version, and missed changes are processed. The liveness probe also depends on this.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Final

import structlog

from perdure.api import labels
from perdure.controller.informers.index import Index
from perdure.controller.informers.isolation import take_in
from perdure.controller.informers.run_pods import RunPods
from perdure.controller.informers.schedules import Schedules
from perdure.controller.informers.workflowruns import WorkflowRuns
from perdure.controller.namespaces import ServedNamespaces
from perdure.controller.queue.keyed_queue import KeyedQueue
from perdure.controller.queue.keys import Key, LetterKey
from perdure.kube import client as kube
from perdure.kube.decoding import Stored
from perdure.observe import metrics
from perdure.runtime.deadletters import runs_again

_STALE_AFTER: Final = 3
"""The number of consecutive resyncs with missed changes after which a watch counts as stale."""


class Resync:
    """Finds changes of runs, pods and Schedules that the watches have missed."""

    def __init__(
        self,
        client: kube.Client,
        served: ServedNamespaces,
        index: Index,
        queue: KeyedQueue[Key],
        *,
        runs: WorkflowRuns,
        schedules: Schedules,
        pods: RunPods,
        few: Mapping[str, Callable[[kube.Object], None]],
    ) -> None:
        """Create a resync.

        Args:
            client: Lists the objects.
            served: The served namespaces.
            index: The known objects.
            queue: Gets the keys of DeadLetters that wait for a run that may be deleted.
            runs: Takes runs.
            schedules: Takes Schedules.
            pods: Takes pods.
            few: The functions that take the objects of kinds with few objects, by plural. Each resync processes all of them.
        """
        self._client = client
        self._served = served
        self._index = index
        self._queue = queue
        self._runs = runs
        self._schedules = schedules
        self._pods = pods
        self._few = few
        self._unseen: set[tuple[str, str]] = set()
        """UIDs and versions of objects that no watch had shown at the last resync."""
        self._missed = {"workflowruns": 0, "pods": 0, "schedules": 0}
        self._dead_letters_due = True
        self._complete = True
        self._log = structlog.get_logger("perdure.resync")

    def observe_event(self, kind: str) -> None:
        """Record that the watch on a kind (its plural) has shown an object."""
        self._missed[kind] = 0

    def trouble(self) -> str | None:
        """Why a watch counts as stale; None if all of them work."""
        for kind, resyncs in self._missed.items():
            if resyncs >= _STALE_AFTER:
                return f"the watch on {kind} is stale: {resyncs} resyncs found changes but no events arrived"
        return None

    async def resync(self) -> bool:
        """Compare existing objects with the objects from the watches, and process changes that were missed in two resyncs.

        A failed request does not prevent the other comparisons.

        Returns:
            Whether everything was compared; otherwise the resync must be repeated soon.
        """
        before, self._unseen = self._unseen, set()
        absent = self._index.uids()
        complete = True
        for namespace in self._served:
            runs, pods = kube.path(kube.PERDURE, namespace, "workflowruns"), kube.path(kube.CORE, namespace, "pods")
            schedules = kube.path(kube.PERDURE, namespace, "schedules")
            of_runs = self._client.lists.versions(pods, labelSelector=labels.RUN_ID_LABEL)
            complete &= await self._attempt(
                self._compare("workflowruns", self._client.lists.versions(runs), before, absent, self._runs.take)
            )
            complete &= await self._attempt(self._compare("pods", of_runs, before, absent, self._pods.take))
            for plural, take in self._few.items():
                complete &= await self._attempt(self._read(namespace, plural, take))
            complete &= await self._attempt(
                self._compare("schedules", self._client.lists.versions(schedules), before, absent, self._schedules.take)
            )
        if complete:
            complete = await self._drop_deleted(absent)
        else:
            self._unseen |= before  # objects that could not be read are still due
        if self._dead_letters_due and await self._attempt(self._wake_dead_letters()):
            self._dead_letters_due = False
        self._complete = complete and not self._dead_letters_due
        return self._complete

    async def _attempt(self, part: Awaitable[bool]) -> bool:
        """Execute a part of a resync, and return whether it is complete."""
        try:
            return await part
        except kube.RequestError as error:
            self._log.warning("Could not resync", error=repr(error))
        except Exception:  # noqa: BLE001 - one object's trouble must not end the operator
            self._log.exception("Could not resync")
        return False

    async def _compare(
        self,
        kind: str,
        pages: AsyncIterator[list[Stored]],
        before: set[tuple[str, str]],
        absent: set[str],
        take: Callable[[kube.Object], None],
    ) -> bool:
        """Read and process objects that no watch has shown for two resyncs.

        Args:
            kind: Plural of the kind.
            pages: The existing objects.
            before: The findings of the previous resync.
            absent: UIDs that have not been found yet. The UIDs of existing objects are removed from it.
            take: Processes an object.

        Returns:
            Whether all objects could be read.
        """
        missed, complete = 0, True
        try:
            async for page in pages:
                absent.difference_update(stored.uid for stored in page)
                for each in page:
                    late = self._index.version(each.uid) != each.version
                    if late:
                        self._unseen.add((each.uid, each.version))
                    late = late and (each.uid, each.version) in before
                    if late or (kind == "pods" and self._pods.is_orphan(each)):
                        complete &= await self._attempt(self._take(kind, each, take))
                        missed += late
        finally:
            if missed:
                self._missed[kind] += self._complete  # a repeated resync is too early to judge the watch
                metrics.WATCH_LAG.inc(missed)
                self._log.warning("The watch missed changes", kind=kind, objects=missed)
        return complete

    async def _take(self, kind: str, stored: Stored, take: Callable[[kube.Object], None]) -> bool:
        group = kube.CORE if kind == "pods" else kube.PERDURE
        try:
            obj = await self._client.get(kube.path(group, stored.namespace, kind, stored.name))
        except (kube.NotFoundError, kube.UnreadableError):
            return True
        if obj["metadata"]["uid"] == stored.uid:
            take_in(obj, take)
        return True

    async def _read(self, namespace: str | None, plural: str, take: Callable[[kube.Object], None]) -> bool:
        async for obj in self._client.lists.each(kube.path(kube.PERDURE, namespace, plural)):
            take_in(obj, take)
        return True

    async def _drop_deleted(self, absent: set[str]) -> bool:
        """Drop objects whose deletion was missed, and return whether all could be checked."""
        complete = True
        for uid in absent:
            if (uid in self._index.runs or uid in self._index.schedules) and not self._index.was_seen(uid):
                continue  # created here a moment ago; the list may be older
            complete &= await self._attempt(self._drop_if_deleted(uid))
        return complete

    async def _drop_if_deleted(self, uid: str) -> bool:
        schedule, entry = self._index.schedules.get(uid), self._index.directory.get(uid)
        worked_on = uid in self._index.runs
        if schedule is not None:
            if await self._is_gone(schedule.namespace, "schedules", schedule.name, uid):
                self._schedules.lost(schedule)
        elif entry is not None and await self._is_gone(entry.namespace, "workflowruns", entry.name, uid):
            self._runs.lost(entry)
            self._dead_letters_due |= worked_on
        return True

    async def _is_gone(self, namespace: str, plural: str, name: str, uid: str) -> bool:
        try:
            return (await self._client.stored(kube.path(kube.PERDURE, namespace, plural, name))).uid != uid
        except kube.NotFoundError:
            return True

    async def _wake_dead_letters(self) -> bool:
        """Reconcile the DeadLetters that wait for a run whose deletion may have been missed."""
        for namespace in self._served:
            async for obj in self._client.lists.each(kube.path(kube.PERDURE, namespace, "deadletters")):
                if runs_again(obj):
                    self._queue.wake(LetterKey(obj["metadata"]["namespace"], obj["metadata"]["name"]))
        return True
