"""Evaluates the keys of the caches of activities."""

from collections.abc import Mapping
from typing import Any

from perdure.api.kinds.resultcache import MAX_CACHE_KEY
from perdure.api.kinds.workflow import Activity
from perdure.language.key_text import evaluate_key
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
    scope = {"input": input, "run": run, "attempt": attempt}
    key, problem = evaluate_key(definition.cache.key, scope, MAX_CACHE_KEY)
    if problem:
        raise StepError(application(EXPRESSION_ERROR, f"activity `{definition.name}`: cache.key: {problem}"))
    return key
