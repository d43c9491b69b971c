"""The three kinds of errors of expressions.

Errors:

    CompileError        the source is not a valid expression
    EvaluationError     the expression has no value here (a missing field, a division by zero); `||` and `&&` may absorb it
    LimitError          the expression exceeds a limit; nothing absorbs it
"""

from collections.abc import Callable


class CompileError(Exception):
    """The source is not a valid expression; the message names the place and the fix."""


class EvaluationError(Exception):
    """The expression has no value for this input; its message is built only when it is read."""

    def __init__(self, describe: str | Callable[[], str]) -> None:
        super().__init__()
        self._describe = describe

    def __str__(self) -> str:
        return self._describe if isinstance(self._describe, str) else self._describe()


class LimitError(Exception):
    """The expression needs more work, text, items, or depth than allowed."""
