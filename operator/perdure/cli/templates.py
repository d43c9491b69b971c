"""Custom output formats, as in kubectl: JSONPath templates and custom columns."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from perdure.lazy import lazily

with lazily():
    import jsonpath

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from jsonpath import JSONPath

JSONPATH, COLUMNS = TEMPLATES = "jsonpath=", "custom-columns="
_TOKEN = re.compile(r"\{((?:[^{}\"']|\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*')*)\}|([^{]+)", re.DOTALL)
_ESCAPED_NAME = re.compile(r"\.((?:[^.\[\]\\]|\\.)*\\\.(?:[^.\[\]\\]|\\.)*)")
_UNESCAPED, _FIRST = re.compile(r"\\(.)"), r"\1"
_NONE = "<none>"


class TemplateError(ValueError):
    """A template is invalid."""


def render(output: str, data: Any) -> str:
    """Format data with a custom format.

    Args:
        output: `jsonpath=TEMPLATE` or `custom-columns=SPEC`.
        data: The output of `-o json`.

    Returns:
        The text, without a newline at the end.
    """
    parsed = parse(output)
    return parsed.render(data) if isinstance(parsed, OutputTemplate) else parsed.render(_items(data))


def parse(output: str) -> OutputTemplate | Columns:
    """Parse a custom format.

    Raises:
        TemplateError: The template is invalid.
    """
    if output.startswith(JSONPATH):
        return OutputTemplate.parse(output.removeprefix(JSONPATH))
    return Columns.parse(output.removeprefix(COLUMNS))


@dataclass(frozen=True, slots=True)
class Range:
    """A part of a template that is repeated for each match of a path."""

    path: JSONPath
    body: OutputTemplate


@dataclass(frozen=True, slots=True)
class OutputTemplate:
    """Text with paths in braces."""

    parts: Sequence[str | JSONPath | Range]

    @staticmethod
    def parse(text: str) -> OutputTemplate:
        """Read a template, such as `{range .items[*]}{.metadata.name} {end}`.

        Raises:
            TemplateError: The template is invalid.
        """
        tokens = list(_tokens(text if "{" in text else f"{{{text}}}"))
        template, rest = _template(tokens)
        if rest:
            raise TemplateError("`{end}` has no `{range}`")
        return template

    def render(self, data: Any) -> str:
        """Fill in the matches of the paths; several matches of one path are separated by spaces."""
        text = []
        for part in self.parts:
            match part:
                case str():
                    text.append(part)
                case Range(path=path, body=body):
                    text += [body.render(item) for item in path.findall(data)]
                case _:
                    text.append(" ".join(map(_shown, part.findall(data))))
        return "".join(text)


@dataclass(frozen=True, slots=True)
class Columns:
    """A table with a column for each path."""

    heading: Sequence[str]
    paths: Sequence[JSONPath]

    @staticmethod
    def parse(text: str) -> Columns:
        """Read columns, such as `NAME:.metadata.name,PHASE:.status.phase`.

        Raises:
            TemplateError: The columns are invalid.
        """
        pairs = [column.partition(":") for column in text.split(",")]
        for title, colon, path in pairs:
            if not title or not colon or not path:
                raise TemplateError(f"`{title}{colon}{path}` does not have the form TITLE:PATH")
        return Columns([title for title, _, _ in pairs], [_path(path.strip("{}")) for _, _, path in pairs])

    def render(self, items: Sequence[Any]) -> str:
        """Write a line for each item, below the titles."""
        rows = [[",".join(map(_shown, path.findall(item))) or _NONE for path in self.paths] for item in items]
        lines = [list(self.heading), *rows]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        return "\n".join(
            "   ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
        )


def _tokens(text: str) -> Iterator[tuple[bool, str]]:
    """Split a template: whether it is in braces, and the text."""
    at = 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise TemplateError(f"`{text[at:]}` has a brace that is not closed")
        yield found[1] is not None, (found[2] if found[1] is None else found[1].strip())
        at = found.end()


def _template(tokens: Sequence[tuple[bool, str]]) -> tuple[OutputTemplate, Sequence[tuple[bool, str]]]:
    """Parse up to the end of a range or of the template. Return the rest, beginning with the `end`."""
    parts: list[str | JSONPath | Range] = []
    while tokens:
        (braced, text), *tokens = tokens
        if not braced:
            parts.append(text)
        elif text == "end":
            return OutputTemplate(parts), [(braced, text), *tokens]
        elif text.startswith(("'", '"')):
            parts.append(_literal(text))
        elif text.startswith("range "):
            body, rest = _template(tokens)
            if not rest:
                raise TemplateError(f"`{{{text}}}` has no `{{end}}`")
            parts.append(Range(_path(text.removeprefix("range ").strip()), body))
            tokens = rest[1:]
        else:
            parts.append(_path(text))
    return OutputTemplate(parts), []


def _literal(text: str) -> str:
    inner = text[1:-1] if text[0] == '"' else text[1:-1].replace("\\'", "'").replace('"', '\\"')
    try:
        return str(json.loads(f'"{inner}"', strict=False))
    except ValueError:
        raise TemplateError(f"{text} is not a valid string") from None


def _path(text: str) -> JSONPath:
    r"""Compile a path in kubectl's syntax: the leading `$` is optional, and `\\.` is a dot in a name."""
    rooted = re.sub(r"^[$@]?(?=[\w*])", ".", text)
    rooted = _ESCAPED_NAME.sub(lambda found: f"[{json.dumps(_UNESCAPED.sub(_FIRST, found[1]))}]", rooted)
    try:
        compiled = jsonpath.compile(f"${rooted.removeprefix('$').removeprefix('@')}")
    except jsonpath.JSONPathError as error:
        raise TemplateError(f"`{text}` is not a valid path: {error.args[0]}") from None
    if not isinstance(compiled, jsonpath.JSONPath):
        raise TemplateError(f"`{text}` is not a single path")
    return compiled


def _items(data: Any) -> list[Any]:
    items = data.get("items") if isinstance(data, dict) else data
    return items if isinstance(items, list) else [data]


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
