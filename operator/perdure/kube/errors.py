"""The errors of requests to the API server.

::

    RequestError                the request failed
    ├── ApiError                the API server rejected it; with the HTTP code `status`, and Kubernetes' `reason` and `message`
    │   ├── NotFoundError       404
    │   ├── AlreadyExistsError  409 AlreadyExists
    │   ├── ConflictError       409 Conflict: someone else wrote first
    │   ├── InvalidError        400, 422: the API server will never accept this object
    │   ├── TooLargeError       413, or a message of etcd: the object or the request is too large
    │   └── UnreadableError     the API server answered with an object that cannot be decoded; `status` is 200
    └── NoResponseError         nothing came, or not from an API server: whether the request was processed is unknown
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_TOO_LARGE_FOR_ETCD: Final = ("etcdserver: request is too large", "trying to send message larger than max")
"""Messages of etcd. They have no code of their own: the API server passes them on with 500."""


class RequestError(Exception):
    """A request to the API server failed. Every request of this package can be repeated."""


class NoResponseError(RequestError):
    """The API server did not respond: the connection failed, was silent for too long, or led to something else.

    Whether the request was processed is unknown. The error of the connection, if there is one, is its ``__cause__``.
    """

    @property
    def is_timeout(self) -> bool:
        """Whether the API server was silent for too long."""
        return isinstance(self.__cause__, TimeoutError)


class ApiError(RequestError):
    """The API server rejected a request."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message


class NotFoundError(ApiError):
    """The object does not exist."""


class AlreadyExistsError(ApiError):
    """The object already exists."""


class ConflictError(ApiError):
    """The object has changed since it was read."""


class InvalidError(ApiError):
    """The API server will never accept this object."""


class TooLargeError(ApiError):
    """The object or the request exceeds a size limit of the API server or etcd."""


class UnreadableError(ApiError):
    """The object cannot be decoded."""


@contextmanager
def no_response(*errors: type[Exception]) -> Iterator[None]:
    """Convert the errors of a connection to a `NoResponseError`.

    Args:
        errors: Their classes. OSError includes the standard library's TimeoutError.
    """
    try:
        yield
    except errors as error:
        raise NoResponseError(str(error) or type(error).__name__) from error  # some have no message


def error_of(status: int, raw: bytes) -> ApiError:
    """Convert an error response to an exception.

    Args:
        status: The HTTP status.
        raw: The body: a `Status` as JSON, unless a proxy responded.

    Returns:
        An error of the class for this status.
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
