"""The reference has every type of failure that the operator and the Python helper set."""

import ast
from collections.abc import Iterator

from perdure.api.reasons import ConditionReason
from perdure.engine.activities import TOO_MANY_LOSSES
from perdure.language.services import ENDED, NOT_READY
from perdure.language.step_failures import EXPRESSION_ERROR
from reference.errors import OF_THE_OPERATOR
from support.manuals import REPOSITORY

MAKERS = {"Failure", "ApplicationError", "fail", "__init__", "application"}
"""Callables that make a failure with a type."""

CONSTANTS = {
    "ENDED": ENDED,
    "EXPRESSION_ERROR": EXPRESSION_ERROR,
    "NOT_READY": NOT_READY,
    "TOO_MANY_LOSSES": TOO_MANY_LOSSES,
}
"""Types that several modules name."""


def types() -> Iterator[str]:
    """The types of failures in the code."""
    for file in (REPOSITORY / "operator" / "perdure").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            match node:
                case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if name in MAKERS:
                    types_ = [keyword.value for keyword in node.keywords if keyword.arg == "type"]
                    types_ += node.args[:1] if name == "application" else []
                    for each in types_:
                        match each:
                            case ast.Constant(value=value):
                                yield str(value)
                            case ast.Name(id=constant) if constant in CONSTANTS:
                                yield CONSTANTS[constant]
                            case ast.Attribute(value=ast.Attribute(attr=reason), attr="value"):
                                yield ConditionReason[reason].value


def test_the_reference_lists_exactly_the_types_in_the_code() -> None:
    assert OF_THE_OPERATOR.keys() == set(types())
