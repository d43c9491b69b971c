"""The WorkflowLimits that this operator watches: runs claim them, also for their activities, and are woken when it is their turn.

    run: claim ─▶ status of the limit: waiter ─▶ … ─▶ holder ─▶ the run starts ─▶ … ─▶ released (`releases`)
                  each arrow into the status is one compare-and-swap; every write also admits waiters up to the capacity

An activity does the same before the pod of its first attempt (`runs.attempts.admission`).

Any operator may write the status, even if it does not work on the run. A waiting run is woken by this process's own writes and
by its watch.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pydantic

from perdure.api.kinds.workflowlimit import MAX_STEP, MAX_WAITERS, LimitEntry, WorkflowLimitSpec, WorkflowLimitStatus
from perdure.api.labels import API_VERSION
from perdure.api.models import mistakes
from perdure.api.reasons import EventReason
from perdure.controller.reconcile.computed_status import write_status
from perdure.controller.reconcile.newer_states import NewerStateReports, message_for
from perdure.controller.state_versions import state_versions
from perdure.engine.state import HeldLimits, PendingActivity
from perdure.kube import client as kube
from perdure.kube.clock import now as wall_clock
from perdure.kube.events import Recorder
from perdure.language.step_paths import Path
from perdure.observe import metrics
from perdure.runtime.attempts import RunRef
from perdure.runtime.limits import LimitQueue, limit_status, room

Name = tuple[str, str]
"""Namespace and name."""
Change = Callable[[LimitQueue, WorkflowLimitSpec], Awaitable[LimitQueue]]
"""Computes the new holders and waiters of a limit from the current ones and the spec."""


@dataclass(frozen=True, slots=True)
class Claim:
    """The claim of a run, or of one of its activities, that must hold a limit before it starts."""

    run: RunRef
    entry: LimitEntry
    queues: bool = True
    """Whether it waits if the limit has no room."""
    cancels: bool = False
    """Whether it has the run cancelled that has held the limit the longest."""

    @property
    def id(self) -> str:
        """Identifies it in the queue."""
        return self.entry.id


def limit_entry(  # noqa: PLR0917 (the fields of the entry)
    run: RunRef, taker: PendingActivity | HeldLimits, key: str, priority: int, created: datetime, now: datetime
) -> LimitEntry:
    """Return the entry of an activity, or of a step with everything in its block.

    Args:
        run: The run.
        taker: The activity, the activity that takes the limits of a step, or what the step holds.
        key: The key of the limit.
        priority: The priority of the run.
        created: When it first requested the limit, which determines the order.
        now: The time.
    """
    is_step = isinstance(taker, HeldLimits) or taker.takes_limits
    step = Path.parse(taker.activity_id).owner.text if is_step else taker.activity_id
    return LimitEntry(
        run=run.name,
        run_id=run.uid,
        event_id=taker.scheduled_event_id,
        step=step[:MAX_STEP],
        whole_step=is_step,
        key=key,
        priority=priority,
        created=created,
        since=now,
    )


@dataclass(frozen=True, slots=True)
class Granted:
    """The claim holds the limit, and a stored status says so."""


@dataclass(frozen=True, slots=True)
class Unusable:
    """The limit does not exist, its spec is invalid, or a newer version wrote its status. The run is woken when that changes."""

    newer: bool = False
    """Whether it exists, and only a newer version can read it. Then a claim waits without a time limit."""

    def reason(self, name: str, namespace: str) -> str:
        """Name the missing limit."""
        if self.newer:
            return f"a newer version of Perdure has written the status of WorkflowLimit `{name}`, and this one cannot read it"
        return f"there is no valid WorkflowLimit `{name}` in namespace `{namespace}`"


@dataclass(frozen=True, slots=True)
class Full:
    """The claim does not hold the limit. If it waits, its run is woken when its turn comes."""

    spec: WorkflowLimitSpec
    to_cancel: LimitEntry | None = None
    """The run that must be cancelled to make room."""

    def reason(self, name: str, key: str, noun: str) -> str:
        """Say why a claim waits for the limit with a name; `noun` is what takes it.

        The text names no holder: it stays in the status of the waiting run when the holders change.
        """
        for_key = f" for the key `{key}`" if key else ""
        return f"WorkflowLimit `{name}` is full{for_key}: it allows {self._room(noun)}"

    def failure(self, name: str, key: str, noun: str) -> str:
        """The beginning of the message of a failed claim. Histories contain it, so it is the same in all versions."""
        of_key = f" with the key `{key}`" if key else ""
        return f"WorkflowLimit `{name}` has room for {self._room(noun)}{of_key}"

    def _room(self, noun: str) -> str:
        return room(self.spec.capacity, self.spec.rate, noun)


@dataclass(frozen=True, slots=True, kw_only=True)
class _KnownLimit:
    """A WorkflowLimit: the object, and its parsed spec."""

    object: kube.Object
    spec: WorkflowLimitSpec | None
    """The spec; None if it is invalid."""
    queue: LimitQueue
    by_run: Mapping[str, Sequence[LimitEntry]]
    """The holders and waiters, by run ID."""
    mistakes: tuple[str, ...] = ()
    newer: str = ""
    """What only a newer version can read in its status."""

    @classmethod
    def read(cls, obj: kube.Object) -> "_KnownLimit":
        if newer := WorkflowLimitStatus.newer_part(obj.get("status") or {}, state_versions().reads):
            return cls(object=obj, spec=None, queue=LimitQueue(), by_run={}, newer=newer)
        try:
            queue = LimitQueue.read(obj.get("status") or {})
            spec = WorkflowLimitSpec.parse(obj.get("spec") or {})
        except pydantic.ValidationError as error:
            return cls(object=obj, spec=None, queue=LimitQueue(), by_run={}, mistakes=tuple(mistakes(error)))
        return cls(object=obj, spec=spec, queue=queue, by_run=queue.by_run())

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
        """The waiting claims of this process, by limit and ID."""
        self._locks: dict[Name, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._newer: dict[Name, NewerStateReports] = {}

    # Known limits

    def observe(self, obj: kube.Object, *, deleted: bool = False) -> None:
        """Process a WorkflowLimit from a watch, or from a response of the API server."""
        meta = obj["metadata"]
        namespace, name = meta["namespace"], meta["name"]
        known = self._known[namespace].get(name)
        same = known is not None and known.object["metadata"]["uid"] == meta["uid"]
        if deleted:
            if known is None or same:
                self._forget(namespace, name)
        elif known is None or not same or kube.older(known.version, meta["resourceVersion"]):
            self._keep(_KnownLimit.read(obj))

    def listing(self, namespace: str, uid: str) -> Iterable[tuple[str, Sequence[LimitEntry]]]:
        """The limits of a namespace whose status names a run or its activities, with these entries."""
        return [(name, known.by_run[uid]) for name, known in self._known[namespace].items() if uid in known.by_run]

    def lists(self, namespace: str, name: str, entry: LimitEntry) -> bool:
        """Whether a limit is known to have an entry as a holder or a waiter, with this key and priority."""
        known = self._known[namespace].get(name)
        return known is not None and any(
            (each.id, each.key, each.priority) == (entry.id, entry.key, entry.priority)
            for each in known.by_run.get(entry.run_id, ())
        )

    def forget_run(self, namespace: str, uid: str) -> None:
        """Remove the claims of a closed or deleted run from the waiting ones."""
        for name in self._known[namespace]:
            waiting = self._waiting[namespace, name]
            for claim in [claim for claim in waiting.values() if claim.run.uid == uid]:
                del waiting[claim.id]

    def _forget(self, namespace: str, name: str) -> None:
        self._known[namespace].pop(name, None)
        self._locks.pop((namespace, name), None)
        self._newer.pop((namespace, name), None)
        metrics.forget_limit(namespace, name)

    def _keep(self, known: _KnownLimit) -> None:
        meta = known.object["metadata"]
        namespace, name = meta["namespace"], meta["name"]
        self._known[namespace][name] = known
        metrics.show_limit(namespace, name, holders=len(known.queue.holders), waiters=len(known.queue.waiters))
        waiting = self._waiting[namespace, name]
        for claim in _to_wake(waiting.values(), known.queue):
            del waiting[claim.id]
            self.wake(claim.run)

    # Changes

    async def claim(self, namespace: str, name: str, claim: Claim) -> Granted | Full | Unusable:
        """Try to acquire a limit for a run or an activity; otherwise, let it wait.

        Raises:
            RequestError: The Kubernetes API request failed. Call again to retry.
        """

        async def change(queue: LimitQueue, spec: WorkflowLimitSpec) -> LimitQueue:
            entry = claim.entry.model_copy(update={"since": wall_clock()})
            return queue.claim(entry, spec.capacity, spec.rate, queues=claim.queues)

        if name not in self._known[namespace]:
            await self._read(namespace, name)
        if not (claim.queues and self.lists(namespace, name, claim.entry)):
            await self.change(namespace, name, change)
        known = self._known[namespace].get(name)
        if known is not None and known.queue.holds(claim.id):
            return Granted()
        if known is None or known.spec is None:
            self._waiting[namespace, name][claim.id] = claim
            return Unusable(newer=known is not None and bool(known.newer))
        if claim.queues:
            self._waiting[namespace, name][claim.id] = claim
        return Full(known.spec, known.queue.to_cancel(claim.id) if claim.cancels else None)

    async def change(self, namespace: str, name: str, change: Change) -> None:
        """Change the holders and waiters of a limit, and update the rest of its status.

        Raises:
            RequestError: The Kubernetes API request failed. Call again to retry.
        """
        async with self._locks[namespace, name]:
            known = self._known[namespace].get(name)
            if known is None:
                return
            seen = known

            async def compute(obj: kube.Object) -> kube.Object | None:
                nonlocal seen
                if seen.object is not obj:  # another client has written
                    metrics.LIMIT_CONFLICTS.inc()
                    seen = _KnownLimit.read(obj)
                if seen.newer:
                    reports = self._newer.setdefault((namespace, name), NewerStateReports("WorkflowLimit", namespace))
                    return reports.ready_status(obj, seen.newer, wall_clock())
                queue = seen.queue if seen.spec is None else await change(seen.queue, seen.spec)
                return state_versions().stamp(self._status(seen, queue, wall_clock()), obj.get("status"))

            url = kube.path(kube.PERDURE, namespace, "workflowlimits", name)
            obj = await write_status(self._client, url, compute, seen.object)
            if obj is None:
                self._forget(namespace, name)
                return
            self._report(known, seen, obj)
            self.observe(obj)

    def _report(self, known: _KnownLimit, seen: _KnownLimit, written: kube.Object) -> None:
        """Record an Event if this write marked the spec as invalid."""
        about = {"apiVersion": API_VERSION, "kind": "WorkflowLimit", "metadata": written["metadata"]}
        if seen.newer and written is not seen.object:
            note = message_for(seen.newer)
            self._recorder.record(about, kind="Warning", reason=EventReason.NEWER_STATE, note=note, action="Read")
            return
        generation = (known.object.get("status") or {}).get("observedGeneration")
        if seen.spec is not None or written is seen.object or generation == written["status"]["observedGeneration"]:
            return
        note = "; ".join(seen.mistakes)
        self._recorder.record(about, kind="Warning", reason=EventReason.INVALID_SPEC, note=note, action="Read")

    @staticmethod
    def _status(known: _KnownLimit, queue: LimitQueue, now: datetime) -> dict[str, Any]:
        status = known.object.get("status") or {}
        generation = known.object["metadata"].get("generation", 1)
        if known.spec is None:  # keep the holders until the spec is valid
            computed = limit_status(status, queue, None, generation=generation, mistakes=known.mistakes, now=now)
            return {**status, "conditions": computed["conditions"], "observedGeneration": generation}
        return limit_status(status, queue, known.spec.capacity, known.spec.rate, generation=generation, now=now)

    async def _read(self, namespace: str, name: str) -> None:
        try:
            self.observe(await self._client.get(kube.path(kube.PERDURE, namespace, "workflowlimits", name)))
        except kube.NotFoundError:
            return


def _to_wake(claims: Iterable[Claim], queue: LimitQueue) -> list[Claim]:
    """The waiting claims to wake: they hold the limit, may be listed now, or may cancel another run."""
    found, room = [], MAX_WAITERS - len(queue.waiters)
    for claim in sorted(claims, key=lambda each: (-each.entry.priority, each.entry.created)):
        if queue.waits(claim.id):
            first = queue.first(claim.entry.key)
            due = claim.cancels and first is not None and first.id == claim.id
        elif queue.holds(claim.id):
            due = True
        else:
            due = room > 0
            room -= 1
        if due:
            found.append(claim)
    return found
