"""Functions on text, `format`, which writes values into text, and `matches`: the library's RE2, with a cost known in advance."""

import base64
import binascii
import functools
import math
import re
from collections.abc import Sequence
from typing import Any, Final

from cel_expr_python import cel

from perdure.language.cel.functions.registry import call, declare_function, declare_member, implement
from perdure.language.cel.limits import MAX_DEPTH, MAX_PATTERN, EvaluationError, LimitError, Meter
from perdure.language.cel.values import article, format_double, kind, short, sorted_keys


def _scan(meter: Meter, text: str, part: str) -> None:
    """Charge the worst case of a search in a text."""
    meter.charge((len(text) >> 5) + (len(text) * min(len(part), len(text) - len(part) + 1 if part else 0) >> 6) + 1)


@implement("contains", "string string")
def _has_text(meter: Meter, text: str, part: str) -> bool:
    _scan(meter, text, part)
    return part in text


@implement("startsWith", "string string")
def _starts(meter: Meter, text: str, part: str) -> bool:
    meter.charge((len(part) >> 8) + 1)
    return text.startswith(part)


@implement("endsWith", "string string")
def _ends(meter: Meter, text: str, part: str) -> bool:
    meter.charge((len(part) >> 8) + 1)
    return text.endswith(part)


def _position(index: int, length: int) -> int:
    if not 0 <= index <= length:
        raise EvaluationError(f"the text has {length} characters, so position {index} does not exist")
    return index


@declare_member("charAt", "string int", "string")
def _char_at(_meter: Meter, text: str, index: int) -> str:
    return text[_position(index, len(text)) : index + 1]


@declare_member("indexOf", "string string", "int")
@declare_member("indexOf", "string string int", "int")
def _index_of(meter: Meter, text: str, part: str, start: int = 0) -> int:
    _scan(meter, text, part)
    return text.find(part, _position(start, len(text)))


@declare_member("lastIndexOf", "string string", "int")
@declare_member("lastIndexOf", "string string int", "int")
def _last_index_of(meter: Meter, text: str, part: str, start: int | None = None) -> int:
    _scan(meter, text, part)
    if start is None:
        return text.rfind(part)
    return text.rfind(part, 0, _position(start, len(text)) + len(part))


def _texts(items: Sequence[Any]) -> int:
    """The total number of characters of a list of strings; rejects other items."""
    total = 0
    for item in items:
        if not isinstance(item, str):
            raise EvaluationError(
                f"`join` needs a list of strings, and there is {article(kind(item))} in it; map it with string()"
            )
        total += len(item)
    return total


@declare_member("join", "list", "string")
@declare_member("join", "list string", "string")
def _join(meter: Meter, items: Sequence[Any], between: str = "") -> str:
    meter.charge(len(items) + 1)
    meter.text(_texts(items) + len(between) * max(len(items) - 1, 0))
    return between.join(items)


@declare_member("lowerAscii", "string", "string")
def _lower(meter: Meter, text: str) -> str:
    meter.text(len(text))
    meter.charge(len(text) >> 5)  # to bytes and back
    return text.encode("utf-8", "surrogatepass").lower().decode("utf-8", "surrogatepass")


@declare_member("upperAscii", "string", "string")
def _upper(meter: Meter, text: str) -> str:
    meter.text(len(text))
    meter.charge(len(text) >> 5)  # to bytes and back
    return text.encode("utf-8", "surrogatepass").upper().decode("utf-8", "surrogatepass")


@declare_member("replace", "string string string", "string")
@declare_member("replace", "string string string int", "string")
def _replace(meter: Meter, text: str, old: str, new: str, limit: int = -1) -> str:
    _scan(meter, text, old)
    count = text.count(old) if limit < 0 else min(text.count(old), limit)
    meter.charge(count >> 3)
    meter.text(len(text) + count * (len(new) - len(old)))
    return text.replace(old, new, limit)


@declare_member("split", "string string", "list")
@declare_member("split", "string string int", "list")
def _split(meter: Meter, text: str, between: str, limit: int = -1) -> list[str]:
    if limit == 0:
        return []
    _scan(meter, text, between)
    meter.charge(len(text) >> 6)
    count = text.count(between) + 1 if limit < 0 else min(text.count(between) + 1, limit)
    meter.items(count)
    meter.charge(count >> 1)
    if between:
        return text.split(between, limit - 1 if limit > 0 else -1)
    return list(text) if limit < 0 or limit >= len(text) else [*text[: limit - 1], text[limit - 1 :]]


@declare_member("substring", "string int", "string")
@declare_member("substring", "string int int", "string")
def _substring(meter: Meter, text: str, start: int, end: int | None = None) -> str:
    stop = len(text) if end is None else _position(end, len(text))
    if _position(start, len(text)) > stop:
        raise EvaluationError(f"the end {stop} of the substring lies before its start {start}")
    meter.text(stop - start)
    return text[start:stop]


@declare_member("trim", "string", "string")
def _trim(meter: Meter, text: str) -> str:
    meter.text(len(text))
    return text.strip()


@declare_member("reverse", "string", "string")
def _reverse(meter: Meter, text: str) -> str:
    meter.text(len(text))
    return text[::-1]


_QUOTED: Final = str.maketrans(
    {
        "\\": "\\\\",
        '"': '\\"',
        "\a": "\\a",
        "\b": "\\b",
        "\f": "\\f",
        "\n": "\\n",
        "\r": "\\r",
        "\t": "\\t",
        "\v": "\\v",
    }
)


@declare_function("strings.quote", "string", "string")
def _quote(meter: Meter, text: str) -> str:
    meter.text(2 * len(text) + 2)
    meter.charge(len(text) >> 1)
    return f'"{text.translate(_QUOTED)}"'


@declare_function("base64.encode", "bytes", "string")
def _base64(meter: Meter, value: bytes) -> str:
    meter.text(len(value) * 4 // 3 + 4)
    return base64.b64encode(value).decode()


@declare_function("base64.decode", "string", "bytes")
def _unbase64(meter: Meter, text: str) -> bytes:
    meter.text(len(text))
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise EvaluationError(f"{short(text)} is not base64") from None


# `format`


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


_REPEAT = re.compile(r"\{(\d{1,6})(?:,(\d{0,6}))?\}")
_CLASS_WEIGHT: Final = 1_000


def pattern_weight(pattern: str) -> int:
    """An upper bound for the size of a compiled pattern: its length with all counted repeats expanded."""
    stack = [0]
    last = 0
    at = 0
    while at < len(pattern):
        char = pattern[at]
        repeat = _REPEAT.match(pattern, at) if char == "{" else None
        if repeat:
            last_before = last
            last *= max(int(repeat[1]), int(repeat[2] or 0), 1)
            stack[-1] += last - last_before
            at = repeat.end()
            continue
        if char == "(":
            stack.append(0)
        elif char == ")" and len(stack) > 1:
            last = stack.pop() + 2
            stack[-1] += last
        else:
            last = 1
            if char == "\\":
                at += 1
                last = _CLASS_WEIGHT if pattern[at : at + 1] in "pP" else 4
            elif char in ".[" or not char.isascii():
                last = 8
            stack[-1] += last
        at += 1
    size = sum(stack)
    return size * 2 if "(?" in pattern else size


@functools.cache
def _matcher() -> Any:
    env = cel.NewEnv(variables={"text": cel.Type.STRING, "pattern": cel.Type.STRING})
    return env.compile("text.matches(pattern)")


def matches(meter: Meter, text: Any, pattern: Any) -> bool:
    """`matches`: the library's RE2, which never backtracks. The cost assumes that it tries every state at every character."""
    if not isinstance(text, str) or not isinstance(pattern, str):
        raise EvaluationError(f"`matches` needs two strings, not {article(kind(text))} and {article(kind(pattern))}")
    if len(pattern) > MAX_PATTERN:
        raise LimitError(f"a regular expression may have {MAX_PATTERN} characters, and this one has {len(pattern)}")
    weight = pattern_weight(pattern)
    meter.charge((len(text) + 64) * (weight + 1) // 16 + 150)
    try:
        result = _matcher().eval(data={"text": text, "pattern": pattern})
    except (RuntimeError, ValueError) as error:
        raise EvaluationError(f"`matches` cannot read this text: {short(str(error))}") from None
    if result.type() == cel.Type.ERROR:
        raise EvaluationError(f"{short(pattern)} is not a regular expression (RE2 syntax)")
    return bool(result.value())
