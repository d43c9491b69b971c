"""Rate limits and fairness weights of task queues. Pure: times are arguments, in seconds of one clock.

The rules are those of Temporal's server (service/matching/ratelimit_manager.go): the rate from `UpdateTaskQueueConfig` overrides
the rate from workers, and both allow bursts of one second's worth. So are the checks of settings, with their messages
(service/frontend/validators.go, service/matching/fairness_util.go).
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Annotated, TypeAlias

import msgspec
from msgspec.structs import replace

from perdure.api.stored import StoredStruct
from perdure.frontend.errors import invalid
from perdure.frontend.matching.backlog import LONGEST_FAIRNESS_KEY, MAX_WEIGHT, MIN_WEIGHT, Rank
from perdure.frontend.messages.values import Time
from perdure.frontend.registry import EntryKind

_MANY_KEYS = 2_000
"""Number of fairness keys whose rate is tracked before unused ones are dropped (matching.fairnessKeyRateLimitCacheSize)."""

MAX_WEIGHTS = 1_000
"""Maximum number of fairness weights of a task queue (matching.maxFairnessKeyWeightOverrides)."""
MAX_REASON = 1_000
"""Maximum length of the reason for a limit, in characters."""

_Rate: TypeAlias = Annotated[float, msgspec.Meta(ge=0)]
_Weight: TypeAlias = Annotated[float, msgspec.Meta(gt=0)]


class RateLimit(StoredStruct, frozen=True, kw_only=True):
    """A limit, and the client that set it."""

    requests_per_second: _Rate | None = None
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


def check_limit(limit: RateLimit | None, field: str, noun: str, *, workflows: bool) -> None:
    """Check a limit that a request sets.

    Args:
        limit: The limit; None: the request does not change it.
        field: The name of the limit in messages about its values.
        noun: The name of the limit in other messages.
        workflows: Whether the task queue dispatches workflow tasks.

    Raises:
        RpcError: The limit is negative or not allowed for this kind of task, or its reason is too long.
    """
    if limit is None or limit.requests_per_second is None:
        return
    if workflows:
        raise invalid(f"Setting {noun} on workflow task queues is not allowed.")
    if not limit.requests_per_second >= 0:
        raise invalid(f"RequestsPerSecond for {field} rate limit must be non-negative.")
    if len(limit.reason) > MAX_REASON:
        raise invalid(f"{field}.Reason field too long (max {MAX_REASON} characters).")


def check_weights(weights: Mapping[str, float], removed: Collection[str]) -> None:
    """Check the fairness weights that a request sets and removes.

    Raises:
        RpcError: There are too many, a key is empty, too long or in both, or a weight is not positive and finite.
    """
    number = len(weights) + len(removed)
    if number > MAX_WEIGHTS:
        raise invalid(f"too many fairness weight overrides in request: got {number}, maximum {MAX_WEIGHTS}")
    for key in (*weights, *removed):
        if not key:
            raise invalid("fairness weight override key must not be empty")
        if len(key.encode()) > LONGEST_FAIRNESS_KEY:
            raise invalid("fairness key length exceeds limit")
        if key in weights and not weights[key] > 0:
            raise invalid(f'invalid fairness weight weight for key "{key}": must be greater than zero')
        if weights.get(key) == math.inf:
            raise invalid(f'invalid fairness weight for key "{key}": must be finite')
    for key in removed:
        if key in weights:
            raise invalid(f'fairness weight override key "{key}" present in both set and unset lists')


def with_weights(settings: QueueSettings, weights: Mapping[str, float], removed: Collection[str]) -> QueueSettings:
    """Return settings with other fairness weights.

    Raises:
        RpcError: There would be too many.
    """
    merged = {**settings.fairness_weight_overrides, **weights}
    for key in removed:
        merged.pop(key, None)
    if len(merged) > MAX_WEIGHTS:
        raise invalid(f"fairness weight overrides update rejected: the maximum of {MAX_WEIGHTS} overrides is exceeded")
    return replace(settings, fairness_weight_overrides=merged)


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
