"""Evaluates the keys of the WorkflowLimits of a run."""

from collections.abc import Iterator, Mapping
from typing import Any

from perdure.api.workflowlimit import MAX_KEY, LimitUse
from perdure.language.coercion import as_text
from perdure.language.expression_text import ExpressionError
from perdure.language.program import Finding, InvalidWorkflowError, Program


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
        try:
            key = as_text(limit.key.evaluate({"input": given, "schedule": dict(schedule)}))
        except ExpressionError as error:
            raise InvalidWorkflowError([Finding(path, str(error))], "ExpressionError") from error
        if len(key) > MAX_KEY:
            message = f"has {len(key)} characters, but must have at most {MAX_KEY}"
            raise InvalidWorkflowError([Finding(path, message)], "ExpressionError")
        yield limit.use, key
