"""Formats Schedules for users and for programs."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from itertools import islice
from typing import Any

from pydantic import ValidationError
from rich.text import Text

from perdure.api.kinds.schedule import ScheduleSpec
from perdure.api.times import format_time
from perdure.schedule.calendar import InvalidTimesError
from perdure.schedule.run_manifests import id_of
from perdure.schedule.times import Due, Times
from perdure.view import tables, text
from perdure.view.page import Page

Object = dict[str, Any]

_OCCURRENCES = ("", "first occurrence", "second occurrence")
"""Notes about a wall-clock time that occurs twice."""

_SHOWN = 10
"""Number of times to show for a paused schedule; the same as in the status of an active schedule."""


def times_json(dues: Sequence[Due], times: Times) -> list[dict[str, str]]:
    """Return times for programs: RFC 3339 in UTC, with a note if clocks change.

    Args:
        dues: The times.
        times: The times of the schedule.
    """
    found = []
    for due in dues:
        row = {"nominal": format_time(due.nominal), "actual": format_time(due.actual)}
        note = _note(due, times)
        found.append({**row, "note": note} if note else row)
    return found


def times_table(dues: Sequence[Due], times: Times) -> list[Text]:
    """Format times, one line each.

    Args:
        dues: The times.
        times: The times of the schedule; they are also shown in its time zone.
    """
    zone = times.zone
    shown = zone.name != "UTC"
    notes = [_note(due, times) for due in dues]
    rows = [["NOMINAL", "ACTUAL", (zone.name or "local").upper() if shown else "", "NOTE" if any(notes) else ""]]
    for due, note in zip(dues, notes, strict=True):
        local = _in_zone(due.nominal, zone.rules) if shown else ""
        rows.append([format_time(due.nominal), format_time(due.actual), local, note])
    widths = [max(len(row[index]) for row in rows) for index in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return [Text(lines[0], style="dim"), *map(Text, lines[1:])]


def _note(due: Due, times: Times) -> str:
    """Return the note about a time on a day on which clocks change."""
    skipped = times.replaces(due.nominal)
    if skipped is not None:
        return f"{skipped:%H:%M:%S} does not exist"
    return _OCCURRENCES[times.occurrence(due.nominal)]


@dataclass(frozen=True, slots=True)
class _Phase:
    """The phase of a run, from its status."""

    uid: str
    phase: str
    reason: str
    message: str


_Phases = Mapping[tuple[str, str], _Phase]
"""The phases of runs, by namespace and name."""


def table(
    schedules: Sequence[Object],
    page: Page,
    runs: Sequence[Object] = (),
    *,
    namespaces: bool = False,
    wide: bool = False,
) -> list[Text]:
    """Format schedules, one line each; the first line is the heading.

    Args:
        schedules: The schedules.
        page: The page for the output.
        runs: The runs of the schedules that the user may read.
        namespaces: Whether their namespaces are shown.
        wide: Whether the IDs are shown that Temporal clients use.
    """
    heading = ["NAME", "SPEC", "ZONE", "STATE", "LAST", "NEXT", "ACTIVE", *(("ID",) if wide else ())]
    phases = _phases(runs)
    rows = [[*_cells(schedule, phases, page), *((id_of(schedule),) if wide else ())] for schedule in schedules]
    return tables.table(heading, rows, page, namespaces=map(tables.namespace_of, schedules) if namespaces else None)


def _cells(schedule: Object, phases: _Phases, page: Page) -> list[str]:
    status = schedule.get("status") or {}
    summary, zone = times_of(schedule)
    upcoming = status.get("nextScheduledTimes") or [None]
    following = _near(upcoming[0], page) or "".join(
        f"({_near(time, page)})" for time in _if_unpaused(schedule, page, 1)
    )
    running = [_phase(phases, schedule, each) for each in status.get("runningWorkflows") or ()]
    stuck = next((run for run in running if run is not None and run.phase == "Pending" and run.reason), None)
    return [
        schedule["metadata"]["name"],
        summary,
        zone,
        state_of(schedule),
        _near(status.get("lastScheduledTime"), page),
        following,
        str(status.get("active", 0)) + (f" ({stuck.phase}: {stuck.reason})" if stuck else ""),
    ]


def times_of(schedule: Object) -> tuple[str, str]:
    """Describe the times in a few words, with their zone; use the text of the spec if the operator has not processed it."""
    read, spec = (schedule.get("status") or {}).get("spec") or {}, schedule["spec"]
    fields = ("cron", "intervals", "calendars")
    raw = "; ".join(
        each if isinstance(each, str) else json.dumps(each) for field in fields for each in spec.get(field) or ()
    )
    return read.get("summary") or raw or "when triggered", read.get("timeZone") or spec.get("timeZone") or ""


def state_of(schedule: Object) -> str:
    """Return whether a schedule is active; otherwise the reason in one word."""
    conditions = {each["type"]: each for each in (schedule.get("status") or {}).get("conditions") or ()}
    for kind, wanted in (("Ready", "False"), ("Paused", "True")):
        if conditions.get(kind, {}).get("status") == wanted:
            return str(conditions[kind]["reason"])
    return "Running" if conditions else "Pending"


def is_paused(schedule: Object) -> bool:
    """Return whether a schedule is paused; for a manifest, whether it is created paused."""
    return bool(schedule["spec"].get("paused") or (schedule.get("status") or {}).get("paused"))


def _phase(phases: _Phases, schedule: Object, recorded: Object) -> _Phase | None:
    """Return the phase of a run that a Schedule has recorded; the run ID is recorded after the name."""
    found = phases.get((schedule["metadata"]["namespace"], recorded["workflowRun"]))
    return found if found is not None and recorded.get("runId", found.uid) == found.uid else None


def _phases(runs: Sequence[Object]) -> _Phases:
    """Return the phase of each run."""
    found = {}
    for run in runs:
        status, meta = run.get("status") or {}, run["metadata"]
        condition: Object = next((each for each in status.get("conditions") or () if each["type"] == "Succeeded"), {})
        phase = _Phase(
            meta["uid"], status.get("phase") or "Pending", condition.get("reason", ""), condition.get("message", "")
        )
        found[meta["namespace"], meta["name"]] = phase
    return found


def description(schedule: Object, page: Page, runs: Sequence[Object] = ()) -> list[Text]:
    """Describe a schedule for users.

    Args:
        schedule: The schedule.
        page: The page for the output.
        runs: The runs of the schedule that the user may read.
    """
    status, meta = schedule.get("status") or {}, schedule["metadata"]
    counts, spec = status.get("counts") or {}, schedule["spec"]
    summary, zone = times_of(schedule)
    lines = [
        f"{meta['name']}  {state_of(schedule)}",
        f"  when      {summary}" + (f"  ({zone})" if zone else ""),
        f"  overlap   {spec.get('overlapPolicy', 'Skip')}, catch-up window {spec.get('catchupWindow', '1m')}"
        + (", newest missed time only" if spec.get("catchupPolicy") == "Latest" else ""),
    ]
    if id_of(schedule) != meta["name"]:
        lines.insert(1, f"  id        {text.one_line(id_of(schedule))}")
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
    lines += [f"  backfill  {_backfill(each, schedule)}" for each in status.get("backfills") or ()]
    local = _local_times(schedule)
    if status.get("nextScheduledTimes"):
        lines += ["", "Next", *(f"  {time}{local(time)}  {_near(time, page)}" for time in status["nextScheduledTimes"])]
    elif times := _if_unpaused(schedule, page, _SHOWN):
        lines += ["", "Next, if it were not paused"]
        lines += [f"  {time}{local(time)}  {_near(time, page)}" for time in times]
    if status.get("recentActions"):
        phases = _phases(runs)
        lines += ["", "Last"]
        actions = reversed(status["recentActions"])
        lines += [_action(action, _phase(phases, schedule, action), local) for action in actions]
    if status.get("lastFailure"):
        lines += ["", f"Last failure: {text.one_line(status['lastFailure'].get('message', ''))}"]
    return [Text(line) for line in lines]


def _local_times(schedule: Object) -> Callable[[str], str]:
    """Return what shows a time in the zone of a schedule as well; nothing if that is UTC, or if the spec is invalid."""
    try:
        zone = Times(ScheduleSpec.parse(schedule["spec"])).zone
    except (InvalidTimesError, ValidationError):
        return lambda _: ""
    if zone.name == "UTC":
        return lambda _: ""
    return lambda time: f"  {_in_zone(datetime.fromisoformat(time), zone.rules)}"


def _in_zone(time: datetime, zone: tzinfo) -> str:
    return time.astimezone(zone).strftime("%a %Y-%m-%d %H:%M:%S %z")


_MOST_COUNTED = 10_000
"""Up to how many times of a backfill are counted."""


def _backfill(backfill: Object, schedule: Object) -> str:
    """Describe a backfill in progress: its range, how many of its runs have started, and why it does not continue."""
    start, end = str(backfill["startTime"]), str(backfill["endTime"])
    found = f"{start} to {end}: "
    try:
        times = Times(ScheduleSpec.parse(schedule["spec"]))
        before, last = datetime.fromisoformat(start) - timedelta(microseconds=1), datetime.fromisoformat(end)
        total = times.count(before, last, _MOST_COUNTED)
        until = backfill.get("handledUntil")
        done = times.count(before, datetime.fromisoformat(until), _MOST_COUNTED) if until else 0
        done -= backfill.get("buffered", 0)
        found += f"{done} of {total if total <= _MOST_COUNTED else f'more than {_MOST_COUNTED}'} times handled, "
    except (InvalidTimesError, ValidationError):
        found += "the times cannot be computed, "
    found += str(backfill["overlapPolicy"])
    if "maxConcurrency" in backfill:
        found += f", at most {backfill['maxConcurrency']} at the same time"
    return found + (", waits until the Schedule is unpaused" if backfill.get("held") else "")


def _if_unpaused(schedule: Object, page: Page, count: int) -> list[str]:
    """Return the next times of a paused schedule; the operator does not record them, because no run will start."""
    if not is_paused(schedule):
        return []
    try:
        times = Times(ScheduleSpec.parse(schedule["spec"]))
        return [format_time(time) for time in islice(times.nominal(page.now), count)]
    except (InvalidTimesError, ValidationError):
        return []


def _action(action: Object, run: _Phase | None, local: Callable[[str], str]) -> str:
    """Format one of the last actions. An open run has its own phase; a run that other runs continue is Running."""
    time, status = action.get("scheduledTime") or action["actualTime"], action.get("status", "")
    reason = ""
    if status == "Running" and run is not None and run.phase != "ContinuedAsNew":
        status = run.phase
        if run.phase == "Pending":
            reason = "  " + text.one_line(": ".join(filter(None, (run.reason, run.message))))
    return f"  {time}{local(time)}  {status:<10}  {action['workflowRun']}{reason}".rstrip()


def _near(time: str | None, page: Page) -> str:
    if time is None:
        return ""
    return page.relative(datetime.fromisoformat(time))
