"""CEL, compiled once and evaluated under a budget.

The library cel-expr-python (cel-cpp) parses, expands macros, and checks types. `perdure.language.expressions` explains the
reasons for our own evaluator, with measurements.

`compile` converts a source to a `syntax` tree with `environment` (cel-cpp, the type checker) and `decode`, collects the names
that it reads with `references`, and converts the tree to closures with `build`. The closures read values with `lookup`,
`comparison`, and `patterns`, call the `functions`, and charge the meter of `limits` for every step. `values` and `formats`
define the types of values and their text form.
"""

from perdure.language.cel.compile import CompiledExpression, compile_source
from perdure.language.cel.constants import CHECKED_WORK, Failing, failing_parts
from perdure.language.cel.environment import parse, type_of
from perdure.language.cel.errors import CompileError, EvaluationError, LimitError
from perdure.language.cel.expression_limits import MAX_DEPTH, Meter
from perdure.language.cel.formats import format_duration, format_timestamp, parse_duration
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
