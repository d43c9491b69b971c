"""When a failed run is started again, by either family of policies."""

from datetime import datetime, timedelta

from perdure.api.retrypolicy import CloudScheduler
from perdure.engine.failures import Failure, RetryState
from perdure.engine.retry import RetryDecision, RetryPolicy, decide_run_retry

MOST_BY_DURATION = 5
"""Retries where only a duration limits them (Cloud Scheduler: RetryConfig.maxRetryDuration)."""

Policy = RetryPolicy | CloudScheduler


def cloud_interval(policy: CloudScheduler, attempt: int) -> timedelta:
    """The wait after `attempt` (from 1) has failed: it doubles, then grows by as much each time, up to a longest one.

    Source: Google Cloud Scheduler, RetryConfig: 10 s, 300 s and 3 doublings give 10, 20, 40, 80, 160, 240, 300, 300.
    """
    first, longest = policy.min_backoff_duration, policy.max_backoff_duration
    doublings = min(attempt - 1, policy.max_doublings, 63)
    if first * 2.0**doublings >= longest:
        return longest
    wait = first * 2**doublings
    linear = attempt - 1 - doublings
    return longest if linear * wait.total_seconds() >= longest.total_seconds() else min(wait * (1 + linear), longest)


def decide(
    policy: Policy | None, failure: Failure, *, attempt: int, first: datetime, now: datetime, until: datetime | None
) -> RetryDecision:
    """Decide what follows the failure of the `attempt`-th run (from 1) for one time.

    Args:
        policy: The policy; None for none.
        failure: How the run failed.
        attempt: Which run of that time it was.
        first: When the first one was started.
        now: The time.
        until: When the schedule's next time comes: a retry that would start then or later is not waited for.
    """
    if not isinstance(policy, CloudScheduler):
        return decide_run_retry(policy, failure, attempt=attempt, now=now, expiration=until)
    any_failure = decide_run_retry(RetryPolicy(), failure, attempt=1, now=now, expiration=None)
    if any_failure.state is not RetryState.IN_PROGRESS:
        return any_failure
    if _enough(policy, attempt, now - first):
        return RetryDecision(RetryState.MAXIMUM_ATTEMPTS_REACHED)
    delay = cloud_interval(policy, attempt)
    if until is not None and now + delay >= until:
        return RetryDecision(RetryState.TIMEOUT)
    return RetryDecision(RetryState.IN_PROGRESS, delay)


def _enough(policy: CloudScheduler, attempt: int, since: timedelta) -> bool:
    """Whether both limits that are set are reached; none set is no retry."""
    retries = attempt - 1
    if not policy.max_retry_duration:
        return retries >= policy.retry_count
    if not policy.retry_count:
        return retries >= MOST_BY_DURATION or since >= policy.max_retry_duration
    return retries >= policy.retry_count and since >= policy.max_retry_duration
