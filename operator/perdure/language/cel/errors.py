"""The three ways in which an expression can fail.

Errors:

    CompileError        the source is not a valid expression
    EvaluationError     the expression has no value here (a missing field, a division by zero); `||` and `&&` may absorb it
    LimitError          the expression asks for more than it may have; nothing absorbs it
"""

from collections.abc import Callable


class CompileError(Exception):
    """The source is not a valid expression; the message says where and what to do."""


class EvaluationError(Exception):
    """The expression has no value for this input; the message is made only if someone reads it."""

    def __init__(self, describe: str | Callable[[], str]) -> None:
        super().__init__()
        self._describe = describe

    def __str__(self) -> str:
        return self._describe if isinstance(self._describe, str) else self._describe()


class LimitError(Exception):
    """The expression asks for more work, text, items or depth than an expression may have."""
