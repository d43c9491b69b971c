"""CEL, compiled once and evaluated under a budget.

The library cel-expr-python (cel-cpp) parses, expands macros, and checks types. `perdure.language.expressions` explains the
reasons for our own evaluator, with measurements.

`compile` has the library parse and check a source (`parser`), which gives a tree (`syntax`), and converts the tree to closures
(`closures`). The closures work on plain Python values (`values`, whose text form is in `formats`), call the `functions`, match
`patterns`, and charge the meter of `limits` for every step. `constants` finds parts of an expression that always fail.
"""

from perdure.language.cel.compile import CompiledExpression, compile_source
from perdure.language.cel.constants import CHECKED_WORK, Failing, failing_parts
from perdure.language.cel.errors import CompileError, EvaluationError, LimitError
from perdure.language.cel.formats import format_duration, format_timestamp, parse_duration
from perdure.language.cel.limits import MAX_DEPTH, Meter
from perdure.language.cel.parser import parse, type_of
from perdure.language.cel.patterns import pattern_weight
from perdure.language.cel.values import article, kind

__all__ = [
    "CHECKED_WORK",
    "MAX_DEPTH",
    "CompileError",
    "CompiledExpression",
    "EvaluationError",
    "Failing",
    "LimitError",
    "Meter",
    "article",
    "compile_source",
    "failing_parts",
    "format_duration",
    "format_timestamp",
    "kind",
    "parse",
    "parse_duration",
    "pattern_weight",
    "type_of",
]
