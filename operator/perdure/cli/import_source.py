"""Reads a manifest of another system field by field."""

import json
import re
from datetime import timedelta
from typing import Any

from perdure.api.durations import format_duration, parse_duration
from perdure.client.errors import CliError

MOST = 2**31 - 1
_DIGITS = re.compile("[0-9]{1,18}")
_PROTOBUF_SECONDS = re.compile(r"([0-9]{1,12})(?:\.[0-9]*)?s")
_SHOWN = 60
"""Characters of a value in a message."""


class ImportSource:
    """A map to convert: every field must be taken, so that none is lost unnoticed."""

    def __init__(self, data: dict[str, Any], path: str) -> None:
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
            raise self.refuse(name, f"must be a string, not {shown(value)}; write it in quotes")
        return value or None

    def needed(self, name: str, remedy: str) -> str:
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
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MOST:
            raise self.refuse(name, f"must be a whole number from 0 to {MOST}, not {shown(value)}")
        return value

    def flag(self, name: str) -> bool:
        """Take a boolean; false if absent."""
        value = self.take(name, False)
        if not isinstance(value, bool):
            raise self.refuse(name, f"must be true or false, not {shown(value)}")
        return value

    def length(self, name: str) -> str | None:
        """Take a duration in protobuf's format; return it in our format, in whole seconds as Temporal's server uses them."""
        value = self.text(name)
        if value is None:
            return None
        seconds = _PROTOBUF_SECONDS.fullmatch(value)
        try:
            return whole_seconds(int(seconds[1])) if seconds else format_duration(parse_duration(value))
        except ValueError:
            raise self.refuse(name, f"must be a duration in seconds, such as `3600s`, not {shown(value)}") from None

    def length_but_zero(self, name: str) -> str | None:
        """Take a duration; None also for zero, which is the default."""
        length = self.length(name)
        return None if length == "0s" else length

    def part(self, name: str) -> "ImportSource":
        """Take a map."""
        return self._below(name, name, self.take(name, {}))

    def parts(self, name: str) -> list["ImportSource"]:
        """Take a list of maps."""
        return [self._below(name, f"{name}[{i}]", each) for i, each in enumerate(self.many(name))]

    def texts(self, name: str) -> list[str]:
        """Take a list of texts."""
        found = self.many(name)
        if not all(isinstance(each, str) for each in found):
            raise self.refuse(name, f"must be a list of strings, not {shown(found)}; write each in quotes")
        return found

    def many(self, name: str) -> list[Any]:
        """Take a list."""
        value = self.take(name, [])
        if not isinstance(value, list):
            raise self.refuse(name, f"must be a list, not {shown(value)}; write it in brackets")
        return value

    def refuse(self, name: str, why: str) -> CliError:
        """Create the error about a field."""
        return CliError(f"{self._path(name)}: {why}")

    def done(self) -> None:
        """Check that every field was taken."""
        for name, value in self.data.items():
            if value not in (None, {}, [], "", False, 0):
                raise self.refuse(name, "has no equivalent; remove it, and see docs/schedules.md for alternatives")

    def _below(self, name: str, place: str, value: Any) -> "ImportSource":
        if not isinstance(value, dict):
            raise self.refuse(place, f"must be a map with the fields of `{name}`, not {shown(value)}")
        return ImportSource(value, self._path(place))

    def _path(self, name: str) -> str:
        return f"{self.path}{'.' if ': ' in self.path else ': '}{name}"


def shown(value: Any) -> str:
    """Shorten a value for messages."""
    text = json.dumps(value, default=str) if isinstance(value, dict | list) else str(value)
    return f"`{text if len(text) <= _SHOWN else text[:_SHOWN] + '…'}`"


def whole_seconds(number: int) -> str:
    """Format a duration for the API."""
    return format_duration(timedelta(seconds=number))
