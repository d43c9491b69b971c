"""Flows in this process: `Flow.run_local` and `LocalRun`."""

import asyncio
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from enum import StrEnum
from typing import Any, TypedDict

import msgspec
import pydantic
import pytest
from temporalio import workflow
from temporalio.exceptions import (
    ActivityError,
    ApplicationError,
    CancelledError,
    ChildWorkflowError,
    FailureError,
    TimeoutType,
)
from temporalio.exceptions import TimeoutError as TemporalTimeoutError

import perdure.flow as pf
from perdure import activity
from perdure.api.kinds.retrypolicy import RetryPolicySpec
from perdure.engine.failures import MAX_MESSAGE
from perdure.flow.definitions import Signature

etl = pf.Environment("etl")
START = datetime(2026, 11, 27, 2, tzinfo=UTC)


@dataclass
class Row:
    source: str
    amount: int


class Kind(StrEnum):
    FULL = "full"
    DELTA = "delta"


class Point(msgspec.Struct):
    x: int


class Order(pydantic.BaseModel):
    id: str
    due: date


@etl.activity(retries=5)
def extract(source: str, day: date) -> list[Row]:
    assert isinstance(day, date)
    return [Row(source, day.day), Row(source, 1)]


@etl.activity(timeout="30m", retries=0)
def load(parts: list[list[Row]], kind: Kind = Kind.FULL) -> int:
    assert kind is Kind.FULL
    return sum(row.amount for part in parts for row in part)


@etl.activity()
async def shift(point: Point) -> Point:
    await asyncio.sleep(0)
    return Point(point.x + 1)


@etl.activity(retries=0)
def due(order: Order) -> date:
    return order.due


@etl.flow
async def nightly(day: date, sources: list[str] = ["eu", "us"]) -> int:  # noqa: B006 - read only
    parts = await pf.map(extract, sources, day=day, at_most=2)
    if not await pf.signal("approve", bool, timeout="1d"):
        raise ValueError("nobody approved")
    return await load(parts)


def approved(*, after: str = "1h") -> pf.LocalRun:
    run = pf.LocalRun(start=START)
    run.send_signal("approve", True, after=after)
    return run


def test_a_flow_runs_with_its_functions_in_virtual_time() -> None:
    run = approved()
    assert run.run(nightly, day=date(2026, 11, 27)) == 56
    assert run.now - START == timedelta(hours=1)
    assert [call.id for call in run.calls] == ["extract[source=eu]", "extract[source=us]", "load"]
    assert run.calls[0].arguments == {"source": "eu", "day": "2026-11-27"}


def test_the_sdk_logs_nothing_about_a_signal(caplog: pytest.LogCaptureFixture) -> None:
    approved().run(nightly, day=date(2026, 11, 27))
    assert caplog.messages == []


def test_failed_and_lost_attempts_are_repeated_with_their_delays() -> None:
    run = approved(after="1s")
    run.fail(extract, ConnectionError("no route"), times=2)
    run.lose(extract)
    assert run.run(nightly, date(2026, 11, 27), ["eu"]) == 28
    attempts = [call for call in run.calls if call.activity == "extract"]
    assert [call.attempt for call in attempts] == [1, 2, 3, 4]
    assert [call.time - START for call in attempts] == [
        timedelta(seconds=seconds) for seconds in (0, 1, 3, 4)
    ]  # a loss has a delay of its own


def test_a_failure_of_an_activity_fails_the_flow() -> None:
    run = approved()
    run.fail(load, ConnectionError("no warehouse"))
    with pytest.raises(ActivityError) as caught:
        run.run(nightly, day=date(2026, 11, 27))
    assert isinstance(caught.value.cause, ApplicationError)
    assert caught.value.cause.type == "ConnectionError"


def test_an_error_of_the_flow_fails_it() -> None:
    run = pf.LocalRun()
    run.send_signal("approve", False)
    with pytest.raises(ApplicationError, match="nobody approved") as caught:
        run.run(nightly, day=date(2026, 11, 27))
    assert caught.value.type == "ValueError"
    assert caught.value.__cause__ is None, "the error is the failure itself"
    assert 'raise ValueError("nobody approved")' in str(caught.value.failure and caught.value.failure.stack_trace)


def test_a_signal_that_does_not_arrive_in_time() -> None:
    with pytest.raises(ApplicationError) as caught:
        pf.LocalRun(start=START).run(nightly, day=date(2026, 11, 27))
    assert (caught.value.type, str(caught.value)) == (
        "TimeoutError",
        "TimeoutError: the signal approve did not arrive within 1d",
    )


@etl.flow
async def dated() -> str:
    time = pf.scheduled_time()
    return "" if time is None else time.isoformat()


@etl.flow
async def dated_with_child() -> list[str]:
    return [await dated(), f"{pf.scheduled_time()}"]


def test_a_flow_knows_when_its_schedule_was_due_in_utc() -> None:
    assert dated.run_local() == ""
    berlin = datetime(2026, 11, 28, 0, 30, tzinfo=timezone(timedelta(hours=1)))
    run = pf.LocalRun(start=START, scheduled_time=berlin)
    assert run.run(dated) == "2026-11-27T23:30:00+00:00"
    run = pf.LocalRun()
    run.scheduled_time = berlin
    assert run.run(dated_with_child) == ["", "2026-11-27 23:30:00+00:00"], "the Schedule did not start the child"


@etl.flow
async def waiting() -> str:
    return await pf.signal("name", str)


def test_a_flow_that_waits_for_ever_is_reported() -> None:
    with pytest.raises(pf.StuckError, match=r"waiting waits for .* signal"):
        waiting.run_local()


def test_a_signal_of_another_type_is_refused() -> None:
    run = pf.LocalRun()
    run.send_signal("name", 7)
    with pytest.raises(ApplicationError, match="the signal name: Input should be a valid string"):
        run.run(waiting)


@etl.flow
async def typed(point: Point, order: Order) -> tuple[int, date]:
    moved = await shift(point)
    return moved.x, await due(order)


def test_types_of_msgspec_and_pydantic_are_kept() -> None:
    assert typed.run_local(Point(1), Order(id="a", due=date(2026, 1, 2))) == (2, date(2026, 1, 2))


class Place(TypedDict):
    city: str


def test_a_typed_dictionary_is_a_value() -> None:
    def visit(place: Place) -> Place:
        return place

    signature = Signature(visit, "visit")
    assert signature.mistakes() == []
    assert signature.decode_arguments({"place": {"city": "Bonn"}}) == {"place": {"city": "Bonn"}}
    with pytest.raises(pf.ValueTypeError, match="argument `place` of visit"):
        signature.encode_arguments({"place": {"town": "Bonn"}})


def test_arguments_are_checked_before_the_start() -> None:
    with pytest.raises(pf.ValueTypeError, match="argument `order` of typed: due: "):
        typed.run_local(Point(1), {"id": "a", "due": "soon"})  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="typed: missing a required argument: 'order'"):
        typed.run_local(Point(1))  # type: ignore[call-arg]


@etl.flow
async def racing() -> str:
    async def slow() -> str:
        await pf.sleep("30d")
        return "slow"

    async def fast() -> str:
        await pf.sleep("1m")
        return "fast"

    return await pf.race(slow(), fast())


def test_the_first_of_a_race_wins() -> None:
    run = pf.LocalRun(start=START)
    assert run.run(racing) == "fast"
    assert run.now - START == timedelta(minutes=1)


@etl.activity(retries=0)
def train(lr: float) -> float:
    if lr > 1:
        raise activity.ApplicationError("diverged", type="Diverged")
    return 1 - lr


@etl.flow
async def sweep(rates: list[float], policy: str) -> list[float]:
    return await pf.map(train, rates, at_most=1, failure_policy=policy)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("policy", "count", "failed"),
    [("CancelRunning", 2, "1 of 4"), ("FinishRunning", 2, "1 of 4"), ("Continue", 4, "2 of 4")],
)
def test_what_a_failure_does_to_the_other_items(policy: str, count: int, failed: str) -> None:
    run = pf.LocalRun()
    with pytest.raises(
        ApplicationError, match=rf"{failed} calls of train failed: train\[lr=2.0\]: Diverged: diverged"
    ) as caught:
        run.run(sweep, [0.1, 2.0, 0.2, 3.0], policy)
    assert caught.value.type == "Diverged"
    assert len(run.calls) == count
    assert run.calls[1].id == "train[lr=2.0]"


@etl.activity(retries=0)
def fit(lr: float) -> float:
    raise activity.ApplicationError(f"diverged at {'1' * int(lr * 20_000)}", type="Diverged", non_retryable=lr > 0.1)


@etl.activity(timeout="1m", retries=0)
def slow_fit(lr: float) -> float:
    return lr


@etl.flow
async def fits(rates: list[float]) -> list[float]:
    return await pf.map(fit, rates, failure_policy="Continue")


@etl.flow
async def slow_fits(rates: list[float]) -> list[float]:
    return await pf.map(slow_fit, rates)


@pytest.mark.parametrize(
    ("rates", "final"), [([0.1, 0.2], False), ([0.2, 0.1], True)], ids=["a first that is repeated", "a final first"]
)
def test_failed_items_fail_the_flow_as_the_first_of_them(rates: list[float], final: bool) -> None:
    with pytest.raises(ApplicationError, match=r"2 of 2 calls of fit failed: fit\[lr=0\..\]: Diverged: .*…") as caught:
        fits.run_local(rates)
    assert (caught.value.type, caught.value.non_retryable) == ("Diverged", final)
    assert len(caught.value.message) <= MAX_MESSAGE


def test_items_that_time_out_fail_the_flow_with_the_type_of_timeouts() -> None:
    run = pf.LocalRun()
    run.set_duration(slow_fit, "2m")
    with pytest.raises(ApplicationError) as caught:
        run.run(slow_fits, [0.1])
    assert caught.value.type == "Timeout"


def test_results_of_the_other_items_are_in_the_error() -> None:
    @etl.flow
    async def kept(rates: list[float]) -> list[float]:
        try:
            return await pf.map(train, rates, at_most=2, failure_policy="Continue")
        except pf.MapError as error:
            return [*error.results, len(error.failures)]

    assert kept.run_local([0.1, 2.0, 0.2, 3.0]) == [train.function(0.1), train.function(0.2), 2]


@etl.activity(retries=0)
def book(what: str) -> str:
    if what == "flight":
        raise RuntimeError("no seats")
    return what


@etl.activity()
def undo(what: str) -> None: ...


@etl.flow
async def trip() -> None:
    async with pf.Saga() as saga:
        for what in ("hotel", "car", "flight"):
            await book(what)
            saga.compensate(undo, what)


def test_a_saga_undoes_in_reverse_order() -> None:
    run = pf.LocalRun()
    with pytest.raises(ActivityError):
        run.run(trip)
    assert [call.arguments["what"] for call in run.calls if call.activity == "undo"] == ["car", "hotel"]


@etl.flow
async def trip_with_mistakes() -> None:
    async def forget() -> None:
        raise KeyError("itinerary")

    async with pf.Saga() as saga:
        saga.compensate(undo, "hotel")
        saga.compensate(forget)
        saga.compensate(undo)
        saga.compensate(undo, ["car"])
        await book("flight")


def test_a_compensation_with_a_mistake_does_not_stop_the_others() -> None:
    run = pf.LocalRun()
    with pytest.raises(ActivityError) as caught:
        run.run(trip_with_mistakes)
    assert "no seats" in str(caught.value.cause)
    assert [call.arguments["what"] for call in run.calls if call.activity == "undo"] == ["hotel"]


def test_a_cancelled_flow_compensates_too() -> None:
    run = pf.LocalRun()
    run.set_duration(book, "1m")
    run.cancel(after="90s")
    with pytest.raises(CancelledError):
        run.run(trip)
    assert [call.arguments["what"] for call in run.calls if call.activity == "undo"] == ["hotel"]


@etl.flow
async def parent(days: list[int]) -> list[int]:
    return [await child(day) for day in days]


@etl.flow
async def child(day: int) -> int:
    if day > 9:
        raise ValueError("no such day")
    await pf.sleep("1h")
    return day * 2


def test_a_flow_calls_flows() -> None:
    assert parent.run_local([1, 2]) == [2, 4]
    with pytest.raises(ChildWorkflowError):
        parent.run_local([10])


@etl.flow
async def chain(number: int) -> int:
    if number < 3:
        workflow.continue_as_new({"number": number + 1})
    return number


@etl.flow
async def descending(levels: int) -> int:
    return 1 + await descending(levels - 1) if levels else 0


def test_a_flow_that_starts_itself_without_end_is_reported() -> None:
    run = pf.LocalRun()
    run.sandbox = False
    assert run.run(descending, 100) == 100
    with pytest.raises(pf.StuckError, match="the flow descending is a child of a child and so on, 100 levels deep"):
        run.run(descending, -1)


def test_a_flow_continues_as_new() -> None:
    assert chain.run_local(0) == 3


@etl.activity(timeout="1m", retries=1)
def copy() -> int:
    resumed = activity.last_heartbeat_details() or 0
    activity.heartbeat(resumed + 10)
    if not resumed:
        raise OSError("disk full")
    return int(resumed)


@etl.flow
async def copying() -> int:
    return await copy()


def test_an_attempt_resumes_from_the_details_of_the_last_one() -> None:
    assert copying.run_local() == 10


def test_an_attempt_that_takes_too_long_times_out() -> None:
    run = pf.LocalRun(start=START)
    run.set_duration(copy, "2m")
    with pytest.raises(ActivityError) as caught:
        run.run(copying)
    assert "StartToClose" in str(caught.value.cause)
    assert run.now - START == timedelta(minutes=2, seconds=1)


async def test_a_flow_runs_inside_an_event_loop() -> None:
    assert chain.run_local(2) == 3
    assert await shift(Point(4)) == Point(5)  # outside of flows, the function itself


def test_names_are_unique_and_durations_checked() -> None:
    with pytest.raises(ValueError, match="two activities named load"):
        etl.activity()(load.function)
    with pytest.raises(ValueError, match="soon"):
        etl.activity(timeout="soon")(print)
    for name in ("_", "naïve", "x" * 64):
        load.function.__name__ = name
        with pytest.raises(ValueError, match=rf"the name of an activity has at most 63 .*'{name.strip('_')}': rename"):
            etl.activity()(load.function)
    load.function.__name__ = "load"
    with pytest.raises(ValueError, match="DNS label"):
        pf.Environment("ETL jobs")
    with pytest.raises(TypeError, match="async def plain"):

        @etl.flow
        def plain() -> None: ...


def test_a_test_replaces_the_function_of_an_activity() -> None:
    run = approved()
    run.replace(extract, lambda source, day: [Row(source, 100 + day.day)])
    run.lose(load)
    assert run.run(nightly, date(2026, 11, 27), ["eu"]) == 127
    assert run.timeline().splitlines() == [
        "+0s extract[source=eu]: ok",
        "+1h load: PodLostError: the pod was lost",
        "+1h1s load, attempt 2: ok",
    ]


@etl.activity(retries=0)
def slow(name: str) -> str:
    raise AssertionError(f"{name} has lost the race before its end")


@etl.activity(retries=0)
def fast(name: str, times: int = 1) -> str:
    return name * times


@etl.flow
async def racing_activities() -> str:
    return await pf.race(fast("a"), slow("b"))


def test_the_function_of_the_loser_is_not_called() -> None:
    run = pf.LocalRun()
    assert run.run(racing_activities) == "a"
    assert [(call.id, call.outcome) for call in run.calls] == [
        ("fast[name=a]", "Completed"),
        ("slow[name=b]", "Cancelled"),
    ]
    run = pf.LocalRun()
    run.replace(slow, lambda name: name)
    run.set_duration(fast, "2m")
    run.set_duration(slow, "1m")
    assert run.run(racing_activities) == "b"


@etl.flow
async def named() -> None:
    await fast("a")
    await fast("b", times=2)
    await fast("a", times=1)
    await fast("x" * 41, times=3)
    await fast("a/b")


def test_arguments_choose_the_name_of_a_step() -> None:
    run = pf.LocalRun()
    run.run(named)
    assert [call.id for call in run.calls] == [
        "fast[name=a]",
        "fast[name=b,times=2]",
        "fast[name=a]#2",
        "fast[times=3]",
        "fast",
    ]


def test_errors_have_names_and_a_map_that_is_not_caught_has_its_parts() -> None:
    assert (pf.ActivityError, pf.ApplicationError, pf.ChildWorkflowError, pf.CancelledError) == (
        ActivityError,
        ApplicationError,
        ChildWorkflowError,
        CancelledError,
    )
    with pytest.raises(pf.ApplicationError) as caught:
        sweep.run_local([0.1, 2.0, 3.0], "Continue")
    failures = {"lr=2.0": "Diverged: diverged", "lr=3.0": "Diverged: diverged"}
    assert caught.value.details == ({"activity": "train", "count": 3, "failures": failures},)


@etl.activity(retry="patient")
def asked(number: int) -> int:
    return number


@etl.flow
async def asking(number: int) -> int:
    return await asked(number)


def test_a_retry_policy_by_name_decides_about_failures_and_losses() -> None:
    run = pf.LocalRun(start=START, retry_policies={"patient": pf.Retry(attempts=2, initial="10s")})
    run.lose(asked, times=2)
    run.fail(asked, TimeoutError("the bank is slow"))
    assert run.run(asking, 3) == 3
    assert [call.time - START for call in run.calls] == [timedelta(seconds=each) for each in (0, 10, 30, 40)]


def test_losses_have_the_limit_of_the_policy() -> None:
    spec = RetryPolicySpec.parse({"exponential": {}, "maximumLosses": 1})
    run = pf.LocalRun(retry_policies={"patient": spec})
    run.lose(asked, times=2)
    with pytest.raises(ActivityError) as caught:
        run.run(asking, 3)
    assert isinstance(caught.value.cause, ApplicationError)
    assert caught.value.cause.type == "TooManyLosses"


def test_a_failure_needs_the_policy_that_its_activity_names() -> None:
    assert asking.run_local(3) == 3
    run = pf.LocalRun()
    run.fail(asked, ConnectionError())
    with pytest.raises(
        LookupError, match="an attempt of asked has failed, and this local run does not have its RetryPolicy"
    ):
        run.run(asking, 3)


@etl.activity(timeout="10m", total_timeout="5m")
def limited() -> None: ...


@etl.flow
async def limiting() -> None:
    await limited()


@pytest.mark.parametrize("duration", ["6m", "20m"])
def test_all_attempts_together_have_a_limit(duration: str) -> None:
    run = pf.LocalRun(start=START)
    run.set_duration(limited, duration)
    with pytest.raises(ActivityError) as caught:
        run.run(limiting)
    assert (run.now - START, len(run.calls)) == (timedelta(minutes=5), 1)
    assert isinstance(caught.value.cause, TemporalTimeoutError)
    assert caught.value.cause.type is TimeoutType.SCHEDULE_TO_CLOSE


def test_a_timeout_in_a_function_is_a_failure_of_that_type() -> None:
    run = pf.LocalRun()
    run.fail(book, TimeoutError("the airline does not answer"))
    with pytest.raises(ActivityError) as caught:
        run.run(trip)
    assert isinstance(caught.value.cause, ApplicationError)
    assert caught.value.cause.type == "TimeoutError"
    assert run.calls[0].outcome == "Failed"


@etl.flow
async def twice() -> list[str]:
    return list(await pf.gather(pf.signal("name", str), pf.signal("name", str, timeout="2h")))


def test_a_signal_is_for_one_of_those_who_wait() -> None:
    run = pf.LocalRun()
    run.send_signal("name", "ada", after="1h")
    run.send_signal("name", "bob", after="90m")
    assert run.run(twice) == ["ada", "bob"]


@etl.activity()
def diverge(rate: float) -> float:
    return rate / 0.0 if rate == 0 else rate * float("inf")


@etl.flow
async def diverging(rate: float) -> float:
    return await diverge(rate)


@pytest.mark.parametrize(
    ("rate", "error"),
    [
        (0.0, "ZeroDivisionError: float division by zero"),
        (1.0, "ValueTypeError: the result of diverge: Out of range float values are not JSON compliant"),
    ],
)
def test_an_activity_that_fails_without_end_is_reported(rate: float, error: str) -> None:
    run = pf.LocalRun()
    with pytest.raises(pf.StuckError, match=rf"1,000 attempts of diverge\[rate={rate}\] have failed.*: {error}"):
        run.run(diverging, rate)
    assert len(run.calls) == 1000
    with pytest.raises(pf.ValueTypeError, match="argument `rate` of diverging: Out of range float values"):
        diverging.run_local(float("nan"))


@etl.flow
async def polling() -> list[str]:
    await pf.sleep("1s")
    found = [await pf.signal("name", str, timeout="0s")]
    try:
        found.append(await pf.signal("name", str, timeout="0s"))
    except TimeoutError:
        found.append("none")
    return found


def test_a_timeout_of_zero_takes_a_signal_that_has_arrived() -> None:
    run = pf.LocalRun()
    run.send_signal("name", "ada")
    assert run.run(polling) == ["ada", "none"]


@etl.flow
async def grouped(things: list[str]) -> list[str]:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(book(thing)) for thing in things]
    return [task.result() for task in tasks]


def test_a_task_group_fails_with_the_error_of_its_task() -> None:
    assert grouped.run_local(["hotel", "car"]) == ["hotel", "car"]
    with pytest.raises(ActivityError) as caught:
        grouped.run_local(["flight", "hotel"])
    assert "no seats" in str(caught.value.cause)
    run = pf.LocalRun()
    run.set_duration(book, "1h")
    run.cancel(after="1m")
    with pytest.raises(CancelledError):
        run.run(grouped, ["hotel"])


@etl.flow
async def hurried(way: str) -> str:
    try:
        if way == "block":
            async with asyncio.timeout(60):
                await book("hotel")
        elif way == "call":
            await asyncio.wait_for(book("hotel"), 60)
        else:
            async with asyncio.timeout(60):
                await copied(way)
    except TimeoutError:
        await undo("hotel")
        return "too late"
    return "in time"


@etl.flow
async def copied(what: str) -> str:
    return await book(what)


@pytest.mark.parametrize("way", ["block", "call", "child"])
def test_timeouts_of_asyncio_limit_activities_and_children(way: str) -> None:
    assert hurried.run_local(way) == "in time"
    run = pf.LocalRun(start=START)
    run.set_duration(book, "1h")
    assert run.run(hurried, way) == "too late"
    assert [call.outcome for call in run.calls] == ["Cancelled", "Completed"]
    assert run.now - START == timedelta(minutes=1)


@etl.flow
async def mapping(items: list[Any], at_most: int | None = None, policy: Any = "Continue") -> int:
    try:
        return len(await pf.map(book, items, at_most=at_most, failure_policy=policy))
    except pf.MapError as error:
        return -len(error.results)


def test_an_item_of_another_type_is_a_failure_of_its_call() -> None:
    run = pf.LocalRun()
    assert run.run(mapping, ["hotel", ["car"], "bus"]) == -2
    with pytest.raises(ApplicationError, match="`at_most` of map must be at least 1, or None for all, not 0"):
        mapping.run_local(["hotel"], at_most=0)
    with pytest.raises(ApplicationError, match="must be CancelRunning, FinishRunning, Continue, not 'continue'"):
        mapping.run_local(["hotel"], policy="continue")


def test_signals_have_values_with_declared_types() -> None:
    @etl.flow
    async def due_of() -> date:
        return (await pf.signal("order", Order)).due

    run = pf.LocalRun()
    run.send_signal("order", Order(id="a", due=date(2026, 1, 2)))
    assert run.run(due_of) == date(2026, 1, 2)
    with pytest.raises(pf.ValueTypeError, match="the signal order"):
        run.send_signal("order", object())


@etl.flow
async def chosen_by_chance(rounds: int = 0) -> list[float]:
    if rounds:
        workflow.continue_as_new(args=[{"rounds": rounds - 1}])
    assert pf.scheduled_time() is None
    await pf.sleep("1h")
    return [workflow.random().random()]


@etl.flow
async def parent_of_chance() -> list[list[float]]:
    return list(await pf.gather(chosen_by_chance(1), chosen_by_chance(0)))


def test_each_run_has_random_numbers_of_its_own_and_children_that_continue_stay_children() -> None:
    run = pf.LocalRun(scheduled_time=START)
    first, second = run.run(parent_of_chance)
    assert first != second
    again = pf.LocalRun(scheduled_time=START)
    assert again.run(parent_of_chance) == [first, second]
    cancelled = pf.LocalRun(start=START)
    cancelled.cancel(after="1m")
    with pytest.raises(CancelledError):
        cancelled.run(parent_of_chance)
    assert cancelled.now - START == timedelta(minutes=1)


def test_the_id_of_an_open_child_is_in_use() -> None:
    @etl.flow
    async def doubled() -> None:
        for _ in range(2):
            await workflow.start_child_workflow("asking", {"number": 1}, id="same", task_queue="etl")

    with pytest.raises(FailureError, match="already started"):
        doubled.run_local()


def test_a_local_run_can_run_again() -> None:
    run = approved(after="1h")
    assert [run.run(nightly, date(2026, 11, 27), ["eu"]) for _ in range(2)] == [28, 28]
    assert run.now - START == timedelta(hours=2)
