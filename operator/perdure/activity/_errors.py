"""The errors that an activity raises, and those that are raised in it.

BaseException
 ├─ CancelledError            the cancellation of the activity was requested
 │   └─ SupersededError       nothing waits for this attempt anymore
 └─ Exception
     └─ ApplicationError      a failure with a type of its own
         └─ PayloadTooLargeError
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from datetime import timedelta


class CancelledError(BaseException):
    """The activity should stop: clean up, then let this exception propagate.

    It is not an `Exception`, so code that catches those in order to retry does not swallow it.
    """


class SupersededError(CancelledError):
    """The API server rejects this attempt's heartbeats: it timed out or its run closed, and its result would be ignored.

    The message is the API server's. If it is about missing permissions, the pod's service account is not allowed to
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
            message: For people.
            type: The type for `catch` and retry policies. Default: the name of the exception's class.
            details: Any JSON value, for the code that handles the failure.
            non_retryable: Whether the activity must not be retried, regardless of the retry policy.
            next_retry_delay: How long to wait before the next attempt, instead of the interval of the retry policy; a
                number means seconds.
        """
        super().__init__(message)
        self.message = message
        self.type = type
        self.details = details
        self.non_retryable = non_retryable
        self.next_retry_delay = next_retry_delay


class PayloadTooLargeError(ApplicationError):
    """A result or heartbeat details are too large for their destination. They are never truncated."""

    def __init__(self, message: str) -> None:
        """Describe the payload and its destination."""
        super().__init__(message, type="PayloadTooLarge", non_retryable=True)
