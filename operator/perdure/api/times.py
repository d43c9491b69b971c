"""Times (RFC 3339) and durations (`90s`, `1h30m`, `30d`) in manifests.

The format of durations is GEP-2257 of the Gateway API (whole numbers with the units h, m, s and ms, at most four of them, in any
order) with more digits for the small units (`604800s`), optionally preceded by days of 24 hours: `30d`, `1d12h`.
The Python value is always a `datetime.timedelta`.

This module defines three field types of durations; others are `Annotated[timedelta, DurationShape(...)]`:

* `Duration`: any duration, `0s` included;
* `PositiveDuration`: longer than `0s`;
* `DecimalDuration`: also Google's form, decimal seconds with up to nine fractional digits (`3.5s`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
    from pydantic.json_schema import JsonSchemaValue
    from pydantic_core import core_schema


TIME_PATTERN = "^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]{1,9})?(Z|[+-][0-9]{2}:[0-9]{2})$"
"""RFC 3339 with an offset."""

TIME_MESSAGE = "must be an RFC 3339 time with an offset, such as `2026-12-24T18:00:00Z`"
"""Validation message for an invalid time."""

DURATION_PATTERN = r"^(\d{1,5}d)?(\d{1,5}h|\d{1,7}m|\d{1,9}m?s){0,4}$"
"""What `parse_duration` accepts, except the empty string. Go and Python (with `re.ASCII`) interpret it equally. It is short,
because the API server computes the cost of a rule from the length of its pattern. The numbers of digits keep the sum of four
parts below 292 years, the maximum of a duration in CEL; GEP-2257 allows five digits for every unit."""

DECIMAL_PATTERN = r"^((\d{1,5}d)?(\d{1,5}h|\d{1,7}m|\d{1,9}m?s){0,4}|\d{1,10}[.]\d{1,9}s)$"
"""What `parse_decimal_duration` accepts: `DURATION_PATTERN`, or decimal seconds."""

DURATION_MAX_LENGTH = 34
"""Maximum length of a duration."""

DURATION_MESSAGE = "must be a duration such as `90s`, `1h30m` or `30d`"
"""Validation message for an invalid duration."""

DECIMAL_MESSAGE = "must be a duration such as `90s`, `1h30m` or `30d`, or decimal seconds such as `3.5s`"
"""The same for fields that also take Google's form."""

DURATION_SIZES = (
    "with days first, at most four other parts, and at most 5 digits of days and hours, 7 of minutes, and 9 of others"
)
"""What else is said of an invalid text whose parts all have numbers and units."""

LONGEST = timedelta(days=99_999)
"""The maximum duration, 273 years. A longer sum of parts becomes this one."""

MILLISECOND = timedelta(milliseconds=1)
"""The resolution of a duration."""

_TIME_FORM = re.compile(TIME_PATTERN)
_DURATION_FORM = re.compile(DURATION_PATTERN, re.ASCII)
_DECIMAL_FORM = re.compile(DECIMAL_PATTERN, re.ASCII)
_PART = re.compile("([0-9]+)(ms|[dhms])")
_PARTS = re.compile(f"({_PART.pattern})+")
_MILLISECONDS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}


def parse_time(text: str) -> datetime:
    """Read a time such as `2026-12-24T18:00:00Z`.

    Args:
        text: RFC 3339, with an offset.

    Returns:
        The time in UTC, to the microsecond.

    Raises:
        ValueError: The text is invalid; the message shows the valid form.
    """
    if _TIME_FORM.fullmatch(text) is None:
        raise ValueError(TIME_MESSAGE)
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise ValueError(TIME_MESSAGE) from error


def format_time(value: datetime) -> str:
    """Write a time as RFC 3339 in UTC.

    Args:
        value: A time with a time zone.

    Returns:
        Such as `2026-12-24T18:00:00Z`; with six fractional digits if any is not zero.

    Raises:
        ValueError: The time has no time zone.
    """
    if value.tzinfo is None:
        raise ValueError(f"{value.isoformat()} must have a time zone")
    return value.astimezone(UTC).isoformat().replace("+00:00", "Z")


def parse_duration(text: str) -> timedelta:
    """Read a duration such as `1h30m`.

    Args:
        text: Whole numbers with the units d, h, m, s or ms; days first, then at most four others in any order.

    Returns:
        The sum of the parts, at most `LONGEST`.

    Raises:
        ValueError: The text is invalid; the message shows the valid form.
    """
    if not text or len(text) > DURATION_MAX_LENGTH or _DURATION_FORM.fullmatch(text) is None:
        raise ValueError(_mistake(text, DURATION_MESSAGE))
    milliseconds = sum(int(number) * _MILLISECONDS[unit] for number, unit in _PART.findall(text))
    return min(timedelta(milliseconds=milliseconds), LONGEST)


def parse_decimal_duration(text: str) -> timedelta:
    """Read a duration such as `1h30m`, or decimal seconds such as `3.5s`.

    Args:
        text: A duration for `parse_duration`, or seconds with up to nine fractional digits.

    Returns:
        The duration, truncated to microseconds, at most `LONGEST`.

    Raises:
        ValueError: The text is invalid; the message shows the valid forms.
    """
    if not text or _DECIMAL_FORM.fullmatch(text) is None:
        raise ValueError(_mistake(text, DECIMAL_MESSAGE))
    if "." not in text:
        return parse_duration(text)
    seconds, fraction = text.removesuffix("s").split(".")
    return min(timedelta(seconds=int(seconds), microseconds=int(fraction.ljust(9, "0")[:6])), LONGEST)


def _mistake(text: str, message: str) -> str:
    return f"{text!r} {message}" + (f", {DURATION_SIZES}" if _PARTS.fullmatch(text) else "")


def format_duration(value: timedelta) -> str:
    """Write a duration in its canonical form: largest unit first, units that are zero left out.

    `parse_duration(format_duration(d)) == d` for every whole number of milliseconds up to `LONGEST`.

    Args:
        value: The duration; rounded to the nearest millisecond.

    Returns:
        Such as `1h30m`, `30d` or `0s`.

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
    """Write any duration in the format of manifests; one out of range becomes the nearest valid one.

    Args:
        value: The duration.

    Returns:
        Such as `10s`.
    """
    return format_duration(min(max(value, timedelta(0)), LONGEST))


def nearest_duration(value: timedelta) -> str:
    """Write any duration as a valid `PositiveDuration`: from one millisecond up to `LONGEST`.

    Temporal clients can send others, such as half a millisecond.
    """
    return format_duration(min(max(value, MILLISECOND), LONGEST))


def format_decimal_duration(value: timedelta) -> str:
    """Write a duration as `format_duration` does, or as decimal seconds if that would lose microseconds.

    Args:
        value: The duration, to the microsecond.

    Returns:
        Such as `1h30m` or `0.000001s`.

    Raises:
        ValueError: The duration is negative or longer than `LONGEST`.
    """
    if value % MILLISECOND:
        seconds, fraction = divmod(value, timedelta(seconds=1))
        if timedelta(0) <= value <= LONGEST:
            return f"{seconds}.{fraction.microseconds:06d}".rstrip("0") + "s"
    return format_duration(value)


def duration_cel(text: str = "self", *, decimal: bool = False) -> str:
    """Return a CEL expression that checks that a string is a duration.

    Args:
        text: A CEL expression of type string.
        decimal: Whether decimal seconds are valid as well.

    Returns:
        A CEL expression of type bool.
    """
    return f"{text} != '' && {text}.matches(r'{DECIMAL_PATTERN if decimal else DURATION_PATTERN}')"


def not_longer_cel(shorter: str, longer: str, *, strictly: bool = False, decimal: bool = False) -> str:
    """Return a CEL expression that checks that one duration is not longer than another, to the millisecond.

    Invalid durations pass: another rule reports them.

    Args:
        shorter: A CEL expression of type string, such as `self.initialInterval`.
        longer: Another one.
        strictly: Whether they must not be equal either.
        decimal: Whether they can be decimal seconds.

    Returns:
        A CEL expression of type bool.
    """
    both, comparison = f"[{shorter}, {longer}]", "<" if strictly else "<="
    # CEL has no unit for days. Read as hours, each day is 23 hours short.
    days = "(d.contains('d') ? int(d.substring(0, d.indexOf('d'))) : 0)"
    milliseconds = f"duration(d.replace('d', 'h')).getMilliseconds() + {days} * {23 * _MILLISECONDS['h']}"
    # CEL has no variables: `all` gives the list of both a name. This text is in the CRDs many times.
    compared = f"[{both}.map(d, {milliseconds})].all(m, m[0] {comparison} m[1])"
    return f"!{both}.all(d, {duration_cel('d', decimal=decimal)}) || {compared}"


@dataclass(frozen=True, slots=True, eq=False)
class DurationShape:
    """How a type of duration is read, written and validated, in Python and by the API server."""

    at_least: timedelta = timedelta(0)
    """The minimum; at most one hour, so that the CEL rule is exact although CEL has no days."""

    decimal: bool = False
    """Whether decimal seconds (`3.5s`) are valid as well."""

    @property
    def minimum_message(self) -> str:
        """Validation message for a shorter duration."""
        if self.at_least <= MILLISECOND:
            return "must be longer than `0s`, or left out"
        return f"must be at least `{format_duration(self.at_least)}`"

    def read(self, value: object) -> timedelta:
        """Convert the value of a manifest or a caller to a `timedelta`.

        Args:
            value: A string, or a `timedelta`.

        Returns:
            The duration.

        Raises:
            ValueError: The string is not a duration, or the duration is too short.
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
        """Return the canonical form of a duration.

        Args:
            value: The duration.

        Returns:
            Such as `1h30m`.
        """
        return format_decimal_duration(value) if self.decimal else format_duration(value)

    def _minimum_cel(self) -> str:
        if self.at_least <= MILLISECOND:
            return "self.matches('[^0dhms]')"  # not only zeros and units
        # A day read as an hour satisfies every minimum of up to an hour.
        minimum = f"duration(self.replace('d', 'h')) >= duration('{format_duration(self.at_least)}')"
        return f"!({duration_cel()}) || {minimum}"

    def __get_pydantic_core_schema__(self, _source: object, _handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        from pydantic_core import core_schema  # noqa: PLC0415 - slow to import, and commands need only `parse_duration`

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


def read_time(value: Any) -> datetime | None:
    """Read a time of an object, which may be damaged.

    Args:
        value: A time such as `2026-01-31T12:00:00Z` or `2026-01-31T12:00:00.000000Z`; anything else is invalid.

    Returns:
        The time in UTC, which is also the zone of a time without an offset; None if there is none.
    """
    try:
        time = datetime.fromisoformat(value)
        return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
    except (TypeError, ValueError, OverflowError):
        return None


_FIRST_YEAR = 1971
"""Kubernetes and container runtimes write a year of 0001 or 1970 if they have no time."""


def read_kubernetes_time(value: Any) -> datetime | None:
    """Read a time that Kubernetes has written, as `read_time` does; None also for what it writes if it has no time."""
    time = read_time(value)
    return time if time is not None and time.year >= _FIRST_YEAR else None


def write_micro_time(time: datetime) -> str:
    """Write a time in the format of a Lease's `renewTime`.

    Args:
        time: A time with a time zone.

    Returns:
        For instance `2026-01-31T12:00:00.000000Z`.
    """
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
