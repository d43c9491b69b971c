"""The holders of a WorkflowLimit and those that wait for it: how claims and releases change the status. Pure.

The status is the transaction: it is written by compare-and-swap, and a run or an activity starts only once a stored status lists
it as a holder. Every change also admits waiters up to the capacity, so that no release is lost.

Entries that take several places together are admitted only by a process that takes all of them (`controller.limits`). Others
overtake them, unless they reserve their place.

A rate that counts attempts bounds how many pods are created within a period. What is counted is a permission in the status, which
is valid for START_WITHIN: an operator that was killed or suspended before it created the pod needs a new one. A permission counts
for START_WITHIN longer than the period, so that pods which are created at its end, and others at the beginning of theirs, do
not exceed the rate:

    permitted at 0 ─▶ created by 2 ┐          permitted at period + 2 or later ─▶ created
                                   └─ at least a period ──────────────────────────────┘

The first permission comes with the place. A later attempt, or one whose permission has expired, waits for one as a holder, and
gets it before those that wait for a place.
"""

from bisect import insort
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final, Self

from perdure.api.kinds.status import read_conditions, set_condition
from perdure.api.kinds.workflowlimit import (
    MAX_HOLDERS,
    MAX_RECENT,
    MAX_WAITERS,
    LimitEntry,
    RecentStart,
    StartRate,
    WorkflowLimitStatus,
)
from perdure.api.reasons import ConditionReason, ConditionType
from perdure.api.times import show_duration

RESERVE_AFTER: Final = timedelta(minutes=1)
"""After which wait a waiter that takes several places together has others not overtake it any more, one limit at a time."""


START_WITHIN: Final = timedelta(seconds=2)
"""How long a rate that counts attempts permits one to start. Each permission counts, so this is longer than an operator with much
work takes from the permission to the request that creates the pod."""


def may_start(entry: LimitEntry, attempt: int, now: datetime) -> bool:
    """Whether the pod of an attempt may be created now according to the entry of its activity in a limit."""
    return entry.attempt == attempt and entry.permitted is not None and now < entry.permitted + START_WITHIN


def _window(rate: StartRate) -> timedelta:
    """How long a start counts."""
    return rate.period + START_WITHIN if rate.counts_attempts else rate.period


@dataclass(frozen=True, slots=True)
class LimitQueue:
    """The runs and activities that hold a WorkflowLimit, and those that wait, in the order of admission."""

    holders: tuple[LimitEntry, ...] = ()
    waiters: tuple[LimitEntry, ...] = ()
    recent: tuple[RecentStart, ...] = ()
    """The starts that count for a rate, and older ones."""

    @classmethod
    def read(cls, status: Mapping[str, Any]) -> Self:
        """Read a status.

        Raises:
            pydantic.ValidationError: The operator did not write this status.
        """
        found = WorkflowLimitStatus.parse(status)
        return cls(tuple(found.holders), tuple(found.waiters), tuple(found.recent))

    def entry(self, id: str) -> LimitEntry | None:  # noqa: A002 (that of `LimitEntry`)
        """Return a holder or a waiter."""
        return next((each for each in (*self.holders, *self.waiters) if each.id == id), None)

    def holds(self, id: str) -> bool:  # noqa: A002
        """Whether an entry holds the limit."""
        return any(each.id == id for each in self.holders)

    def waits(self, id: str) -> bool:  # noqa: A002
        """Whether an entry is listed as waiting."""
        return any(each.id == id for each in self.waiters)

    def by_run(self) -> dict[str, list[LimitEntry]]:
        """All holders and waiters, by run ID."""
        found: dict[str, list[LimitEntry]] = {}
        for each in (*self.holders, *self.waiters):
            found.setdefault(each.run_id, []).append(each)
        return found

    def claim(
        self,
        entry: LimitEntry,
        capacity: int,
        rate: StartRate | None = None,
        *,
        queues: bool = True,
        takes: bool = True,
    ) -> Self:
        """Add an entry as a holder of the limit, or as a waiter.

        A listed entry keeps its place, unless its key, priority, or policy has changed because the definition was edited before
        the run started. A holder also keeps it if the number of places that it takes together has changed.

        Args:
            entry: The run, or the activity.
            capacity: Maximum number of holders per key.
            rate: Maximum number of starts per key and period.
            queues: Whether it waits if the limit is reached; otherwise it is not added.
            takes: Whether it takes the place if it has room, for one that takes several together. It is then of its `round`.
        """
        taking, listed = entry.id if takes else "", self.entry(entry.id)
        if rate is None or not rate.counts_attempts:
            entry = entry.model_copy(update={"attempt": 0})
        if listed is not None and (
            listed.replaced_by
            or claim_of(listed) == claim_of(entry)
            or (self.holds(entry.id) and claim_of(listed)[:-1] == claim_of(entry)[:-1])
        ):
            claimed = self._advance(listed, entry).admit(capacity, entry.since, rate, taking=taking)
        else:
            others = self.release({entry.id})
            if listed is not None and listed.round > entry.round:
                entry = entry.model_copy(update={"round": listed.round})
            waiters = list(others.waiters)
            insort(waiters, entry, key=_order)
            queued = replace(others, waiters=_without_older(others.holders, waiters, entry.key, capacity))
            claimed = queued.admit(capacity, entry.since, rate, taking=taking)
        if not queues and not claimed.holds(entry.id):
            return claimed.release({entry.id})
        return replace(claimed, waiters=_first_waiters(claimed.waiters))

    def give_back(self, claim: LimitEntry, round: int, capacity: int, now: datetime, rate: StartRate | None) -> Self:  # noqa: A002
        """Let a holder wait again, unless it has taken the place in a later round, or together with fewer others."""
        entry = next((each for each in self.holders if each.id == claim.id), None)
        if entry is None or entry.round > round or entry.together < claim.together:
            return self
        waiters = list(self.waiters)
        insort(waiters, entry.model_copy(update={"permitted": None}), key=_order)
        changed = replace(self, holders=_without(self.holders, {claim.id}), waiters=tuple(waiters)).admit(
            capacity, now, rate
        )
        return replace(changed, waiters=_first_waiters(changed.waiters))

    def permit(self, id: str, attempt: int, capacity: int, now: datetime, rate: StartRate) -> Self:  # noqa: A002
        """Let an attempt of a holder wait until the rate permits it to start, unless it is permitted."""
        holder = next((each for each in self.holders if each.id == id), None)
        if holder is None or may_start(holder, attempt, now):
            return self
        waits = holder.attempt == attempt and holder.permitted is None
        if waits and sum(each.key == holder.key for each in self._recent(rate, now)) >= rate.count:
            return self  # hundreds of attempts may ask again when one is permitted
        waiting = holder.model_copy(update={"attempt": attempt, "permitted": None})
        holders = tuple(waiting if each is holder else each for each in self.holders)
        return replace(self, holders=holders).admit(capacity, now, rate)

    def reserve(self, id: str) -> Self:  # noqa: A002
        """Keep the next free place for a waiter."""
        waiters = (each.model_copy(update={"reserves": True}) if each.id == id else each for each in self.waiters)
        return replace(self, waiters=tuple(waiters))

    def withdraw(self, id: str) -> Self:  # noqa: A002
        """Remove a waiter. One that gave places back only ceases to keep a place: its round must not be forgotten."""
        entry = next((each for each in self.waiters if each.id == id), None)
        if entry is None:
            return self
        if not entry.round:
            return self.release({id})
        later = entry.model_copy(update={"reserves": False})
        return replace(self, waiters=tuple(later if each is entry else each for each in self.waiters))

    def last_taken(self, key: str) -> datetime | None:
        """When a holder of a key has taken its place last; None if nothing holds it."""
        return max((each.since for each in self.holders if each.key == key), default=None)

    def _advance(self, listed: LimitEntry, claim: LimitEntry) -> Self:
        """Move an entry to a later round.

        If the number of places that it takes together has changed, the lower one stays: a process that has seen it may have
        started the run or the activity, and one that has seen the higher one must not give this place back.
        """
        round_, together = max(listed.round, claim.round), min(listed.together, claim.together)
        if (round_, together) == (listed.round, listed.together):
            return self
        later = listed.model_copy(update={"round": round_, "together": together})
        holders, waiters = (
            tuple(later if each is listed else each for each in entries) for entries in (self.holders, self.waiters)
        )
        return replace(self, holders=holders, waiters=waiters)

    def release(self, ids: Collection[str]) -> Self:
        """Remove entries from the holders and the waiters."""
        return replace(self, holders=_without(self.holders, ids), waiters=_without(self.waiters, ids))

    def admit(self, capacity: int, now: datetime, rate: StartRate | None = None, *, taking: str = "") -> Self:
        """Make the first waiters holders, up to the capacity and the rate. One key does not block another.

        Attempts of holders that wait for the rate go first. Of those that take several places together, only the one with the ID
        `taking` is admitted. For the first of each key that reserves its place, one is kept free.
        """
        recent = list(self._recent(rate, now))
        started = Counter(each.key for each in recent)
        holders, waiters = list(self.holders), []
        held = Counter(each.key for each in holders)
        unpermitted = {each.id for each in self.unpermitted(rate)}
        for place, entry in sorted(enumerate(holders), key=lambda each: _order(each[1])):
            if (
                entry.id in unpermitted
                and rate is not None
                and started[entry.key] < rate.count
                and len(recent) < MAX_RECENT
            ):
                started[entry.key] += 1
                recent.append(RecentStart(key=entry.key, time=now))
                holders[place] = entry.model_copy(update={"permitted": now})
        kept = Counter[str]()
        for entry in self.waiters:
            key = entry.key
            has_room = held[key] + kept[key] < capacity and len(holders) + kept.total() < MAX_HOLDERS
            if rate is not None and (
                started[key] + kept[key] >= rate.count or len(recent) + kept.total() >= MAX_RECENT
            ):
                has_room = False
            others = bool(entry.together) and entry.id != taking
            if others and entry.reserves and not entry.replaced_by:
                kept[key] = 1
            if others or not has_room or entry.replaced_by:
                waiters.append(entry)
                continue
            held[key] += 1
            holders.append(entry.model_copy(update={"since": now, "permitted": now if entry.attempt else None}))
            if rate is not None:
                started[key] += 1
                recent.append(RecentStart(key=key, time=now))
        if len(waiters) == len(self.waiters) and holders == list(self.holders):
            return self
        return replace(self, holders=tuple(holders), waiters=tuple(waiters), recent=tuple(recent))

    def next_start(self, capacity: int, now: datetime, rate: StartRate | None) -> datetime | None:
        """When the rate admits another waiter for which the capacity has room; None if none waits for the rate."""
        if rate is None:
            return None
        waiting = {each.key for each in self.unpermitted(rate)}
        if len(self.holders) < MAX_HOLDERS:
            held = Counter(each.key for each in self.holders)
            waiting |= {each.key for each in self.waiters if held[each.key] < capacity and not each.replaced_by}
        recent = self._recent(rate, now)
        if waiting and len(recent) >= MAX_RECENT:
            return min(each.time for each in recent) + _window(rate)
        times = (sorted(each.time for each in recent if each.key == key)[-rate.count :] for key in waiting)
        return min((found[0] + _window(rate) for found in times if found), default=None)

    def unpermitted(self, rate: StartRate | None) -> tuple[LimitEntry, ...]:
        """The holders with an attempt that waits for a rate."""
        counts = rate is not None and rate.counts_attempts
        return tuple(each for each in self.holders if counts and each.attempt and each.permitted is None)

    def _recent(self, rate: StartRate | None, now: datetime) -> tuple[RecentStart, ...]:
        """The starts that count for a rate."""
        return tuple(each for each in self.recent if rate is not None and each.time > now - _window(rate))

    def first(self, key: str) -> LimitEntry | None:
        """Return the next waiter to be admitted for a key."""
        return next((each for each in self.waiters if each.key == key and not each.replaced_by), None)

    def replaced_by(self, id: str) -> str | None:  # noqa: A002
        """Return the name of the newer run that replaces a waiting one."""
        return next((each.replaced_by for each in self.waiters if each.id == id), None)

    def to_cancel(self, id: str) -> LimitEntry | None:  # noqa: A002
        """Return the run that has held the limit the longest, to cancel it for the next waiter of its key, unless all are newer.

        For any other waiter, one with another policy, and if only activities hold the limit, return None.
        """
        first = next((each for each in self.waiters if each.id == id and each.cancels_running), None)
        if first is None or self.first(first.key) is not first:
            return None
        runs = [each for each in self.holders if each.event_id is None and each.key == first.key]
        held = [each for each in runs if each.created <= first.created]
        return min(held, key=lambda each: each.since, default=None)


def _order(entry: LimitEntry) -> tuple[int, datetime, str]:
    """The order of waiters. Those that take several places together have the same order in all limits."""
    return -entry.priority, entry.created, entry.id if entry.together else ""


def claim_of(entry: LimitEntry) -> tuple[str, str, int, bool, int]:
    """What an entry claims. If this changes, the entry is queued again."""
    return entry.id, entry.key, entry.priority, entry.cancels_running, entry.together


def _first_waiters(waiters: Sequence[LimitEntry]) -> tuple[LimitEntry, ...]:
    """The waiters to list. One that gave places back is always listed: its round must not be forgotten."""
    extra = len(waiters) - MAX_WAITERS
    if extra <= 0:
        return tuple(waiters)
    dropped = {each.id for each in [each for each in waiters if not each.round][-extra:]}
    return tuple(each for each in waiters if each.id not in dropped)


def _without(entries: tuple[LimitEntry, ...], ids: Collection[str]) -> tuple[LimitEntry, ...]:
    return tuple(each for each in entries if each.id not in ids)


def _without_older(
    holders: Iterable[LimitEntry], waiters: Iterable[LimitEntry], key: str, capacity: int
) -> tuple[LimitEntry, ...]:
    """The waiters, of which newer runs of a key replace the older ones that wait with CancelRunning.

    As many of the newest runs remain as can hold the limit, but at least one.
    """
    runs = [each for each in (*holders, *waiters) if each.key == key and each.cancels_running and not each.replaced_by]
    runs.sort(key=lambda each: (each.created, each.since))
    older = {each.id for each in runs[: -max(capacity, 1)]}
    return tuple(
        each.model_copy(update={"replaced_by": runs[-1].run}) if each.id in older else each for each in waiters
    )


def limit_status(
    before: Mapping[str, Any],
    queue: LimitQueue,
    capacity: int | None,
    rate: StartRate | None = None,
    *,
    generation: int,
    mistakes: Sequence[str] = (),
    now: datetime,
) -> dict[str, Any]:
    """The status of a WorkflowLimit.

    Args:
        before: The status so far.
        queue: The holders and waiters.
        capacity: Maximum number of holders per key; None if the spec is invalid.
        rate: Maximum number of starts per key and period.
        generation: Its `metadata.generation`.
        mistakes: The errors of an invalid spec.
        now: The current time, for conditions that change.
    """
    if capacity is None:
        ready, reason, message = False, ConditionReason.INVALID_SPEC, "; ".join(mistakes)
    else:
        ready, reason, message = (
            True,
            ConditionReason.ACCEPTED,
            f"has room for {room(capacity, rate, 'holder')} of each key",
        )
    conditions = set_condition(
        read_conditions(before), ConditionType.READY, ready, reason, message, now=now, observed_generation=generation
    )
    return {
        "observedGeneration": generation,
        "conditions": [condition.dump() for condition in conditions],
        "held": len(queue.holders),
        "waiting": len(queue.waiters),
        "holders": [each.dump() for each in queue.holders],
        "waiters": [each.dump() for each in queue.waiters],
        **({"recent": [each.dump() for each in queue.recent]} if queue.recent else {}),
    }


def room(capacity: int, rate: StartRate | None, noun: str) -> str:
    """The room of a limit in words, such as `5 holders`, `5 holders and 10 starts per 1m`, or `1 holder and 1 attempt per 1m`."""
    holders = f"{capacity} {noun}" if capacity == 1 else f"{capacity} {noun}s"
    if rate is None:
        return holders
    counted = "attempt" if rate.counts_attempts else "start"
    return f"{holders} and {rate.count} {counted}{'' if rate.count == 1 else 's'} per {show_duration(rate.period)}"
