"""Select the next entry of a scenario, and derive the behavior of an attempt from it."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar

from perdure.api.times import format_decimal_duration
from perdure.simulation.scenario import Reply, ScriptedAttempt, ScriptedChild

_Entry = TypeVar("_Entry", bound=Reply)


class ScriptedEntries(Generic[_Entry]):
    """The entries of a scenario by name, and the number of entries that were used.

    They are counted for each name and input: a retry or a later call with the same input uses the next entry; a call with another
    input starts with the first one.
    """

    def __init__(self, entries: Mapping[str, Sequence[_Entry]]) -> None:
        self._entries = entries
        self._taken: Counter[tuple[str, str]] = Counter()

    def next(self, name: str, given: Any) -> _Entry | None:
        """The entry for the next attempt with a name and an input; None if the scenario has no entry for it."""
        fitting = [e for e in self._entries.get(name, ()) if e.when_input is not None and fits(given, e.when_input)]
        fitting = fitting or [e for e in self._entries.get(name, ()) if e.when_input is None]
        if not fitting:
            return None
        key = name, json.dumps(given, sort_keys=True, default=str)
        self._taken[key] += 1
        return fitting[min(self._taken[key], len(fitting)) - 1]


def fits(given: Any, wanted: Any) -> bool:
    """Whether an input matches an entry: it is equal, or, for objects, equal in the fields that the entry names."""
    if isinstance(wanted, dict) and isinstance(given, dict):
        return all(key in given and fits(given[key], value) for key, value in wanted.items())
    return isinstance(given, bool) == isinstance(wanted, bool) and bool(given == wanted)


@dataclass(frozen=True, slots=True)
class Beats:
    """The heartbeats of an attempt: their interval and their number."""

    start: datetime
    every: timedelta
    count: int | None
    """The number of heartbeats; None: no limit."""
    details: Any = None

    def last(self, now: datetime) -> datetime | None:
        """The time of the last heartbeat so far."""
        number = (now - self.start) // self.every
        if self.count is not None:
            number = min(number, self.count)
        return self.start + number * self.every if number > 0 else None

    def next(self, now: datetime) -> datetime | None:
        """The time of the next heartbeat; None if there is none."""
        number = (now - self.start) // self.every + 1
        return None if self.count is not None and number > self.count else self.start + number * self.every

    def silence(self, timeout: timedelta) -> datetime | None:
        """When the first gap exceeds a heartbeat timeout, if the attempt keeps running."""
        if self.every > timeout or self.count == 0:
            return self.start + timeout
        return None if self.count is None else self.start + self.count * self.every + timeout


def beats(entry: ScriptedAttempt, start: datetime, timeout: timedelta) -> Beats:
    """The heartbeats of an attempt with a heartbeat timeout: as scripted, otherwise in time, or none if it hangs."""
    if entry.heartbeats:
        return Beats(start, entry.heartbeats.every, entry.heartbeats.count, entry.heartbeats.details)
    return Beats(start, timeout, 0 if entry.hang else None)


def exit_code(entry: ScriptedAttempt) -> int:
    """The exit code of an attempt's container."""
    return entry.exit_code if entry.exit_code is not None else 1 if entry.fail else 0


def stand_in(entry: ScriptedChild | None) -> dict[str, Any]:
    """The definition of a Workflow that behaves like an entry for a child; for None, like a child without an entry."""
    takes: dict[str, Any] = {
        "name": "takes",
        "sleep": {"duration": format_decimal_duration(entry.after if entry else timedelta(0))},
    }
    if entry is not None and entry.hang:
        takes = {"name": "hangs", "waitForSignal": {"name": "never"}}
    if entry is not None and entry.fail is not None:
        given = entry.fail.dump()
        failure: dict[str, Any] = {key: given[key] for key in ("details", "nonRetryable") if key in given}
        failure |= {"type": entry.fail.type or "Failed", "message": entry.fail.message or "the scenario lets it fail"}
        ends: dict[str, Any] = {"name": "ends", "fail": failure}
    else:
        ends = {"name": "ends", "return": {"output": entry.output if entry else None}}
    return {"steps": [takes, ends] if entry and (entry.hang or entry.after) else [ends]}
