"""What a task queue dispatches next, and when: priorities, fair shares, and rate limits. Pure: times are arguments.

The order is Temporal's (task queue priority and fairness): level 1 comes before level 2, and so on. Within a level, each
fairness key gets a share in proportion to its weight, regardless of the number of waiting tasks of other keys. This uses
start-time fair queuing (Goyal, Vin, Cheng: SIGCOMM 1996).

The limits are those of Temporal's server (service/matching/ratelimit_manager.go): the rate from `UpdateTaskQueueConfig` overrides
the rate from workers, and both allow bursts of one second's worth.
"""

import heapq
import math
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Annotated, Any, Generic, Protocol, TypeAlias, TypeVar

import msgspec
from temporalio.api.common.v1 import Priority

from perdure.api.stored import MessageStruct, StoredStruct
from perdure.frontend.messages import payloads as data
from perdure.frontend.messages.values import Time, UnfitError
from perdure.frontend.registry import EntryKind
from perdure.runtime.chains import inherited_priority

LONGEST_FAIRNESS_KEY = 64
"""Maximum length in bytes."""

LEVELS = 5
"""Priorities range from 1, the most urgent, to this (temporal.api.common.v1.Priority)."""
DEFAULT_LEVEL = 3
MIN_WEIGHT, MAX_WEIGHT = 0.001, 1000.0


class Rank(MessageStruct, frozen=True):
    """The priority level, fairness key, and weight of a task."""

    level: int = DEFAULT_LEVEL
    fairness_key: str = ""
    weight: float = 1.0

    @classmethod
    def of(cls, priority_key: int, fairness_key: str, weight: float) -> "Rank":
        """The rank for a priority; zero and empty mean the default, and values out of range are clamped."""
        level = min(max(priority_key, 1), LEVELS) if priority_key else DEFAULT_LEVEL
        return cls(level, fairness_key, min(max(weight, MIN_WEIGHT), MAX_WEIGHT) if weight else 1.0)


ORDINARY = Rank()


# Priorities in messages, stored as JSON of temporal.api.common.v1.Priority


def requested_priority(message: Any) -> Any:
    """The priority in a request or a command as JSON; None if it has none.

    Args:
        message: A message with a field `priority`.

    Raises:
        UnfitError: The priority is not valid (the messages are Temporal's: common/priorities).
    """
    if not message.HasField("priority"):
        return None
    priority: Priority = message.priority
    if priority.priority_key < 0:
        raise UnfitError("priority key can't be negative")
    if len(priority.fairness_key.encode()) > LONGEST_FAIRNESS_KEY:
        raise UnfitError("fairness key length exceeds limit")
    if not priority.fairness_weight >= 0:
        raise UnfitError("must be greater than zero")
    return data.message_to_json(priority)


def effective_priority(of_workflow: Any, of_activity: Any) -> Priority:
    """The priority of an activity: each unset field comes from its workflow."""
    merged: Priority = data.message_from_json(inherited_priority(of_workflow, of_activity) or {}, Priority)
    return merged


def rank_of(of_workflow: Any, of_activity: Any = None) -> Rank:
    """The rank of a task in its queue."""
    if of_workflow is None and of_activity is None:
        return ORDINARY
    priority = effective_priority(of_workflow, of_activity)
    return Rank.of(priority.priority_key, priority.fairness_key, priority.fairness_weight)


# Settings

_PerSecond: TypeAlias = Annotated[float, msgspec.Meta(ge=0)]
_Weight: TypeAlias = Annotated[float, msgspec.Meta(gt=0)]


class RateLimit(StoredStruct, frozen=True, kw_only=True):
    """A limit, and the client that set it."""

    requests_per_second: _PerSecond | None = None
    """The limit. Zero: nothing is dispatched; None: the limit was removed."""
    reason: str = ""
    update_identity: str = ""
    update_time: Time


class QueueSettings(StoredStruct, frozen=True, kw_only=True):
    """The settings of a task queue for one kind of task."""

    queue_rate_limit: RateLimit | None = None
    fairness_keys_rate_limit_default: RateLimit | None = None
    """The limit of each fairness key, multiplied by its weight."""
    fairness_weight_overrides: dict[str, _Weight] = {}

    @property
    def rate(self) -> float | None:
        """Tasks per second of the whole queue; None: no limit."""
        return None if self.queue_rate_limit is None else self.queue_rate_limit.requests_per_second

    @property
    def key_rate(self) -> float | None:
        """Tasks per second of a fairness key whose weight is 1; None: no limit."""
        limit = self.fairness_keys_rate_limit_default
        return None if limit is None else limit.requests_per_second

    def weight(self, rank: Rank) -> float:
        """Return the weight of a fairness key: from these settings or, if not set, from the task."""
        override = self.fairness_weight_overrides.get(rank.fairness_key)
        return rank.weight if override is None else min(max(override, MIN_WEIGHT), MAX_WEIGHT)


NO_SETTINGS = QueueSettings()
TaskQueueSettings: TypeAlias = dict[str, QueueSettings]
"""The settings of a task queue by kind of task, stored as JSON under its key in the ConfigMap."""
TASK_QUEUES = EntryKind(
    type=TaskQueueSettings,
    noun="task queue",
    config_map="perdure-task-queues",
    fresh=timedelta(minutes=1),
)
"""These are rarely read again, because few namespaces have them, and changes through the frontend apply immediately."""


# The order

_SLACK = 64
"""The backlog is compacted when it has this many entries more than twice the number in use."""


def _weight_of(rank: Rank) -> float:
    return rank.weight


class _Ranked(Hashable, Protocol):
    @property
    def rank(self) -> Rank: ...


Item = TypeVar("Item", bound=_Ranked)


@dataclass(slots=True)
class _Level:
    now: float = 0.0
    """Virtual time: the start of the item that was dispatched last."""
    ends: dict[str, float] = field(default_factory=dict)
    """The virtual time at which the last item of each fairness key ends."""

    def begin(self, key: str, weight: float) -> float:
        """The start of the next item of a fairness key, in virtual time."""
        begins = max(self.now, self.ends.get(key, 0.0))
        self.ends[key] = begins + 1 / weight
        return begins

    def withdraw(self, key: str, place: "_QueuePlace") -> None:
        """Return the share of the last item of a fairness key, which is not dispatched."""
        if self.ends.get(key) != place.ends:
            return
        if place.begins > self.now:
            self.ends[key] = place.begins
        else:
            del self.ends[key]

    def tidy_up(self) -> None:
        """Drop the keys that have used their share, so that they start now, like new keys."""
        self.ends = {key: end for key, end in self.ends.items() if end > self.now}


@dataclass(frozen=True, slots=True)
class _QueuePlace:
    """The position of an item."""

    number: int
    since: datetime
    begins: float
    ends: float


class Backlog(Generic[Item]):
    """The waiting items, each of them once."""

    def __init__(self) -> None:
        self._waiting: dict[Item, _QueuePlace] = {}
        """The number of each item and when it was added, in order of arrival."""
        self._heap: list[tuple[int, float, int, Item]] = []
        """Level, virtual time, number, and item; removed items are skipped."""
        self._levels: dict[int, _Level] = {}
        self._weight: Callable[[Rank], float] = _weight_of
        self._numbers = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, item: Item) -> bool:
        return item in self._waiting

    def __iter__(self) -> Iterator[Item]:
        return iter(self._waiting)

    @property
    def oldest(self) -> datetime | None:
        """When the oldest waiting item was added; None if no item waits."""
        return next((place.since for place in self._waiting.values()), None)

    def since(self, item: Item) -> datetime:
        """When a waiting item was added."""
        return self._waiting[item].since

    def put(self, item: Item, time: datetime) -> None:
        """Add an item, unless it already waits."""
        if item in self._waiting:
            return
        self._numbers += 1
        level = self._levels.setdefault(item.rank.level, _Level())
        begins = level.begin(item.rank.fairness_key, self._weight(item.rank))
        self._waiting[item] = _QueuePlace(self._numbers, time, begins, level.ends[item.rank.fairness_key])
        heapq.heappush(self._heap, (item.rank.level, begins, self._numbers, item))
        if len(level.ends) > 2 * len(self._waiting) + _SLACK:
            level.tidy_up()

    def remove(self, item: Item) -> datetime | None:
        """Remove an item, if it waits; return when it was added."""
        place = self._waiting.pop(item, None)
        if place is not None:
            self._levels[item.rank.level].withdraw(item.rank.fairness_key, place)
        if len(self._heap) > 2 * len(self._waiting) + _SLACK:
            self._heap = [entry for entry in self._heap if self._is_valid(entry)]
            heapq.heapify(self._heap)
        return None if place is None else place.since

    def set_weights(self, weight: Callable[[Rank], float]) -> None:
        """Set the function that weighs fairness keys, and reorder the waiting items."""
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
        """The next item.

        Raises:
            IndexError: Nothing waits.
        """
        while not self._is_valid(self._heap[0]):
            heapq.heappop(self._heap)
        return self._heap[0][3]

    def pop(self) -> Item:
        """Remove and return the next item.

        Raises:
            IndexError: Nothing waits.
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


# The limits. Times are in seconds of one clock

_MANY_KEYS = 2_000
"""Number of fairness keys whose rate is tracked before unused ones are dropped (matching.fairnessKeyRateLimitCacheSize)."""


@dataclass(slots=True)
class Throttle:
    """Allows a number per second, and a burst after a pause (generic cell rate algorithm)."""

    per_second: float
    at_once: float | None = None
    """The burst after a pause; None: the number per second."""
    _due: float = -math.inf

    def wait(self, time: float) -> float:
        """Return the seconds from a time until the next item may pass; infinite if the rate is zero."""
        return max(0.0, self._due - time) if self.per_second > 0 else math.inf

    def count(self, time: float) -> None:
        """Count an item that passes."""
        self._due = max(self._due, time - self._burst) + 1 / self.per_second

    @property
    def _burst(self) -> float:
        """Seconds of unused rate that may accumulate, without the one for the current item."""
        at_once = self.per_second if self.at_once is None else self.at_once
        return max(0.0, at_once - 1) / self.per_second


@dataclass(slots=True)
class RateLimits:
    """The limits of one task queue, shared by the workers of all its versions."""

    settings: QueueSettings = NO_SETTINGS
    requested_rate: float | None = None
    """Tasks per second from the last poll; None: no limit."""
    _queue: Throttle | None = None
    _keys: dict[str, Throttle] = field(default_factory=dict)
    """The throttles by fairness key."""

    def __post_init__(self) -> None:
        self._set_rate()

    @property
    def per_second(self) -> float | None:
        """Maximum number of tasks that the queue dispatches per second; None: no limit."""
        return self.requested_rate if self.settings.rate is None else self.settings.rate

    def configure(self, settings: QueueSettings) -> None:
        """Apply the stored settings from `UpdateTaskQueueConfig`."""
        if settings != self.settings:
            self.settings = settings
            self._keys.clear()
            self._set_rate()

    def request_rate(self, per_second: float | None) -> None:
        """Apply the rate that a worker requests. The rate of the last poll is used."""
        self.requested_rate = per_second
        self._set_rate()

    def wait(self, time: float, rank: Rank) -> float:
        """Return the seconds from a time until a task of a rank may be dispatched; infinite: never at this rate."""
        queue = self._queue.wait(time) if self._queue is not None else 0.0
        key = self._key(time, rank)
        return queue if key is None else max(queue, key.wait(time))

    def count(self, time: float, rank: Rank) -> None:
        """Count a dispatched task of a rank."""
        if self._queue is not None:
            self._queue.count(time)
        key = self._key(time, rank)
        if key is not None:
            key.count(time)

    def _set_rate(self) -> None:
        rate = self.per_second
        if rate != (self._queue.per_second if self._queue is not None else None):
            self._queue = None if rate is None else Throttle(rate)

    def _key(self, time: float, rank: Rank) -> Throttle | None:
        if self.settings.key_rate is None:
            return None
        key = rank.fairness_key
        if key not in self._keys and len(self._keys) >= _MANY_KEYS:
            self._keys = {each: throttle for each, throttle in self._keys.items() if throttle.wait(time)}
        return self._keys.setdefault(key, Throttle(self.settings.key_rate * self.settings.weight(rank)))
