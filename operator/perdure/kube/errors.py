"""What the API server answers when it refuses a request.

::

    ApiError              the API server refused; `status` is the HTTP code, `reason` Kubernetes' word, `message` its sentence
    ├── NotFoundError     404
    ├── AlreadyExistsError  409 AlreadyExists
    ├── ConflictError     409 Conflict: someone else wrote first
    ├── InvalidError      400, 422: it will never be accepted as it is
    ├── TooLargeError     413, and what etcd says instead: it will never fit
    └── UnreadableError   the API server answered with an object that cannot be decoded; `status` is 200
"""

import json
from typing import Final

_TOO_LARGE_FOR_ETCD: Final = ("etcdserver: request is too large", "trying to send message larger than max")
"""etcd's refusals have no code of their own: the API server passes them on as its own failure, with 500."""


class ApiError(Exception):
    """The API server refused."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message


class NotFoundError(ApiError):
    """There is no such object."""


class AlreadyExistsError(ApiError):
    """There is such an object already."""


class ConflictError(ApiError):
    """The object has changed since it was read."""


class InvalidError(ApiError):
    """The object will never be accepted as it is."""


class TooLargeError(ApiError):
    """The object, or the request, is larger than the API server or etcd takes."""


class UnreadableError(ApiError):
    """The object cannot be decoded."""


def error_of(status: int, raw: bytes) -> ApiError:
    """Read a refusal.

    Args:
        status: The HTTP status.
        raw: The body, a `Status` as JSON unless a proxy in between answered.

    Returns:
        The error of the class that fits the status.
    """
    try:
        answer = json.loads(raw)
    except (ValueError, RecursionError):
        answer = {}
    if not isinstance(answer, dict):
        answer = {}
    reason = str(answer.get("reason") or status)
    message = str(answer.get("message") or raw[:500].decode(errors="replace"))
    kind: type[ApiError] = {
        400: InvalidError,
        404: NotFoundError,
        409: AlreadyExistsError if reason == "AlreadyExists" else ConflictError,
        413: TooLargeError,
        422: InvalidError,
        500: TooLargeError if any(words in message for words in _TOO_LARGE_FOR_ETCD) else ApiError,
    }.get(status, ApiError)
    return kind(status, reason, message)
