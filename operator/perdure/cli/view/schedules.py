"""Schedules, as people and programs read them."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from rich.text import Text

from perdure.api.fields import format_time
from perdure.cli.view import text
from perdure.cli.view.page import Page
from perdure.schedule.times import Due

Object = dict[str, Any]


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


def table(schedules: Sequence[Object], page: Page, *, namespaces: bool = False) -> list[Text]:
    """Schedules, a line for each; the first line is the heading."""
    heading = ["NAME", "SPEC", "ZONE", "STATE", "LAST", "NEXT", "ACTIVE"]
    rows = [heading, *(_cells(schedule, page) for schedule in schedules)]
    if namespaces:
        rows = [
            ["NAMESPACE", *heading],
            *([s["metadata"]["namespace"], *r] for s, r in zip(schedules, rows[1:], strict=True)),
        ]
    widths = [max(len(row[index]) for row in rows) for index in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return [Text(lines[0], style="dim"), *map(Text, lines[1:])]


def _cells(schedule: Object, page: Page) -> list[str]:
    status = schedule.get("status") or {}
    spec = status.get("spec") or {}
    upcoming = status.get("nextScheduledTimes") or [None]
    cells = [
        schedule["metadata"]["name"],
        spec.get("summary", ""),
        spec.get("timeZone", ""),
        state_of(schedule),
        _near(status.get("lastScheduledTime"), page),
        _near(upcoming[0], page),
        str(status.get("active", 0)),
    ]
    return [text.one_line(cell) or page.glyphs.dash for cell in cells]


def state_of(schedule: Object) -> str:
    """Whether a schedule runs; if not, why, in one word."""
    conditions = {each["type"]: each for each in (schedule.get("status") or {}).get("conditions") or ()}
    for kind, wanted in (("Ready", "False"), ("Paused", "True")):
        if conditions.get(kind, {}).get("status") == wanted:
            return str(conditions[kind]["reason"])
    return "Running" if conditions else "Pending"


def description(schedule: Object, page: Page) -> list[Text]:
    """Everything about a schedule that matters to people."""
    status, meta = schedule.get("status") or {}, schedule["metadata"]
    spec, counts = status.get("spec") or {}, status.get("counts") or {}
    given = schedule["spec"]
    lines = [
        f"{meta['name']}  {state_of(schedule)}",
        f"  when      {spec.get('summary', '')}  ({spec.get('timeZone', '')})",
        f"  overlap   {given.get('overlapPolicy', 'Skip')}, catch-up window {given.get('catchupWindow', '1m')}",
    ]
    if "remainingActions" in status:
        lines.append(f"  left      {status['remainingActions']} actions")
    lines += [
        f"  {condition['type'].lower():<9} {text.one_line(condition['message'])}"
        for condition in status.get("conditions") or ()
        if condition.get("message")
    ]
    so_far = {
        "started": "actions",
        "missed": "missedCatchupWindow",
        "skipped": "overlapSkipped",
        "dropped": "bufferDropped",
    }
    lines.append("  so far    " + ", ".join(f"{counts.get(key, 0)} {word}" for word, key in so_far.items()))
    if status.get("bufferSize"):
        lines.append(f"  waiting   {status['bufferSize']}")
    lines += ["", "Next"] + [f"  {time}  {_near(time, page)}" for time in status.get("nextScheduledTimes") or ["-"]]
    lines += ["", "Last"]
    for action in reversed(status.get("recentActions") or []):
        time = action.get("scheduledTime") or action["actualTime"]
        lines.append(f"  {time}  {action.get('status', ''):<10}  {action['workflowRun']}")
    if status.get("lastFailure"):
        lines += ["", f"Last failure: {text.one_line(status['lastFailure'].get('message', ''))}"]
    return [Text(line) for line in lines]


def _near(time: str | None, page: Page) -> str:
    if time is None or time == "-":
        return ""
    return page.near(datetime.fromisoformat(time))
