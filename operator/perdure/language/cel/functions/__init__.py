"""The functions of expressions, grouped by the type of their operands. Importing this package fills the table of `registry`.

Every function is registered once, with its signature: `parser` declares it to the type checker from the same entry through which
it is called. A function charges the meter *before* it does the work.
"""

from perdure.language.cel.functions import conversions, lists, numbers, strings
from perdure.language.cel.functions.registry import FUNCTIONS, SIGNATURES, call, plain_name

__all__ = ["FUNCTIONS", "SIGNATURES", "call", "conversions", "lists", "numbers", "plain_name", "strings"]
