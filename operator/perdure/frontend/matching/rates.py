"""Rate limits of task queues. Pure: times are arguments, in seconds of one clock.

The rules are those of Temporal's server (service/matching/ratelimit_manager.go): the rate from `UpdateTaskQueueConfig` overrides
the rate from workers, and both allow bursts of one second's worth.
"""

import math
from dataclasses import dataclass, field

from perdure.frontend.matching.backlog import Rank
from perdure.frontend.matching.settings import NO_SETTINGS, QueueSettings

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
    _whole: Throttle | None = None
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
        whole = self._whole.wait(time) if self._whole is not None else 0.0
        key = self._key(time, rank)
        return whole if key is None else max(whole, key.wait(time))

    def count(self, time: float, rank: Rank) -> None:
        """Count a dispatched task of a rank."""
        if self._whole is not None:
            self._whole.count(time)
        key = self._key(time, rank)
        if key is not None:
            key.count(time)

    def _set_rate(self) -> None:
        rate = self.per_second
        if rate != (self._whole.per_second if self._whole is not None else None):
            self._whole = None if rate is None else Throttle(rate)

    def _key(self, time: float, rank: Rank) -> Throttle | None:
        if self.settings.key_rate is None:
            return None
        key = rank.fairness_key
        if key not in self._keys and len(self._keys) >= _MANY_KEYS:
            self._keys = {each: throttle for each, throttle in self._keys.items() if throttle.wait(time)}
        return self._keys.setdefault(key, Throttle(self.settings.key_rate * self.settings.weight(rank)))
