"""JSON values that Kubernetes stores without changing them, and the document of a failed attempt, which the operator reads."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

from ._errors import ApplicationError, CancelledError, SupersededError

_LONGEST_INTEGER = 2**63
_DEEPEST = 200
_LONGEST_MESSAGE = 1000
_LONGEST_TYPE = 200
_LONGEST_DELAY = 999_999_999.0


def encode(value: Any) -> str:
    """Write a value as compact JSON.

    Args:
        value: Any JSON value.

    Returns:
        The text.

    Raises:
        TypeError: The value is not a JSON value.
        ValueError: Kubernetes cannot store the value unchanged: NaN, an integer beyond 64 bits, or lists nested too deeply.
    """
    _check(value, 0)
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    text.encode()  # fails for half a surrogate pair
    return text


def decode(text: str) -> Any:
    """Decode JSON. Return any other text unchanged.

    Args:
        text: The text.

    Returns:
        The value.
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def decode_output(text: str) -> Any:
    """Decode what a program has written: JSON, or any other text without the newlines at its end.

    A number counts as text unless writing it again gives the same characters, so that `1.10` and `007` remain as they are.

    Args:
        text: The text; blank means null.

    Returns:
        The value.
    """
    if not text.strip():
        return None
    value, plain = decode(text), text.rstrip("\r\n")
    if isinstance(value, str) and value == text:
        return plain
    if isinstance(value, int | float) and not isinstance(value, bool):
        is_exact = json.dumps(value) == plain and "e" not in plain and -_LONGEST_INTEGER <= value < _LONGEST_INTEGER
        return value if is_exact and (isinstance(value, int) or not value.is_integer()) else plain
    return value


def _check(value: Any, depth: int) -> None:
    if isinstance(value, int):
        if not -_LONGEST_INTEGER <= value < _LONGEST_INTEGER:
            raise ValueError(f"the integer {value} is beyond 64 bits and would lose digits; pass it as a string")
    elif isinstance(value, dict | list | tuple):
        if depth >= _DEEPEST:
            raise ValueError(f"a payload must not be nested more than {_DEEPEST} levels deep")
        for item in value.values() if isinstance(value, dict) else value:
            _check(item, depth + 1)


def error_document(error: BaseException, limit: int) -> str:
    """Describe an exception.

    Args:
        error: The exception.
        limit: The size limit of the document in bytes. Details that do not fit are left out, and the message says so; a
            stack trace loses its first lines.

    Returns:
        `{"error": {"type", "message", "details", "nonRetryable", "nextRetryDelay", "stackTrace", "cancelled"}}` as JSON.
    """
    body: dict[str, Any] = {"message": _cut(_message(error), _LONGEST_MESSAGE)}
    if isinstance(error, CancelledError) and not isinstance(error, SupersededError):
        body["cancelled"] = True
    else:
        body["type"] = _cut(_type(error), _LONGEST_TYPE)
    if isinstance(error, ApplicationError):
        if error.non_retryable:
            body["nonRetryable"] = True
        delay = _delay(error.next_retry_delay)
        if delay is not None:
            body["nextRetryDelay"] = delay
        if error.details is not None:
            _add_details(body, error.details, limit)
    while _size(body) > limit and body["message"]:
        body["message"] = _cut(body["message"], len(body["message"]) // 2)
    _add_stack_trace(body, error, limit)
    return _text(body)


def _type(error: BaseException) -> str:
    if isinstance(error, ApplicationError) and error.type:
        return error.type
    return type(error).__name__


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as broken:  # noqa: BLE001 - an exception that cannot be printed must not hide that there was one
        return f"(its message cannot be printed: {type(broken).__name__})"


def _delay(delay: timedelta | float | None) -> str | None:
    if delay is None:
        return None
    seconds = delay.total_seconds() if isinstance(delay, timedelta) else float(delay)
    return f"{min(max(seconds, 0.0), _LONGEST_DELAY):.6f}s" if seconds == seconds else None  # noqa: PLR0124 - not NaN


def _add_details(body: dict[str, Any], details: Any, limit: int) -> None:
    try:
        encode(details)
        remark = ""
    except (TypeError, ValueError, RecursionError) as error:
        remark = f" (its details are not valid JSON and were left out: {_cut(str(error), 100)})"
    if not remark and _size({**body, "details": details}) > limit:
        remark = f" (its details were left out: {len(encode(details).encode())} bytes are too many)"
    if remark:
        body["message"] += remark
    else:
        body["details"] = details


def _add_stack_trace(body: dict[str, Any], error: BaseException, limit: int) -> None:
    import traceback  # noqa: PLC0415 - only a failure pays for it

    lines = "".join(traceback.format_exception(error)).strip().splitlines()
    trace = "\n".join(lines)
    while lines and _size({**body, "stackTrace": trace}) > limit:
        # Keep the end, which shows where it happened, and cut at line boundaries.
        lines = lines[len(lines) // 8 + 1 :]
        trace = "\n".join(["…", *lines])
    if lines:
        body["stackTrace"] = trace


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[: max(length - 1, 0)] + "…"


def _text(body: dict[str, Any]) -> str:
    text = json.dumps({"error": body}, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "replace").decode()


def _size(body: dict[str, Any]) -> int:
    return len(_text(body).encode())
