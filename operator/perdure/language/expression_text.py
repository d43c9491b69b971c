"""Finds the expressions in texts with ``${…}``."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

_SHOWN: Final = 120
"""Maximum characters of an expression in messages."""


class ExpressionError(Exception):
    """An expression does not compile, or has no value for this scope."""

    def __init__(self, expression: str, path: str, message: str) -> None:
        super().__init__(expression, path, message)
        self.expression = expression
        """The CEL source, without ``${`` and ``}``."""
        self.path = path
        """Path of the expression in the value: ``input.items[0]``."""
        self.message = message
        """The problem, and how to fix it."""

    def __str__(self) -> str:
        where = f"{self.path}: " if self.path else ""
        return f"{where}${{{_clip(self.expression)}}}: {self.message}"


@dataclass(frozen=True, slots=True)
class ExpressionSource:
    """The text between the braces."""

    source: str


def split(text: str, path: str) -> Iterator[str | ExpressionSource]:
    """Split a string into literal pieces and expressions."""
    literal: list[str] = []
    at = 0
    while (start := text.find("${", at)) >= 0:
        if start > at and text[start - 1] == "$":
            literal.append(text[at : start - 1] + "${")
            at = start + 2
            continue
        literal.append(text[at:start])
        if any(literal):
            yield "".join(literal)
        literal = []
        end = _closing(text, start + 2)
        if end < 0:
            raise ExpressionError(text[start + 2 :], path, "the closing } is missing; write $${ for a literal ${")
        yield ExpressionSource(text[start + 2 : end])
        at = end + 1
    literal.append(text[at:])
    if any(literal):
        yield "".join(literal)


def _closing(text: str, at: int) -> int:
    """Return the end of the expression that begins at `at`: the first } outside of braces, strings, and comments."""
    depth = 0
    while at < len(text):
        char = text[at]
        if char in "'\"":
            at = _string_end(text, at)
            continue
        if text.startswith("//", at):
            at = text.find("\n", at)
            if at < 0:
                return -1
        elif char == "{":
            depth += 1
        elif char == "}":
            if depth == 0:
                return at
            depth -= 1
        at += 1
    return -1


def _string_end(text: str, at: int) -> int:
    """The position after the string that begins at `at`; the end of the text if it never ends."""
    raw = text[at - 1 : at] in {"r", "R"} or text[at - 2 : at].lower() in {"rb", "br"}
    quote = text[at] * 3 if text.startswith(text[at] * 3, at) else text[at]
    at += len(quote)
    while at < len(text):
        if text[at] == "\\" and not raw:
            at += 2
        elif text.startswith(quote, at):
            return at + len(quote)
        else:
            at += 1
    return len(text)


def _clip(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
