"""Expressions with a scope, evaluated or refused."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from perdure.language.expressions import ExpressionError, compile_template

NOW = datetime(2026, 1, 31, 9, 0, 0, tzinfo=UTC)
SCOPE: dict[str, Any] = {
    "input": {
        "guest": "Ann",
        "nights": 3,
        "price": 1.5,
        "vip": False,
        "note": None,
        "rooms": [{"name": "a", "beds": 1}, {"name": "b", "beds": 2}],
    },
    "steps": {"hotel": {"output": {"id": "x1"}, "startTime": NOW}, "cool-off": {"output": 1}},
    "now": NOW,
    "wait": timedelta(seconds=90),
}


def evaluate(expression: str, **scope: Any) -> Any:
    return compile_template(f"${{{expression}}}", names={*SCOPE, *scope}).evaluate({**SCOPE, **scope})


def refusal(expression: Any, **scope: Any) -> ExpressionError:
    text = expression if not isinstance(expression, str) or "${" in expression else f"${{{expression}}}"
    with pytest.raises(ExpressionError) as caught:
        compile_template(text, path="spec", names={*SCOPE, *scope}).evaluate({**SCOPE, **scope})
    return caught.value
