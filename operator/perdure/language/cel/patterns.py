"""Regular expressions: the library's RE2, with a cost that is known in advance."""

import functools
import re
from typing import Any, Final

from cel_expr_python import cel

from perdure.language.cel.errors import EvaluationError, LimitError
from perdure.language.cel.formats import short
from perdure.language.cel.limits import MAX_PATTERN, Meter
from perdure.language.cel.values import article, kind

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
