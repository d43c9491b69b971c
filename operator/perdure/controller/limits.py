"""The WorkflowLimits that this operator watches: runs claim them, also for their activities, and are woken when it is their turn.

    run: claim ─▶ status of the limit: waiter ─▶ … ─▶ holder ─▶ the run starts ─▶ … ─▶ released
                  each arrow into the status is one compare-and-swap; every write also admits waiters up to the capacity

An activity does the same before the pod of its first attempt (`runs.attempts.admission`).

A run or an activity that needs several limits takes places in all of them or in none: it waits until all have room, and then
takes one after the other. If one is full by then, it gives the others back. Two operators may do this for the same run at the
same time, so every entry has a round. The write of the last place is the decision: all are taken in the round that the entry of
the last limit had before it. Places are given back only after that entry has moved to the next round, which it cannot do once
it holds its place:

    take, in round n     place 1 ─▶ … ─▶ last place, if its entry is still in round n: all are taken
    give back            last entry: round n + 1 ─▶ place 1 waits again, if it was taken in round n or before

Others overtake it in a limit with room while it waits for another one. After RESERVE_AFTER, it reserves a place in the full limit
whose places change hands least often; when that is free, in the next one. So a limit is reserved only as long as it must be, and
waiters get their turn: all limits have them in the same order, and the first one that reserves gets each place next.

Any operator may write the status, even if it does not work on the run. A waiting run is woken by this process's own writes and
by its watch.

`controller.limit_releases` releases what has ended.

A rate that counts attempts permits each attempt to start, after its activity holds the limit and right before its pod is created
(`runtime.limits` says why that bounds the pods within a period). The permission is in the status, too.

A step counts as an activity: first the activity that takes its limits is open, and then the step holds them.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pydantic

from perdure.api.kinds.workflowlimit import (
    MAX_STEP,
    MAX_WAITERS,
    LimitEntry,
    LimitSelector,
    LimitTaker,
    RateUnit,
    WorkflowLimitSpec,
    WorkflowLimitStatus,
)
from perdure.api.labels import API_VERSION
from perdure.api.models import mistakes
from perdure.api.reasons import EventReason
from perdure.api.state_versions import ATTEMPT_RATES
from perdure.controller.reconcile.newer_states import NewerStateReports, message_for
from perdure.controller.reconcile.record import write_status
from perdure.controller.state_versions import state_versions
from perdure.engine.state import HeldLimits, PendingActivity
from perdure.kube import client as kube
from perdure.kube.clock import now as wall_clock
from perdure.kube.events import Recorder
from perdure.language.step_paths import Path
from perdure.observe import metrics
from perdure.runtime.attempts import RunRef
from perdure.runtime.limits import RESERVE_AFTER, LimitQueue, claim_of, limit_status, may_start, room

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

    @property
    def id(self) -> str:
        """Identifies it in the queue."""
        return self.entry.id


@dataclass(frozen=True, slots=True)
class Wanted:
    """A place in a limit."""

    limit: str
    """Name of the WorkflowLimit."""
    claim: Claim

    @property
    def id(self) -> str:
        """Identifies the claim in the queue of the limit."""
        return self.claim.id


def taken_together(wanted: Iterable[Wanted]) -> tuple[Wanted, ...]:
    """The places of a run, an activity, or a step, in the order in which they are taken: all of them, or none.

    The last one, which decides, is one that waits, if any does.
    """
    places = sorted(wanted, key=lambda each: (each.claim.queues, each.limit, each.id))
    if len(places) == 1:
        return tuple(places)
    update = {"together": len(places)}
    entries = [each.claim.entry.model_copy(update=update) for each in places]
    return tuple(
        replace(each, claim=replace(each.claim, entry=entry)) for each, entry in zip(places, entries, strict=True)
    )


def names_of(group: Sequence[Wanted]) -> str:
    """The names of the limits that are taken together, for messages; empty for a single one."""
    names = sorted({f"`{each.limit}`" for each in group})
    return "" if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def limit_entry(
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
    in_pod = isinstance(taker, PendingActivity) and not (is_step or taker.by_worker)
    step = Path.parse(taker.activity_id).owner.text if is_step else taker.activity_id
    return LimitEntry(
        run=run.name,
        run_id=run.uid,
        event_id=taker.scheduled_event_id,
        step=step[:MAX_STEP],
        whole_step=is_step,
        attempt=taker.attempt if isinstance(taker, PendingActivity) and in_pod else 0,
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
    replaced_by: str | None = None
    """Name of the newer run that replaces the waiting one, which must end."""
    until: datetime | None = None
    """When to claim it again without an event."""

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
    selector: LimitSelector | None = None
    """What takes it without naming it, also while the rest is invalid or newer: then it waits."""
    mistakes: tuple[str, ...] = ()
    newer: str = ""
    """What only a newer version can read in its status."""

    @classmethod
    def read(cls, obj: kube.Object) -> "_KnownLimit":
        selector = _selector(obj)
        if newer := WorkflowLimitStatus.newer_part(obj.get("status") or {}, state_versions().reads):
            return cls(object=obj, spec=None, queue=LimitQueue(), by_run={}, selector=selector, newer=newer)
        try:
            queue = LimitQueue.read(obj.get("status") or {})
            spec = WorkflowLimitSpec.parse(obj.get("spec") or {})
        except pydantic.ValidationError as error:
            wrong = tuple(mistakes(error))
            return cls(object=obj, spec=None, queue=LimitQueue(), by_run={}, selector=selector, mistakes=wrong)
        if spec.rate is not None and state_versions().writes < ATTEMPT_RATES:
            spec = spec.model_copy(update={"rate": spec.rate.model_copy(update={"counts": RateUnit.ADMISSIONS})})
        return cls(object=obj, spec=spec, queue=queue, by_run=queue.by_run(), selector=selector)

    @property
    def version(self) -> str:
        return str(self.object["metadata"]["resourceVersion"])

    def is_of(self, obj: kube.Object) -> bool:
        """Whether this is a version of an object, and not one of an earlier limit with its name."""
        return bool(self.object["metadata"]["uid"] == obj["metadata"]["uid"])


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
        self._together: dict[Name, dict[str, tuple[Wanted, ...]]] = defaultdict(dict)
        """The places that are taken together and that this process waits for, by limit and ID of the last one."""
        self._starting: dict[Name, dict[str, Claim]] = defaultdict(dict)
        """The claims of this process that hold a limit, and whose attempts wait for its rate, by limit and ID."""
        self._locks: dict[Name, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._newer: dict[Name, NewerStateReports] = {}

    # Known limits

    def update(self, obj: kube.Object) -> None:
        """Process a WorkflowLimit from a watch, or from a response of the API server."""
        known = self._known[obj["metadata"]["namespace"]].get(obj["metadata"]["name"])
        if known is None or not known.is_of(obj) or kube.older(known.version, obj["metadata"]["resourceVersion"]):
            self._keep(_KnownLimit.read(obj))

    def delete(self, obj: kube.Object) -> None:
        """Process the deletion of a WorkflowLimit."""
        namespace, name = obj["metadata"]["namespace"], obj["metadata"]["name"]
        known = self._known[namespace].get(name)
        if known is None or known.is_of(obj):
            self._forget(namespace, name)
            self._wake_all(namespace, name)

    def selecting(self, namespace: str, taker: LimitTaker) -> list[tuple[str, str]]:
        """The names of the limits that a run or an activity takes without naming them, with its keys, in order.

        Args:
            namespace: The namespace.
            taker: The run or the activity.
        """
        found = []
        for name, known in self._known[namespace].items():
            key = known.selector.key(taker) if known.selector is not None else None
            if key is not None:
                found.append((name, key))
        return sorted(found)

    async def withdraw(self, run: RunRef, id: str, wanted: Collection[str]) -> None:  # noqa: A002 (that of `LimitEntry`)
        """Let an entry of a run wait only for the limits that it must take: a limit or a definition may have changed.

        Raises:
            RequestError: The Kubernetes API request failed. Call again to retry.
        """

        async def change(queue: LimitQueue, spec: WorkflowLimitSpec) -> LimitQueue:
            return queue.withdraw(id).admit(spec.capacity, wall_clock(), spec.rate)

        for name, _ in self.listing(run.namespace, run.uid):
            queue = self._known[run.namespace][name].queue
            if name not in wanted and queue.withdraw(id) != queue:
                await self.change(run.namespace, name, change)

    def _wake_all(self, namespace: str, name: str) -> None:
        """Wake everything that waits for a limit: it may not have to take it any more."""
        for claims in (self._waiting.pop((namespace, name), {}), self._starting.pop((namespace, name), {})):
            for claim in claims.values():
                self.wake(claim.run)
        for group in list(self._together[namespace, name].values()):
            self._stop_waiting(namespace, group)
            self.wake(group[-1].claim.run)

    def listing(self, namespace: str, uid: str) -> Iterable[tuple[str, Sequence[LimitEntry]]]:
        """The limits of a namespace whose status names a run or its activities, with these entries."""
        return [(name, known.by_run[uid]) for name, known in self._known[namespace].items() if uid in known.by_run]

    def lists(self, namespace: str, name: str, entry: LimitEntry) -> bool:
        """Whether a limit is known to have an entry as a holder or a waiter, with the same claim."""
        known = self._known[namespace].get(name)
        return known is not None and any(
            claim_of(each) == claim_of(entry) for each in known.by_run.get(entry.run_id, ())
        )

    def forget_run(self, namespace: str, uid: str) -> None:
        """Remove the claims of a closed or deleted run from the waiting ones."""
        for name in self._known[namespace]:
            for waiting in (self._waiting[namespace, name], self._starting[namespace, name]):
                for claim in [claim for claim in waiting.values() if claim.run.uid == uid]:
                    del waiting[claim.id]
            for group in [each for each in self._together[namespace, name].values() if each[-1].claim.run.uid == uid]:
                self._stop_waiting(namespace, group)

    def _forget(self, namespace: str, name: str) -> None:
        self._known[namespace].pop(name, None)
        self._locks.pop((namespace, name), None)
        self._newer.pop((namespace, name), None)
        metrics.forget_limit(namespace, name)

    def _keep(self, known: _KnownLimit) -> None:
        meta = known.object["metadata"]
        namespace, name = meta["namespace"], meta["name"]
        before = self._known[namespace].get(name)
        self._known[namespace][name] = known
        if before is not None and before.selector != known.selector:
            self._wake_all(namespace, name)
        metrics.show_limit(namespace, name, holders=len(known.queue.holders), waiters=len(known.queue.waiters))
        waiting = self._waiting[namespace, name]
        for claim in _to_wake(waiting.values(), known.queue):
            del waiting[claim.id]
            self.wake(claim.run)
        starting, rate = self._starting[namespace, name], known.spec.rate if known.spec is not None else None
        unpermitted = {each.id for each in known.queue.unpermitted(rate)}
        for claim in [claim for claim in starting.values() if claim.id not in unpermitted]:
            del starting[claim.id]
            self.wake(claim.run)
        for group in [each for each in self._together[namespace, name].values() if self._is_due(namespace, each)]:
            self._stop_waiting(namespace, group)
            self.wake(group[-1].claim.run)

    # Rates that count attempts

    async def permit(self, namespace: str, group: Iterable[Wanted], attempt: int) -> list[tuple[Wanted, Full]]:
        """Ask the rates of limits to permit an attempt to start now. Call it right before that, because it counts.

        Of several rates, none is asked unless all have room, so that no permission expires while another one is awaited.

        Args:
            namespace: The namespace.
            group: The places that the activity holds.
            attempt: The attempt.

        Returns:
            Those whose rates have no room: the run is woken when that may change. Empty if the attempt may start.

        Raises:
            RequestError: The Kubernetes API request failed. Call again to retry.
        """
        places = [each for each in group if self._counts(namespace, each)]
        late = [each for each in places if not self._may_start(namespace, each, attempt)]
        if len(late) > 1 and (full := [each for each in late if not self._has_start(namespace, each, attempt)]):
            return self._await_start(namespace, full, attempt)
        for place in late:

            async def change(queue: LimitQueue, spec: WorkflowLimitSpec, place: Wanted = place) -> LimitQueue:
                if spec.rate is None or not spec.rate.counts_attempts:
                    return queue
                return queue.permit(place.id, attempt, spec.capacity, wall_clock(), spec.rate)

            if self._permitted(namespace, place, attempt, wall_clock()) != self._queue_of(namespace, place):
                await self.change(namespace, place.limit, change)
        return self._await_start(
            namespace, [each for each in places if not self._may_start(namespace, each, attempt)], attempt
        )

    def _counts(self, namespace: str, place: Wanted) -> bool:
        """Whether a limit is held, and its rate counts attempts."""
        known = self._known[namespace].get(place.limit)
        rate = known.spec.rate if known is not None and known.spec is not None else None
        return rate is not None and rate.counts_attempts and self._queue_of(namespace, place).holds(place.id)

    def _permitted(self, namespace: str, place: Wanted, attempt: int, now: datetime) -> LimitQueue | None:
        """The queue of a limit after it was asked to permit an attempt; None if it counts none, or is not held."""
        known = self._known[namespace].get(place.limit)
        if known is None or known.spec is None or known.spec.rate is None or not self._counts(namespace, place):
            return None
        return known.queue.permit(place.id, attempt, known.spec.capacity, now, known.spec.rate)

    def _may_start(self, namespace: str, place: Wanted, attempt: int) -> bool:
        if not self._counts(namespace, place):
            return True
        entry = self._queue_of(namespace, place).entry(place.id)
        return entry is not None and may_start(entry, attempt, wall_clock())

    def _has_start(self, namespace: str, place: Wanted, attempt: int) -> bool:
        """Whether the rate of a limit would permit an attempt now."""
        queue = self._permitted(namespace, place, attempt, wall_clock())
        entry = queue.entry(place.id) if queue is not None else None
        return entry is None or may_start(entry, attempt, wall_clock())

    def _await_start(self, namespace: str, places: Iterable[Wanted], attempt: int) -> list[tuple[Wanted, Full]]:
        found, now = [], wall_clock()
        for place in places:
            known, queue = self._known[namespace].get(place.limit), self._permitted(namespace, place, attempt, now)
            if known is not None and known.spec is not None and queue is not None:
                self._starting[namespace, place.limit][place.id] = place.claim
                until = queue.next_start(known.spec.capacity, now, known.spec.rate)
                found.append((place, Full(known.spec, until=until)))
        return found

    # Several limits

    async def acquire(self, namespace: str, group: tuple[Wanted, ...]) -> list[tuple[Wanted, Full | Unusable]]:
        """Try to acquire places in limits: all of them, or none.

        Args:
            namespace: The namespace.
            group: The result of `taken_together`.

        Returns:
            What is missing; those whose claims do not wait come first, then those that are taken least often. Empty if all places
            are held.

        Raises:
            RequestError: The Kubernetes API request failed. Call again to retry.
        """
        if len(group) == 1:
            answer = await self.claim(namespace, group[0].limit, group[0].claim)
            return [] if isinstance(answer, Granted) else [(group[0], answer)]
        for each in group:
            if each.limit not in self._known[namespace]:
                await self._read(namespace, each.limit)
        if unusable := self._unusable(namespace, group):
            self._start_waiting(namespace, group)
            return [*unusable]
        if self._holds_all(namespace, group):
            return []
        if not self._lacking(namespace, group, wall_clock()) and await self._take(namespace, group):
            return []
        await self._give_back(namespace, group)
        if self._holds_all(namespace, group):  # another operator has taken the last place in the meantime
            return []
        self._start_waiting(namespace, group)
        await self._queue(namespace, group)
        return self._missing(namespace, group)

    def lists_all(self, namespace: str, group: Iterable[Wanted]) -> bool:
        """Whether each claim is known to hold its limit or to wait for it."""
        return all(self.lists(namespace, each.limit, each.claim.entry) for each in group)

    def _unusable(self, namespace: str, group: Sequence[Wanted]) -> list[tuple[Wanted, Unusable]]:
        known = [(each, self._known[namespace].get(each.limit)) for each in group]
        return [
            (each, Unusable(newer=found is not None and bool(found.newer)))
            for each, found in known
            if found is None or found.spec is None
        ]

    def _queue_of(self, namespace: str, place: Wanted) -> LimitQueue:
        known = self._known[namespace].get(place.limit)
        return known.queue if known is not None else LimitQueue()

    def _round(self, namespace: str, group: Sequence[Wanted]) -> int:
        """The round in which the group takes its places."""
        entries = [self._queue_of(namespace, each).entry(each.id) for each in group]
        return max(each.round if each is not None else 0 for each in entries)

    def _holds_all(self, namespace: str, group: Sequence[Wanted]) -> bool:
        """Whether a stored status has each claim as a holder, in the same round."""
        current = self._round(namespace, group)
        return all(self._has_taken(namespace, each, current) for each in group)

    def _lacking(self, namespace: str, group: Sequence[Wanted], now: datetime) -> list[Wanted]:
        """The places that the group cannot take now."""
        queues: dict[str, LimitQueue] = {}
        for place in group:
            known = self._known[namespace].get(place.limit)
            if known is None or known.spec is None:
                return list(group)
            queue = queues.get(place.limit, known.queue)
            entry = place.claim.entry.model_copy(update={"since": now})
            queues[place.limit] = queue.claim(entry, known.spec.capacity, known.spec.rate)
        return [each for each in group if not queues[each.limit].holds(each.id)]

    async def _take(self, namespace: str, group: Sequence[Wanted]) -> bool:
        """Take all places, one after the other; return whether that succeeded. The last write decides."""
        current = self._round(namespace, group)
        for place in group:

            async def change(queue: LimitQueue, spec: WorkflowLimitSpec, place: Wanted = place) -> LimitQueue:
                listed = queue.entry(place.id)
                if listed is not None and listed.round > current:
                    return queue  # another operator has given the places of this round back
                entry = place.claim.entry.model_copy(update={"since": wall_clock(), "round": current})
                return queue.claim(entry, spec.capacity, spec.rate, queues=place.claim.queues)

            if not self._has_taken(namespace, place, current):
                await self.change(namespace, place.limit, change)
            if not self._has_taken(namespace, place, current):
                return False
        return True

    def _has_taken(self, namespace: str, place: Wanted, current: int) -> bool:
        holders = self._queue_of(namespace, place).holders
        return any(each.id == place.id and each.round == current for each in holders)

    async def _give_back(self, namespace: str, group: Sequence[Wanted]) -> None:
        """Give back the places that the group holds without the others."""
        last, current = group[-1], self._round(namespace, group)
        if not last.claim.queues:
            return  # none of them waits: the run or the activity fails
        held = [each for each in group[:-1] if self._may_give_back(namespace, each)]
        if not held or self._queue_of(namespace, last).holds(last.id):
            return

        async def advance(queue: LimitQueue, spec: WorkflowLimitSpec) -> LimitQueue:
            if queue.holds(last.id):
                return queue
            entry = last.claim.entry.model_copy(update={"since": wall_clock(), "round": current + 1})
            return queue.claim(entry, spec.capacity, spec.rate, takes=False)

        await self.change(namespace, last.limit, advance)
        if self._round(namespace, group) <= current:
            return  # the last place is taken, so all are
        for place in held:

            async def change(queue: LimitQueue, spec: WorkflowLimitSpec, place: Wanted = place) -> LimitQueue:
                rest = queue.give_back(place.claim.entry, current, spec.capacity, wall_clock(), spec.rate)
                return rest if place.claim.queues or rest.holds(place.id) else rest.release({place.id})

            await self.change(namespace, place.limit, change)

    def _may_give_back(self, namespace: str, place: Wanted) -> bool:
        """Whether a place is held, and was not taken before more others were needed: then it may have started."""
        holders = self._queue_of(namespace, place).holders
        return any(each.id == place.id and each.together >= place.claim.entry.together for each in holders)

    async def _queue(self, namespace: str, group: Sequence[Wanted]) -> None:
        """Let the group wait in the limits that are full, and reserve a place in one if it has waited for a long time."""
        for place in self._lacking(namespace, group, wall_clock()):
            if place.claim.queues and not self.lists(namespace, place.limit, place.claim.entry):
                await self.change(namespace, place.limit, _waits(place))
        for place in group:
            if place.claim.entry.cancels_running and not self.lists(namespace, place.limit, place.claim.entry):
                await self.change(namespace, place.limit, _waits(place))
        while (next_place := self._to_reserve(namespace, group, wall_clock())) is not None:

            async def change(queue: LimitQueue, spec: WorkflowLimitSpec, place: Wanted = next_place) -> LimitQueue:
                return queue.reserve(place.id).admit(spec.capacity, wall_clock(), spec.rate)

            await self.change(namespace, next_place.limit, change)

    def _to_reserve(self, namespace: str, group: Sequence[Wanted], now: datetime) -> Wanted | None:
        """The place to reserve next: that of the full limit whose last place was taken the longest ago.

        The next one follows only once the place that was reserved before is free: until then, others may use the other limits.
        """
        if now < group[-1].claim.entry.created + RESERVE_AFTER:
            return None
        lacking = [each for each in self._lacking(namespace, group, now) if each.claim.queues]
        listed = [self._queue_of(namespace, each).entry(each.id) for each in lacking]
        if any(each is None or each.reserves for each in listed):
            return None
        return min(lacking, key=partial(self._scarcity, namespace), default=None)

    def _scarcity(self, namespace: str, place: Wanted) -> tuple[bool, datetime, str]:
        taken = self._queue_of(namespace, place).last_taken(place.claim.entry.key)
        return place.claim.queues, taken or datetime.min.replace(tzinfo=UTC), place.limit

    def _missing(self, namespace: str, group: Sequence[Wanted]) -> list[tuple[Wanted, Full | Unusable]]:
        now = wall_clock()
        if self._can_proceed(namespace, group, now):  # a limit has changed in the meantime
            self._stop_waiting(namespace, group)
            self.wake(group[-1].claim.run)
        lacking = self._lacking(namespace, group, now) or group
        reserves = group[-1].claim.entry.created + RESERVE_AFTER
        found: list[tuple[Wanted, Full | Unusable]] = []
        for place in sorted(group, key=partial(self._scarcity, namespace)):
            known, queue = self._known[namespace].get(place.limit), self._queue_of(namespace, place)
            if known is None or known.spec is None:
                found.append((place, Unusable(newer=known is not None and bool(known.newer))))
                continue
            newer, older = queue.replaced_by(place.id), queue.to_cancel(place.id)
            if place in lacking or newer or older:
                times = (reserves, queue.next_start(known.spec.capacity, now, known.spec.rate))
                until = min((each for each in times if each is not None and each > now), default=None)
                found.append((place, Full(known.spec, older, newer, until)))
        return found

    def _can_proceed(self, namespace: str, group: Sequence[Wanted], now: datetime) -> bool:
        """Whether a group can take its places, or reserve one."""
        return not self._lacking(namespace, group, now) or self._to_reserve(namespace, group, now) is not None

    def _is_due(self, namespace: str, group: Sequence[Wanted]) -> bool:
        """Whether to wake a waiting group: it can proceed, must end, may cancel another run, or waits in no queue."""
        if self._unusable(namespace, group):
            return False
        now = wall_clock()
        queues = [(self._queue_of(namespace, each), each.id) for each in group]
        if any(queue.replaced_by(key) or queue.to_cancel(key) for queue, key in queues):
            return True
        lacking = [self._queue_of(namespace, each).waits(each.id) for each in self._lacking(namespace, group, now)]
        return not any(lacking) or self._to_reserve(namespace, group, now) is not None

    def _start_waiting(self, namespace: str, group: tuple[Wanted, ...]) -> None:
        for place in group:
            self._together[namespace, place.limit][group[-1].id] = group

    def _stop_waiting(self, namespace: str, group: Sequence[Wanted]) -> None:
        for place in group:
            self._together[namespace, place.limit].pop(group[-1].id, None)

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
        return Full(known.spec, known.queue.to_cancel(claim.id), known.queue.replaced_by(claim.id))

    async def change(self, namespace: str, name: str, change: Change) -> None:
        """Change the holders and waiters of a limit, and update the rest of its status.

        Raises:
            RequestError: The Kubernetes API request failed. Call again to retry.
        """
        async with self._locks[namespace, name]:
            known = self._known[namespace].get(name)
            if known is None:
                return
            current = known

            async def compute(obj: kube.Object) -> kube.Object | None:
                nonlocal current
                if current.object is not obj:  # another client has written
                    metrics.LIMIT_CONFLICTS.inc()
                    current = _KnownLimit.read(obj)
                if current.newer:
                    reports = self._newer.setdefault((namespace, name), NewerStateReports("WorkflowLimit", namespace))
                    return reports.ready_status(obj, current.newer, wall_clock())
                queue = current.queue if current.spec is None else await change(current.queue, current.spec)
                return state_versions().stamp(self._status(current, queue, wall_clock()), obj.get("status"))

            url = kube.path(kube.PERDURE, namespace, "workflowlimits", name)
            obj = await write_status(self._client, url, compute, current.object)
            if obj is None:
                self._forget(namespace, name)
                self._wake_all(namespace, name)
                return
            self._report(known, current, obj)
            self.update(obj)

    def _report(self, known: _KnownLimit, current: _KnownLimit, written: kube.Object) -> None:
        """Record an Event if this write marked the spec as invalid."""
        about = {"apiVersion": API_VERSION, "kind": "WorkflowLimit", "metadata": written["metadata"]}
        if current.newer and written is not current.object:
            note = message_for(current.newer)
            self._recorder.record(about, kind="Warning", reason=EventReason.NEWER_STATE, note=note, action="Read")
            return
        generation = (known.object.get("status") or {}).get("observedGeneration")
        if (
            current.spec is not None
            or written is current.object
            or generation == written["status"]["observedGeneration"]
        ):
            return
        note = "; ".join(current.mistakes)
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
            self.update(await self._client.get(kube.path(kube.PERDURE, namespace, "workflowlimits", name)))
        except kube.NotFoundError:
            return


def _selector(limit: kube.Object) -> LimitSelector | None:
    selector = (limit.get("spec") or {}).get("appliesTo")
    if selector is None:
        return None
    try:
        return LimitSelector.parse(selector)
    except pydantic.ValidationError:
        return None


def _waits(place: Wanted) -> Change:
    """The change that lets a claim wait."""

    async def change(queue: LimitQueue, spec: WorkflowLimitSpec) -> LimitQueue:
        entry = place.claim.entry.model_copy(update={"since": wall_clock()})
        return queue.claim(entry, spec.capacity, spec.rate, takes=False)

    return change


def _to_wake(claims: Iterable[Claim], queue: LimitQueue) -> list[Claim]:
    """The waiting claims to wake: they hold the limit, may be listed now, may cancel another run, or are replaced."""
    found, room = [], MAX_WAITERS - len(queue.waiters)
    for claim in sorted(claims, key=lambda each: (-each.entry.priority, each.entry.created)):
        if queue.waits(claim.id):
            due = queue.to_cancel(claim.id) is not None or queue.replaced_by(claim.id) is not None
        elif queue.holds(claim.id):
            due = True
        else:
            due = room > 0
            room -= 1
        if due:
            found.append(claim)
    return found
