"""The queue of a WorkflowLimit: holders, order, and status."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.api.kinds.workflowlimit import MAX_WAITERS, LimitEntry, RateUnit, StartRate
from perdure.runtime.limits import LimitQueue, limit_status, may_start

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def entry(
    name: str,
    key: str = "",
    *,
    event: int | None = None,
    priority: int = 0,
    age: int = 0,
    since: int = 0,
    cancels: bool = False,
    attempt: int = 0,
) -> LimitEntry:
    return LimitEntry(
        run=name,
        run_id=f"uid-{name}",
        event_id=event,
        key=key,
        priority=priority,
        cancels_running=cancels,
        attempt=attempt,
        created=NOW - timedelta(seconds=age),
        since=NOW + timedelta(seconds=since),
    )


def names(entries: tuple[LimitEntry, ...]) -> list[str]:
    return [each.run for each in entries]


def test_a_run_holds_a_limit_with_room_and_waits_for_a_full_one() -> None:
    queue = LimitQueue().claim(entry("a"), 2).claim(entry("b"), 2).claim(entry("c"), 2)
    assert (names(queue.holders), names(queue.waiters)) == (["a", "b"], ["c"])
    released = queue.release({"uid-a"}).admit(2, NOW)
    assert (names(released.holders), names(released.waiters)) == (["b", "c"], [])


def test_a_repeated_claim_changes_nothing() -> None:
    queue = LimitQueue().claim(entry("a"), 1).claim(entry("b"), 1)
    assert queue.claim(entry("a", since=60), 1) == queue
    assert queue.claim(entry("b", since=60), 1) == queue


def test_waiters_are_ordered_by_priority_age_and_arrival() -> None:
    queue = LimitQueue().claim(entry("holder"), 1)
    for each in (
        entry("new"),
        entry("same"),
        entry("old", age=60),
        entry("urgent", priority=5),
        entry("last", priority=-1),
    ):
        queue = queue.claim(each, 1)
    assert names(queue.waiters) == ["urgent", "old", "new", "same", "last"]


def test_keys_do_not_wait_for_each_other() -> None:
    queue = LimitQueue().claim(entry("a", "x"), 1).claim(entry("b", "x"), 1).claim(entry("c", "y"), 1)
    assert (names(queue.holders), names(queue.waiters)) == (["a", "c"], ["b"])


def test_a_claim_for_another_key_releases_the_previous_one() -> None:
    queue = LimitQueue().claim(entry("a", "x"), 1).claim(entry("b", "x"), 1).claim(entry("a", "y"), 1)
    assert {(each.run, each.key) for each in queue.holders} == {("a", "y"), ("b", "x")}


def test_a_run_that_must_not_wait_is_not_queued() -> None:
    queue = LimitQueue().claim(entry("a"), 1)
    assert queue.claim(entry("b"), 1, queues=False) == queue
    assert names(queue.release({"uid-a"}).claim(entry("b"), 1, queues=False).holders) == ["b"]


def test_a_lower_capacity_admits_no_run_and_stops_none() -> None:
    queue = LimitQueue().claim(entry("a"), 2).claim(entry("b"), 2).claim(entry("c"), 1)
    assert names(queue.holders) == ["a", "b"]
    assert names(queue.release({"uid-a"}).admit(1, NOW).holders) == ["b"]
    assert LimitQueue().claim(entry("a"), 0).holders == ()


def test_the_first_waiter_cancels_the_longest_holder_that_is_not_newer() -> None:
    queue = LimitQueue().claim(entry("a", age=60), 2).claim(entry("b", age=50, since=1), 2)
    queue = queue.claim(entry("c", age=40, cancels=True), 2).claim(entry("d", age=30, cancels=True), 2)
    assert queue.to_cancel("uid-d") is None
    found = queue.to_cancel("uid-c")
    assert found is not None
    assert found.run == "a"
    newer = LimitQueue().claim(entry("a"), 1).claim(entry("b", age=60, cancels=True), 1)
    assert newer.to_cancel("uid-b") is None
    assert LimitQueue().claim(entry("a", age=60), 1).claim(entry("b"), 1).to_cancel("uid-b") is None


def replaced(queue: LimitQueue) -> dict[str, str]:
    return {each.run: each.replaced_by for each in queue.waiters if each.replaced_by}


def test_newer_runs_replace_those_that_wait() -> None:
    queue = LimitQueue().claim(entry("a", age=60, cancels=True), 1)
    for name, age in (("b", 50), ("c", 40), ("other", 30)):
        queue = queue.claim(entry(name, "other" if name == "other" else "", age=age, cancels=True), 1)
    assert replaced(queue) == {"b": "c"}
    released = queue.release({"uid-a"}).admit(1, NOW)
    assert (names(released.holders), names(released.waiters)) == (["other", "c"], ["b"])
    assert released.release({"uid-c"}).admit(1, NOW).holds("uid-b") is False
    assert released.claim(entry("b", age=50, priority=5, cancels=True), 5).replaced_by("uid-b") == "c"


def test_a_newer_holder_replaces_a_run_that_comes_late() -> None:
    queue = LimitQueue().claim(entry("new", cancels=True), 1)
    assert replaced(queue.claim(entry("old", age=60, priority=5, cancels=True), 1)) == {"old": "new"}
    assert replaced(queue.claim(entry("old", age=60), 1)) == {}


def both(name: str, *, age: int = 0, round: int = 0) -> LimitEntry:  # noqa: A002 (that of `LimitEntry`)
    return entry(name, age=age).model_copy(update={"together": 2, "round": round})


def test_only_its_own_process_admits_what_takes_several_limits() -> None:
    queue = LimitQueue().claim(both("a", age=60), 1, takes=False).claim(entry("b"), 1)
    assert (names(queue.holders), names(queue.waiters)) == (["b"], ["a"])
    queue = queue.release({"uid-b"}).admit(1, NOW)
    assert queue.holders == ()
    assert names(queue.claim(both("a", age=60), 1).holders) == ["a"]


def test_a_place_is_kept_for_the_first_that_reserves_one() -> None:
    queue = LimitQueue().claim(entry("x"), 2).claim(entry("y"), 2)
    for name, age in (("a", 60), ("b", 50)):
        queue = queue.claim(both(name, age=age), 2, takes=False).reserve(f"uid-{name}")
    queue = queue.claim(entry("old", age=90), 2).claim(entry("new"), 2)
    queue = queue.release({"uid-x"}).admit(2, NOW)
    assert names(queue.holders) == ["y", "old"]
    queue = queue.release({"uid-old"}).admit(2, NOW)
    assert names(queue.holders) == ["y"]
    assert names(queue.claim(both("b", age=50), 2).holders) == ["y"]
    assert names(queue.claim(both("a", age=60), 2).holders) == ["y", "a"]
    assert names(queue.release({"uid-y"}).admit(2, NOW).holders) == ["new"]


def test_a_place_of_a_later_round_is_not_given_back() -> None:
    queue = LimitQueue().claim(both("a", round=1), 1).claim(entry("b"), 1)
    assert queue.give_back(both("a"), 0, 1, NOW, None) == queue
    rest = queue.give_back(both("a"), 1, 1, NOW, None)
    assert (names(rest.holders), names(rest.waiters)) == (["b"], ["a"])
    (waiter,) = rest.claim(both("a", round=2), 1).waiters
    assert waiter.round == 2


def test_a_holder_that_needs_more_or_fewer_limits_keeps_its_place() -> None:
    alone = LimitQueue().claim(entry("a"), 1).claim(entry("urgent", priority=5), 1)
    assert alone.claim(both("a"), 1) == alone
    assert alone.give_back(both("a"), 0, 1, NOW, None) == alone  # it may have started
    fewer = LimitQueue().claim(both("a"), 1).claim(entry("urgent", priority=5), 1).claim(entry("a"), 1)
    assert names(fewer.holders) == ["a"]
    assert fewer.give_back(both("a"), 0, 1, NOW, None) == fewer


def test_a_waiter_that_does_not_need_the_limit_is_withdrawn_but_not_its_round() -> None:
    queue = LimitQueue().claim(entry("holder"), 1).claim(entry("a"), 1).claim(both("b", round=1), 1).reserve("uid-b")
    assert queue.withdraw("uid-holder") == queue
    assert names(queue.withdraw("uid-a").waiters) == ["b"]
    (left,) = queue.withdraw("uid-a").withdraw("uid-b").waiters
    assert (left.run, left.round, left.reserves) == ("b", 1, False)


def test_one_that_gave_back_places_stays_listed() -> None:
    queue = LimitQueue().claim(entry("holder"), 1).claim(both("a", round=1), 1)
    for i in range(MAX_WAITERS):
        queue = queue.claim(entry(f"run-{i}", priority=1), 1)
    assert (len(queue.waiters), queue.waits("uid-a")) == (MAX_WAITERS, True)


def test_those_that_take_several_limits_have_one_order_in_all_of_them() -> None:
    full = LimitQueue().claim(entry("holder"), 1)
    one = full.claim(both("a"), 1, takes=False).claim(both("b"), 1, takes=False)
    other = full.claim(both("b"), 1, takes=False).claim(both("a"), 1, takes=False)
    assert names(one.waiters) == names(other.waiters)


def test_as_many_of_the_newest_runs_wait_as_can_hold_the_limit() -> None:
    for capacity, waiting in ((0, ["d"]), (1, ["d"]), (2, ["c", "d"])):
        queue = LimitQueue(holders=(entry("x"), entry("y")))
        for age, name in enumerate("abcd"):
            queue = queue.claim(entry(name, age=60 - age, cancels=True), capacity)
        assert [each.run for each in queue.waiters if not each.replaced_by] == waiting


def test_activities_of_a_run_take_separate_places() -> None:
    queue = LimitQueue().claim(entry("a", event=5), 2).claim(entry("a", event=6), 2).claim(entry("a", event=7), 2)
    assert [each.event_id for each in queue.holders] == [5, 6]
    assert [each.event_id for each in queue.waiters] == [7]
    released = queue.release({"uid-a/5"}).admit(2, NOW)
    assert [each.event_id for each in released.holders] == [6, 7]
    assert [each.id for each in released.by_run()["uid-a"]] == ["uid-a/6", "uid-a/7"]


def test_an_activity_that_holds_a_limit_is_not_cancelled_for_a_newer_run() -> None:
    queue = LimitQueue().claim(entry("a", event=5, age=60), 1).claim(entry("b"), 1)
    assert queue.to_cancel("uid-b") is None


def test_only_the_first_waiting_runs_are_listed() -> None:
    queue = LimitQueue().claim(entry("holder"), 1)
    for i in range(MAX_WAITERS):
        queue = queue.claim(entry(f"run-{i}"), 1)
    assert not queue.claim(entry("late"), 1).waits("uid-late")
    urgent = queue.claim(entry("urgent", priority=1), 1)
    assert names(urgent.waiters)[0] == "urgent"
    assert len(urgent.waiters) == MAX_WAITERS


def test_a_rate_admits_waiters_one_period_after_earlier_ones() -> None:
    rate = StartRate(count=2, period=timedelta(seconds=10))
    queue = LimitQueue()
    for second, name in enumerate("abcd"):
        queue = queue.claim(entry(name, since=second), 500, rate)
    assert (names(queue.holders), names(queue.waiters)) == (["a", "b"], ["c", "d"])
    assert queue.next_start(500, NOW + timedelta(seconds=3), rate) == NOW + timedelta(seconds=10)
    assert queue.admit(500, NOW + timedelta(seconds=9), rate) is queue
    queue = queue.release({"uid-a"}).admit(500, NOW + timedelta(seconds=10), rate)
    assert (names(queue.holders), names(queue.waiters)) == (["b", "c"], ["d"])
    assert queue.next_start(500, NOW + timedelta(seconds=10), rate) == NOW + timedelta(seconds=11)
    assert names(queue.admit(500, NOW + timedelta(seconds=11), rate).waiters) == []
    assert queue.next_start(500, NOW + timedelta(seconds=10), None) is None
    assert queue.next_start(2, NOW + timedelta(seconds=10), rate) is None


def test_a_rate_applies_to_each_key() -> None:
    rate = StartRate(count=1, period=timedelta(seconds=10))
    queue = LimitQueue().claim(entry("a", "x"), 5, rate).claim(entry("b", "y"), 5, rate).claim(entry("c", "x"), 5, rate)
    assert (names(queue.holders), names(queue.waiters)) == (["a", "b"], ["c"])
    assert LimitQueue.read(limit_status({}, queue, 5, rate, generation=1, now=NOW)) == queue


ATTEMPTS = StartRate(count=2, period=timedelta(seconds=10), counts=RateUnit.ATTEMPTS)


def at(second: float) -> datetime:
    return NOW + timedelta(seconds=second)


def permitted(queue: LimitQueue, name: str) -> datetime | None:
    found = queue.entry(f"uid-{name}/5")
    assert found is not None
    return found.permitted


def test_a_rate_of_attempts_permits_the_first_attempt_with_the_place_and_counts_it_for_two_seconds_more() -> None:
    queue = LimitQueue()
    for name in "abc":
        queue = queue.claim(entry(name, event=5, attempt=1), 500, ATTEMPTS)
    assert (names(queue.holders), names(queue.waiters)) == (["a", "b"], ["c"])
    assert [may_start(queue.holders[0], 1, at(second)) for second in (0, 1.9, 2)] == [True, True, False]
    assert queue.next_start(500, NOW, ATTEMPTS) == at(12)
    assert queue.admit(500, at(11), ATTEMPTS) is queue
    assert names(queue.admit(500, at(12), ATTEMPTS).holders) == ["a", "b", "c"]


def test_a_retry_waits_for_a_rate_of_attempts_as_a_holder_and_goes_first() -> None:
    queue = LimitQueue()
    for name in "abc":
        queue = queue.claim(entry(name, event=5, attempt=1), 500, ATTEMPTS)
    waiting = queue.permit("uid-b/5", 2, 500, at(1), ATTEMPTS)
    assert (permitted(waiting, "b"), permitted(waiting, "a")) == (None, NOW)
    assert waiting.permit("uid-b/5", 2, 500, at(3), ATTEMPTS) == waiting
    assert waiting.next_start(500, at(3), ATTEMPTS) == at(12)
    after = waiting.permit("uid-a/5", 2, 500, at(3), ATTEMPTS).admit(500, at(12), ATTEMPTS)
    assert (permitted(after, "a"), permitted(after, "b"), names(after.waiters)) == (at(12), at(12), ["c"])
    assert LimitQueue.read(limit_status({}, after, 500, ATTEMPTS, generation=1, now=at(12))) == after


def test_retries_wait_in_order_of_priority_and_age() -> None:
    queue = LimitQueue()
    for name, priority, age in (("new", 0, 0), ("old", 0, 60), ("urgent", 5, 0)):
        queue = queue.claim(entry(name, event=5, priority=priority, age=age, attempt=1), 500)
    rate = StartRate(count=1, period=timedelta(seconds=10), counts=RateUnit.ATTEMPTS)
    for name in ("new", "old", "urgent"):
        queue = queue.permit(f"uid-{name}/5", 2, 0, at(-5), rate)
    assert permitted(queue, "new") == at(-5), "no other one waited yet"
    assert permitted(queue.admit(0, at(7), rate), "urgent") == at(7)
    assert permitted(queue.admit(0, at(7), rate).admit(0, at(19), rate), "old") == at(19)


def test_an_expired_permission_is_asked_for_again_and_counts_again() -> None:
    queue = LimitQueue().claim(entry("a", event=5, attempt=1), 500, ATTEMPTS)
    assert queue.permit("uid-a/5", 1, 500, at(1), ATTEMPTS) is queue
    renewed = queue.permit("uid-a/5", 1, 500, at(5), ATTEMPTS)
    assert permitted(renewed, "a") == at(5)
    assert [each.time for each in renewed.recent] == [NOW, at(5)]


def test_a_place_that_was_given_back_permits_no_start() -> None:
    held = entry("a", event=5, attempt=1).model_copy(update={"together": 2})
    queue = LimitQueue().claim(held, 500, ATTEMPTS).give_back(held, 0, 500, at(1), ATTEMPTS)
    assert permitted(queue, "a") is None


def test_a_rate_of_admissions_ignores_attempts() -> None:
    rate = StartRate(count=2, period=timedelta(seconds=10))
    queue = LimitQueue().claim(entry("a", event=5, attempt=1), 500, rate)
    assert (queue.holders[0].attempt, permitted(queue, "a")) == (0, None)
    before = LimitQueue().claim(entry("a", event=5, attempt=1), 500, ATTEMPTS)
    assert before.permit("uid-a/5", 2, 500, at(1), ATTEMPTS).next_start(500, at(1), rate) is None


@given(
    steps=st.lists(st.tuples(st.floats(0, 5), st.integers(0, 5), st.floats(0, 3)), max_size=60), count=st.integers(1, 3)
)
def test_no_more_attempts_start_within_a_period_than_their_rate_permits(
    steps: list[tuple[float, int, float]], count: int
) -> None:
    """Each attempt starts some seconds after it was permitted, or asks again. Each activity is retried forever."""
    rate = StartRate(count=count, period=timedelta(seconds=10), counts=RateUnit.ATTEMPTS)
    queue, second, starts = LimitQueue(), 0.0, list[datetime]()
    attempts: dict[int, int] = {}
    for passed, number, delay in steps:
        second += passed
        attempt = attempts.setdefault(number, 1)
        queue = queue.claim(entry(f"run{number}", event=5, attempt=attempt, since=0), 500, rate).admit(
            500, at(second), rate
        )
        queue = queue.permit(f"uid-run{number}/5", attempt, 500, at(second), rate)
        found = queue.entry(f"uid-run{number}/5")
        if found is not None and may_start(found, attempt, at(second + delay)):
            starts.append(at(second + delay))
            attempts[number] += 1
    starts.sort()
    assert all(last - first > rate.period for first, last in zip(starts, starts[count:], strict=False))


@pytest.mark.parametrize(
    ("count", "message"),
    [
        (1, "has room for 5 holders and 1 start per 10s of each key"),
        (3, "has room for 5 holders and 3 starts per 10s of each key"),
    ],
)
def test_the_status_shows_the_rate(count: int, message: str) -> None:
    rate = StartRate(count=count, period=timedelta(seconds=10))
    (ready,) = limit_status({}, LimitQueue(), 5, rate, generation=1, now=NOW)["conditions"]
    assert ready["message"] == message


@given(steps=st.lists(st.tuples(st.integers(0, 4), st.sampled_from("xy")), max_size=60), count=st.integers(1, 4))
def test_a_rate_is_never_exceeded_and_delays_no_start_unnecessarily(steps: list[tuple[int, str]], count: int) -> None:
    rate, second = StartRate(count=count, period=timedelta(seconds=10)), 0
    queue = LimitQueue()
    for number, (passed, key) in enumerate(steps):
        second += passed
        at = NOW + timedelta(seconds=second)
        queue = queue.admit(500, at, rate).claim(entry(f"run{number}", key, age=-number, since=second), 500, rate)
        due = queue.next_start(500, at, rate)
        assert due is None or at < due <= at + rate.period
        assert bool(queue.waiters) == (due is not None)
    starts = [(each.key, each.since) for each in queue.holders]
    for key, since in starts:
        assert sum(other == key and since - rate.period < time <= since for other, time in starts) <= count


def test_a_queue_survives_its_status() -> None:
    queue = LimitQueue().claim(entry("a", "x", priority=3), 1).claim(entry("b", "x"), 1)
    status = limit_status({}, queue, 1, generation=2, now=NOW)
    assert LimitQueue.read(status) == queue
    assert (status["held"], status["waiting"], status["observedGeneration"]) == (1, 1, 2)
    (ready,) = status["conditions"]
    assert (ready["status"], ready["message"]) == ("True", "has room for 1 holder of each key")
    assert limit_status(status, queue, 1, generation=2, now=NOW + timedelta(hours=1)) == status


_ACTIONS = st.lists(
    st.tuples(st.sampled_from(["claim", "release"]), st.integers(0, 9), st.sampled_from("xy"), st.integers(-1, 1)),
    max_size=60,
)


@given(actions=_ACTIONS, capacity=st.integers(0, 3))
def test_the_capacity_of_a_key_is_never_exceeded_and_always_used(
    actions: list[tuple[str, int, str, int]], capacity: int
) -> None:
    queue = LimitQueue()
    for action, number, key, priority in actions:
        if action == "claim":
            queue = queue.claim(entry(f"run{number}", key, priority=priority), capacity)
        else:
            queue = queue.release({f"uid-run{number}"}).admit(capacity, NOW)
        runs = [each.run for each in (*queue.holders, *queue.waiters)]
        assert len(runs) == len(set(runs))
        for each in "xy":
            held = sum(holder.key == each for holder in queue.holders)
            assert held <= capacity
            assert held == capacity or queue.first(each) is None


@pytest.mark.parametrize("capacity", [1, 3])
def test_every_waiter_gets_the_limit_in_order(capacity: int) -> None:
    queue, order = LimitQueue(), [f"run{i}" for i in range(12)]
    for i, name in enumerate(order):
        queue = queue.claim(entry(name, age=100 - i), capacity)
    had = names(queue.holders)
    while queue.holders:
        before = set(names(queue.holders))
        queue = queue.release({queue.holders[0].run_id}).admit(capacity, NOW)
        had += [name for name in names(queue.holders) if name not in before]
    assert had == order
