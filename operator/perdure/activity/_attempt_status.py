"""The status of an attempt, from the API server's responses to its heartbeats."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._errors import CancelledError, PayloadTooLargeError, SupersededError

if TYPE_CHECKING:
    from ._lease import LeaseError

CANCEL_ANNOTATION = "perdure.dev/cancel-requested"

_UNAUTHORIZED, _FORBIDDEN, _NOT_FOUND, _TOO_LARGE = 401, 403, 404, 413
_UNAUTHORIZED_LIMIT = 5


class AttemptStatus:
    """The known status of the attempt. The caller holds a lock, except for `stop_reason`."""

    def __init__(self) -> None:
        self._cancelled: str | None = None
        self._cancel_raised = False
        self._superseded: str | None = None
        self._refused_details: str | None = None
        self._unauthorized = 0

    @property
    def superseded(self) -> bool:
        """Whether the run no longer waits for the attempt."""
        return self._superseded is not None

    @property
    def rejected(self) -> bool:
        """Whether a request was permanently rejected, and this was not raised yet."""
        return self._superseded is not None or self._refused_details is not None

    def stop_reason(self) -> str | None:
        """Why the attempt should stop; None if it should not. Needs no lock."""
        superseded = self._superseded
        return superseded if superseded is not None else self._cancelled

    def raise_if_refused(self) -> None:
        """Raise the error of the last rejection. An error about the size is raised once."""
        if self._superseded is not None:
            raise SupersededError(self._superseded)
        if self._refused_details is not None:
            message, self._refused_details = self._refused_details, None
            raise PayloadTooLargeError(message)

    def raise_if_cancelled(self) -> None:
        """Raise a requested cancellation, once."""
        if self._cancelled is not None and not self._cancel_raised:
            self._cancel_raised = True
            raise CancelledError(self._cancelled)

    def supersede(self, reason: str) -> None:
        """Record that the run no longer waits for the attempt."""
        self._superseded = reason

    def observe_answer(self, lease: dict[str, Any]) -> None:
        """Process the Lease in the response to a successful request."""
        self._unauthorized = 0
        annotations = (lease.get("metadata") or {}).get("annotations") or {}
        if CANCEL_ANNOTATION in annotations and self._cancelled is None:
            self._cancelled = str(annotations[CANCEL_ANNOTATION]) or "cancellation was requested"

    def observe_error(self, error: LeaseError, *, early: bool) -> bool:
        """Process a failed request.

        Args:
            error: The error of the request.
            early: Whether the Lease, or the permission to patch it, may not exist yet.

        Returns:
            Whether the request must not be repeated.
        """
        self._unauthorized = self._unauthorized + 1 if error.status == _UNAUTHORIZED else 0
        # 404: the pod and its Lease are deleted. 403: the Lease belongs to another pod. 401: the token is invalid since the pod
        # is deleted. A valid token is briefly rejected too, so only several 401 in a row count.
        if (error.status in {_FORBIDDEN, _NOT_FOUND} and not early) or self._unauthorized >= _UNAUTHORIZED_LIMIT:
            self.supersede(f"the API server refuses this attempt's heartbeats: {error}")
            return True
        if error.status == _TOO_LARGE:
            self._refused_details = str(error)
            return True
        return False
