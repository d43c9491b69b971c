"""Test activities without a cluster: they run in the process of the test as if in a pod."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast

from ._context import Context, Info, entered
from ._errors import CancelledError, PayloadTooLargeError, SupersededError
from ._payloads import decode, encode
from ._run import takes_input

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

_DETAILS_LIMIT = 16 * 1024


class ActivityEnvironment:
    """Runs activities as in a pod, records their heartbeats, and lets a test cancel them.

        env = ActivityEnvironment(attempt=2, last_heartbeat_details={"done": 3})
        assert env.run(copy_files, ["a", "b", "c", "d"]) == {"files": 4, "resumedAt": 3}
        assert env.heartbeats == [{"done": 4}]

    Input, details and result are converted to JSON and back, so that values that fail in a cluster also fail here.
    """

    def __init__(
        self,
        *,
        last_heartbeat_details: Any = None,
        on_heartbeat: Callable[[Any], object] | None = None,
        **info: Any,
    ) -> None:
        """Prepare an environment.

        Args:
            last_heartbeat_details: The details of the last heartbeat of an earlier attempt.
            on_heartbeat: Called with the details of each heartbeat; it may call `cancel`.
            info: Fields of `Info` that differ from their defaults, such as `attempt` or `run_id`.
        """
        self.heartbeats: list[Any] = []
        """The details of all heartbeats so far; None for a heartbeat without details."""
        defaults: dict[str, Any] = {
            "namespace": "default",
            "run": "test",
            "run_id": "00000000-0000-4000-8000-000000000000",
            "workflow_id": "test",
            "activity": "test",
            "activity_id": "test",
            "attempt": 1,
            "start_to_close_timeout": timedelta(minutes=1),
            "heartbeat_timeout": timedelta(seconds=10),
        }
        self.info = Info(**{**defaults, **info})
        self._details = encode(last_heartbeat_details) if last_heartbeat_details is not None else None
        self._on_heartbeat = on_heartbeat
        self._lock = threading.Lock()
        self._reason: str | None = None
        self._superseded = False
        self._raised = False
        self._cancel_task: Callable[[], object] | None = None

    def cancel(self, reason: str = "the test cancelled it") -> None:
        """Request the activity to stop, like a response to a heartbeat. Call it in any thread, before or while it runs.

        Args:
            reason: The message of `CancelledError`.
        """
        with self._lock:
            self._reason = reason
            cancel = self._cancel_task
        if cancel is not None:
            cancel()

    def supersede(self, reason: str = "another attempt has started") -> None:
        """Reject further heartbeats, as the API server does once the run no longer waits for the attempt.

        Args:
            reason: The message of `SupersededError`.
        """
        self._superseded = True
        self.cancel(reason)

    def run(self, function: Callable[..., Any], input: Any = None) -> Any:  # noqa: A002 - as in the package
        """Run an activity.

        Args:
            function: The activity. It gets the input if it has a parameter.
            input: Its input, any JSON value.

        Returns:
            The result as the run would receive it; for a coroutine function, an awaitable with the result.

        Raises:
            TypeError, ValueError: The input or the result is not JSON, or would be changed by the conversion.
            BaseException: The activity raised it.
        """
        arguments = (decode(encode(input)),) if takes_input(function) else ()
        context = cast("Context", _TestContext(self))
        with entered(context):
            result = function(*arguments)
        if hasattr(result, "__await__"):
            return self._wait(result, context)
        return decode(encode(result))

    async def _wait(self, coroutine: Coroutine[Any, Any, Any], context: Context) -> Any:
        import asyncio  # noqa: PLC0415 - only coroutines pay for it

        with entered(context):
            loop, task = asyncio.get_running_loop(), asyncio.ensure_future(coroutine)
            with self._lock:
                self._cancel_task = lambda: loop.call_soon_threadsafe(task.cancel)
                early = self._reason is not None
            if early:
                task.cancel()
            try:
                return decode(encode(await task))
            except asyncio.CancelledError:
                if self._reason is None:
                    task.cancel()
                    raise
                raise self._error() from None
            finally:
                self._cancel_task = None

    def _error(self) -> CancelledError:
        return (SupersededError if self._superseded else CancelledError)(self._reason)

    def _beat(self, details: Any) -> None:
        text = None if details is None else encode(details)
        if text is not None and len(text.encode()) > _DETAILS_LIMIT:
            raise PayloadTooLargeError(
                f"heartbeat details of {len(text.encode())} bytes exceed the limit of {_DETAILS_LIMIT}"
            )
        recorded = None if text is None else decode(text)
        with self._lock:
            self.heartbeats.append(recorded)
        if self._on_heartbeat is not None:
            self._on_heartbeat(recorded)
        with self._lock:
            due = self._reason is not None and (self._superseded or not self._raised)
            self._raised |= due
        if due:
            raise self._error()


class _TestHeartbeats:
    def __init__(self, environment: ActivityEnvironment) -> None:
        self._environment = environment

    def beat(self, details: Any) -> None:
        self._environment._beat(details)  # noqa: SLF001 - one thing in two classes

    def begin(self) -> None:
        """Do nothing: automatic heartbeats have no effect that a test can observe."""

    def end(self) -> None:
        """Do nothing; see `begin`."""


class _TestContext:
    """A replacement for `Context` without environment variables, files or a Lease."""

    def __init__(self, environment: ActivityEnvironment) -> None:
        self._environment = environment
        self.info = environment.info
        self.heartbeats = _TestHeartbeats(environment)

    def payload(self, name: str) -> Any:
        if name == "PERDURE_LAST_HEARTBEAT_DETAILS" and self._environment._details is not None:  # noqa: SLF001 - as above
            return decode(self._environment._details)  # noqa: SLF001 - as above
        return None

    def cancelled(self) -> str | None:
        return self._environment._reason  # noqa: SLF001 - as above
