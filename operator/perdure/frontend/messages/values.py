"""The values of fields: durations, times, names, sizes, enums. Reading one checks it, and an error names the field. Pure."""

import math
from collections.abc import Iterable, Sized
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Annotated, Any, TypeAlias
from uuid import UUID

import msgspec
from google.protobuf.message import Message
from temporalio.api.common.v1 import RetryPolicy as ProtoRetryPolicy

from perdure.engine.retry import RetryPolicy

MAX_ID = 1_000
"""Maximum length of IDs and names, in characters."""
MAX_BLOB = 2 * 1024 * 1024
"""Maximum size of one value, such as an input, in bytes; as on Temporal's server."""
MAX_INLINE = 256 * 1024
"""Maximum size of a value that is stored within another object instead of in a Payload, in bytes."""
UNLIMITED = 2**31
"""Size limit of values that only the limit of the whole message applies to, in bytes."""
MAX_MEMO = 64 * 1024
"""Maximum size of a memo, in bytes."""
MAX_EVENT = 2**31 - 1
"""The exclusive upper limit of event IDs."""
MAX_PAYLOADS = 10_000
"""Maximum number of payloads of one value, because processing even small payloads takes time."""
MAX_PARTS = 50_000
"""Maximum number of items in all lists and maps of a request: in memory, an empty one takes far more than its two bytes."""
LONGEST = timedelta(days=36_500)
"""Longer durations are reduced to this, as on Temporal's server (common/primitives/timestamp/duration.go)."""
_BILLION = 1_000_000_000
NO_TIME = datetime(1, 1, 1, tzinfo=UTC)
"""Go's zero time, which Temporal's server sends in some fields for unset times."""

Time: TypeAlias = Annotated[datetime, msgspec.Meta(tz=True)]
"""A time with a UTC offset; times without one cannot be compared."""


@cache
def snake_case(name: str) -> str:
    """The name of a message as fields have it: `WorkflowExecutionStarted` is `workflow_execution_started`."""
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in name).lstrip("_")


class UnfitError(ValueError):
    """A value is invalid; the message names the field."""


class OversizeError(UnfitError):
    """A value exceeds a limit of Temporal's server, which terminates a workflow whose command contains such a value."""


def is_uuid(text: str) -> bool:
    """Whether an ID is a UUID, like the IDs of runs."""
    try:
        UUID(text)
    except ValueError:
        return False
    return True


def duration(message: Any, field: str) -> timedelta:
    """Read a duration, rounded up to microseconds so that only zero becomes zero; zero if it is not set.

    Raises:
        UnfitError: It is negative, or none.
    """
    value = getattr(message, field)
    if abs(value.nanos) >= _BILLION:
        raise UnfitError(f"invalid {field}: nanos must be less than a second")
    if value.seconds * value.nanos < 0:
        raise UnfitError(f"invalid {field}: duration has seconds and nanos with different signs")
    if value.seconds < 0 or value.nanos < 0:
        raise UnfitError(f"invalid {field}: negative duration")
    if value.seconds >= LONGEST.total_seconds():
        return LONGEST
    return timedelta(seconds=value.seconds, microseconds=-(-value.nanos // 1_000))


def duration_or_none(message: Any, field: str) -> timedelta | None:
    """Read a duration; None if it is not set or zero.

    Raises:
        UnfitError: It is negative, or none.
    """
    return duration(message, field) or None


def timestamp(message: Any, field: str) -> datetime | None:
    """Read a time; None if it is not set.

    Raises:
        UnfitError: The time is not between the years 1 and 9999.
    """
    if not message.HasField(field):
        return None
    try:
        found: datetime = getattr(message, field).ToDatetime(tzinfo=UTC)
    except (ValueError, OverflowError):
        raise UnfitError(f"invalid {field}: must be a time between the years 1 and 9999") from None
    return found


def set_time(message: Any, field: str, time: datetime | None) -> None:
    """Set a time in a message, if there is one."""
    if time is not None:
        getattr(message, field).FromDatetime(time)


def name(value: str, field: str, *, required: bool = True) -> str:
    """Read an ID or a name.

    Raises:
        UnfitError: The value is missing or too long.
    """
    if required and not value:
        raise UnfitError(f"{field} is not set")
    if len(value) > MAX_ID:
        raise UnfitError(f"{field} length exceeds limit: it has {len(value):,} characters; the limit is {MAX_ID:,}.")
    return value


def check_count(payloads: Sized) -> None:
    """Check that there are not too many payloads.

    Raises:
        UnfitError: There are too many.
    """
    if len(payloads) > MAX_PAYLOADS:
        raise UnfitError(
            f"Blob data size exceeds limit. It has {len(payloads):,} payloads; the limit is {MAX_PAYLOADS:,}."
        )


def parts(message: Message) -> int:
    """Count the items in all lists and maps of a message.

    Raises:
        UnfitError: They are more than `MAX_PARTS`.
    """
    count, left = 0, [message]
    while left:
        for field, value in left.pop().ListFields():
            kind = field.message_type
            if not field.is_repeated:
                if kind is not None:
                    left.append(value)
                continue
            count += len(value)
            if count > MAX_PARTS:
                raise UnfitError(f"The lists and maps of the request have more than {MAX_PARTS:,} items.")
            if kind is None:
                continue
            if not kind.GetOptions().map_entry:
                left.extend(value)
            elif kind.fields_by_name["value"].message_type is not None:
                left.extend(value.values())
    return count


def check_total_size(messages: Iterable[Message], limit: int = MAX_INLINE) -> None:
    """Check that the total size of payloads is within a limit.

    Raises:
        UnfitError: The payloads are too large.
    """
    check_size(sum(each.ByteSize() for each in messages), limit, "Memo" if limit == MAX_MEMO else "Blob data")


def check_size(size: int, limit: int = MAX_INLINE, noun: str = "Blob data") -> None:
    """Check that the size of a value, in bytes, is within a limit.

    Raises:
        UnfitError: The value is too large; an OversizeError if the limit is one of Temporal's.
    """
    if size > limit:
        error = OversizeError if limit == MAX_BLOB else UnfitError
        raise error(f"{noun} size exceeds limit. It has {size:,} bytes; the limit is {limit:,}.")


def retry_policy(policy: ProtoRetryPolicy) -> RetryPolicy:
    """Read a retry policy. Unset fields get Temporal's defaults.

    Raises:
        UnfitError: The policy is invalid; the message is Temporal's.
    """
    first = duration(policy, "initial_interval") or timedelta(seconds=1)
    coefficient = policy.backoff_coefficient or 2.0
    longest = duration_or_none(policy, "maximum_interval")
    if not math.isfinite(coefficient):
        raise UnfitError("BackoffCoefficient must be a finite number on retry policy.")
    if coefficient < 1:
        raise UnfitError("BackoffCoefficient cannot be less than 1 on retry policy.")
    if longest is not None and longest < first:
        raise UnfitError("MaximumInterval cannot be less than InitialInterval on retry policy.")
    if policy.maximum_attempts < 0:
        raise UnfitError("MaximumAttempts cannot be negative on retry policy.")
    return RetryPolicy(
        initial_interval=first,
        backoff_coefficient=coefficient,
        maximum_interval=longest,
        maximum_attempts=policy.maximum_attempts,
        non_retryable_error_types=tuple(policy.non_retryable_error_types),
    )


# Enums: ``EVENT_TYPE_TIMER_FIRED`` in Temporal's API is ``TimerFired`` in Perdure

_ALIASES = {"Cancelled": "Canceled"}


def to_enum(kind: Any, name: str) -> Any:
    """The number of a CamelCase name; 0 if the enum does not have the name."""
    numbers, _ = _names_of(kind)
    return numbers.get(name, numbers.get(_ALIASES.get(name, ""), 0))


def from_enum(kind: Any, number: int) -> str:
    """The CamelCase name of a number; empty if the enum does not have the number."""
    return _names_of(kind)[1].get(number, "")


@cache
def _names_of(kind: Any) -> tuple[dict[str, int], dict[int, str]]:
    descriptor = kind.DESCRIPTOR
    prefix = "".join(f"_{c}" if c.isupper() and i else c for i, c in enumerate(descriptor.name)).upper() + "_"
    numbers: dict[str, int] = {}
    back: dict[int, str] = {}
    for value in descriptor.values:
        name = "".join(word.capitalize() for word in value.name.removeprefix(prefix).split("_"))
        numbers[name] = value.number
        back.setdefault(value.number, name)
    return numbers, back
