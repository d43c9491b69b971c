"""Manifests of Schedules, checked by the rules of the operator, and their times."""

from __future__ import annotations

from datetime import timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from perdure.api.kinds.schedule import Schedule, ScheduleSpec
from perdure.api.labels import API_VERSION
from perdure.api.models import mistakes
from perdure.client.errors import ClientError
from perdure.schedule.calendar import InvalidTimesError
from perdure.schedule.status import Outlook, outlook_after
from perdure.schedule.times import Due, Times

if TYPE_CHECKING:
    from datetime import datetime

Object = dict[str, Any]


def new_schedule(name: str, spec: Object) -> Object:
    """Build the manifest of a Schedule, without omitted options.

    Raises:
        ClientError: The API server would reject the manifest.
    """
    fields = {key: value for key, value in spec.items() if value not in (None, [])}
    manifest = {"apiVersion": API_VERSION, "kind": "Schedule", "metadata": {"name": name}, "spec": fields}
    check(manifest)
    return manifest


def check(manifest: Object) -> None:
    """Check the manifest of a Schedule.

    Raises:
        ClientError: The API server would reject it.
    """
    try:
        Schedule.parse(manifest)
    except ValidationError as error:
        raise ClientError("; ".join(mistakes(error))) from error


def outlook_of(schedule: Object, after: datetime) -> Outlook:
    """Return whether a Schedule has work after an instant, by the rules of the operator.

    Raises:
        ClientError: The times are not valid.
    """
    try:
        return outlook_after(ScheduleSpec.parse(schedule["spec"]), after)
    except InvalidTimesError as error:
        raise ClientError(error.message) from error


def times_of(schedule: Object) -> Times:
    """Return the times of a Schedule.

    Args:
        schedule: The object, or its manifest.

    Raises:
        ClientError: The times are not valid.
    """
    try:
        return Times(ScheduleSpec.parse(schedule["spec"]))
    except InvalidTimesError as error:
        raise ClientError(error.message) from error


def count_between(times: Times, start: datetime, end: datetime, most: int) -> int:
    """Count the times from `start` to `end`, inclusive, and stop after `most`.

    Args:
        times: The times of the Schedule.
        start: The first time to consider.
        end: The last time to consider.
        most: Where to stop: a higher result says that there are more.

    Raises:
        ClientError: The search ended without a result, because too many times are excluded.
    """
    try:
        return times.count(start - timedelta(microseconds=1), end, most)
    except InvalidTimesError as error:
        raise ClientError(error.message) from error


def upcoming(times: Times, schedule: Object, namespace: str, after: datetime, count: int) -> list[Due]:
    """Return the next times of a Schedule.

    Args:
        times: The times of the Schedule.
        schedule: The object, or its manifest.
        namespace: The default namespace; jitter depends on it.
        after: The exclusive lower bound.
        count: The number of times.

    Raises:
        ClientError: The search ended without a result, because too many times are excluded.
    """
    meta = schedule.get("metadata") or {}
    try:
        return list(islice(times.dues(after, f"{meta.get('namespace') or namespace}/{meta.get('name')}"), count))
    except InvalidTimesError as error:
        raise ClientError(error.message) from error
