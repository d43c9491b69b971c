"""What a flow can do besides calling activities: loops with a limit, races, signals, timers, and sagas."""

from __future__ import annotations

import asyncio
import builtins
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Literal, Self, TypeVar, get_args, overload

from temporalio import workflow
from temporalio.common import SearchAttributeKey
from temporalio.exceptions import (
    ActivityError,
    ApplicationError,
    CancelledError,
    ChildWorkflowError,
    FailureError,
    TimeoutError,  # noqa: A004 - the SDK's name
    is_cancelled_exception,
)

from perdure.api.times import format_duration
from perdure.api.values import ValueTypeError, codec_of
from perdure.engine.failures import FailureKind, shorten
from perdure.flow.definitions import CALLS, Activity, Duration, duration, text_of
from perdure.flow.workflow import FlowCalls

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
    from types import TracebackType

A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
R = TypeVar("R")
T = TypeVar("T")

FailurePolicy = Literal["CancelRunning", "FinishRunning", "Continue"]
"""What a failure does to the other calls, as `failurePolicy` of a Workflow in YAML."""

SCHEDULED_TIME: Final = SearchAttributeKey.for_datetime("TemporalScheduledStartTime")
"""The search attribute of runs that a Schedule started."""


class MapError(ApplicationError):
    """Calls of a `map` have failed.

    As for a loop in YAML, its type is that of the first failure, and it is final if that is, so that parents and retry policies
    of runs see it. The message names all failures.
    """

    def __init__(self, name: str, count: int, failures: Mapping[str, BaseException], results: Sequence[Any]) -> None:
        """`count`: how many calls there were; `failures`: the errors by the label of the call; `results`: of the others."""
        reasons = {label: _reason(error) for label, error in failures.items()}
        text = "; ".join(f"{name}[{label}]: {reason}" for label, reason in reasons.items())
        parts = {"activity": name, "count": count, "failures": reasons}
        first = [each for each in causes(next(iter(failures.values()))) if not isinstance(each, ActivityError)]
        super().__init__(
            shorten(f"{len(failures)} of {count} calls of {name} failed: {text}"),
            parts,
            type=type_of(first[0]) if first else FailureKind.ACTIVITY,
            non_retryable=any(isinstance(each, ApplicationError) and each.non_retryable for each in first),
        )
        self.failures = dict(failures)
        self.results = list(results)


async def map(  # noqa: A001 - used as `pf.map`
    activity: Activity[..., R],
    items: Iterable[Any],
    *,
    at_most: int | None = None,
    failure_policy: FailurePolicy = "CancelRunning",
    **arguments: Any,
) -> list[R]:
    """Call an activity for each item, and return the results in the order of the items.

    Args:
        activity: The activity. The items are its first argument that is not in `arguments`.
        items: The items.
        at_most: Maximum number of calls at the same time; None: all.
        failure_policy: What a failure does to the other calls: cancel those that run; let them finish; or start the rest too.
        arguments: The other arguments, the same for all calls.

    Raises:
        MapError: Calls have failed.
        TypeError: The arguments do not fit the parameters, or this is not an activity.
        ValueError: `at_most` or `failure_policy` is not valid.
    """
    called: object = activity
    if not isinstance(called, Activity):
        raise TypeError(f"map calls an activity, not {called!r}: for others, use `pf.gather`")
    if at_most is not None and at_most < 1:
        raise ValueError(f"`at_most` of map must be at least 1, or None for all, not {at_most!r}")
    if failure_policy not in get_args(FailurePolicy):
        raise ValueError(
            f"`failure_policy` of map must be {', '.join(get_args(FailurePolicy))}, not {failure_policy!r}"
        )
    parameter = next((name for name in activity.signature.names if name not in arguments), None)
    if parameter is None:
        raise TypeError(f"map: all arguments of {activity.name} are given, none is left for the items")
    values = list(items)
    labels = _labels(parameter, values)
    limit = asyncio.Semaphore(at_most or max(len(values), 1))
    failures: dict[str, BaseException] = {}
    completed: dict[str, Any] = {}

    async def call(value: Any, label: str) -> Any:
        bound = activity.signature.bind((), {parameter: value, **arguments})
        async with limit:
            if failures and failure_policy != "Continue":
                return None
            try:
                completed[label] = await activity.called(bound, label)
                return completed[label]
            except (FailureError, ValueTypeError) as error:
                if is_cancelled_exception(error):
                    raise
                failures[label] = error
                if failure_policy == "CancelRunning":
                    raise
                return None

    calls = [call(value, label) for value, label in zip(values, labels, strict=True)]
    results: list[R] = []
    try:
        results = await gather(*calls)
    except (FailureError, ValueTypeError):
        if not failures:
            raise
    if failures:
        in_order = {label: failures[label] for label in labels if label in failures}
        succeeded = [completed[label] for label in labels if label in completed]
        raise MapError(activity.name, len(values), in_order, succeeded) from next(iter(in_order.values()))
    return results


@overload
async def gather(first: Awaitable[A], second: Awaitable[B], /) -> tuple[A, B]: ...
@overload
async def gather(first: Awaitable[A], second: Awaitable[B], third: Awaitable[C], /) -> tuple[A, B, C]: ...
@overload
async def gather(
    first: Awaitable[A], second: Awaitable[B], third: Awaitable[C], fourth: Awaitable[D], /
) -> tuple[A, B, C, D]: ...
@overload
async def gather(*calls: Awaitable[R]) -> list[R]: ...
async def gather(*calls: Awaitable[Any]) -> Any:
    """Wait for all calls, and return the list of their results. When one fails, cancel the others and raise its error.

    Checkers see a tuple of a few results, as with `asyncio.gather`.
    """
    tasks = [asyncio.ensure_future(each) for each in calls]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        await _cancel(tasks)


@overload
async def race(first: Awaitable[A], second: Awaitable[B], /) -> A | B: ...
@overload
async def race(first: Awaitable[A], second: Awaitable[B], third: Awaitable[C], /) -> A | B | C: ...
@overload
async def race(*calls: Awaitable[R]) -> R: ...
async def race(*calls: Awaitable[Any]) -> Any:
    """Wait for the first call that ends, cancel the others, and return its result or raise its error."""
    tasks = [asyncio.ensure_future(each) for each in calls]
    try:
        ended, _ = await workflow.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return ended[0].result()
    finally:
        await _cancel(tasks)


async def _cancel(tasks: Sequence[asyncio.Future[Any]]) -> None:
    unfinished = [each for each in tasks if not each.done()]
    for each in unfinished:
        each.cancel()
    await asyncio.gather(*unfinished, return_exceptions=True)


@overload
async def signal(name: str) -> Any: ...
@overload
async def signal(name: str, type_: type[T], *, timeout: Duration | None = None) -> T: ...  # noqa: ASYNC109 - as below
async def signal(name: str, type_: Any = Any, *, timeout: Duration | None = None) -> Any:  # noqa: ASYNC109 - a durable timer
    """Wait for a signal. Signals that arrive before the flow waits are kept, in order.

    Args:
        name: Its name.
        type_: The type of its value.
        timeout: Maximum wait; None: without end; zero: only one that has arrived.

    Raises:
        TimeoutError: It did not arrive in time.
        ValueTypeError: Its value does not fit the type.
    """
    calls = _calls()
    limit = None if timeout is None else duration(timeout)
    if limit is None or (limit <= timedelta() and calls.has_signal(name)):
        value = await calls.take_signal(name)
    else:
        try:
            value = await asyncio.wait_for(calls.take_signal(name), limit.total_seconds())
        except builtins.TimeoutError:
            raise builtins.TimeoutError(f"the signal {name} did not arrive within {format_duration(limit)}") from None
    return codec_of(type_).decode(value, f"the signal {name}")


async def sleep(time: Duration) -> None:
    """Wait for a duration, also for months."""
    await workflow.sleep(duration(time))


def now() -> datetime:
    """Return the time of the flow, which is the same in each replay."""
    return workflow.now()


def scheduled_time() -> datetime | None:
    """Return the time at which the Schedule that started the flow was due, in UTC; None if no Schedule started it.

    A run that starts late, a backfill, and a retry have the time at which they were due.
    """
    found = workflow.info().typed_search_attributes.get(SCHEDULED_TIME)
    return None if found is None else found.astimezone(UTC)


class Saga:
    """Undoes completed work when a block fails: the compensations run in reverse order, and the error is raised again.

    async with pf.Saga() as saga:
        await book_hotel(trip)
        saga.compensate(cancel_hotel, trip)
        await book_flight(trip)
    """

    def __init__(self) -> None:
        """Create it without compensations."""
        self._compensations: list[Callable[[], Awaitable[Any]]] = []

    def compensate(self, activity: Callable[..., Awaitable[Any]], *args: Any, **kwargs: Any) -> None:
        """Add the compensation of what was done."""
        self._compensations.append(lambda: activity(*args, **kwargs))

    async def __aenter__(self) -> Self:
        """Begin."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Compensate if the block has failed or was cancelled; one that fails does not stop the others."""
        if error is None or isinstance(error, GeneratorExit):
            return
        await asyncio.shield(asyncio.ensure_future(self._compensate(error)))

    async def _compensate(self, error: BaseException) -> None:
        for each in reversed(self._compensations):
            try:
                await each()
            except (
                workflow.NondeterminismError,
                workflow.ReadOnlyContextError,
            ):  # the run cannot continue on this code
                raise
            except Exception as failure:  # noqa: BLE001 - also an error of the flow's code
                error.add_note(f"a compensation failed: {_reason(failure)}")


def _calls() -> FlowCalls:
    found = CALLS.get()
    if isinstance(found, FlowCalls):
        return found
    raise RuntimeError("this can only be called in a flow")


def _labels(parameter: str, values: Sequence[Any]) -> list[str]:
    """Return a label for each item: its value if that is short and unique, otherwise its number."""
    texts = [text_of(value) for value in values]
    if None in texts or len(set(texts)) < len(texts):
        return [str(number) for number in range(len(values))]
    return [f"{parameter}={text}" for text in texts]


def _reason(error: BaseException) -> str:
    """Return the message of the first cause: that of an activity's failure is the one of its last attempt."""
    return str(causes(error)[-1])


def causes(error: BaseException) -> list[BaseException]:
    """Return a failure and its causes, as a history has them."""
    found = [error]
    while isinstance(found[-1], FailureError) and found[-1].__cause__ is not None:
        found.append(found[-1].__cause__)
    return found


def type_of(error: BaseException) -> str:
    """Return the type of a failure, as retry policies and `catch` in YAML name it."""
    match error:
        case ApplicationError():
            return error.type or "ApplicationError"
        case ActivityError():
            return FailureKind.ACTIVITY
        case ChildWorkflowError():
            return FailureKind.CHILD_WORKFLOW
        case TimeoutError():
            return FailureKind.TIMEOUT
        case CancelledError():
            return FailureKind.CANCELLED
        case _:
            return getattr(error, "type", None) or type(error).__name__
