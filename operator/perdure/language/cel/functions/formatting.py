"""`format`: values written into text."""

import math
import re
from collections.abc import Sequence
from typing import Any, Final

from perdure.language.cel.comparison import sorted_keys
from perdure.language.cel.errors import EvaluationError, LimitError
from perdure.language.cel.expression_limits import MAX_DEPTH, Meter
from perdure.language.cel.formats import format_double, short
from perdure.language.cel.functions.registry import call, declare_member
from perdure.language.cel.values import article, kind

_CLAUSE = re.compile(r"%(?:\.(\d{1,3}))?([sdfeoxXb%])|%", re.ASCII)
_MAX_PRECISION: Final = 100


def formatted(meter: Meter, value: Any, depth: int = 0) -> str:
    """Format a value as for `%s`."""
    meter.charge(8)
    match kind(value):
        case "string":
            meter.text(len(value))
            return str(value)
        case "null":
            return "null"
        case "list" | "map" if depth >= MAX_DEPTH:
            raise LimitError(f"it formats values nested more than {MAX_DEPTH} deep")
        case "list":
            parts = [formatted(meter, item, depth + 1) for item in value]
            return f"[{_joined(meter, parts)}]"
        case "map":
            parts = [
                f"{formatted(meter, key)}: {formatted(meter, value[key], depth + 1)}"
                for key in sorted_keys(meter, value)
            ]
            return f"{{{_joined(meter, parts)}}}"
        case "type":
            return f"{value.name}"
        case "optional":
            raise EvaluationError("an optional has no text; take its value with orValue()")
        case _:
            return str(call(meter, "string", [value]))


def _joined(meter: Meter, parts: Sequence[str]) -> str:
    meter.text(sum(map(len, parts)) + 2 * len(parts))
    return ", ".join(parts)


def _clause(meter: Meter, letter: str, precision: str | None, value: Any) -> str:
    """Format one `%` clause of `format`."""
    meter.charge(20)
    type_name = kind(value)
    if letter == "s":
        return formatted(meter, value)
    if letter in "fe" and type_name in {"int", "double"}:
        digits = 6 if precision is None else int(precision)
        if digits > _MAX_PRECISION:
            raise EvaluationError(f"a precision of {digits} is more than {_MAX_PRECISION}")
        return f"{float(value):.{digits}{letter}}" if math.isfinite(value) else format_double(value)
    if letter in "doxXb" and type_name == "int":
        return f"{value:{letter}}"
    if letter == "d" and type_name == "double":
        return format_double(value)
    if letter == "b" and type_name == "bool":
        return "1" if value else "0"
    if letter in "xX" and type_name in {"string", "bytes"}:
        meter.text(len(value) * 8)
        text: str = (value.encode("utf-8", "surrogatepass") if type_name == "string" else value).hex()
        return text.upper() if letter == "X" else text
    raise EvaluationError(f"`format` cannot write {article(type_name)} as %{letter}; use %s")


@declare_member("format", "string list", "string")
def _format(meter: Meter, text: str, values: Sequence[Any]) -> str:
    meter.text(len(text))
    meter.charge(len(text) >> 2)
    pieces: list[str] = []
    rest = iter(values)
    length = end = 0
    for match in _CLAUSE.finditer(text):
        piece = text[end : match.start()]
        end = match.end()
        if match[2] is None:
            raise EvaluationError(
                f"{short(text[match.start() :][:8])} in `format` is not one of %s %d %f %e %x %o %b %%"
            )
        if match[2] == "%":
            piece += "%"
        else:
            try:
                value = next(rest)
            except StopIteration:
                raise EvaluationError(f"`format` has more clauses than the {len(values)} values given") from None
            piece += _clause(meter, match[2], match[1], value)
        pieces.append(piece)
        length += len(piece)
        meter.text(length)
    pieces.append(text[end:])
    meter.text(length + len(text) - end)
    return "".join(pieces)
