"""Timeouts of steps that are expressions, evaluated when the step starts."""

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Final

from perdure.api.rules import json_name
from perdure.language.coercion import as_duration
from perdure.language.expressions import Template
from perdure.language.step_failures import EXPRESSION_ERROR, StepError, application

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
