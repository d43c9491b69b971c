"""Converts the values of expressions to durations, times, and texts for steps, and to timeouts when a step starts."""

import json
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, Final

from perdure.api.rules import json_name
from perdure.api.times import DURATION_MESSAGE, LONGEST, TIME_MESSAGE, parse_duration, parse_time
from perdure.language.expressions import Template
from perdure.language.step_failures import EXPRESSION_ERROR, StepError, application

_COMPUTED_DURATION = re.compile("(-?)([0-9]{1,12})(?:[.]([0-9]{1,6}))?s")
"""The text of a computed duration: always in seconds, even for days."""
_SHOWN = 120


def as_duration(value: Any) -> timedelta:
    """Convert a value to a duration; a negative duration has already passed.

    Raises:
        ValueError: The value cannot be converted.
    """
    if isinstance(value, timedelta):
        return value
    if isinstance(value, str):
        if computed := _COMPUTED_DURATION.fullmatch(value):
            sign, seconds, fraction = computed.groups("")
            length = timedelta(seconds=int(seconds), microseconds=int(fraction.ljust(6, "0")))
            return timedelta(0) if sign else min(length, LONGEST)
        with suppress(ValueError):
            return parse_duration(value)
    raise ValueError(f"{format_value(value)} {DURATION_MESSAGE}")


def as_time(value: Any) -> datetime:
    """Convert a value to a time.

    Raises:
        ValueError: The value cannot be converted.
    """
    if isinstance(value, datetime):
        return value
    if isinstance(value, str):
        with suppress(ValueError):
            return parse_time(value)
    raise ValueError(f"{format_value(value)} {TIME_MESSAGE}")


def as_text(value: Any) -> str:
    """Convert a value to text: text unchanged, null to an empty one, everything else to JSON."""
    if value is None:
        return ""
    return value if isinstance(value, str) else _json(value)


def format_value(value: Any) -> str:
    """Format a value for a message."""
    text = _json(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


OF_ACTIVITY: Final = (
    "start_to_close_timeout",
    "schedule_to_close_timeout",
    "schedule_to_start_timeout",
    "heartbeat_timeout",
)
"""The timeouts of an activity call, as Python names of its fields."""


def computed(where: str, name: str, value: Any) -> timedelta:
    """Convert the value of an expression to a timeout. A timeout that has already passed is `0s` or negative.

    Args:
        where: The step, for messages.
        name: The field.
        value: The value of the expression.

    Raises:
        StepError: The value is not a duration.
    """
    try:
        return as_duration(value)
    except ValueError as error:
        raise StepError(application(EXPRESSION_ERROR, f"{where}: `{name}`: {error}")) from error


def positive(where: str, name: str, value: Any) -> timedelta:
    """Convert the value of an expression to a timeout of an activity or a child, where zero would mean no limit.

    Raises:
        StepError: The value is not a duration longer than `0s`.
    """
    length = computed(where, name, value)
    if length <= timedelta(0):
        message = f"{where}: `{name}` must be longer than `0s`; the expression gives {value}"
        raise StepError(application(EXPRESSION_ERROR, message))
    return length


def of_activity(
    where: str, templates: Mapping[str, Template], evaluate: Callable[[Template], Any]
) -> dict[str, timedelta]:
    """Evaluate the timeouts of an activity that are expressions.

    Args:
        where: The step, for messages.
        templates: The templates, by Python name.
        evaluate: Evaluates a template.

    Returns:
        The timeouts, by Python name.

    Raises:
        StepError: An expression fails, or its value is not a duration longer than `0s`.
    """
    return {
        name: positive(where, json_name(name), evaluate(templates[name])) for name in OF_ACTIVITY if name in templates
    }
