"""The reference has every type of failure that the operator and the Python helper set."""

import ast
from collections.abc import Iterator

from perdure.language.step_failures import EXPRESSION_ERROR
from reference.errors import OF_THE_OPERATOR
from support.manuals import REPOSITORY

MAKERS = {"Failure", "ApplicationError", "fail", "__init__", "application"}
"""Callables that make a failure with a type."""


def types() -> Iterator[str]:
    """The types of failures in the code."""
    for file in (REPOSITORY / "operator" / "perdure").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            match node:
                case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if name in MAKERS:
                    given = [keyword.value for keyword in node.keywords if keyword.arg == "type"]
                    given += node.args[:1] if name == "application" else []
                    yield from (str(each.value) for each in given if isinstance(each, ast.Constant))


def test_the_reference_lists_exactly_the_types_in_the_code() -> None:
    assert OF_THE_OPERATOR.keys() == set(types()) | {EXPRESSION_ERROR}
