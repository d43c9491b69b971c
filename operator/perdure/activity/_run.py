"""Entry points: from a Python function to a process that reads its input, reports, and exits as the operator expects."""

from __future__ import annotations

import signal
import sys
import threading
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, overload

from ._context import Context, current
from ._errors import ApplicationError, CancelledError
from ._report import error_document

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import FrameType

Function = TypeVar("Function", bound="Callable[..., Any]")

_registered: dict[str, Callable[..., Any]] = {}
_beating: set[Callable[..., Any]] = set()


@overload
def defn(function: Function, /) -> Function: ...
@overload
def defn(*, name: str | None = None, auto_heartbeat: bool = False) -> Callable[[Function], Function]: ...
def defn(
    function: Callable[..., Any] | None = None, /, *, name: str | None = None, auto_heartbeat: bool = False
) -> Any:
    """Register a function as an activity, for `main()`.

    Args:
        function: The function, if the decorator is used without parentheses.
        name: Name of the activity in its Workflow. Default: the function's, with dashes for underscores.
        auto_heartbeat: Whether to send heartbeats automatically while it runs; see `run`.

    Returns:
        The function, unchanged.
    """

    def register(decorated: Function) -> Function:
        _registered[name or decorated.__name__] = decorated
        if auto_heartbeat:
            _beating.add(decorated)
        return decorated

    return register if function is None else register(function)


def main(activities: Mapping[str, Callable[..., Any]] | None = None) -> NoReturn:
    """Run the activity of this pod: several activities can share an image.

    Args:
        activities: Functions by the name of their activity; underscores count as dashes. Default: those with `@defn`.
    """
    known = {_plain(name): function for name, function in (_registered if activities is None else activities).items()}
    wanted = current().info.activity
    function = known.get(_plain(wanted))
    if function is None:
        names = ", ".join(sorted(known)) or "none"
        fail(
            f"this image has no activity {wanted!r}; it has: {names}",
            type="ActivityNotFound",
            non_retryable=True,
        )
    run(function, auto_heartbeat=function in _beating)


def run(function: Callable[..., Any], *, auto_heartbeat: bool = False) -> NoReturn:
    """Run a function as the activity, and end the process.

    The function is called with the input (or with nothing, if it takes nothing); a coroutine function is run in an event
    loop. Its return value is the result. Its exception becomes the failure, and the process exits with 1. SIGTERM raises
    `CancelledError` in the main thread; in a coroutine function, it cancels the task.

    With `auto_heartbeat`, heartbeats are sent in the background as long as the process lives, with the last details; a
    cancellation request then raises `CancelledError` in the main thread, as SIGTERM does. That shows that the process is
    alive, not that it makes progress: if work can hang, call `heartbeat` instead.

    Args:
        function: The activity.
        auto_heartbeat: Whether to send heartbeats automatically.
    """
    sys.exit(_run(function, current(), auto_heartbeat=auto_heartbeat))


def complete(result: Any = None) -> None:
    """Deliver the result; the process must then end with exit code 0. Not needed with `run` and `main`.

    Args:
        result: Any JSON value.

    Raises:
        PayloadTooLargeError: It does not fit.
        SupersededError: Nothing waits for it anymore.
    """
    current().complete(result)


def fail(
    message: str,
    *,
    type: str | None = None,  # noqa: A002 - as in ApplicationError
    details: Any = None,
    non_retryable: bool = False,
    next_retry_delay: Any = None,
) -> NoReturn:
    """Report a failure and end the process with exit code 1. With `run` and `main`, raise `ApplicationError` instead.

    Args:
        message: For people.
        type: The type for `catch` and retry policies. Default: `ApplicationError`.
        details: Any JSON value, for the code that handles the failure.
        non_retryable: Whether the activity must not be retried, regardless of the retry policy.
        next_retry_delay: How long to wait before the next attempt: a `timedelta`, or seconds.
    """
    error = ApplicationError(
        message, type=type, details=details, non_retryable=non_retryable, next_retry_delay=next_retry_delay
    )
    context = current()
    context.write_message(error_document(error, context.message_limit))
    sys.exit(1)


def _plain(name: str) -> str:
    return name.replace("_", "-")


def _run(function: Callable[..., Any], context: Context, *, auto_heartbeat: bool = False) -> int:
    """Run the function and report the outcome; returns the exit code."""
    stopper = _Stopper(context)
    try:
        with stopper:
            if auto_heartbeat and context.heartbeats is not None:
                stopper.interrupts = True
                context.heartbeats.begin()
            argument = (context.payload("PERDURE_INPUT"),) if takes_input(function) else ()
            result = function(*argument)
            if hasattr(result, "__await__"):
                result = _await(result, context, stopper)
        context.complete(result)
    except SystemExit:
        raise  # the function chose an exit code, to which `failureTypes` may give a meaning
    except BaseException as error:  # noqa: BLE001 - whatever it is, the operator has to be told
        import traceback  # noqa: PLC0415 - only a failure pays for it

        traceback.print_exception(error)  # for those who read the pod's log
        context.write_message(error_document(error, context.message_limit))
        return 1
    return 0


class _Stopper:
    """While the function runs, the first SIGTERM raises `CancelledError` in it.

    Later ones do not interrupt its cleanup, and none interrupts the report.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._raise = False
        self.cancel: Callable[[], object] | None = None
        """How to stop a function that runs in an event loop, where raising would hit the loop."""
        self.interrupts = False
        """Whether a cancellation request interrupts a function that may never check for it."""

    def __enter__(self) -> None:
        if threading.current_thread() is threading.main_thread():
            self._raise = True
            signal.signal(signal.SIGTERM, self._stop)
        if self._context.heartbeats is not None:
            self._context.heartbeats.on_stop = self._told

    def __exit__(self, *_: object) -> None:
        self._raise = False

    def _stop(self, _number: int, _frame: FrameType | None) -> None:
        first = self._context.stop_reason is None
        reason = self._context.cancelled() if first else None
        self._context.stop_reason = reason or "the process received SIGTERM"
        if not first or not self._raise:
            return
        if self.cancel is not None:
            self.cancel()
        else:
            raise CancelledError(self._context.stop_reason)

    def _told(self) -> None:
        """Stop the function, because the response to a heartbeat says so. Called in any thread."""
        if not self._raise:
            return
        if self.cancel is not None:
            self.cancel()
        elif self.interrupts:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)  # it also ends a blocking call


def takes_input(function: Callable[..., Any]) -> bool:
    """Return whether a function takes the input."""
    import inspect  # noqa: PLC0415 - 10 ms that scripts without `run` need not pay

    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # some built-in functions do not tell
        return True
    return any(p.kind in {p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD, p.VAR_POSITIONAL} for p in parameters)


def _await(coroutine: Any, context: Context, stopper: _Stopper) -> Any:
    import asyncio  # noqa: PLC0415 - only coroutines pay for it

    async def supervise() -> Any:
        loop = asyncio.get_running_loop()
        task = asyncio.ensure_future(coroutine)
        stopper.cancel = lambda: loop.call_soon_threadsafe(task.cancel)
        try:
            return await task
        except asyncio.CancelledError:
            reason = context.cancelled()
            if reason is None:
                raise
            raise CancelledError(reason) from None

    return asyncio.run(supervise())
