"""Durations as people write them: `90s`, `1h30m`, `30d`.

The form is GEP-2257 of the Gateway API (whole numbers with the units h, m, s and ms, at most four of them, in any
order) with more digits for the small units (`604800s`), and before it there may be days of 24 hours: `30d`, `1d12h`.
The Python value is always a `datetime.timedelta`.

Three types for fields are made here; others are `Annotated[timedelta, DurationShape(...)]`:

* `Duration`: any duration, `0s` included;
* `PositiveDuration`: longer than `0s`;
* `DecimalDuration`: also Google's form, decimal seconds with up to nine fractional digits (`3.5s`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

from pydantic_core import core_schema

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
    from pydantic.json_schema import JsonSchemaValue

DURATION_PATTERN = r"^(\d{1,5}d)?(\d{1,5}h|\d{1,7}m|\d{1,9}m?s){0,4}$"
"""What `parse_duration` accepts, but for the empty string. Go and Python (with `re.ASCII`) read it alike. It is short, since the
API server counts the cost of a rule by the length of its pattern. The digits keep the sum of four parts below the 292 years that
a duration of CEL can hold; GEP-2257 allows five of every unit."""

DECIMAL_PATTERN = r"^((\d{1,5}d)?(\d{1,5}h|\d{1,7}m|\d{1,9}m?s){0,4}|\d{1,10}[.]\d{1,9}s)$"
"""What `parse_decimal_duration` accepts: `DURATION_PATTERN`, or decimal seconds."""

DURATION_MAX_LENGTH = 34
"""Characters of the longest duration."""

DURATION_MESSAGE = (
    "must be a duration: whole numbers with the units d, h, m, s or ms, such as `90s`, `1h30m` or `30d`, with at most "
    "5 digits of days and hours, 7 of minutes, 9 of seconds"
)
"""The sentence a person sees who wrote something else."""

DECIMAL_MESSAGE = (
    "must be a duration such as `90s`, `1h30m` or `30d`, or decimal seconds with at most nine fractional "
    "digits, such as `3.5s`"
)
"""The same for fields that also take Google's form."""

LONGEST = timedelta(days=99_999)
"""The longest duration, 273 years. A longer sum of parts counts as this one."""

MILLISECOND = timedelta(milliseconds=1)
"""The finest part of a duration."""

_FORM = re.compile(DURATION_PATTERN, re.ASCII)
_DECIMAL_FORM = re.compile(DECIMAL_PATTERN, re.ASCII)
_PART = re.compile("([0-9]+)(ms|[dhms])")
_MILLISECONDS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}


def parse_duration(text: str) -> timedelta:
    """Read a duration such as `1h30m`.

    Args:
        text: Whole numbers with the units d, h, m, s or ms; days first, then at most four others in any order.

    Returns:
        The sum of the parts, at most `LONGEST`.

    Raises:
        ValueError: The text has another form; the message says which one is accepted.
    """
    if not text or len(text) > DURATION_MAX_LENGTH or _FORM.fullmatch(text) is None:
        raise ValueError(f"{text!r} {DURATION_MESSAGE}")
    milliseconds = sum(int(number) * _MILLISECONDS[unit] for number, unit in _PART.findall(text))
    return min(timedelta(milliseconds=milliseconds), LONGEST)


def parse_decimal_duration(text: str) -> timedelta:
    """Read a duration such as `1h30m`, or decimal seconds such as `3.5s`.

    Args:
        text: What `parse_duration` takes, or seconds with up to nine fractional digits.

    Returns:
        The duration, to the microsecond (finer digits are cut), at most `LONGEST`.

    Raises:
        ValueError: The text has another form; the message says which ones are accepted.
    """
    if not text or _DECIMAL_FORM.fullmatch(text) is None:
        raise ValueError(f"{text!r} {DECIMAL_MESSAGE}")
    if "." not in text:
        return parse_duration(text)
    seconds, fraction = text.removesuffix("s").split(".")
    return min(timedelta(seconds=int(seconds), microseconds=int(fraction.ljust(9, "0")[:6])), LONGEST)


def format_duration(value: timedelta) -> str:
    """Write a duration in its canonical form: largest unit first, units that are zero left out.

    `parse_duration(format_duration(d)) == d` for every whole number of milliseconds up to `LONGEST`.

    Args:
        value: The duration; rounded to the nearest millisecond, the form has nothing finer.

    Returns:
        For instance `1h30m`, `30d` or `0s`.

    Raises:
        ValueError: The duration is negative or longer than `LONGEST`.
    """
    if not timedelta(0) <= value <= LONGEST:
        raise ValueError(f"{value} must be between 0s and {LONGEST.days}d to be written as a duration")
    rest = round(value / MILLISECOND)
    parts = []
    for unit, size in _MILLISECONDS.items():
        number, rest = divmod(rest, size)
        if number:
            parts.append(f"{number}{unit}")
    return "".join(parts) or "0s"


def show_duration(value: timedelta) -> str:
    """Write any duration for people, as manifests do; out of range it is the nearest one that can be written.

    Args:
        value: The duration.

    Returns:
        For instance `10s`.
    """
    return format_duration(min(max(value, timedelta(0)), LONGEST))


def nearest_duration(value: timedelta) -> str:
    """Write any duration as one that a field of the type `PositiveDuration` takes: from one millisecond up to `LONGEST`.

    Clients of Temporal may ask for others, such as half a millisecond.
    """
    return format_duration(min(max(value, MILLISECOND), LONGEST))


def format_decimal_duration(value: timedelta) -> str:
    """Write a duration as `format_duration` does, or as decimal seconds where that would lose microseconds.

    Args:
        value: The duration, to the microsecond.

    Returns:
        For instance `1h30m` or `0.000001s`.

    Raises:
        ValueError: The duration is negative or longer than `LONGEST`.
    """
    if value % MILLISECOND:
        seconds, fraction = divmod(value, timedelta(seconds=1))
        if timedelta(0) <= value <= LONGEST:
            return f"{seconds}.{fraction.microseconds:06d}".rstrip("0") + "s"
    return format_duration(value)


def duration_cel(text: str = "self", *, decimal: bool = False) -> str:
    """CEL that says that a text is a duration.

    Args:
        text: A CEL expression of type string.
        decimal: Whether decimal seconds count as well.

    Returns:
        A CEL expression of type bool.
    """
    return f"{text} != '' && {text}.matches(r'{DECIMAL_PATTERN if decimal else DURATION_PATTERN}')"


def not_longer_cel(shorter: str, longer: str, *, strictly: bool = False, decimal: bool = False) -> str:
    """CEL that says that one duration is not longer than another, to the millisecond.

    What is no duration passes: its own rule tells.

    Args:
        shorter: A CEL expression of type string, such as `self.initialInterval`.
        longer: Another one.
        strictly: Whether they must not be equal either.
        decimal: Whether they may be decimal seconds.

    Returns:
        A CEL expression of type bool.
    """
    comparison = "<" if strictly else "<="
    wellformed = f"{duration_cel(shorter, decimal=decimal)} && {duration_cel(longer, decimal=decimal)}"

    def milliseconds(text: str) -> str:
        # CEL knows no days. Read as hours, each is 23 hours short.
        days = f"({text}.contains('d') ? int({text}.substring(0, {text}.indexOf('d'))) : 0)"
        return f"duration({text}.replace('d', 'h')).getMilliseconds() + {days} * {23 * _MILLISECONDS['h']}"

    return f"!({wellformed}) || {milliseconds(shorter)} {comparison} {milliseconds(longer)}"


@dataclass(frozen=True, slots=True, eq=False)
class DurationShape:
    """How one kind of duration field is read, written and checked, in Python and by the API server."""

    at_least: timedelta = timedelta(0)
    """The shortest allowed; at most one hour, which keeps the CEL rule exact without knowing days."""

    decimal: bool = False
    """Whether decimal seconds (`3.5s`) are taken as well."""

    @property
    def minimum_message(self) -> str:
        """The sentence a person sees who wrote a shorter duration."""
        if self.at_least <= MILLISECOND:
            return "must be longer than `0s`; leave the field out for its default"
        return f"must be at least `{format_duration(self.at_least)}`"

    def read(self, value: object) -> timedelta:
        """Turn what a manifest or a caller gives into a `timedelta`.

        Args:
            value: Text, or a `timedelta` that is taken as it is.

        Returns:
            The duration.

        Raises:
            ValueError: The text is no duration, or it is shorter than allowed.
        """
        if isinstance(value, timedelta):
            duration = value
        elif isinstance(value, str):
            duration = parse_decimal_duration(value) if self.decimal else parse_duration(value)
        else:
            raise ValueError(DECIMAL_MESSAGE if self.decimal else DURATION_MESSAGE)  # noqa: TRY004 - pydantic's way
        if duration < self.at_least:
            raise ValueError(self.minimum_message)
        return duration

    def write(self, value: timedelta) -> str:
        """Give the canonical text of a duration.

        Args:
            value: The duration.

        Returns:
            For instance `1h30m`.
        """
        return format_decimal_duration(value) if self.decimal else format_duration(value)

    def _minimum_cel(self) -> str:
        if self.at_least <= MILLISECOND:
            return "self.matches('[^0dhms]')"  # not zeros and units alone
        # A day read as an hour is long enough for every minimum of up to an hour.
        minimum = f"duration(self.replace('d', 'h')) >= duration('{format_duration(self.at_least)}')"
        return f"!({duration_cel()}) || {minimum}"

    def __get_pydantic_core_schema__(self, _source: object, _handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return core_schema.no_info_plain_validator_function(
            self.read,
            serialization=core_schema.plain_serializer_function_ser_schema(
                self.write, return_schema=core_schema.str_schema(), when_used="json-unless-none"
            ),
        )

    def __get_pydantic_json_schema__(
        self, _schema: core_schema.CoreSchema, _handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        rules = [
            {
                "rule": duration_cel(decimal=self.decimal),
                "message": DECIMAL_MESSAGE if self.decimal else DURATION_MESSAGE,
            }
        ]
        if self.at_least:
            rules.append({"rule": self._minimum_cel(), "message": self.minimum_message})
        return {"type": "string", "maxLength": DURATION_MAX_LENGTH, "x-kubernetes-validations": rules}


Duration = Annotated[timedelta, DurationShape()]
"""A field that holds any duration."""

PositiveDuration = Annotated[timedelta, DurationShape(at_least=MILLISECOND)]
"""A field that holds a duration longer than `0s`."""

DecimalDuration = Annotated[timedelta, DurationShape(decimal=True)]
"""A field that holds a duration or decimal seconds."""
