"""Who holds a WorkflowLimit, and who waits for it: how claims and releases change the status. Pure.

The status is the transaction: it is written by compare-and-swap, and a run starts only once a stored status lists it as a holder.
Every change also admits the waiting runs that there is room for, so that no release is lost.
"""

from bisect import insort
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Self

from perdure.api.conditions import read_conditions, set_condition
from perdure.api.reasons import ConditionReason, ConditionType
from perdure.api.workflowlimit import MAX_HOLDERS, MAX_WAITERS, LimitEntry, WorkflowLimitStatus


@dataclass(frozen=True, slots=True)
class LimitQueue:
    """The runs that hold a WorkflowLimit, and those that wait for it, in the order in which they get it."""

    holders: tuple[LimitEntry, ...] = ()
    waiters: tuple[LimitEntry, ...] = ()

    @classmethod
    def read(cls, status: Mapping[str, Any]) -> Self:
        """Read a status.

        Raises:
            pydantic.ValidationError: It is not one that the operator has written.
        """
        found = WorkflowLimitStatus.parse(status)
        return cls(tuple(found.holders), tuple(found.waiters))

    def holds(self, run_id: str) -> bool:
        """Whether a run holds the limit."""
        return any(each.run_id == run_id for each in self.holders)

    def waits(self, run_id: str) -> bool:
        """Whether a run is listed as waiting."""
        return any(each.run_id == run_id for each in self.waiters)

    def run_ids(self) -> frozenset[str]:
        """All runs in it."""
        return frozenset(each.run_id for each in (*self.holders, *self.waiters))

    def claim(self, entry: LimitEntry, capacity: int, *, queues: bool = True) -> Self:
        """Have a run hold the limit, or wait for it.

        A run that is listed already stays where it is. It asks for another key if its definition was edited before it started.

        Args:
            entry: The run.
            capacity: How many runs of each key may hold the limit.
            queues: Whether the run waits if there is no room for it; otherwise it is left out.
        """
        listed = next((each for each in (*self.holders, *self.waiters) if each.run_id == entry.run_id), None)
        if listed is not None and _asks_for(listed) == _asks_for(entry):
            claimed = self.admit(capacity, entry.since)
        else:
            others = self.release({entry.run_id})
            waiters = list(others.waiters)
            insort(waiters, entry, key=_order)
            claimed = replace(others, waiters=tuple(waiters)).admit(capacity, entry.since)
        if not queues and not claimed.holds(entry.run_id):
            return claimed.release({entry.run_id})
        return replace(claimed, waiters=claimed.waiters[:MAX_WAITERS])

    def release(self, run_ids: Collection[str]) -> Self:
        """Leave runs out."""
        return replace(self, holders=_without(self.holders, run_ids), waiters=_without(self.waiters, run_ids))

    def admit(self, capacity: int, now: datetime) -> Self:
        """Let the first waiting runs hold the limit, as far as there is room. One key does not block another."""
        held = Counter(each.key for each in self.holders)
        holders, waiters = list(self.holders), []
        for entry in self.waiters:
            if held[entry.key] < capacity and len(holders) < MAX_HOLDERS:
                held[entry.key] += 1
                holders.append(entry.model_copy(update={"since": now}))
            else:
                waiters.append(entry)
        return (
            self if len(waiters) == len(self.waiters) else replace(self, holders=tuple(holders), waiters=tuple(waiters))
        )

    def first(self, key: str) -> LimitEntry | None:
        """The run that gets the limit next for a key."""
        return next((each for each in self.waiters if each.key == key), None)

    def gives_way(self, run_id: str) -> LimitEntry | None:
        """The run to cancel for the next run of a key: the longest holder that is not newer; None for any other run."""
        first = next((each for each in self.waiters if each.run_id == run_id), None)
        if first is None or self.first(first.key) is not first:
            return None
        held = [each for each in self.holders if each.key == first.key and each.created <= first.created]
        return min(held, key=lambda each: each.since, default=None)


def _order(entry: LimitEntry) -> tuple[int, datetime]:
    return -entry.priority, entry.created


def _asks_for(entry: LimitEntry) -> tuple[str, int]:
    return entry.key, entry.priority


def _without(entries: tuple[LimitEntry, ...], run_ids: Collection[str]) -> tuple[LimitEntry, ...]:
    return tuple(each for each in entries if each.run_id not in run_ids)


def limit_status(
    before: Mapping[str, Any],
    queue: LimitQueue,
    capacity: int | None,
    *,
    generation: int,
    mistakes: Sequence[str] = (),
    now: datetime,
) -> dict[str, Any]:
    """The status of a WorkflowLimit.

    Args:
        before: The status so far.
        queue: The runs in it.
        capacity: How many runs of each key may hold it; None if the spec is invalid.
        generation: Its `metadata.generation`.
        mistakes: The errors of an invalid spec.
        now: The current time, for conditions that change.
    """
    if capacity is None:
        ready, reason, message = False, ConditionReason.INVALID_SPEC, "; ".join(mistakes)
    else:
        ready, reason, message = True, ConditionReason.ACCEPTED, f"has room for {runs(capacity)} of each key"
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
    }


def runs(count: int) -> str:
    """A number of runs, in words."""
    return "1 run" if count == 1 else f"{count} runs"
