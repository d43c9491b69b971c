"""Heartbeats: sent only when due, but never lost.

    call ──▶ newest heartbeat is stored ──▶ due?  yes: sent within the call (about 15 ms)
                                                 no, or sending failed: a thread sends the newest one when it is due

So the caller can heartbeat in a tight loop, a short outage of the API server does not affect it, and the last details before
a pause are still sent.
"""

from __future__ import annotations

import atexit
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from ._errors import CancelledError, PayloadTooLargeError, SupersededError
from ._lease import LeaseError
from ._payloads import encode

if TYPE_CHECKING:
    from collections.abc import Callable

    from ._lease import Lease

CANCEL_ANNOTATION = "perdure.dev/cancel-requested"
DETAILS_ANNOTATION = "perdure.dev/heartbeat-details"
RESULT_ANNOTATION = "perdure.dev/result"

_LONGEST_INTERVAL = 30.0
_LONGEST_CHANGED_INTERVAL = 5.0
_LONGEST_TIMEOUT = 10.0
_GRACE = 30.0
"""Seconds until the Lease and the permission to patch it must exist: both are created after the pod."""
_FIRST_PAUSE = 0.2
_LONGEST_PAUSE = 5.0
_AT_EXIT = 3.0
_UNAUTHORIZED, _FORBIDDEN, _NOT_FOUND, _TOO_LARGE = 401, 403, 404, 413
_UNAUTHORIZED_LIMIT = 5


class AttemptStatus:
    """The status of the attempt, known from responses to heartbeats. The caller holds a lock, except for `stop_reason`."""

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


def micro_time(nanoseconds: int) -> str:
    """Format a time for a Lease's `renewTime`.

    Args:
        nanoseconds: Nanoseconds since the epoch.

    Returns:
        A text such as `2026-01-31T12:00:00.000000Z`.
    """
    seconds, rest = divmod(nanoseconds, 1_000_000_000)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{rest // 1000:06d}Z"


class Heartbeats:
    """Sends the heartbeats of this attempt and processes the responses."""

    def __init__(
        self,
        lease: Lease,
        timeout: float | None,
        details_limit: int,
        *,
        earlier_details: Callable[[], str | None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], int] = time.time_ns,
    ) -> None:
        """Prepare heartbeats without sending any.

        Args:
            lease: The attempt's Lease.
            timeout: The heartbeat timeout in seconds; None if there is none.
            details_limit: The size limit of details, in bytes.
            earlier_details: The details of an earlier attempt as JSON; automatic heartbeats send them until there are newer ones.
            clock: A monotonic clock in seconds, for intervals.
            wall_clock: Nanoseconds since the epoch, for timestamps.
        """
        quarter = timeout / 4 if timeout else _LONGEST_INTERVAL
        self._interval = min(quarter, _LONGEST_INTERVAL)
        self._changed_interval = min(quarter, _LONGEST_CHANGED_INTERVAL)
        self._request_timeout = min(max(quarter, 1.0), _LONGEST_TIMEOUT)
        self._grace = max(timeout or 0.0, _GRACE)
        self._details_limit = details_limit
        self._lease = lease
        self._earlier_details = earlier_details
        self.on_stop: Callable[[], object] | None = None
        """Called once when the attempt should stop, in any thread."""
        self._clock = clock
        self._wall_clock = wall_clock
        self._changed = threading.Condition(threading.Lock())
        self._sending = threading.Lock()
        self._thread: threading.Thread | None = None
        # `_changed` guards all attributes below; only `cancelled` reads `_status` without it.
        self._newest: tuple[str, str | None] | None = None  # the heartbeat to send: time and details
        self._sent_details: str | None = None
        self._sent_at: float | None = None
        self._first_try: float | None = None
        self._next_try = 0.0
        self._failures = 0
        self._status = AttemptStatus()
        self._by_itself = 0
        self._stop_notified = False
        self._closed = False

    def begin(self) -> None:
        """Start automatic heartbeats with the last details. Each `begin` needs one `end`."""
        with self._changed:
            self._by_itself += 1
            if self._sent_details is None and self._newest is None:
                self._sent_details = self._earlier_details()
            self._start_thread()
            self._changed.notify_all()

    def end(self) -> None:
        """End the automatic heartbeats that the matching `begin` started."""
        with self._changed:
            self._by_itself -= 1

    def beat(self, details: Any) -> None:
        """Record a heartbeat, and send it if it is due."""
        text = None if details is None else encode(details)
        if text is not None and len(text.encode()) > self._details_limit:
            raise PayloadTooLargeError(
                f"heartbeat details of {len(text.encode())} bytes exceed the limit of {self._details_limit}"
            )
        with self._changed:
            if not self._status.superseded:
                if self._first_try is None:
                    self._first_try = self._clock()
                    atexit.register(self.close)
                self._newest = (micro_time(self._wall_clock()), text)
            # While sending fails, only the thread sends, so that an outage does not slow the activity down.
            due = self._newest is not None and self._failures == 0 and self._due_at() <= self._clock()
        if due and not _in_event_loop():
            self._send()
        with self._changed:
            if self._newest is not None:
                self._start_thread()
                self._changed.notify_all()
        self.raise_if_stopped()

    def cancelled(self) -> str | None:
        """Why the attempt should stop; None if it should not.

        Takes no lock, because a signal handler may call this while a method of the same thread holds the lock.
        """
        return self._status.stop_reason()

    def raise_if_stopped(self) -> None:
        """Raise the error that the responses reported. A cancellation is raised once, so the caller can heartbeat afterwards."""
        with self._changed:
            self._status.raise_if_refused()
            self._status.raise_if_cancelled()

    def flush(self, timeout: float) -> None:
        """Try once to send a pending heartbeat, because the next attempt may need its details."""
        with self._changed:
            self._by_itself = 0
            waiting = self._newest is not None and not self._status.superseded
        if waiting:
            self._send(timeout)

    def close(self) -> None:
        """Flush, end the thread, and close the connection: at the end of the process."""
        atexit.unregister(self.close)
        self.flush(_AT_EXIT)
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()  # it sends nothing more, and a request that it waits for has a timeout
        self._lease.close()

    def write_result(self, text: str, *, drop_details: bool, patience: float = 60.0) -> None:
        """Write a large result. It must arrive before the process exits with 0.

        Args:
            text: The result as JSON.
            drop_details: Whether the result needs the space of the heartbeat details.
            patience: How long to retry while the API server does not respond, in seconds.

        Raises:
            SupersededError: The API server rejects the result, because the run no longer waits for it.
            PayloadTooLargeError: The API server rejects the result as too large.
            LeaseError: The API server did not respond in time.
        """
        annotations: dict[str, str | None] = {RESULT_ANNOTATION: text}
        if drop_details:
            annotations[DETAILS_ANNOTATION] = None
        started = self._clock()
        pause = _FIRST_PAUSE
        while True:
            body = {"metadata": {"annotations": annotations}, "spec": {"renewTime": micro_time(self._wall_clock())}}
            try:
                with self._sending:
                    self._lease.patch(body, _LONGEST_TIMEOUT)
            except LeaseError as error:
                with self._changed:
                    self._first_try = self._first_try if self._first_try is not None else started
                    self._note_failure(error)
                    rejected = self._status.rejected
                if not rejected and self._clock() - started >= patience:
                    raise
            else:
                with self._changed:
                    self._newest = None
                return
            with self._changed:
                self._status.raise_if_refused()
            time.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)

    def _due_at(self) -> float:
        assert self._newest is not None
        if self._sent_at is None:
            return self._next_try
        interval = self._interval if self._newest[1] == self._sent_details else self._changed_interval
        return max(self._sent_at + interval, self._next_try)

    def _send(self, timeout: float | None = None) -> None:
        """Send the newest heartbeat at the time of sending."""
        with self._sending:
            with self._changed:
                newest = self._newest
                if newest is None or self._status.superseded:
                    return
                when, details = newest
                # Always send the details, because after a lost response it is unknown which ones are stored. A null clears
                # those of an earlier heartbeat.
                body = {"metadata": {"annotations": {DETAILS_ANNOTATION: details}}, "spec": {"renewTime": when}}
            try:
                answer = self._lease.patch(body, timeout or self._request_timeout)
            except LeaseError as error:
                with self._changed:
                    self._note_failure(error)
            else:
                with self._changed:
                    self._note_success(newest, answer)
        self._notify_stop()

    def _notify_stop(self) -> None:
        with self._changed:
            notified = self._stop_notified or self._status.stop_reason() is None
            self._stop_notified |= not notified
        if not notified and self.on_stop is not None:
            self.on_stop()

    def _note_success(self, sent: tuple[str, str | None], answer: dict[str, Any]) -> None:
        self._sent_at = self._clock()
        self._sent_details = sent[1]
        self._failures = 0
        self._next_try = 0.0
        if self._newest is sent:
            self._newest = None
        self._status.observe_answer(answer)

    def _note_failure(self, error: LeaseError) -> None:
        """Schedule a retry, unless the request was permanently rejected."""
        now = self._clock()
        early = self._sent_at is None and self._first_try is not None and now - self._first_try < self._grace
        if self._status.observe_error(error, early=early):
            self._newest = None
            return
        self._failures += 1
        self._next_try = now + min(_FIRST_PAUSE * 2 ** min(self._failures - 1, 10), _LONGEST_PAUSE, self._interval)

    def _start_thread(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="perdure-heartbeats", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while True:
            with self._changed:
                if self._status.superseded or self._closed:
                    return
                if self._newest is None and self._by_itself:
                    self._renew()
                pause = self._pause() if self._newest is None else self._due_at() - self._clock()
                if pause is None or pause > 0:
                    self._changed.wait(pause)
                    continue
            self._send()

    def _pause(self) -> float | None:
        """The time until the next automatic heartbeat in seconds; None: wait for the next call."""
        if not self._by_itself or self._sent_at is None:
            return None
        return max(self._sent_at + self._interval - self._clock(), 0.001)

    def _renew(self) -> None:
        """Record an automatic heartbeat if the last heartbeat is old enough."""
        now = self._clock()
        if self._sent_at is None or self._sent_at + self._interval <= now:
            if self._first_try is None:
                self._first_try = now
            self._newest = (micro_time(self._wall_clock()), self._sent_details)


def _in_event_loop() -> bool:
    """Whether the caller runs in an event loop and must not block; then our thread sends the heartbeat."""
    asyncio = sys.modules.get("asyncio")
    if asyncio is None:
        return False
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
