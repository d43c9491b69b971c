"""Evaluates keys: texts with expressions that identify a place in a WorkflowLimit, or a cached result."""

from collections.abc import Mapping
from typing import Any

from perdure.language.coercion import as_text
from perdure.language.expression_text import ExpressionError
from perdure.language.expressions import Template, compile_template


def evaluate_key(key: str | Template, scope: Mapping[str, Any], most: int) -> tuple[str, str]:
    """Evaluate a key; return it, and what is wrong with it, or an empty text.

    Args:
        key: The text, compiled or not.
        scope: The values of all names that its expressions may read.
        most: Maximum number of characters.
    """
    try:
        template = key if isinstance(key, Template) else compile_template(key, names=scope.keys())
        text = as_text(template.evaluate(scope))
    except ExpressionError as error:
        return "", str(error)
    if len(text) > most:
        return "", f"has {len(text)} characters, but must have at most {most}"
    return text, ""
