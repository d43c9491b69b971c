"""The times of a schedule: of a manifest without a cluster, or of an object in a cluster."""

import json
from datetime import datetime
from itertools import islice
from typing import Any

from pydantic import ValidationError

from perdure.api.common import mistakes
from perdure.api.schedule import Schedule, ScheduleSpec
from perdure.cli.errors import CliError
from perdure.cli.scenarios import read_documents
from perdure.schedule.errors import InvalidTimesError
from perdure.schedule.outlook import Outlook, outlook_after
from perdure.schedule.times import Due, Times
from perdure.simulation.cast import BadFileError

Object = dict[str, Any]


def schedule_in(file: str, name: str | None) -> Object:
    """The manifest of a Schedule.

    Args:
        file: A file of manifests; `-` is standard input.
        name: Which one, where there are several.

    Raises:
        CliError: The file cannot be read, or has no such Schedule.
    """
    try:
        found = [each for each in read_documents(file) if isinstance(each, dict) and each.get("kind") == "Schedule"]
    except BadFileError as error:
        raise CliError(str(error)) from error
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
    """The times of a Schedule.

    Args:
        schedule: The object, or its manifest.

    Raises:
        CliError: The times cannot be followed.
    """
    try:
        return Times(ScheduleSpec.parse(schedule["spec"]))
    except InvalidTimesError as error:
        raise CliError(error.message) from error


def upcoming(times: Times, schedule: Object, namespace: str, after: datetime, count: int) -> list[Due]:
    """The next times of a Schedule.

    Args:
        times: Its times.
        schedule: The object, or its manifest.
        namespace: Its namespace where it says none; jitter depends on it.
        after: They are later than that.
        count: How many.

    Raises:
        CliError: Too much is excluded for the search to end.
    """
    meta = schedule.get("metadata") or {}
    try:
        return list(islice(times.dues(after, f"{meta.get('namespace') or namespace}/{meta.get('name')}"), count))
    except InvalidTimesError as error:
        raise CliError(error.message) from error


def outlook_of(schedule: Object, after: datetime) -> Outlook:
    """Whether a Schedule has work after an instant, according to the operator.

    Raises:
        CliError: The times cannot be followed.
    """
    try:
        return outlook_after(ScheduleSpec.parse(schedule["spec"]), after)
    except InvalidTimesError as error:
        raise CliError(error.message) from error


def read_json(option: str, text: str) -> Any:
    """Read a value that a user gave as JSON.

    Raises:
        CliError: It is none.
    """
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise CliError(f"{option}: `{text}` is not valid JSON: {error}") from None


def new_schedule(name: str, spec: Object) -> Object:
    """Build the manifest of a Schedule; omitted options are left out.

    Raises:
        CliError: It would be refused.
    """
    given = {key: value for key, value in spec.items() if value not in (None, [])}
    manifest = {
        "apiVersion": "perdure.dev/v1alpha1",
        "kind": "Schedule",
        "metadata": {"name": name},
        "spec": given,
    }
    try:
        Schedule.parse(manifest)
    except ValidationError as error:
        raise CliError("; ".join(mistakes(error))) from error
    return manifest
