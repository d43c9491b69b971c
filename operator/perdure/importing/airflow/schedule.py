"""Converts the timetable of a DAG of Airflow to the times of a Schedule."""

from datetime import UTC, datetime, timedelta
from typing import Any, Final

from perdure.api.times import format_duration, format_time
from perdure.importing.airflow.shapes import seconds
from perdure.importing.cron import classic_lines
from perdure.importing.reader import Fields, Object, Source, UnsupportedScheduleError

_SCHEDULED: Final = "schedule.scheduledTime"
_PREVIOUS: Final = "schedule.?previousTime.orValue(schedule.scheduledTime)"
"""The logical date of a run for a data interval: where the interval starts."""
_CRON: Final = {"CronTriggerTimetable": _SCHEDULED, "CronDataIntervalTimetable": _PREVIOUS}
_DELTA: Final = {"DeltaTriggerTimetable": _SCHEDULED, "DeltaDataIntervalTimetable": _PREVIOUS}
_NEVER: Final = frozenset({"NullTimetable", "OnceTimetable"})


def schedule(dag: Fields) -> Object | None:
    """Take the timetable of a DAG.

    Returns:
        Fields of the spec of a Schedule, and as `moment` the expression of the logical date; None for a DAG without times.
    """
    table = dag.take("timetable") or {}
    start, end = _time(dag.take("start_date")), _time(dag.take("end_date"))
    paused = bool(dag.take("is_paused_upon_creation", False))
    catchup = dag.take("catchup", False)
    kind, data = str(table.get("__type", "")).rpartition(".")[2], table.get("__var")
    data = data if isinstance(data, dict) else {}
    if kind in _NEVER or not kind:
        if kind == "OnceTimetable":
            dag.note("timetable", "`@once`: start the Workflow once with `perdure start`")
        return None
    times = _times(dag, kind, data, start)
    if times is None:
        return None
    dag.drop("schedule_interval")
    if catchup:
        dag.note("catchup", "times before the Schedule exists do not start: use `perdure schedule backfill`")
    return {
        **times,
        **({"startTime": format_time(start)} if start else {}),
        **({"endTime": format_time(end)} if end else {}),
        "overlapPolicy": "AllowAll",
        "catchupWindow": "365d",
        "catchupPolicy": "All" if catchup else "Latest",
        **({"paused": True} if paused else {}),
    }


def _times(dag: Fields, kind: str, data: Object, start: datetime | None) -> Object | None:
    if kind in _CRON or kind == "MultipleCronTriggerTimetable":
        several = data.get("expressions")
        lines = [{**data, "expression": each} for each in several if each] if isinstance(several, list) else []
        lines = lines or [_plain(each) for each in data.get("timetables") or []] or [data]
        zones = {str(each.get("timezone") or "UTC") for each in lines}
        if len(zones) > 1:
            dag.gap("timetable", "has several time zones; write a Schedule for each")
        source = Source({}, "timetable")
        try:
            cron = [one for each in lines for one in classic_lines(source, each.get("expression"), "expression")]
        except UnsupportedScheduleError as error:
            dag.gap("timetable", str(error).partition(": ")[2])
            return None
        interval = any(each.get("interval") or each.get("run_immediately") for each in lines)
        if interval:
            dag.gap(
                "timetable", "a data interval of its own, or a first run immediately, has no counterpart; remove it"
            )
        return {"cron": cron, "timeZone": min(zones), "moment": _CRON.get(kind, _SCHEDULED)}
    if kind in _DELTA and (seconds(data.get("delta")) or 0) >= 1:
        every = timedelta(seconds=int(seconds(data["delta"]) or 0))
        offset = timedelta(seconds=int(start.timestamp()) % int(every.total_seconds())) if start else timedelta()
        return {
            "intervals": [{"every": format_duration(every), **({"offset": format_duration(offset)} if offset else {})}],
            "moment": _DELTA[kind],
        }
    dag.gap(
        "timetable", f"`{kind}` has no counterpart; write a Schedule, or a Webhook for events: see docs/from-airflow.md"
    )
    return None


def _plain(value: Any) -> Object:
    """Return a timetable without its type."""
    data = value.get("__var") if isinstance(value, dict) else None
    return data if isinstance(data, dict) else {}


def _time(value: Any) -> datetime | None:
    found = seconds(value)
    return None if found is None else datetime.fromtimestamp(found, UTC)
