"""Reads foreign manifests field by field, so that no field is lost unnoticed.

`Fields` reports what has no counterpart; `Source`, of schedules, rejects it.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from perdure.api.fields import MAX_COUNT
from perdure.api.json_values import nests_deeper
from perdure.api.times import format_duration, parse_duration

Object = dict[str, Any]


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

    def __bool__(self) -> bool:
        """Whether there is anything to report."""
        return bool(self.gaps or self.notes)

    def move(self, start: str, to: str) -> None:
        """Correct the paths of an object that was converted as a part of another one."""
        for remarks in (self.gaps, self.notes):
            remarks[:] = [
                Remark(to + each.path.removeprefix(start), each.message) if each.path.startswith(start) else each
                for each in remarks
            ]

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
            report.gap(path, f"must be a map, not {format_value(data)}")

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
            self.report.gap(self.at(name), f"must be a list, not {format_value(value)}")
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


class UnsupportedScheduleError(Exception):
    """A schedule has a part without an equivalent. The message is one sentence with the path of the part, and the fix."""


_DIGITS = re.compile("[0-9]{1,18}")
_PROTOBUF_SECONDS = re.compile(r"([0-9]{1,12})(?:\.[0-9]*)?s")
_MAX_DEPTH = 100
"""Maximum number of levels of a converted manifest: what writes YAML calls itself for each."""
_SHOWN = 60
"""Characters of a value in a message."""


class Source:
    """A map to convert: every field must be taken, so that none is lost unnoticed."""

    def __init__(self, data: Object, path: str) -> None:
        self.data = dict(data)
        self.path = path

    def take(self, name: str, default: Any = None) -> Any:
        """Take a field of any type."""
        value = self.data.pop(name, None)
        return default if value is None else value

    def text(self, name: str) -> str | None:
        """Take a text; None for an absent or empty one."""
        value = self.take(name, "")
        if not isinstance(value, str):
            raise self.refuse(name, f"must be a string, not {shorten(value)}; write it in quotes")
        return value or None

    def required(self, name: str, remedy: str) -> str:
        """Take a required text."""
        value = self.text(name)
        if value is None:
            raise self.refuse(name, f"must be set; {remedy}")
        return value

    def number(self, name: str, default: int) -> int:
        """Take a nonnegative integer; 64-bit integers are text in the JSON of protobuf."""
        value = self.take(name, default)
        if isinstance(value, str) and _DIGITS.fullmatch(value):
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MAX_COUNT:
            raise self.refuse(name, f"must be a whole number from 0 to {MAX_COUNT}, not {shorten(value)}")
        return value

    def flag(self, name: str) -> bool:
        """Take a boolean; false if absent."""
        value = self.take(name, False)
        if not isinstance(value, bool):
            raise self.refuse(name, f"must be true or false, not {shorten(value)}")
        return value

    def duration(self, name: str) -> str | None:
        """Take a duration in protobuf's format; return it in our format, in whole seconds as Temporal's server uses them."""
        value = self.text(name)
        if value is None:
            return None
        seconds = _PROTOBUF_SECONDS.fullmatch(value)
        try:
            return format_seconds(int(seconds[1])) if seconds else format_duration(parse_duration(value))
        except ValueError:
            raise self.refuse(name, f"must be a duration in seconds, such as `3600s`, not {shorten(value)}") from None

    def nonzero_duration(self, name: str) -> str | None:
        """Take a duration; None also for zero, which is the default."""
        length = self.duration(name)
        return None if length == "0s" else length

    def part(self, name: str) -> "Source":
        """Take a map."""
        return self._below(name, name, self.take(name, {}))

    def parts(self, name: str) -> list["Source"]:
        """Take a list of maps."""
        return [self._below(name, f"{name}[{i}]", each) for i, each in enumerate(self.items(name))]

    def texts(self, name: str) -> list[str]:
        """Take a list of texts."""
        found = self.items(name)
        if not all(isinstance(each, str) for each in found):
            raise self.refuse(name, f"must be a list of strings, not {shorten(found)}; write each in quotes")
        return found

    def items(self, name: str) -> list[Any]:
        """Take a list."""
        value = self.take(name, [])
        if not isinstance(value, list):
            raise self.refuse(name, f"must be a list, not {shorten(value)}; write it in brackets")
        return value

    def refuse(self, name: str, why: str) -> UnsupportedScheduleError:
        """Create the error about a field."""
        return UnsupportedScheduleError(f"{self.path_of(name)}: {why}")

    def done(self) -> None:
        """Check that every field was taken."""
        for name, value in self.data.items():
            if value not in (None, {}, [], "", False, 0):
                raise self.refuse(name, "has no equivalent; remove it, and see docs/schedules.md for alternatives")

    def _below(self, name: str, place: str, value: Any) -> "Source":
        if not isinstance(value, dict):
            raise self.refuse(place, f"must be a map with the fields of `{name}`, not {shorten(value)}")
        return Source(value, self.path_of(place))

    def path_of(self, name: str) -> str:
        """The path of a field, for messages."""
        return f"{self.path}{'.' if ': ' in self.path else ': '}{name}"


def shorten(value: Any) -> str:
    """Shorten a value for messages."""
    text = _start_of(value) if isinstance(value, dict | list) else str(value)
    return f"`{text if len(text) <= _SHOWN else text[:_SHOWN] + '…'}`"


def _start_of(value: Any) -> str:
    """Return the start of a value in JSON, which may be very long."""
    text = ""
    for part in json.JSONEncoder(default=str).iterencode(value):
        text += part
        if len(text) > _SHOWN:
            break
    return text


def format_seconds(number: int) -> str:
    """Format a duration, in seconds, for the API."""
    return format_duration(timedelta(seconds=number))


def as_text(value: Any) -> str:
    """Convert a scalar of YAML to text; a list or a map to JSON."""
    return value if isinstance(value, str) else json.dumps(value)


def format_value(value: Any) -> str:
    """Format a value for a message."""
    return f"`{_start_of(value)[:_SHOWN]}`"


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


def cycle_of(refers: Mapping[str, Iterable[str]]) -> list[str]:
    """Return names that refer to each other in a circle; empty if no names do."""
    ended: set[str] = set()
    for first in refers:
        path = {} if first in ended else {first: iter(refers[first])}
        while path:
            name, rest = next(reversed(path.items()))
            found = next(rest, None)
            if found is None:
                del path[name]
                ended.add(name)
            elif found in path:
                names = list(path)
                return [*names[names.index(found) :], found]
            elif found in refers and found not in ended:
                path[found] = iter(refers[found])
    return []


def circle(names: Sequence[str], verb: str = "refers to") -> str:
    """Format names that refer to each other, for a message."""
    return f", which {verb} ".join(f"`{name}`" for name in names)


@dataclass(slots=True)
class ConvertedObject:
    """An object of another system, and the manifests to which it was converted."""

    source: str
    """Kind and name of the original."""
    manifests: list[Object] = field(default_factory=list)
    report: ConversionReport = field(default_factory=ConversionReport)

    @contextmanager
    def conversion(self) -> Iterator[None]:
        """Report an object whose parts are nested, or refer to each other, too deeply."""
        deep = False
        try:
            yield
        except RecursionError:
            deep = True
        if deep or any(nests_deeper(each, _MAX_DEPTH) for each in self.manifests):
            self.manifests.clear()
            self.report.gap(
                "spec", "its parts are nested, or refer to each other, too deeply; divide it into several objects"
            )

    def report_rest(self, find: Callable[[str], Iterator[re.Match[str]]], known: Callable[[str], bool]) -> None:
        """Report each foreign reference that remains in the manifests: it would be literal text.

        Args:
            find: Finds references in a text; the first group is the content.
            known: Whether a content is a reference of the system; other texts in braces are not.
        """
        for manifest in self.manifests:
            where = f"{manifest['kind']}/{manifest['metadata'].get('name', manifest['metadata'].get('generateName'))}"
            for path, text in walk(manifest, where):
                for found in find(text):
                    if known(found[1].strip()):
                        self.report.gap(f"the result {path}", f"`{found[0]}` was not translated; write the value here")


def namespace_of(document: Object) -> str:
    """Return the namespace of an object; empty if it is that of the kubeconfig."""
    metadata = document.get("metadata")
    return str((metadata if isinstance(metadata, dict) else {}).get("namespace") or "")


def visible(documents: Sequence[Object], namespace: str) -> dict[tuple[str, str], Object]:
    """Return the objects to which one of a namespace can refer, by kind and name.

    Those without a namespace may be in any; an object in the same namespace has precedence over them. To an object without a
    namespace, those of a namespace are only visible if no other one has the same kind and name.

    Args:
        documents: The objects. Those of cluster-scoped kinds must have no namespace.
        namespace: The namespace of the object that refers to them.
    """
    places: dict[tuple[str, str], dict[str, Object]] = {}
    for each in documents:
        metadata = each.get("metadata") or {}
        key = str(each.get("kind")), str(metadata.get("name") or "")
        places.setdefault(key, {})[namespace_of(each)] = each
    found = {}
    for key, by_namespace in places.items():
        only = next(iter(by_namespace.values())) if len(by_namespace) == 1 and not namespace else None
        chosen = by_namespace.get(namespace) or by_namespace.get("") or only
        if chosen is not None:
            found[key] = chosen
    return found


def name_of(document: Object) -> str:
    """Return kind and name of an object."""
    metadata = document.get("metadata")
    fields = metadata if isinstance(metadata, dict) else {}
    name = fields.get("name") or fields.get("generateName")
    return f"{document.get('kind')}/{as_text(name) if name else '(no name)'}"
