"""The sweep: what the API server lists is compared with what the watches have told.

A watch may miss something: kopf keeps no record of what was deleted during a gap, and a connection can hang. So once in a while
everything is listed by name and version, and what no event has told of is handed on. The liveness probe goes by that, too.
"""

from collections.abc import AsyncIterator, Callable
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

_DEAD_AFTER_SWEEPS: Final = 3


class Sweep:
    """Finds what the watches of runs, pods and Schedules have not told of."""

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
        take_policy: Callable[[kube.Object], None],
    ) -> None:
        """Nothing is swept yet.

        Args:
            client: Lists.
            served: Where.
            index: What is known.
            queue: Is told of DeadLetters that wait for a run that may be gone.
            runs: Takes runs.
            schedules: Takes Schedules.
            pods: Takes pods.
            take_policy: Takes a RetryPolicy. There are few: each sweep hands on all of them.
        """
        self._client = client
        self._served = served
        self._index = index
        self._queue = queue
        self._runs = runs
        self._schedules = schedules
        self._pods = pods
        self._take_policy = take_policy
        self._lagging: set[tuple[str, str]] = set()
        self._missed = {"workflowruns": 0, "pods": 0, "schedules": 0}
        self._done_once = False
        self._log = structlog.get_logger("perdure.sweep")

    def told(self, kind: str) -> None:
        """A watch has told of an object of a kind, given by its plural: it lives."""
        self._missed[kind] = 0

    def trouble(self) -> str | None:
        """What is wrong with the watches; None when all is well."""
        for kind, sweeps in self._missed.items():
            if sweeps >= _DEAD_AFTER_SWEEPS:
                return f"the watch on {kind} is stale: {sweeps} resyncs found changes but no events arrived"
        return None

    async def sweep(self) -> None:
        """Compare what there is with what the watches have told; what lags since the last sweep is handed on.

        Raises:
            ApiError, OSError, aiohttp.ClientError, TimeoutError: the API server could not be asked.
        """
        client = self._client
        before, self._lagging = self._lagging, set()
        absent = self._index.uids()
        for namespace in self._served:
            runs, pods = kube.path(kube.PERDURE, namespace, "workflowruns"), kube.path(kube.CORE, namespace, "pods")
            schedules = kube.path(kube.PERDURE, namespace, "schedules")
            await self._compare("workflowruns", client.versions(runs), before, absent, self._runs.take)
            await self._compare(
                "pods", client.versions(pods, labelSelector=labels.RUN_ID_LABEL), before, absent, self._pods.take
            )
            async for obj in client.each(kube.path(kube.PERDURE, namespace, "retrypolicies")):
                take_in(obj, self._take_policy)
            await self._compare("schedules", client.versions(schedules), before, absent, self._schedules.take)
        if not self._done_once or await self._drop_what_is_gone(absent):
            await self._look_after_letters()
        self._done_once = True

    async def _compare(
        self,
        kind: str,
        pages: AsyncIterator[list[Stored]],
        before: set[tuple[str, str]],
        absent: set[str],
        take: Callable[[kube.Object], None],
    ) -> None:
        """Read and hand on what no watch has told of for two sweeps.

        Args:
            kind: Plural of the kind.
            pages: What there is of it.
            before: What the sweep before has found.
            absent: Ids that have not been found yet; those of what there is are removed.
            take: Takes an object.
        """
        group = kube.CORE if kind == "pods" else kube.PERDURE
        missed = 0
        async for page in pages:
            absent.difference_update(stored.uid for stored in page)
            for each in page:
                late = self._index.version(each.uid) != each.version
                if late:
                    self._lagging.add((each.uid, each.version))
                late = late and (each.uid, each.version) in before
                if not late and not (kind == "pods" and self._pods.is_orphan(each)):
                    continue
                try:
                    obj = await self._client.get(kube.path(group, each.namespace, kind, each.name))
                except (kube.NotFoundError, kube.UnreadableError):
                    continue
                if obj["metadata"]["uid"] == each.uid:
                    take_in(obj, take)
                    missed += late
        if missed:
            self._missed[kind] += 1
            metrics.WATCH_LAG.inc(missed)
            self._log.warning("The watch missed changes", kind=kind, objects=missed)

    async def _drop_what_is_gone(self, absent: set[str]) -> bool:
        """What was deleted unseen must not stay known for ever; whether that was a run that something was left to do for."""
        dropped = False
        for uid in absent:
            schedule, entry = self._index.schedules.get(uid), self._index.directory.get(uid)
            worked_on = uid in self._index.runs
            if (worked_on or schedule is not None) and not self._index.was_seen(uid):
                continue  # made here a moment ago; the list may be older
            if schedule is not None:
                if await self._is_gone(schedule.namespace, "schedules", schedule.name, uid):
                    self._schedules.lost(schedule)
            elif entry is not None and await self._is_gone(entry.namespace, "workflowruns", entry.name, uid):
                self._runs.lost(entry)
                dropped |= worked_on
        return dropped

    async def _is_gone(self, namespace: str, plural: str, name: str, uid: str) -> bool:
        try:
            return (await self._client.stored(kube.path(kube.PERDURE, namespace, plural, name))).uid != uid
        except kube.NotFoundError:
            return True

    async def _look_after_letters(self) -> None:
        """The run of a re-drive may have been deleted unseen: they are asked what has become of it."""
        for namespace in self._served:
            async for obj in self._client.each(kube.path(kube.PERDURE, namespace, "deadletters")):
                if runs_again(obj):
                    self._queue.wake(LetterKey(obj["metadata"]["namespace"], obj["metadata"]["name"]))
