"""Schedules, as people and programs read them."""

from collections.abc import Sequence
from datetime import datetime
from zoneinfo import ZoneInfo

from rich.text import Text

from perdure.api.fields import format_time
from perdure.schedule.times import Due


def times_json(dues: Sequence[Due]) -> list[dict[str, str]]:
    """Times, for programs: RFC 3339, UTC."""
    return [{"nominal": format_time(due.nominal), "actual": format_time(due.actual)} for due in dues]


def times_table(dues: Sequence[Due], zone: str) -> list[Text]:
    """Times, a line for each.

    Args:
        dues: The times.
        zone: Name of the zone in which they are shown beside UTC; empty for none.
    """
    rows = [("NOMINAL", "ACTUAL", zone.upper() if zone not in {"", "UTC"} else "")]
    for due in dues:
        rows.append(
            (format_time(due.nominal), format_time(due.actual), _local(due.nominal, zone) if rows[0][2] else "")
        )
    widths = [max(len(row[index]) for row in rows) for index in range(3)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return [Text(lines[0], style="dim"), *map(Text, lines[1:])]


def _local(time: datetime, zone: str) -> str:
    return time.astimezone(ZoneInfo(zone)).strftime("%a %Y-%m-%d %H:%M:%S %z")
