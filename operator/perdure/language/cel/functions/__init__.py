"""The functions of expressions, grouped by the type of their operands. Importing this package fills the table of `registry`.

Every function is registered once, with its signature: `environment` declares it to the type checker from the same entry
through which it is called. A function charges the meter *before* it does the work.
"""

from perdure.language.cel.functions import (
    arithmetic,
    conversions,
    formatting,
    lists,
    mathematics,
    optionals,
    strings,
    time_parts,
)
from perdure.language.cel.functions.registry import FUNCTIONS, SIGNATURES, call, plain_name

__all__ = [
    "FUNCTIONS",
    "SIGNATURES",
    "arithmetic",
    "call",
    "conversions",
    "formatting",
    "lists",
    "mathematics",
    "optionals",
    "plain_name",
    "strings",
    "time_parts",
]
