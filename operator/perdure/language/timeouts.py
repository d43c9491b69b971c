"""Timeouts of steps: durations as they are written, or what their expressions give when the step begins."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

from perdure.api.rules import json_name
from perdure.api.steps import ActivityCall
from perdure.language.conversions import as_length
from perdure.language.failures import EXPRESSION_ERROR, StepError, application

OF_ACTIVITY: Final = (
    "start_to_close_timeout",
    "schedule_to_close_timeout",
    "schedule_to_start_timeout",
    "heartbeat_timeout",
)
"""The timeouts of an activity call, as Python names of its fields."""

Evaluate = Callable[[str], Any]
"""Gives the value of the template with that key; raises StepError."""


def computed(where: str, name: str, value: Any) -> timedelta:
    """The timeout that an expression has given. One that is over already is `0s` or negative.

    Args:
        where: Where the step stands, for messages.
        name: The field.
        value: What the expression has given.

    Raises:
        StepError: The value is not a duration.
    """
    try:
        return as_length(value)
    except ValueError as error:
        raise StepError(application(EXPRESSION_ERROR, f"{where}: `{name}`: {error}")) from error


def positive(where: str, name: str, value: Any) -> timedelta:
    """The timeout that an expression has given for an activity or a child, where zero would mean that there is none.

    Raises:
        StepError: The value is not a duration longer than `0s`.
    """
    length = computed(where, name, value)
    if length <= timedelta(0):
        message = f"{where}: `{name}` must be longer than `0s`; the expression gives {value}"
        raise StepError(application(EXPRESSION_ERROR, message))
    return length


def of_call(where: str, call: ActivityCall, evaluate: Evaluate, prefix: str = "") -> dict[str, timedelta]:
    """The timeouts of an activity call that are expressions, by Python name.

    Args:
        where: Where the step stands, for messages.
        call: The call.
        evaluate: Gives the value of a template of the step.
        prefix: What the keys of the templates begin with.

    Raises:
        StepError: An expression fails, or does not give a duration longer than `0s`.
    """
    return {
        name: positive(where, json_name(name), evaluate(f"{prefix}{json_name(name)}"))
        for name in OF_ACTIVITY
        if isinstance(getattr(call, name), str)
    }
