"""Evaluates the keys of the caches of activities."""

from collections.abc import Mapping
from typing import Any

from perdure.api.resultcache import MAX_CACHE_KEY
from perdure.api.workflow import Activity
from perdure.language import containers
from perdure.language.coercion import as_text
from perdure.language.expression_text import ExpressionError
from perdure.language.expressions import compile_template
from perdure.language.step_failures import EXPRESSION_ERROR, StepError, application


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
    try:
        template = compile_template(definition.cache.key, names=containers.NAMES)
        key = as_text(template.evaluate({"input": input, "run": run, "attempt": attempt}))
    except ExpressionError as error:
        raise _failed(definition, str(error)) from error
    if len(key) > MAX_CACHE_KEY:
        raise _failed(definition, f"has {len(key)} characters, but must have at most {MAX_CACHE_KEY}")
    return key


def _failed(definition: Activity, why: str) -> StepError:
    return StepError(application(EXPRESSION_ERROR, f"activity `{definition.name}`: cache.key: {why}"))
