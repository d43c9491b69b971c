"""The exceptions of activities.

BaseException
 ├─ CancelledError            the cancellation of the activity was requested
 │   └─ SupersededError       the run no longer waits for this attempt
 └─ Exception
     └─ ApplicationError      a failure with its own type
         └─ PayloadTooLargeError
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from datetime import timedelta


class CancelledError(BaseException):
    """The activity was requested to stop: clean up, then let this exception propagate.

    It is not an `Exception`, so that code that catches exceptions to retry does not swallow it.
    """


class SupersededError(CancelledError):
    """The API server rejects the heartbeats: the attempt timed out or its run closed, and its result would be ignored.

    The message comes from the API server. If it reports missing permissions, the pod's service account is not allowed to
    patch Leases.
    """


class ApplicationError(Exception):
    """A failure of the activity, with a type and details for its handlers."""

    def __init__(
        self,
        message: str = "",
        *,
        type: str | None = None,  # noqa: A002 - the name the failure document and Temporal's SDKs have for it
        details: Any = None,
        non_retryable: bool = False,
        next_retry_delay: timedelta | float | None = None,
    ) -> None:
        """Describe the failure.

        Args:
            message: The message for users.
            type: The type that `catch` and retry policies match. Default: the name of the exception's class.
            details: Any JSON value, for the code that handles the failure.
            non_retryable: Whether to never retry, regardless of the retry policy.
            next_retry_delay: How long to wait before the next attempt, overriding the retry policy: a `timedelta`, or
                seconds.
        """
        super().__init__(message)
        self.message = message
        self.type = type
        self.details = details
        self.non_retryable = non_retryable
        self.next_retry_delay = next_retry_delay


class PayloadTooLargeError(ApplicationError):
    """A result or heartbeat details are too large. They are never truncated."""

    def __init__(self, message: str) -> None:
        """Create the error with a message that says which value exceeded which limit."""
        super().__init__(message, type="PayloadTooLarge", non_retryable=True)
