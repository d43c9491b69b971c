"""The limits of expressions, the meter that bounds their work, and the errors of expressions.

Code charges the meter *before* it does work, so the cost of an expression depends only on its inputs, never on the
machine.

Errors:

    CompileError        the source is not a valid expression
    EvaluationError     the expression has no value here (a missing field, a division by zero); `||` and `&&` may absorb it
    LimitError          the expression exceeds a limit; nothing absorbs it
"""

from collections.abc import Callable
from typing import Final


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


MAX_SOURCE: Final = 4_096
"""Maximum characters of one expression. The library limits its nesting to 32."""
BUDGET: Final = 600_000
"""Units of work of one template; a unit is about a tenth of a microsecond, and at most a fifth."""
MAX_TEXT: Final = 262_144
"""Maximum characters of a string that an expression creates."""
MAX_ITEMS: Final = 131_072
"""Maximum items of a list that an expression creates: as many as fit into 256 KiB of JSON."""
MAX_DEPTH: Final = 100
"""Maximum nesting of lists and maps in a value that is traversed."""
MAX_PATTERN: Final = 256
"""Maximum characters of a regular expression."""


class Meter:
    """The rest of the budget. Only charges reduce it, and nothing refunds them."""

    __slots__ = ("left",)

    def __init__(self, budget: int = BUDGET) -> None:
        self.left = budget

    def charge(self, units: int) -> None:
        """Charge `units`. Raises LimitError if fewer are left."""
        self.left -= units
        if self.left < 0:
            raise LimitError(
                "it needs more work than an expression may do; make the lists or texts it goes through smaller, "
                "or do this in an activity"
            )

    def text(self, length: int) -> None:
        """Charge for a new string of `length` characters. Raises LimitError if it is too long."""
        if length > MAX_TEXT:
            raise LimitError(f"it makes a text of more than {MAX_TEXT} characters; keep large data out of expressions")
        self.charge((length >> 5) + 1)

    def items(self, length: int) -> None:
        """Charge for a new list of `length` items. Raises LimitError if it is too long."""
        if length > MAX_ITEMS:
            raise LimitError(f"it makes a list of more than {MAX_ITEMS} items; keep large data out of expressions")
        self.charge((length >> 4) + 1)
