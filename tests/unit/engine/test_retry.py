"""Both families of retry policies, at any attempt: their waits, and when they stop."""

from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.engine.failures import Failure, FailureKind, RetryState
from perdure.engine.retry import LONGEST_WAIT, CloudSchedulerRetry, RetryPolicy, decide_retry, decide_run_retry
from support.engine.script import T0, application, seconds

lengths = st.timedeltas(min_value=timedelta(milliseconds=1), max_value=LONGEST_WAIT)
attempts = st.integers(min_value=1, max_value=2**31)
exponentials = st.builds(
    RetryPolicy,
    initial_interval=lengths,
    backoff_coefficient=st.floats(min_value=1, max_value=999_999),
    maximum_interval=st.none() | lengths,
)
googles = st.builds(
    CloudSchedulerRetry,
    min_backoff_duration=st.timedeltas(min_value=timedelta(0), max_value=LONGEST_WAIT),
    max_backoff_duration=st.timedeltas(min_value=timedelta(0), max_value=LONGEST_WAIT),
    max_doublings=st.integers(min_value=0, max_value=1000),
).map(lambda google: RetryPolicy(cloud_scheduler=google))
policies = exponentials | googles


def google(**fields: object) -> RetryPolicy:
    return RetryPolicy(cloud_scheduler=CloudSchedulerRetry(**fields))  # type: ignore[arg-type]


def waits(policy: RetryPolicy, count: int) -> list[float]:
    return [policy.interval(attempt).total_seconds() for attempt in range(1, count + 1)]


@given(policies, attempts)
def test_waits_never_overflow_and_never_become_shorter(policy: RetryPolicy, attempt: int) -> None:
    this, following = policy.interval(attempt), policy.interval(attempt + 1)
    assert timedelta(0) <= this <= following <= LONGEST_WAIT
    assert T0 + following < datetime.max.replace(tzinfo=T0.tzinfo)


@given(exponentials, attempts)
def test_an_exponential_wait_is_never_longer_than_the_maximum_interval(policy: RetryPolicy, attempt: int) -> None:
    ceiling = policy.maximum_interval if policy.maximum_interval is not None else 100 * policy.initial_interval
    assert policy.interval(attempt) <= ceiling
    assert policy.interval(1) == min(policy.initial_interval, ceiling, LONGEST_WAIT)


@given(googles, attempts)
def test_a_google_wait_is_never_longer_than_its_maximum(policy: RetryPolicy, attempt: int) -> None:
    assert policy.cloud_scheduler is not None
    assert policy.interval(attempt) <= policy.cloud_scheduler.max_backoff_duration


@given(googles, st.integers(min_value=1, max_value=1100))
def test_a_google_wait_is_the_sum_of_its_steps(policy: RetryPolicy, attempt: int) -> None:
    """As in the reference, step by step: the wait doubles `maxDoublings` times, then grows by the last doubled wait."""
    rules = policy.cloud_scheduler
    assert rules is not None
    wait = step = rules.min_backoff_duration // timedelta(microseconds=1)
    for number in range(2, attempt + 1):
        wait = wait * 2 if number <= rules.max_doublings + 1 else wait + step
        step = wait if number <= rules.max_doublings + 1 else step
    longest = min(rules.max_backoff_duration, LONGEST_WAIT) // timedelta(microseconds=1)
    assert policy.interval(attempt) == min(wait, longest) * timedelta(microseconds=1)


def test_waits_match_the_example_in_the_cloud_scheduler_reference() -> None:
    policy = google(min_backoff_duration=seconds(10), max_backoff_duration=seconds(300), max_doublings=3)
    assert waits(policy, 8) == [10, 20, 40, 80, 160, 240, 300, 300]


def test_without_doublings_waits_grow_linearly() -> None:
    policy = google(min_backoff_duration=seconds(3.5), max_backoff_duration=seconds(12), max_doublings=0)
    assert waits(policy, 5) == [3.5, 7, 10.5, 12, 12]


def test_21_default_waits_are_those_of_temporal() -> None:
    assert waits(RetryPolicy(), 9) == [1, 2, 4, 8, 16, 32, 64, 100, 100]


def outcome(policy: RetryPolicy, attempt: int, *, at: float = 0) -> RetryState:
    decided = decide_retry(policy, application(), attempt=attempt, now=T0 + seconds(at), expiration=None, since=T0)
    return decided.state


GOES_ON, COUNTED_OUT, TOO_LATE = RetryState.IN_PROGRESS, RetryState.MAXIMUM_ATTEMPTS_REACHED, RetryState.TIMEOUT


@pytest.mark.parametrize(
    ("count", "duration", "attempt", "at", "expected"),
    [
        (0, 0, 1, 0, COUNTED_OUT),
        (3, 0, 3, 10**6, GOES_ON),
        (3, 0, 4, 0, COUNTED_OUT),
        (2, 60, 2, 10**6, GOES_ON),  # the duration is over, the count is not reached
        (2, 60, 3, 0, GOES_ON),  # the count is reached, the duration is not over
        (2, 60, 9, 54, GOES_ON),
        (2, 60, 9, 55, TOO_LATE),  # the next attempt, 5 s on, would come when both are reached
        (0, 60, 5, 54, GOES_ON),
        (0, 60, 1, 55, TOO_LATE),
        (0, 60, 6, 0, COUNTED_OUT),
    ],
)
def test_the_limits_are_those_of_google(
    count: int, duration: float, attempt: int, at: float, expected: RetryState
) -> None:
    policy = google(
        retry_count=count,
        max_retry_duration=seconds(duration),
        min_backoff_duration=seconds(5),
        max_backoff_duration=seconds(5),
    )
    assert outcome(policy, attempt, at=at) is expected


@given(st.integers(min_value=0, max_value=5), st.integers(min_value=1, max_value=20))
def test_a_retry_count_alone_is_the_exact_number_of_retries(count: int, attempt: int) -> None:
    assert (outcome(google(retry_count=count), attempt) is GOES_ON) == (attempt <= count)


@given(st.integers(min_value=0, max_value=20), attempts)
def test_maximum_attempts_counts_the_first(maximum: int, attempt: int) -> None:
    goes_on = outcome(RetryPolicy(maximum_attempts=maximum), attempt) is GOES_ON
    assert goes_on == (maximum == 0 or attempt < maximum)


@given(policies, attempts, st.none() | st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=400)))
def test_no_retry_starts_after_the_expiration(policy: RetryPolicy, attempt: int, left: timedelta | None) -> None:
    expiration = None if left is None else T0 + left
    decided = decide_retry(policy, application(), attempt=attempt, now=T0, expiration=expiration)
    assert (decided.delay is None) == (decided.state is not GOES_ON)
    if decided.delay is not None and expiration is not None:
        assert T0 + decided.delay < expiration


def test_next_retry_delay_changes_no_limit() -> None:
    failure = application(next_retry_delay=seconds(1))
    assert decide_retry(google(), failure, attempt=1, now=T0, expiration=None).state is COUNTED_OUT


def test_the_retry_duration_of_a_run_counts_from_its_first_run() -> None:
    policy = google(max_retry_duration=seconds(60))
    failure = Failure(kind=FailureKind.APPLICATION, type="No")
    first = decide_run_retry(policy, failure, attempt=2, now=T0 + seconds(40), expiration=None, since=T0)
    later = decide_run_retry(policy, failure, attempt=2, now=T0 + seconds(59), expiration=None, since=T0)
    assert (first.state, later.state) == (GOES_ON, TOO_LATE)
