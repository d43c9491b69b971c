"""The upgrade record: which state version the operators of a release write, and when they move up. Pure.

    all read the new version ─▶ `next` ─── hold-back ───▶ `writes` = the new version
    one reads only an older version ─▶ `writes` = the older version; the hold-back begins again when it is gone

The record is a ConfigMap next to the operators. Each of them reads it, and may write it by compare-and-swap. It has no state
version, because operators of all versions agree by it: what its five entries mean never changes, and others are kept.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final, Self

from perdure.api.labels import UPGRADE_RECORD_LABEL
from perdure.api.state_versions import OLDEST, parse_version
from perdure.api.times import format_time, read_kubernetes_time

_ENTRIES: Final = ("writes", "next", "until", "finish", "release")
_RELEASE: Final = re.compile(r"(\d{1,9})\.(\d{1,9})\.(\d{1,9})(-[0-9A-Za-z.-]+)?", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class UpgradeRecord:
    """The state of an upgrade."""

    writes: int = OLDEST
    """The state version that the operators write."""
    follows: int | None = None
    """The version that they write after the hold-back; None if they write the newest one that all of them read."""
    until: datetime | None = None
    """When the hold-back ends."""
    finish: int = OLDEST
    """The version that `perdure fleet --finish-upgrade` allows before the end of the hold-back. A request for any other
    version than the next one is dropped: it was made before an upgrade or a rollback."""
    release: str = ""
    """The latest release whose operators have worked here: it can read everything; empty if none has recorded itself."""

    @classmethod
    def read(cls, config_map: Mapping[str, Any]) -> Self:
        """Read the ConfigMap. An entry that is not valid counts as missing, which delays an upgrade; valid ones are believed."""
        data = config_map.get("data") or {}
        follows = parse_version(data.get("next"))
        return cls(
            writes=parse_version(data.get("writes")),
            follows=follows if follows > OLDEST else None,
            until=read_kubernetes_time(data.get("until")),
            finish=parse_version(data.get("finish")),
            release=later("", data.get("release") or ""),
        )

    def config_map(self, name: str, found: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The ConfigMap with the record.

        Args:
            name: Its name.
            found: The stored one, whose metadata and unknown entries are kept; None if there is none.
        """
        stored = found or {"metadata": {"name": name, "labels": {UPGRADE_RECORD_LABEL: "true"}}}
        data = {
            **{key: value for key, value in (stored.get("data") or {}).items() if key not in _ENTRIES},
            "writes": str(self.writes),
            "next": None if self.follows is None else str(self.follows),
            "until": None if self.until is None else format_time(self.until),
            "finish": None if self.finish == OLDEST else str(self.finish),
            "release": self.release or None,
        }
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": stored["metadata"],
            "data": {key: value for key, value in data.items() if value is not None},
        }


def advance(
    record: UpgradeRecord | None,
    reads: Collection[int],
    hold_back: timedelta,
    now: datetime,
    *,
    release: str,
    is_new: bool,
) -> UpgradeRecord:
    """The record after a look at the live operators.

    Args:
        record: The record; None if it does not exist.
        reads: The newest version that each of the live operators reads, at least one.
        hold_back: How long all of them must read a version before they write it.
        now: The time.
        release: The release of the operator that looks.
        is_new: Whether nothing is stored that an earlier version could have written or could have to read.
    """
    lowest = min(reads)
    if record is None:
        record = UpgradeRecord(writes=lowest if is_new else OLDEST)
    record = replace(record, release=later(record.release, release))
    finished = UpgradeRecord(writes=lowest, release=record.release)
    if lowest <= record.writes or lowest == record.finish:
        return finished
    until = now + hold_back
    if record.follows == lowest and record.until is not None:
        until = min(until, record.until)  # the earlier one if the hold-back was shortened, or the clock was set back
    return finished if now >= until else replace(record, follows=lowest, until=until, finish=OLDEST)


def later(one: str, other: str) -> str:
    """The later one of two releases, such as `0.2.0`; the first if neither is. Other texts are earlier than all releases."""
    return max(one, other, key=_order)


def _order(release: str) -> tuple[int, int, int, bool]:
    found = _RELEASE.fullmatch(release)
    return (int(found[1]), int(found[2]), int(found[3]), not found[4]) if found else (-1, 0, 0, False)
