"""Manifests of Schedules and their times, computed from a file or from an object in a cluster."""

import json
from datetime import datetime
from itertools import islice
from typing import Any

from pydantic import ValidationError

from perdure.api.kinds.schedule import Schedule, ScheduleSpec
from perdure.api.models import mistakes
from perdure.cli.files.documents import read_documents
from perdure.client.errors import CliError
from perdure.schedule.calendar import InvalidTimesError
from perdure.schedule.times import Due, Times

Object = dict[str, Any]


def schedule_in(file: str, name: str | None) -> Object:
    """Read the manifest of a Schedule.

    Args:
        file: A file of manifests; `-` is standard input.
        name: Name of the Schedule, if there are several.

    Raises:
        CliError: The file cannot be read, or does not contain the Schedule.
    """
    found = [each for each in read_documents(file) if isinstance(each, dict) and each.get("kind") == "Schedule"]
    named = [each for each in found if name is None or (each.get("metadata") or {}).get("name") == name]
    if not named:
        raise CliError(f"{file}: has no Schedule" + (f" `{name}`" if name else ""))
    if len(named) > 1:
        names = ", ".join(str((each.get("metadata") or {}).get("name")) for each in named)
        raise CliError(f"{file}: has {len(named)} Schedules ({names}); set NAME to one of them")
    try:
        Schedule.parse(named[0])
    except ValidationError as error:
        raise CliError(f"{file}: {'; '.join(mistakes(error))}") from error
    return named[0]


def times_of(schedule: Object) -> Times:
    """Return the times of a Schedule.

    Args:
        schedule: The object, or its manifest.

    Raises:
        CliError: The times are not valid.
    """
    try:
        return Times(ScheduleSpec.parse(schedule["spec"]))
    except InvalidTimesError as error:
        raise CliError(error.message) from error


def upcoming(times: Times, schedule: Object, namespace: str, after: datetime, count: int) -> list[Due]:
    """Return the next times of a Schedule.

    Args:
        times: The times of the Schedule.
        schedule: The object, or its manifest.
        namespace: The default namespace; jitter depends on it.
        after: The exclusive lower bound.
        count: The number of times.

    Raises:
        CliError: The search ended without a result, because too many times are excluded.
    """
    meta = schedule.get("metadata") or {}
    try:
        return list(islice(times.dues(after, f"{meta.get('namespace') or namespace}/{meta.get('name')}"), count))
    except InvalidTimesError as error:
        raise CliError(error.message) from error


def read_json(option: str, text: str) -> Any:
    """Parse a JSON value from a user.

    Raises:
        CliError: The text is not valid JSON.
    """
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise CliError(f"{option}: `{text}` is not valid JSON: {error}") from None
