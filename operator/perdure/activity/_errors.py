"""What an activity raises, and what is raised in it.

BaseException
 ├─ CancelledError            the cancellation of the activity was requested
 │   └─ SupersededError       nobody waits for this attempt any more
 └─ Exception
     └─ ApplicationError      a failure with a type of its own
         └─ PayloadTooLargeError
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from datetime import timedelta


class CancelledError(BaseException):
    """The activity was asked to stop: clean up, then let this go through.

    It is no `Exception`, so that code which catches those to try again does not swallow it.
    """


class SupersededError(CancelledError):
    """The API server refuses this attempt's heartbeats: it timed out or its run closed, and its result would be ignored.

    The message is the API server's. If it speaks of rights that are missing, the pod's service account is not allowed to
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
            type: What `catch` and retry policies compare. Default: the name of the exception's class.
            details: Any JSON value, for the code that handles the failure.
            non_retryable: Whether trying again is pointless, whatever the retry policy says.
            next_retry_delay: How long to wait before the next attempt, instead of what the retry policy computes; a
                number counts seconds.
        """
        super().__init__(message)
        self.message = message
        self.type = type
        self.details = details
        self.non_retryable = non_retryable
        self.next_retry_delay = next_retry_delay


class PayloadTooLargeError(ApplicationError):
    """A result or heartbeat details do not fit where they have to go. They are never cut."""

    def __init__(self, message: str) -> None:
        """Describe what did not fit where."""
        super().__init__(message, type="PayloadTooLarge", non_retryable=True)
