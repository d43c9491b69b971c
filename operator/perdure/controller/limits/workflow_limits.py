"""The WorkflowLimits that this operator watches: runs claim them here, and are woken when it is their turn.

    run: claim ─▶ status of the limit: waiter ─▶ … ─▶ holder ─▶ the run starts ─▶ … ─▶ released (`limit_releases`)
                  each arrow into the status is one compare-and-swap; every write also admits waiting runs up to the capacity

Any operator may write the status, even if it does not work on the run. A waiting run is woken by this process's own writes and
by its watch.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pydantic

from perdure.api.common import API_VERSION, mistakes
from perdure.api.reasons import EventReason
from perdure.api.workflowlimit import MAX_WAITERS, LimitEntry, OverflowPolicy, WorkflowLimitSpec
from perdure.controller.reconcile.computed_status import write_status
from perdure.kube import client as kube
from perdure.kube.clock import now as wall_clock
from perdure.kube.event_recorder import Recorder
from perdure.observe import metrics
from perdure.runtime.attempts import RunRef
from perdure.runtime.limit_queue import LimitQueue, limit_status

Name = tuple[str, str]
"""Namespace and name."""
Change = Callable[[LimitQueue, int], Awaitable[LimitQueue]]
"""Computes the new holders and waiters of a limit from the current ones and the capacity."""


@dataclass(frozen=True, slots=True)
class Claim:
    """The claim of a run that must hold a limit before it starts."""

    run: RunRef
    entry: LimitEntry
    policy: OverflowPolicy

    @property
    def uid(self) -> str:
        """UID of the run."""
        return self.run.uid


@dataclass(frozen=True, slots=True)
class Granted:
    """The run holds the limit, and a stored status says so."""


@dataclass(frozen=True, slots=True)
class Unusable:
    """The limit does not exist, or its spec is invalid. The run is woken when that changes."""


@dataclass(frozen=True, slots=True)
class Full:
    """The run does not hold the limit. If it waits, it is woken when its turn comes."""

    capacity: int
    to_cancel: LimitEntry | None = None
    """The run that must be cancelled to make room."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _KnownLimit:
    """A WorkflowLimit: the object, if known, and its parsed spec."""

    object: kube.Object
    capacity: int | None
    """The capacity; None if the spec is invalid."""
    queue: LimitQueue
    mistakes: tuple[str, ...] = ()

    @classmethod
    def read(cls, obj: kube.Object) -> "_KnownLimit":
        try:
            queue = LimitQueue.read(obj.get("status") or {})
            spec = WorkflowLimitSpec.parse(obj.get("spec") or {})
        except pydantic.ValidationError as error:
            return cls(object=obj, capacity=None, queue=LimitQueue(), mistakes=tuple(mistakes(error)))
        return cls(object=obj, capacity=spec.capacity, queue=queue)

    @property
    def version(self) -> str:
        return str(self.object["metadata"]["resourceVersion"])


class WorkflowLimits:
    """All WorkflowLimits that this operator watches."""

    def __init__(self, client: kube.Client, recorder: Recorder) -> None:
        self.wake: Callable[[RunRef], None] = lambda _run: None
        """Called with a waiting run when it should claim its limit again."""
        self._client = client
        self._recorder = recorder
        self._known: dict[str, dict[str, _KnownLimit]] = defaultdict(dict)
        self._waiting: dict[Name, dict[str, Claim]] = defaultdict(dict)
        """The waiting runs of this process, by limit and UID."""
        self._locks: dict[Name, asyncio.Lock] = defaultdict(asyncio.Lock)

    # Known limits

    def observe(self, obj: kube.Object, *, deleted: bool = False) -> None:
        """Take a WorkflowLimit from a watch, or from a response of the API server."""
        meta = obj["metadata"]
        namespace, name = meta["namespace"], meta["name"]
        known = self._known[namespace].get(name)
        same = known is not None and known.object["metadata"]["uid"] == meta["uid"]
        if deleted:
            if known is None or same:
                self._forget(namespace, name)
        elif known is None or not same or kube.older(known.version, meta["resourceVersion"]):
            self._keep(_KnownLimit.read(obj))

    def naming(self, namespace: str, uid: str) -> Iterable[str]:
        """The limits of a namespace whose status names a run."""
        return [name for name, known in self._known[namespace].items() if uid in known.queue.run_ids()]

    def forget_run(self, namespace: str, uid: str) -> None:
        """Remove a closed or deleted run from the waiting runs."""
        for name in self._known[namespace]:
            self._waiting[namespace, name].pop(uid, None)

    def _forget(self, namespace: str, name: str) -> None:
        self._known[namespace].pop(name, None)
        self._locks.pop((namespace, name), None)
        metrics.forget_limit(namespace, name)

    def _keep(self, known: _KnownLimit) -> None:
        meta = known.object["metadata"]
        namespace, name = meta["namespace"], meta["name"]
        self._known[namespace][name] = known
        metrics.show_limit(namespace, name, holders=len(known.queue.holders), waiters=len(known.queue.waiters))
        waiting = self._waiting[namespace, name]
        for claim in _to_wake(waiting.values(), known.queue):
            del waiting[claim.uid]
            self.wake(claim.run)

    # Changes

    async def claim(self, namespace: str, name: str, claim: Claim) -> Granted | Full | Unusable:
        """Try to acquire a limit for a run; otherwise, let the run wait for it.

        Raises:
            ApiError, OSError, aiohttp.ClientError, TimeoutError: The Kubernetes API request failed. Call again to retry.
        """
        queues = claim.policy is not OverflowPolicy.FAIL

        async def change(queue: LimitQueue, capacity: int) -> LimitQueue:
            return queue.claim(claim.entry, capacity, queues=queues)

        if name not in self._known[namespace]:
            await self._read(namespace, name)
        await self.change(namespace, name, change)
        known = self._known[namespace].get(name)
        if known is not None and known.queue.holds(claim.uid):
            return Granted()
        if known is None or known.capacity is None:
            self._waiting[namespace, name][claim.uid] = claim
            return Unusable()
        if queues:
            self._waiting[namespace, name][claim.uid] = claim
        cancels = claim.policy is OverflowPolicy.CANCEL_RUNNING
        return Full(known.capacity, known.queue.to_cancel(claim.uid) if cancels else None)

    async def change(self, namespace: str, name: str, change: Change) -> None:
        """Change the holders and waiters of a limit, and update the rest of its status.

        Raises:
            ApiError, OSError, aiohttp.ClientError, TimeoutError: The Kubernetes API request failed. Call again to retry.
        """
        async with self._locks[namespace, name]:
            known = self._known[namespace].get(name)
            if known is None:
                return
            seen = known

            async def compute(obj: kube.Object) -> kube.Object:
                nonlocal seen
                if seen.object is not obj:  # another client has written
                    metrics.LIMIT_CONFLICTS.inc()
                    seen = _KnownLimit.read(obj)
                queue = seen.queue if seen.capacity is None else await change(seen.queue, seen.capacity)
                return self._status(seen, queue, wall_clock())

            url = kube.path(kube.PERDURE, namespace, "workflowlimits", name)
            obj = await write_status(self._client, url, compute, seen.object)
            if obj is None:
                self._forget(namespace, name)
                return
            self._report(known, seen, obj)
            self.observe(obj)

    def _report(self, known: _KnownLimit, seen: _KnownLimit, written: kube.Object) -> None:
        """Record an Event if this write marked the spec as invalid."""
        generation = (known.object.get("status") or {}).get("observedGeneration")
        if seen.capacity is not None or written is seen.object or generation == written["status"]["observedGeneration"]:
            return
        about = {"apiVersion": API_VERSION, "kind": "WorkflowLimit", "metadata": written["metadata"]}
        note = "; ".join(seen.mistakes)
        self._recorder.record(about, kind="Warning", reason=EventReason.INVALID_SPEC, note=note, action="Read")

    @staticmethod
    def _status(known: _KnownLimit, queue: LimitQueue, now: datetime) -> dict[str, Any]:
        status = known.object.get("status") or {}
        generation = known.object["metadata"].get("generation", 1)
        if known.capacity is None:  # keep the holders until the spec is valid
            told = limit_status(status, queue, None, generation=generation, mistakes=known.mistakes, now=now)
            return {**status, "conditions": told["conditions"], "observedGeneration": generation}
        return limit_status(status, queue, known.capacity, generation=generation, now=now)

    async def _read(self, namespace: str, name: str) -> None:
        try:
            self.observe(await self._client.get(kube.path(kube.PERDURE, namespace, "workflowlimits", name)))
        except kube.NotFoundError:
            return


def _to_wake(claims: Iterable[Claim], queue: LimitQueue) -> list[Claim]:
    """The waiting runs to wake: they hold the limit, may be listed now, or may cancel another run."""
    found, room = [], MAX_WAITERS - len(queue.waiters)
    for claim in sorted(claims, key=lambda each: (-each.entry.priority, each.entry.created)):
        if queue.waits(claim.uid):
            first = queue.first(claim.entry.key)
            cancels = claim.policy is OverflowPolicy.CANCEL_RUNNING
            due = cancels and first is not None and first.run_id == claim.uid
        elif queue.holds(claim.uid):
            due = True
        else:
            due = room > 0
            room -= 1
        if due:
            found.append(claim)
    return found
