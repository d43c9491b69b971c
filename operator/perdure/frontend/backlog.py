"""The order in which a task queue hands out what waits: by priority and, within one level, in fair shares.

The rules are Temporal's (task queue priority and fairness): level 1 comes before level 2, and so on. Within a level, each
fairness key gets a share in proportion to its weight, however much others have put in before. Shares are worked out by
start-time fair queuing (Goyal, Vin, Cheng: SIGCOMM 1996).
"""

import heapq
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Generic, Protocol, TypeVar

LEVELS = 5
"""Priorities range from 1, the most urgent, to this (temporal.api.common.v1.Priority)."""
DEFAULT_LEVEL = 3
LEAST_WEIGHT, MOST_WEIGHT = 0.001, 1000.0
_SLACK = 64
"""Entries beyond twice those in use that are kept before the backlog is tidied up."""


@dataclass(frozen=True, slots=True)
class Rank:
    """What decides whose turn it is."""

    level: int = DEFAULT_LEVEL
    fairness_key: str = ""
    weight: float = 1.0

    @classmethod
    def of(cls, priority_key: int, fairness_key: str, weight: float) -> "Rank":
        """The rank that a priority asks for; zero and empty mean the default, what is out of range is brought into it."""
        level = min(max(priority_key, 1), LEVELS) if priority_key else DEFAULT_LEVEL
        return cls(level, fairness_key, min(max(weight, LEAST_WEIGHT), MOST_WEIGHT) if weight else 1.0)


ORDINARY = Rank()


def _own_weight(rank: Rank) -> float:
    return rank.weight


class _Ranked(Hashable, Protocol):
    @property
    def rank(self) -> Rank: ...


Item = TypeVar("Item", bound=_Ranked)


@dataclass(slots=True)
class _Level:
    now: float = 0.0
    """Virtual time: when what was handed out last has begun."""
    ends: dict[str, float] = field(default_factory=dict)
    """By fairness key, when the last of it ends."""

    def begin(self, key: str, weight: float) -> float:
        """When the next item of a fairness key begins, in virtual time."""
        begins = max(self.now, self.ends.get(key, 0.0))
        self.ends[key] = begins + 1 / weight
        return begins

    def withdraw(self, key: str, place: "_QueuePlace") -> None:
        """The last item of a fairness key is not handed out: it has not had its share."""
        if self.ends.get(key) != place.ends:
            return
        if place.begins > self.now:
            self.ends[key] = place.begins
        else:
            del self.ends[key]

    def tidy_up(self) -> None:
        """Forget the keys that have had their share: they begin now, as new ones do."""
        self.ends = {key: end for key, end in self.ends.items() if end > self.now}


@dataclass(frozen=True, slots=True)
class _QueuePlace:
    """Where an item waits."""

    number: int
    since: datetime
    begins: float
    ends: float


class Backlog(Generic[Item]):
    """What waits, each item once."""

    def __init__(self) -> None:
        self._waiting: dict[Item, _QueuePlace] = {}
        """By item, its number and since when it waits; in the order in which they came."""
        self._heap: list[tuple[int, float, int, Item]] = []
        """Level, virtual time, number and item; what was removed is skipped."""
        self._levels: dict[int, _Level] = {}
        self._weight: Callable[[Rank], float] = _own_weight
        self._numbers = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, item: Item) -> bool:
        return item in self._waiting

    def __iter__(self) -> Iterator[Item]:
        return iter(self._waiting)

    @property
    def oldest(self) -> datetime | None:
        """Since when the item that has waited longest waits; None if none does."""
        return next((place.since for place in self._waiting.values()), None)

    def put(self, item: Item, time: datetime) -> None:
        """Add an item, unless it waits already."""
        if item in self._waiting:
            return
        self._numbers += 1
        level = self._levels.setdefault(item.rank.level, _Level())
        begins = level.begin(item.rank.fairness_key, self._weight(item.rank))
        self._waiting[item] = _QueuePlace(self._numbers, time, begins, level.ends[item.rank.fairness_key])
        heapq.heappush(self._heap, (item.rank.level, begins, self._numbers, item))
        if len(level.ends) > 2 * len(self._waiting) + _SLACK:
            level.tidy_up()

    def remove(self, item: Item) -> None:
        """Take an item out, if it waits."""
        place = self._waiting.pop(item, None)
        if place is not None:
            self._levels[item.rank.level].withdraw(item.rank.fairness_key, place)
        if len(self._heap) > 2 * len(self._waiting) + _SLACK:
            self._heap = [entry for entry in self._heap if self._is_valid(entry)]
            heapq.heapify(self._heap)

    def set_weights(self, weight: Callable[[Rank], float]) -> None:
        """Set what weighs fairness keys; what waits is put in order again by it."""
        if weight == self._weight:
            return
        self._weight = weight
        waiting, self._waiting = self._waiting, {}
        self._heap.clear()
        self._levels.clear()
        for item, place in waiting.items():
            self.put(item, place.since)

    @property
    def first(self) -> Item:
        """The item whose turn it is.

        Raises:
            IndexError: nothing waits.
        """
        while not self._is_valid(self._heap[0]):
            heapq.heappop(self._heap)
        return self._heap[0][3]

    def pop(self) -> Item:
        """Take out the item whose turn it is.

        Raises:
            IndexError: nothing waits.
        """
        item = self.first
        level, begins, _, _ = heapq.heappop(self._heap)
        self._levels[level].now = begins
        del self._waiting[item]
        if not self._waiting:
            self._heap.clear()
            self._levels.clear()
        return item

    def _is_valid(self, entry: tuple[int, float, int, Item]) -> bool:
        number, item = entry[2:]
        place = self._waiting.get(item)
        return place is not None and place.number == number
