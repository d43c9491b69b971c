"""The holders of a WorkflowLimit and the runs that wait for it: how claims and releases change the status. Pure.

The status is the transaction: it is written by compare-and-swap, and a run starts only once a stored status lists it as a holder.
Every change also admits waiting runs up to the capacity, so that no release is lost.
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
    """The runs that hold a WorkflowLimit, and the waiting runs in the order of admission."""

    holders: tuple[LimitEntry, ...] = ()
    waiters: tuple[LimitEntry, ...] = ()

    @classmethod
    def read(cls, status: Mapping[str, Any]) -> Self:
        """Read a status.

        Raises:
            pydantic.ValidationError: The operator did not write this status.
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
        """The IDs of all holders and waiting runs."""
        return frozenset(each.run_id for each in (*self.holders, *self.waiters))

    def claim(self, entry: LimitEntry, capacity: int, *, queues: bool = True) -> Self:
        """Add a run as a holder of the limit, or as a waiting run.

        A listed run keeps its place, unless its key or priority has changed because its definition was edited before it started.

        Args:
            entry: The run.
            capacity: Maximum number of holders per key.
            queues: Whether the run waits if the limit is reached; otherwise it is not added.
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
        """Remove runs from the holders and the waiting runs."""
        return replace(self, holders=_without(self.holders, run_ids), waiters=_without(self.waiters, run_ids))

    def admit(self, capacity: int, now: datetime) -> Self:
        """Make the first waiting runs holders, up to the capacity. One key does not block another."""
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
        """Return the next run to be admitted for a key."""
        return next((each for each in self.waiters if each.key == key), None)

    def to_cancel(self, run_id: str) -> LimitEntry | None:
        """Return the longest holder to cancel for the next run of its key, unless all are newer; None for any other run."""
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
        queue: The holders and waiting runs.
        capacity: Maximum number of holders per key; None if the spec is invalid.
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
