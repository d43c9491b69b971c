"""Entry points: run a Python function as a process that reads its input, reports its outcome, and exits."""

from __future__ import annotations

import signal
import sys
import threading
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, overload

from ._context import Context, current
from ._errors import ApplicationError, CancelledError
from ._payloads import error_document

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import FrameType

Function = TypeVar("Function", bound="Callable[..., Any]")

_registered: dict[str, Callable[..., Any]] = {}
_auto_heartbeating: set[Callable[..., Any]] = set()


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
        name: Name of the activity in its Workflow. Default: the name of the function, with dashes for underscores.
        auto_heartbeat: Whether to send heartbeats automatically while it runs; see `run`.

    Returns:
        The function, unchanged.
    """

    def register(decorated: Function) -> Function:
        _registered[name or decorated.__name__] = decorated
        if auto_heartbeat:
            _auto_heartbeating.add(decorated)
        return decorated

    return register if function is None else register(function)


def main(activities: Mapping[str, Callable[..., Any]] | None = None) -> NoReturn:
    """Run the activity of this pod. Several activities may share an image.

    Args:
        activities: Functions by activity name; underscores count as dashes. Default: the functions with `@defn`.
    """
    known = {_plain(name): function for name, function in (_registered if activities is None else activities).items()}
    wanted = current().info.activity
    function = known.get(_plain(wanted))
    if function is None:
        names = ", ".join(sorted(known)) or "none"
        fail(
            f"this image does not define activity {wanted!r}; it defines: {names}",
            type="ActivityNotFound",
            non_retryable=True,
        )
    run(function, auto_heartbeat=function in _auto_heartbeating)


def run(function: Callable[..., Any], *, auto_heartbeat: bool = False) -> NoReturn:
    """Run a function as the activity, and exit.

    The function is called with the input, unless it has no parameters. A coroutine function runs in an event loop. Its return
    value is the result. An exception becomes the failure, and the process exits with 1. SIGTERM raises `CancelledError` in the
    main thread, or cancels the task of a coroutine function.

    With `auto_heartbeat`, the process sends heartbeats with the last details in the background. A requested cancellation then
    raises `CancelledError` in the main thread, as SIGTERM does. Such heartbeats show that the process is alive, not that it
    makes progress: if the work can hang, call `heartbeat` instead.

    Args:
        function: The activity.
        auto_heartbeat: Whether to send heartbeats automatically.
    """
    sys.exit(execute(function, current(), auto_heartbeat=auto_heartbeat))


def complete(result: Any = None) -> None:
    """Write the result. Then end the process with exit code 0. Not needed with `run` and `main`.

    Args:
        result: Any JSON value.

    Raises:
        PayloadTooLargeError: The result is too large.
        SupersededError: The run no longer waits for the result.
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
        message: The message for users.
        type: The type that `catch` and retry policies match. Default: `ApplicationError`.
        details: Any JSON value, for the code that handles the failure.
        non_retryable: Whether to never retry, regardless of the retry policy.
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


def execute(function: Callable[..., Any], context: Context, *, auto_heartbeat: bool = False) -> int:
    """Run the function, report its outcome, and return the exit code."""
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
        raise  # the function chose an exit code, which `failureTypes` may map to a failure type
    except BaseException as error:  # noqa: BLE001 - every error must be reported to the operator
        import traceback  # noqa: PLC0415 - only a failure pays for it

        traceback.print_exception(error)  # for readers of the pod's log
        context.write_message(error_document(error, context.message_limit))
        return 1
    return 0


class _Stopper:
    """Raises `CancelledError` in the function on the first SIGTERM.

    Later signals do not interrupt its cleanup, and no signal interrupts the report.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._raise = False
        self.cancel: Callable[[], object] | None = None
        """Cancels a function that runs in an event loop, where an exception would hit the loop."""
        self.interrupts = False
        """Whether a requested cancellation interrupts the function, which may never call `cancelled`."""

    def __enter__(self) -> None:
        if threading.current_thread() is threading.main_thread():
            self._raise = True
            signal.signal(signal.SIGTERM, self._stop)
        if self._context.heartbeats is not None:
            self._context.heartbeats.on_stop = self._on_heartbeat_stop

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

    def _on_heartbeat_stop(self) -> None:
        """Handle a response to a heartbeat that says that the attempt should stop. Called in any thread."""
        if not self._raise:
            return
        if self.cancel is not None:
            self.cancel()
        elif self.interrupts:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)  # it also ends a blocking call


def takes_input(function: Callable[..., Any]) -> bool:
    """Return whether a function has a parameter for the input."""
    import inspect  # noqa: PLC0415 - 10 ms that scripts without `run` need not pay

    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # some built-in functions have no signature
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
