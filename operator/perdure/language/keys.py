"""Evaluates keys: texts with expressions that identify a place in a WorkflowLimit, or a cached result.

A run takes limits before it starts, its steps and activities take limits while it runs, and an activity can have a cache.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from perdure.api.kinds.workflow import MAX_CACHE_KEY, Activity
from perdure.api.kinds.workflowlimit import MAX_KEY, ActivityLimit, LimitUse, StepLimit
from perdure.language.coercion import as_text
from perdure.language.expressions import ExpressionError, Template, compile_template
from perdure.language.program import Finding, InvalidWorkflowError, Program
from perdure.language.step_failures import EXPRESSION_ERROR, StepError, application


def evaluate_key(key: str | Template, scope: Mapping[str, Any], maximum: int) -> tuple[str, str]:
    """Evaluate a key; return it, and what is wrong with it, or an empty text.

    Args:
        key: The text, compiled or not.
        scope: The values of all names that its expressions may read.
        maximum: Maximum number of characters.
    """
    try:
        template = key if isinstance(key, Template) else compile_template(key, names=scope.keys())
        text = as_text(template.evaluate(scope))
    except ExpressionError as error:
        return "", str(error)
    if len(text) > maximum:
        return "", f"has {len(text)} characters, but must have at most {maximum}"
    return text, ""


LIMIT_NAMES: Final = frozenset({"input", "run"})
"""The names that the key of a limit of an activity may read. It must not change between attempts."""


def limit_keys(program: Program, value: Any, schedule: Mapping[str, Any]) -> Iterator[tuple[LimitUse, str]]:
    """Evaluate the key of each limit that a run takes.

    Args:
        program: The program of the run.
        value: The input of the run, including defaults.
        schedule: The value of `schedule` in expressions.

    Raises:
        InvalidWorkflowError: A key has no value for this input, or is too long.
    """
    for limit in program.limits:
        path = f"spec.limits[{limit.use.name}].key"
        key, problem = evaluate_key(limit.key, {"input": value, "schedule": dict(schedule)}, MAX_KEY)
        if problem:
            raise InvalidWorkflowError([Finding(path, problem)], EXPRESSION_ERROR)
        yield limit.use, key


def activity_limit_keys(
    definition: Activity, value: Any, run: Mapping[str, str]
) -> Iterator[tuple[ActivityLimit, str]]:
    """Evaluate the key of each limit that an activity takes, in the order in which it takes them.

    Args:
        definition: The definition of the activity.
        value: The input of the activity.
        run: The value of `run` in expressions.

    Raises:
        StepError: A key has no value for this input, or is too long.
    """
    for use in sorted(definition.limits, key=lambda each: each.name):
        key, problem = evaluate_key(use.key, {"input": value, "run": dict(run)}, MAX_KEY)
        if problem:
            message = f"activity `{definition.name}`: limits[{use.name}].key: {problem}"
            raise StepError(application(EXPRESSION_ERROR, message))
        yield use, key


def requested_limit(use: StepLimit, key: str) -> dict[str, str]:
    """A limit of a step with its evaluated key, for the history."""
    return {**use.dump(), "key": key}


def requested_limits(limits: Any) -> Iterator[tuple[StepLimit, str]]:
    """Read the limits that a step wants, with their keys, in the order in which it takes them.

    Args:
        limits: A list of what `requested_limit` returns.
    """
    for each in sorted(limits, key=lambda each: str(each["name"])):
        yield StepLimit.parse({**each, "key": ""}), each["key"]


def cache_key(definition: Activity, *, input: Any, run: Mapping[str, str], attempt: int) -> str:  # noqa: A002
    """Evaluate the key of an activity's cache.

    Args:
        definition: Definition of the activity.
        input: Input of the activity.
        run: The value of `run` in expressions.
        attempt: Number of the attempt, from 1.

    Returns:
        The key; empty if the activity has no cache, or no key for this input.

    Raises:
        StepError: The key has no value for this input, or is too long.
    """
    if definition.cache is None:
        return ""
    scope = {"input": input, "run": run, "attempt": attempt}
    key, problem = evaluate_key(definition.cache.key, scope, MAX_CACHE_KEY)
    if problem:
        raise StepError(application(EXPRESSION_ERROR, f"activity `{definition.name}`: cache.key: {problem}"))
    return key
