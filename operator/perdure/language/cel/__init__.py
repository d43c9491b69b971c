"""CEL, compiled once and evaluated under a budget.

The library cel-expr-python (cel-cpp) parses, expands macros, and checks types. `perdure.language.expressions` explains the
reasons for our own evaluator, with measurements.

`compile` has the library parse and check a source (`parser`), which gives a tree (`syntax`), and converts the tree to closures
(`closures`). The closures work on plain Python values (`values`), call the `functions`, and charge the meter of `limits` for
every step. `compile` also finds parts of an expression that always fail.
"""

from perdure.language.cel.compile import CHECKED_WORK, CompiledExpression, Failing, compile_source, failing_parts
from perdure.language.cel.functions.strings import pattern_weight
from perdure.language.cel.limits import MAX_DEPTH, CompileError, EvaluationError, LimitError, Meter
from perdure.language.cel.parser import parse, type_of
from perdure.language.cel.values import article, format_duration, format_timestamp, kind, parse_duration

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
