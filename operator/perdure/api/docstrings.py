"""Docstrings under the members of an enumeration, which Python does not keep.

`kubectl explain` and the generated catalogues show them.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from enum import StrEnum


def member_docs(enum: type[StrEnum]) -> dict[str, str]:
    """Read the docstring under each member.

    Args:
        enum: An enumeration whose source file exists.

    Returns:
        The docstring of each member on one line, by the value of the member, in the order of the members.

    Raises:
        ValueError: A member has no docstring.
    """
    tree = ast.parse(textwrap.dedent(inspect.getsource(enum)))
    class_body = tree.body[0]
    assert isinstance(class_body, ast.ClassDef)
    found: dict[str, str] = {}
    for statement, following in zip(class_body.body, class_body.body[1:], strict=False):
        if isinstance(statement, ast.Assign) and isinstance(following, ast.Expr):
            name = ast.unparse(statement.targets[0])
            found[enum[name].value] = " ".join(ast.literal_eval(following.value).split())
    missing = [member.name for member in enum if member.value not in found]
    if missing:
        raise ValueError(f"{enum.__name__} must have a docstring under {', '.join(missing)}")
    return found
