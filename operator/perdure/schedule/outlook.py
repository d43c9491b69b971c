"""Whether a schedule has times to come, with the message for its condition `Ready`."""

from dataclasses import dataclass
from datetime import datetime

from perdure.api.fields import format_time
from perdure.api.reasons import ConditionReason
from perdure.api.schedule import ScheduleSpec
from perdure.schedule.times import Times


@dataclass(frozen=True, slots=True)
class Outlook:
    """The condition `Ready` of a schedule whose times are valid."""

    ready: bool
    reason: ConditionReason
    message: str = ""
    path: str = ""
    """The field to change, if the schedule is not ready."""


def has_times(spec: ScheduleSpec) -> bool:
    """Whether a schedule starts runs at times; otherwise runs start only when an Operation triggers them."""
    return bool(spec.cron or spec.intervals or spec.calendars)


def outlook(spec: ScheduleSpec, *, has_next: bool) -> Outlook:
    """Judge a schedule.

    Args:
        spec: Its spec.
        has_next: Whether it has a future time.
    """
    if not has_times(spec):
        return Outlook(True, ConditionReason.ACCEPTED, "Runs start only when an Operation triggers them")
    if has_next:
        return Outlook(True, ConditionReason.ACCEPTED)
    if spec.end_time is not None:
        message, path = f"No time is left until `endTime`, {format_time(spec.end_time)}", "spec.endTime"
    else:
        message = "No time matches within the next 40 years; check the days of the month, the years, and the exclusions"
        path = next(f"spec.{field}" for field in ("cron", "calendars", "intervals") if getattr(spec, field))
    return Outlook(False, ConditionReason.NO_MORE_TIMES, message, path)


def outlook_after(spec: ScheduleSpec, after: datetime) -> Outlook:
    """Judge a schedule by its times after an instant.

    Raises:
        InvalidTimesError: Its times are not valid.
    """
    return outlook(spec, has_next=next(Times(spec).nominal(after), None) is not None)
