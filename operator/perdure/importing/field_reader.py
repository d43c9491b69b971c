"""Reading foreign manifests field by field, so that no field is lost unnoticed."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

Object = dict[str, Any]

_NAME_START = re.compile("[A-Za-z]")
_NOT_NAME = re.compile("[^-_A-Za-z0-9]+")
_LONGEST_NAME = 63
_IDENTIFIER = re.compile("[A-Za-z_][A-Za-z0-9_]*")
_CEL_WORDS = frozenset(
    {"in", "as", "break", "const", "continue", "else", "for", "function", "if", "import", "let", "loop"}
) | {*("package", "namespace", "return", "var", "void", "while", "true", "false", "null")}


@dataclass(frozen=True, slots=True)
class Remark:
    """A remark about the conversion of a manifest, for its author."""

    path: str
    """The path in the original."""
    message: str


@dataclass(slots=True)
class ConversionReport:
    """The gaps of a conversion, and the differences in behavior."""

    gaps: list[Remark] = field(default_factory=list)
    """The parts without a counterpart, which are missing in the result."""
    notes: list[Remark] = field(default_factory=list)
    """The parts that were converted but behave differently."""

    def gap(self, path: str, message: str) -> None:
        """Report a part without a counterpart, once."""
        remark = Remark(path, message)
        if remark not in self.gaps:
            self.gaps.append(remark)

    def note(self, path: str, message: str) -> None:
        """Report a part that behaves differently, once."""
        remark = Remark(path, message)
        if remark not in self.notes:
            self.notes.append(remark)


class Fields:
    """A map of the original. Each field is taken once; `done` reports the fields that were not taken."""

    def __init__(self, data: Any, path: str, report: ConversionReport) -> None:
        self.data: Object = dict(data) if isinstance(data, dict) else {}
        self.path = path
        self.report = report
        if data is not None and not isinstance(data, dict):
            report.gap(path, f"must be a map, not {shown(data)}")

    def __contains__(self, name: str) -> bool:
        return self.data.get(name) is not None

    def take(self, name: str, default: Any = None) -> Any:
        """Take a field of any type; the default if it is absent or null."""
        value = self.data.pop(name, None)
        return default if value is None else value

    def text(self, name: str) -> str | None:
        """Take a string; numbers and booleans count as their text. None for an absent or empty one."""
        value = self.take(name)
        return None if value is None or isinstance(value, dict | list) else as_text(value) or None

    def part(self, name: str) -> "Fields":
        """Take a map; an absent one is empty."""
        return Fields(self.take(name, {}), self.at(name), self.report)

    def parts(self, name: str) -> list["Fields"]:
        """Take a list of maps."""
        value = self.take(name, [])
        if not isinstance(value, list):
            self.report.gap(self.at(name), f"must be a list, not {shown(value)}")
            return []
        return [Fields(each, f"{self.at(name)}[{i}]", self.report) for i, each in enumerate(value)]

    def drop(self, *names: str) -> None:
        """Take fields that have no meaning on Perdure."""
        for name in names:
            self.data.pop(name, None)

    def at(self, name: str) -> str:
        """The path of a field."""
        return f"{self.path}.{name}" if self.path else name

    def gap(self, name: str, message: str) -> None:
        """Report a field that has no counterpart."""
        self.report.gap(self.at(name) if name else self.path, message)

    def note(self, name: str, message: str) -> None:
        """Report a field that behaves differently."""
        self.report.note(self.at(name) if name else self.path, message)

    def done(self, advice: Mapping[str, str]) -> None:
        """Report each field that was not taken.

        Args:
            advice: The alternative, by field name.
        """
        for name, value in self.data.items():
            if value not in (None, {}, [], "", False):
                self.gap(
                    name,
                    f"has no counterpart; {advice.get(name, 'remove it, or change the workflow so that it is not needed')}",
                )


def as_text(value: Any) -> str:
    """Convert a scalar of YAML to text; a list or a map to JSON."""
    return value if isinstance(value, str) else json.dumps(value)


def shown(value: Any) -> str:
    """Format a value for a message."""
    return f"`{json.dumps(value, default=str)[:60]}`"


def walk(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """Yield all strings in a value, with their paths."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, each in value.items():
            yield from walk(each, f"{path}.{key}")
    elif isinstance(value, list):
        for i, each in enumerate(value):
            yield from walk(each, f"{path}[{i}]")


def literal(value: Any) -> str:
    """Write a JSON value as an expression."""
    if isinstance(value, str):
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n") + "'"
    if isinstance(value, list):
        return f"[{', '.join(map(literal, value))}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{literal(str(key))}: {literal(each)}" for key, each in value.items()) + "}"
    return json.dumps(value)


def member(base: str, name: str) -> str:
    """Return an expression that selects a field."""
    if _IDENTIFIER.fullmatch(name) and name not in _CEL_WORDS:
        return f"{base}.{name}"
    return f"{base}[{literal(name)}]"


class Names:
    """Assigns a unique valid name to each original name."""

    def __init__(self) -> None:
        self._given: dict[tuple[str, ...], str] = {}
        self._taken: set[str] = set()

    def of(self, *key: str) -> str:
        """Return the name for a key, whose last part is the preferred name; the same key always has the same name."""
        if key not in self._given:
            self._given[key] = self.fresh(key[-1])
        return self._given[key]

    def fresh(self, wish: str) -> str:
        """Return an unused name."""
        base = valid_name(wish)
        name, number = base, 2
        while name in self._taken:
            name = f"{base[: _LONGEST_NAME - 4]}-{number}"
            number += 1
        self._taken.add(name)
        return name


def valid_name(wish: str) -> str:
    """Convert a text to a name for definitions: letters, digits, dashes and underscores, and a letter first."""
    name = _NOT_NAME.sub("-", wish).strip("-")
    return (name if _NAME_START.match(name) else f"s-{name}")[:_LONGEST_NAME]
