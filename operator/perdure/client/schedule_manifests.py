"""Manifests of Schedules, checked by the rules of the operator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from perdure.api.kinds.schedule import Schedule, ScheduleSpec
from perdure.api.labels import API_VERSION
from perdure.api.models import mistakes
from perdure.client.errors import CliError
from perdure.schedule.calendar import InvalidTimesError
from perdure.schedule.status import Outlook, outlook_after

if TYPE_CHECKING:
    from datetime import datetime

Object = dict[str, Any]


def new_schedule(name: str, spec: Object) -> Object:
    """Build the manifest of a Schedule, without omitted options.

    Raises:
        CliError: The API server would reject the manifest.
    """
    fields = {key: value for key, value in spec.items() if value not in (None, [])}
    manifest = {"apiVersion": API_VERSION, "kind": "Schedule", "metadata": {"name": name}, "spec": fields}
    try:
        Schedule.parse(manifest)
    except ValidationError as error:
        raise CliError("; ".join(mistakes(error))) from error
    return manifest


def outlook_of(schedule: Object, after: datetime) -> Outlook:
    """Return whether a Schedule has work after an instant, by the rules of the operator.

    Raises:
        CliError: The times are not valid.
    """
    try:
        return outlook_after(ScheduleSpec.parse(schedule["spec"]), after)
    except InvalidTimesError as error:
        raise CliError(error.message) from error
