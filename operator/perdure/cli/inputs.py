"""Reads what users give: JSON values, the input of a run to start, and times."""

import json
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from pathlib import Path
from typing import Any

import click

from perdure.api.json_values import exact_integer, exact_number
from perdure.cli.command import option
from perdure.client.errors import CliError

parameter_option = option(
    "-p",
    "--parameter",
    "parameters",
    metavar="KEY=VALUE",
    multiple=True,
    help="A field of the input; a value that is not JSON is text; repeatable",
)


def value(text: str | None, option: str) -> Any:
    """Read the JSON value of an option: the value itself, or a file.

    Args:
        text: JSON; `@FILE` for the contents of a file, `@-` for standard input; None for no value.
        option: Name of the option, for the message.

    Raises:
        BadParameter: The text is not valid JSON.
        CliError: The file cannot be read.
    """
    if text is None:
        return None
    if text.startswith("@"):
        try:
            text = sys.stdin.read() if text == "@-" else Path(text[1:]).read_text(encoding="utf-8")
        except (OSError, UnicodeError) as error:
            raise CliError(f"the file of {option} cannot be read: {error}") from error
    try:
        return _parsed_json(text)
    except _InfiniteError as error:
        raise click.BadParameter(str(error), param_hint=option) from error
    except (json.JSONDecodeError, RecursionError) as error:
        message = f"is not JSON: {error}; write a string with its quotes: '\"yes\"'; write a file as @FILE"
        raise click.BadParameter(message, param_hint=option) from error


class _InfiniteError(ValueError):
    """A number is too large, or none."""


def _parsed_json(text: str) -> Any:
    """Parse JSON; integers of more than 64 bits become texts with the same digits, as in the results of activities.

    Raises:
        ValueError: It is not valid JSON.
        _InfiniteError: It has a number that JSON cannot write, such as `1e400`.
    """
    return json.loads(text, parse_int=exact_integer, parse_float=_finite, parse_constant=_finite)


def _finite(digits: str) -> float:
    found = float(digits)
    if not math.isfinite(found):
        raise _InfiniteError(f"`{digits}` is not a number that Kubernetes can store; write it as a text, in quotes")
    return found


def json_or_text(text: str) -> Any:
    """Parse a text as JSON; returns the text itself if it is not valid JSON, or a number that JSON would write differently.

    Raises:
        BadParameter: A list or an object has a number that JSON cannot write.
    """
    if not text.strip().startswith(("{", "[", '"')):
        try:
            value = json.loads(text)
        except ValueError:
            return text
        if value is None or isinstance(value, bool):
            return value
        number = exact_number(text)
        return text if number is None else number
    try:
        return _parsed_json(text)
    except _InfiniteError as error:
        raise click.BadParameter(str(error)) from error
    except (ValueError, RecursionError):
        return text


def with_parameters(value: Any, parameters: Iterable[str]) -> Any:
    """Set some fields of an input.

    Args:
        value: The input; None for no input.
        parameters: Each `key=value`; the value is JSON, or else a text. A field that is a text remains a text.

    Raises:
        BadParameter: A parameter has another form, a field is set twice, or the input has no fields.
    """
    fields: dict[str, Any] = {}
    for parameter in parameters:
        key, equals, text = parameter.partition("=")
        if not equals or not key:
            raise click.BadParameter(f"`{parameter}` does not have the form key=value", param_hint="-p")
        if key in fields:
            raise click.BadParameter(f"`{key}` is given twice", param_hint="-p")
        parsed, is_text = json_or_text(text), isinstance(value, dict) and isinstance(value.get(key), str)
        fields[key] = text if is_text and not isinstance(parsed, str) else parsed
    if not fields:
        return value
    if value is not None and not isinstance(value, dict):
        raise click.BadParameter("sets fields of an object, but the input is not an object", param_hint="-p")
    return {**(value or {}), **fields}


input_option = option(
    "--input", "-i", "inputs", multiple=True, help="Input: JSON or @FILE; for code, repeatable: an argument each"
)


def inputs_of(texts: Iterable[str] | None) -> list[Any]:
    """Read the values of `--input`.

    Raises:
        BadParameter: A value is not valid JSON.
        CliError: A file cannot be read.
    """
    return [value(each, "--input") for each in texts or ()]


def with_input(spec: Mapping[str, Any], values: Sequence[Any], parameters: Iterable[str] | None) -> Any:
    """Return the input of a new run.

    Args:
        spec: The spec of the run; its input counts if no other is given.
        values: The values of `--input`. Several are the arguments of code.
        parameters: The values of `-p`, which set fields of a single input.

    Raises:
        BadParameter: The run cannot have several inputs, or a parameter is invalid.
    """
    is_code = "type" in (spec.get("workflow") or {}) or "activity" in spec
    if len(values) > 1 and not is_code:
        raise click.BadParameter(
            "a Workflow in YAML has one input: give one object, such as --input '{\"id\": 7}', or set its fields with -p",
            param_hint="--input",
        )
    found = values[0] if values else spec.get("input")
    if len(values) > 1:
        found = {"payloads": [{"json": each} for each in values]}
    if parameters and is_code and isinstance(found, dict) and found.keys() == {"payloads"}:
        raise click.BadParameter("sets fields of one input; give several arguments with --input only", param_hint="-p")
    return with_parameters(found, parameters or ())


_EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)


def has_zone(text: str) -> bool:
    """Return whether a time has an offset from UTC.

    Raises:
        CliError: The text is not a time.
    """
    return _parsed(text).tzinfo is not None


def parse_time(text: str, zone: tzinfo) -> datetime:
    """Read a time.

    Args:
        text: RFC 3339, or a date or a time without an offset.
        zone: The time zone of a time without an offset.

    Returns:
        The time, in UTC.

    Raises:
        CliError: The text is not a time, or the time is before 1970.
    """
    time = _parsed(text)
    try:
        time = (time.replace(tzinfo=zone) if time.tzinfo is None else time).astimezone(UTC)
    except OverflowError:
        raise _not_a_time(text) from None
    if time < _EARLIEST:
        raise CliError(f"`{text}` is before 1970; use a later time")
    return time


def parse_days(text: str, zone: tzinfo, now: datetime) -> tuple[datetime, datetime]:
    """Read a day or a range of days: the first and the last second of it, in UTC.

    Args:
        text: A date, `today`, or `yesterday`; or two of them with `..` between them.
        zone: The time zone of the days.
        now: The time.

    Raises:
        CliError: The text is not a day or a range of days.
    """
    first, separator, last = text.partition("..")
    start, end = _day(first, zone, now), _day(last if separator else first, zone, now)
    if end < start:
        raise CliError(f"`{text}`: the last day is before the first one")
    try:
        after = datetime.combine(end + timedelta(days=1), time(), zone).astimezone(UTC)
    except OverflowError:
        raise CliError(f"`{text}` is too late; use an earlier day") from None
    return parse_time(start.isoformat(), zone), after - timedelta(seconds=1)


def _day(text: str, zone: tzinfo, now: datetime) -> date:
    today = now.astimezone(zone).date()
    named = {"today": today, "yesterday": today - timedelta(days=1)}
    try:
        return named[text] if text in named else date.fromisoformat(text)
    except ValueError:
        raise CliError(f"`{text}` is not a day: write 2026-03-29, `today`, or `yesterday`") from None


def _parsed(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise _not_a_time(text) from None


def _not_a_time(text: str) -> CliError:
    return CliError(
        f"`{text}` is not a time: write 2026-03-29T00:00:00Z, or 2026-03-29 for midnight in the schedule's time zone"
    )
