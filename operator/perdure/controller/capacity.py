"""Whether this process takes new runs now: the open runs of their namespace, and the memory of its container.

A run that is not taken waits, with a condition that says why, and starts when there is room; nothing is stopped or killed. Runs
that continue what is open are always taken: children, the next run of a chain, and the run of a reset.

Several operators count the same runs, and each starts its own, so a namespace can exceed its limit by the runs that start at the
same moment.
"""

import ctypes
import gc
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from perdure.api.reasons import ConditionReason
from perdure.controller.directory import Directory
from perdure.controller.queue import Key, KeyedQueue, RunKey
from perdure.kube.clock import now as wall_clock
from perdure.observe import metrics

_LOOK_AGAIN: Final = timedelta(minutes=5)
"""When a run that waits for another one to close looks again, in case it was not told."""
_MEMORY_AGAIN: Final = timedelta(seconds=10)
"""When a run that waits for memory looks again."""
_EACH: Final = timedelta(milliseconds=20)
"""By how much later for each other run that waits for memory, so that not all begin at the same moment."""
_READ_EVERY: Final = timedelta(seconds=1)
_RETURN_EVERY: Final = timedelta(minutes=1)
"""How often freed memory is returned to the system while it is short: to look for it stops everything else for up to a second."""
_CGROUP: Final = Path("/sys/fs/cgroup")
_FORMS: Final = (
    ("memory.max", "memory.current", "memory.stat", "inactive_file"),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat", "total_inactive_file"),
)
"""The files of cgroup v2 and v1: limit, use, and statistics, with the name of the number of bytes of cached files."""
_UNLIMITED: Final = 2**60
"""cgroup v1 writes the absence of a limit as the largest number of pages."""


def no_limit() -> float:
    """Return 0: the memory of this process has no limit."""
    return 0.0


def share_of_memory(root: Path = _CGROUP) -> float:
    """The share of the memory limit of its container that this process uses, without cached files; 0 without a limit.

    Args:
        root: Where the control group of the container is mounted.
    """
    for limit, used, stat, cached in _FORMS:
        with suppress(OSError, ValueError, KeyError):
            most = (root / limit).read_text(encoding="ascii").strip()
            if most == "max" or int(most) >= _UNLIMITED:
                return 0.0
            rows = (root / stat).read_text(encoding="ascii").split("\n")
            files = dict(row.split() for row in rows if row)[cached]
            return (int((root / used).read_text(encoding="ascii")) - int(files)) / int(most)
    return 0.0


@dataclass(frozen=True, slots=True)
class CapacitySettings:
    """What limits the number of runs."""

    open_runs: int = 20_000
    """The most open runs of a namespace; 0: no limit."""
    memory: float = 0.9
    """The share of the memory limit beyond which no new run starts."""
    memory_in_use: Callable[[], float] = no_limit
    """Returns the share of the memory limit that is in use."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a new run cannot start now."""

    reason: ConditionReason
    message: str
    """As the end of a sentence, with what to do."""


class Capacity:
    """Decides whether new runs start, and has those that wait."""

    def __init__(self, directory: Directory, queue: KeyedQueue[Key], settings: CapacitySettings | None = None) -> None:
        """Create it without waiting runs.

        Args:
            directory: The directory of all runs, for the number of open ones.
            queue: The queue that starts runs.
            settings: The limits; None for the defaults.
        """
        self._directory = directory
        self._queue = queue
        self._settings = settings or CapacitySettings()
        self._waiting: defaultdict[str, dict[RunKey, None]] = defaultdict(dict)
        """The runs of each namespace that wait for another one to close, in order."""
        self._first: defaultdict[str, dict[RunKey, None]] = defaultdict(dict)
        """Those before them: they were woken, and found no room."""
        self._woken: set[RunKey] = set()
        """Runs that were woken, and have not looked yet."""
        self._for_memory: set[RunKey] = set()
        self._starting: Counter[str] = Counter()
        """How many runs of each namespace are being started, which the directory does not count yet."""
        metrics.OPEN_RUNS_LIMIT.set(self._settings.open_runs)
        self._memory = 0.0
        self._read: datetime | None = None
        self._returned: datetime | None = None
        """When freed memory was returned to the system last."""

    def refusal(self, namespace: str) -> Refusal | None:
        """Why a new run of a namespace cannot start now; None if it can."""
        limit = self._settings.open_runs
        if 0 < limit <= self._directory.open_runs(namespace) + self._starting[namespace]:
            message = (
                f"the namespace has {limit} open runs, the most that a namespace may have (`openRuns.maxPerNamespace`)"
            )
            return Refusal(ConditionReason.TOO_MANY_OPEN_RUNS, message)
        if self._memory_in_use() > self._settings.memory:
            message = (
                f"the operator uses more than {self._settings.memory:.0%} of its memory limit "
                "(`resources.limits.memory`); raise it, or run more operators"
            )
            return Refusal(ConditionReason.MEMORY_SHORTAGE, message)
        return None

    def wait(self, key: RunKey, refusal: Refusal, now: datetime) -> datetime:
        """Note a run that waits, and return when it must look again, regardless of events.

        One that waits for another run to close, and finds no room when it looks again, keeps its place.
        """
        if refusal.reason is ConditionReason.TOO_MANY_OPEN_RUNS:
            line = self._first if key in self._woken or key in self._first.get(key.namespace, ()) else self._waiting
            self._woken.discard(key)
            self._for_memory.discard(key)
            line[key.namespace][key] = None
            self._show()
            return now + _LOOK_AGAIN
        self.leave(key)
        self._for_memory.add(key)
        self._show()
        return now + _MEMORY_AGAIN + len(self._for_memory) * _EACH

    @contextmanager
    def start(self, key: RunKey) -> Iterator[None]:
        """Count a run as open while it is being started."""
        self.leave(key)
        self._starting[key.namespace] += 1
        try:
            yield
        finally:
            self._starting[key.namespace] -= 1
            if not self._starting[key.namespace]:
                del self._starting[key.namespace]

    def leave(self, key: RunKey) -> None:
        """Note that a run does not wait."""
        for line in (self._first, self._waiting):
            if key.namespace in line:
                line[key.namespace].pop(key, None)
                if not line[key.namespace]:
                    del line[key.namespace]
        self._woken.discard(key)
        self._for_memory.discard(key)
        self._show()

    def release(self, namespace: str) -> None:
        """Wake the run of a namespace that has waited the longest, because another one has closed."""
        key = next((key for line in (self._first, self._waiting) for key in line.get(namespace, ())), None)
        if key is not None:
            self.leave(key)
            self._woken.add(key)
            self._queue.wake(key)

    def _show(self) -> None:
        waiting = sum(len(keys) for line in (self._first, self._waiting) for keys in line.values())
        metrics.RUNS_WAITING_FOR_CAPACITY.labels("OpenRuns").set(waiting)
        metrics.RUNS_WAITING_FOR_CAPACITY.labels("Memory").set(len(self._for_memory))

    def _memory_in_use(self) -> float:
        now = wall_clock()
        if self._read is None or abs(now - self._read) >= _READ_EVERY:
            self._read, self._memory = now, self._settings.memory_in_use()
            recently = self._returned is not None and abs(now - self._returned) < _RETURN_EVERY
            if self._memory > self._settings.memory and not recently:
                self._returned = now
                _return_memory()
                self._memory = self._settings.memory_in_use()
        return self._memory


def _return_memory() -> None:
    """Return to the system what this process has freed: otherwise its container would use what it once used, for ever."""
    gc.collect()
    with suppress(AttributeError, OSError):  # only glibc has it
        ctypes.CDLL(None).malloc_trim(0)
