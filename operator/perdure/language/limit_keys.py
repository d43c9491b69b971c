"""Evaluates the keys of the WorkflowLimits of a run, and of its activities."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from perdure.api.workflow import Activity
from perdure.api.workflowlimit import MAX_KEY, ActivityLimit, LimitUse
from perdure.language.coercion import as_text
from perdure.language.expression_text import ExpressionError
from perdure.language.expressions import Template, compile_template
from perdure.language.program import Finding, InvalidWorkflowError, Program
from perdure.language.step_failures import EXPRESSION_ERROR, StepError, application

NAMES: Final = frozenset({"input", "run"})
"""The names that the key of a limit of an activity may read. It must not change between attempts."""


def limit_keys(program: Program, given: Any, schedule: Mapping[str, Any]) -> Iterator[tuple[LimitUse, str]]:
    """Evaluate the key of each limit that a run takes.

    Args:
        program: The program of the run.
        given: The input of the run, including defaults.
        schedule: The value of `schedule` in expressions.

    Raises:
        InvalidWorkflowError: A key has no value for this input, or is too long.
    """
    for limit in program.limits:
        path = f"spec.limits[{limit.use.name}].key"
        key, problem = _evaluate(limit.key, {"input": given, "schedule": dict(schedule)})
        if problem:
            raise InvalidWorkflowError([Finding(path, problem)], EXPRESSION_ERROR)
        yield limit.use, key


def activity_limit_keys(
    definition: Activity, given: Any, run: Mapping[str, str]
) -> Iterator[tuple[ActivityLimit, str]]:
    """Evaluate the key of each limit that an activity takes, in the order in which it takes them.

    Args:
        definition: The definition of the activity.
        given: The input of the activity.
        run: The value of `run` in expressions.

    Raises:
        StepError: A key has no value for this input, or is too long.
    """
    for use in sorted(definition.limits, key=lambda each: each.name):
        key, problem = _evaluate(compile_template(use.key, names=NAMES), {"input": given, "run": dict(run)})
        if problem:
            message = f"activity `{definition.name}`: limits[{use.name}].key: {problem}"
            raise StepError(application(EXPRESSION_ERROR, message))
        yield use, key


def _evaluate(template: Template, scope: Mapping[str, Any]) -> tuple[str, str]:
    """Evaluate a key; return it, and what is wrong with it, or an empty text."""
    try:
        key = as_text(template.evaluate(scope))
    except ExpressionError as error:
        return "", str(error)
    if len(key) > MAX_KEY:
        return "", f"has {len(key)} characters, but must have at most {MAX_KEY}"
    return key, ""
