"""What an expression may have at most, and the meter that bounds its work.

Who does work charges the meter for it *before* doing it, so that the price of an expression depends on its inputs alone,
and never on the machine.
"""

from typing import Final

from perdure.language.cel.errors import LimitError

MAX_SOURCE: Final = 4_096
"""Characters of one expression. How deep it nests (32) the library bounds."""
BUDGET: Final = 600_000
"""Units of work of one template; a unit is about a tenth of a microsecond, and at most a fifth."""
MAX_TEXT: Final = 262_144
"""Characters of a string that an expression makes."""
MAX_ITEMS: Final = 131_072
"""Items of a list that an expression makes: what 256 KiB of JSON can hold."""
MAX_DEPTH: Final = 100
"""How deep lists and maps may be nested in a value that is walked."""
MAX_PATTERN: Final = 256
"""Characters of a regular expression."""


class Meter:
    """What is left of the budget. Charging is the only way to spend it, and nothing gives it back."""

    __slots__ = ("left",)

    def __init__(self, budget: int = BUDGET) -> None:
        self.left = budget

    def charge(self, units: int) -> None:
        """Take `units` off; refuse when they are not there."""
        self.left -= units
        if self.left < 0:
            raise LimitError(
                "it needs more work than an expression may do; make the lists or texts it goes through smaller, "
                "or do this in an activity"
            )

    def text(self, length: int) -> None:
        """Charge for making or copying a string of `length` characters, and refuse one that is too long."""
        if length > MAX_TEXT:
            raise LimitError(f"it makes a text of more than {MAX_TEXT} characters; keep large data out of expressions")
        self.charge((length >> 5) + 1)

    def items(self, length: int) -> None:
        """Charge for making a list of `length` items, and refuse one that is too long."""
        if length > MAX_ITEMS:
            raise LimitError(f"it makes a list of more than {MAX_ITEMS} items; keep large data out of expressions")
        self.charge((length >> 4) + 1)
