"""Selects the finished runs of a namespace to remove early, so that they do not fill etcd. Pure."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar

import orjson

from perdure.engine.payloads import referred_to
from perdure.runtime import status_encoding
from perdure.runtime.segments import size_of

MIB: Final = 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits on the finished runs that each namespace keeps; 0 means no limit."""

    runs: int = 10_000
    """Finished runs. About a day of one run every nine seconds, and at most 10 MiB of the operator's memory."""
    size: int = 256 * MIB
    """Bytes of finished runs and their HistorySegments. An eighth of etcd's default quota of 2 GiB."""

    def exceeded_by(self, tally: "Tally") -> str:
        """Return why runs must be removed; empty if the limits are not exceeded."""
        if 0 < self.runs < tally.runs:
            return f"the namespace has {tally.runs} finished runs, and the limit is {self.runs}"
        if 0 < self.size < tally.size:
            return f"its finished runs take {tally.size / MIB:.0f} MiB, and the limit is {self.size / MIB:.0f} MiB"
        return ""


@dataclass(slots=True)
class Tally:
    """Number and total size of the finished runs of a namespace."""

    runs: int = 0
    size: int = 0
    """The total size in bytes."""

    def add(self, size: int) -> None:
        """Add a run."""
        self.runs += 1
        self.size += size

    def remove(self, size: int) -> None:
        """Remove a run."""
        self.runs -= 1
        self.size -= size


class Finished(Protocol):
    """A run that has finished."""

    @property
    def uid(self) -> str:
        """The UID of the run."""
        ...

    @property
    def closed(self) -> str:
        """The time at which the run finished, RFC 3339 in UTC."""
        ...

    @property
    def size(self) -> int:
        """Return the size of the run in bytes, with its HistorySegments."""
        ...


_Run = TypeVar("_Run", bound=Finished)


def surplus(finished: Iterable[_Run], limits: Limits, removable: Callable[[_Run], bool]) -> list[_Run]:
    """Return the runs to remove, the oldest first, until the rest is within the limits.

    Args:
        finished: All finished runs of a namespace.
        limits: The limits of the namespace.
        removable: Whether a run may be removed. A run that may not be removed still counts, so younger ones are removed instead.
    """
    oldest_first = sorted(finished, key=lambda run: (run.closed, run.uid))
    tally = Tally(len(oldest_first), sum(run.size for run in oldest_first))
    removed: list[_Run] = []
    for run in oldest_first:
        if not limits.exceeded_by(tally):
            break
        if removable(run):
            removed.append(run)
            tally.remove(run.size)
    return removed


def stored_size(run: dict[str, Any]) -> int:
    """The size of a run in bytes: its object as JSON, and the events and large payloads of its history."""
    history = (run.get("status") or {}).get("history") or {}
    total = int(history.get("sizeBytes") or 0)
    try:
        tail = history.get("events") or ()
        sealed = max(0, total - size_of(tail)) if history.get("segments") else 0
        stored = {**run, "status": status_encoding.encode(run["status"])} if run.get("status") else run
        return len(orjson.dumps(stored)) + (sealed or sum(referred_to(orjson.dumps(tail)).values()))
    except (TypeError, ValueError):  # nested too deeply, or a number of more than 64 bits
        return total
