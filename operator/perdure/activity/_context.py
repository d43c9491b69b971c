"""The attempt, as described by the environment of its pod."""

from __future__ import annotations

import os
import sys
import time
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from ._errors import PayloadTooLargeError
from ._heartbeats import Heartbeats
from ._lease import Lease
from ._payloads import decode, encode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

LARGE_RESULTS = (
    "in a flow in Python, return a `pf.File`; otherwise, set `artifacts.largeResults` and write it to $PERDURE_RESULT_FILE, "
    "or pass a reference to the data instead"
)
"""The advice for results of any size."""
MESSAGE_LIMIT = 4095
"""Maximum bytes of a termination message, unless the operator says otherwise."""
_DEFAULT_DETAILS_LIMIT = 16 * 1024


class Info(NamedTuple):
    """The metadata of an attempt."""

    namespace: str
    """Namespace of the run and of the pod."""
    run: str
    """Name of the WorkflowRun."""
    run_id: str
    """UID of the WorkflowRun."""
    workflow_id: str
    """The workflow ID, which the runs of a chain share."""
    activity: str
    """Name of the activity in its Workflow."""
    activity_id: str
    """ID of the activity within the run. It is the same for all attempts, so together with `run_id` it is an idempotency key
    for external systems."""
    attempt: int
    """Number of the attempt; the first is 1."""
    start_to_close_timeout: timedelta | None
    """The time limit of this attempt."""
    heartbeat_timeout: timedelta | None
    """The longest gap between heartbeats."""


class Context:
    """The attempt that this process runs."""

    def __init__(self, environ: Mapping[str, str], clock: Callable[[], float] = time.monotonic) -> None:
        get = environ.get
        self._environ = environ
        self.info = Info(
            namespace=get("PERDURE_NAMESPACE", ""),
            run=get("PERDURE_RUN", ""),
            run_id=get("PERDURE_RUN_ID", ""),
            workflow_id=get("PERDURE_WORKFLOW_ID", ""),
            activity=get("PERDURE_ACTIVITY", ""),
            activity_id=get("PERDURE_ACTIVITY_ID", ""),
            attempt=int(get("PERDURE_ATTEMPT") or 1),
            start_to_close_timeout=_duration(get("PERDURE_START_TO_CLOSE_TIMEOUT")),
            heartbeat_timeout=_duration(get("PERDURE_HEARTBEAT_TIMEOUT")),
        )
        self.message_limit = int(get("PERDURE_MESSAGE_LIMIT") or MESSAGE_LIMIT)
        self._large = get("PERDURE_RESULT_SIZE") == "Large"
        self._result_limit = int(get("PERDURE_RESULT_LIMIT") or self.message_limit)
        self._details_limit = int(get("PERDURE_HEARTBEAT_DETAILS_LIMIT") or _DEFAULT_DETAILS_LIMIT)
        self._result_file = get("PERDURE_RESULT_FILE") or ""
        self._termination_log = get("PERDURE_TERMINATION_LOG") or ""
        timeout = self.info.heartbeat_timeout
        self.heartbeats = (
            Heartbeats(
                Lease(environ),
                timeout.total_seconds() if timeout else None,
                self._details_limit,
                earlier_details=lambda: self.payload_text("PERDURE_LAST_HEARTBEAT_DETAILS"),
                clock=clock,
            )
            if get("PERDURE_LEASE")
            else None
        )
        self.stop_reason: str | None = None
        """Why the process received SIGTERM; None if it did not."""
        self._on_lease = False

    def payload(self, name: str) -> Any:
        """Read a JSON value that the operator passed."""
        text = self.payload_text(name)
        return None if text is None else decode(text)

    def payload_text(self, name: str) -> str | None:
        """Read a text that the operator passed in the environment, or in a file if it is long."""
        text = self._environ.get(name)
        if text is None:
            path = self._environ.get(f"{name}_FILE")
            if not path:
                return None
            with open(path, encoding="utf-8") as file:  # noqa: PTH123 - pathlib costs 5 ms to import
                text = file.read()
        return text if text.strip() else None

    def cancelled(self) -> str | None:
        """Why the attempt should stop; None if it should not."""
        if self.stop_reason is not None or self.heartbeats is None:
            return self.stop_reason
        return self.heartbeats.cancelled()

    def complete(self, result: Any) -> None:
        """Write the result, either completely or not at all."""
        text = encode(result)
        size = len(text.encode())
        self._discard_file()
        # Use the termination message if the result fits: it needs no token and no API call, and cannot fail.
        if size <= self.message_limit and not self._on_lease:
            self.write_message(text)
        elif self._large and self.heartbeats is not None and size <= self._result_limit:
            self.heartbeats.write_result(text, drop_details=size > self._result_limit - self._details_limit)
            self._on_lease = True
        elif self._result_file:
            part = f"{self._result_file}.part"
            with open(part, "w", encoding="utf-8") as file:  # noqa: PTH123 - as above
                file.write(text)
            os.replace(part, self._result_file)  # noqa: PTH105 - as above
        else:
            raise result_too_large(size, self._result_limit, large=self._large)

    def _discard_file(self) -> None:
        """Remove an earlier result from the file for large ones, which would count instead of a later one elsewhere."""
        with suppress(FileNotFoundError):
            if self._result_file:
                os.remove(self._result_file)  # noqa: PTH107 - as above

    def write_message(self, text: str) -> None:
        """Write the termination message, or print it outside of a pod."""
        if not self._termination_log:
            sys.stdout.write(text + "\n")
            return
        with open(self._termination_log, "w", encoding="utf-8") as file:  # noqa: PTH123 - as above
            file.write(text)


def result_too_large(size: int, limit: int, *, large: bool) -> PayloadTooLargeError:
    """Return the error for a result that has more bytes than fit, with what to do instead.

    `large`: whether the activity declares `resultSize: Large` already.
    """
    ways = LARGE_RESULTS + ("" if large else ", or declare `resultSize: Large`")
    return PayloadTooLargeError(f"the result has {size} bytes, but the limit is {limit}: {ways}")


def _duration(seconds: str | None) -> timedelta | None:
    return timedelta(seconds=float(seconds)) if seconds else None


_current: Context | None = None
_entered: list[Context] = []
"""The contexts of test environments, innermost last. It is global because threads do not inherit context variables."""
_scope: ContextVar[Context] = ContextVar("perdure_activity")


@contextmanager
def entered(context: Context) -> Iterator[None]:
    """Replace the context of the process within a block, including threads that the block starts."""
    token = _scope.set(context)
    _entered.append(context)
    try:
        yield
    finally:
        _entered.remove(context)
        _scope.reset(token)


def current() -> Context:
    """Return the context of this process. The first call reads it."""
    global _current  # noqa: PLW0603 - one process is one attempt
    scoped = _scope.get(None) or (_entered[-1] if _entered else None)
    if scoped is not None:
        return scoped
    if _current is None:
        _current = Context(os.environ)
    return _current
