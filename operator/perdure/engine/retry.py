"""Retries: pure functions that decide whether to retry, or say why not (temporal: service/history/workflow/retry.go)."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeAlias

import msgspec

from perdure.api.stored import StoredStruct
from perdure.engine.failures import Failure, FailureKind, RetryState, TimeoutType

_MICROSECOND = timedelta(microseconds=1)

LONGEST_WAIT = timedelta(days=99_999)
"""The longest wait: 273 years, the longest duration that can be formatted."""

_GOOGLE_RETRIES = 5
"""Maximum number of retries if only `max_retry_duration` limits them."""


class CloudSchedulerRetry(StoredStruct, frozen=True, kw_only=True):
    """Google Cloud Scheduler's RetryConfig (cloud.google.com/scheduler/docs/reference/rest/v1/projects.locations.jobs).

    Its retry guide gives 10, 20, 40, 120, 120 for 10 s, 300 s and 3 doublings, where the reference gives 10, 20, 40, 80, 160,
    240, 300, 300; this follows the reference.
    """

    retry_count: int = 0
    max_retry_duration: timedelta = timedelta(0)
    """The time limit since the first attempt; 0: no limit."""
    min_backoff_duration: timedelta = timedelta(seconds=5)
    max_backoff_duration: timedelta = timedelta(hours=1)
    max_doublings: int = 5

    def interval(self, attempt: int) -> timedelta:
        """The wait after the failure of `attempt` (the first is 1): it doubles `max_doublings` times, then grows linearly."""
        doublings = min(attempt - 1, self.max_doublings)
        steps = max(attempt - self.max_doublings, 1)
        longest = min(self.max_backoff_duration, LONGEST_WAIT) // _MICROSECOND
        wait = (self.min_backoff_duration // _MICROSECOND * steps) << doublings
        return min(wait, longest) * _MICROSECOND

    def limit(self, *, attempt: int, waited: timedelta) -> RetryState | None:
        """Why there is no further attempt; None if there is one.

        Args:
            attempt: The number of failed attempts.
            waited: The time from the first attempt to the start of the next one.
        """
        counted_out = attempt > self.retry_count
        if not self.max_retry_duration:
            return RetryState.MAXIMUM_ATTEMPTS_REACHED if counted_out else None
        in_time = waited < self.max_retry_duration
        if self.retry_count:
            return RetryState.TIMEOUT if counted_out and not in_time else None
        if attempt > _GOOGLE_RETRIES:
            return RetryState.MAXIMUM_ATTEMPTS_REACHED
        return None if in_time else RetryState.TIMEOUT


class RetryPolicy(StoredStruct, frozen=True, kw_only=True):
    """Exponential backoff with Temporal's defaults: 1 s, doubling, up to 100 times the first interval, unlimited attempts."""

    initial_interval: timedelta = timedelta(seconds=1)
    backoff_coefficient: float = 2.0
    """At least 1."""
    maximum_interval: timedelta | None = None
    """None: 100 times `initial_interval`."""
    maximum_attempts: int = 0
    """0: unlimited; 1: no retry."""
    non_retryable_error_types: tuple[str, ...] = ()
    """Exact failure types; timeouts have names such as ``TemporalTimeout:StartToClose``."""
    cloud_scheduler: CloudSchedulerRetry | None = None
    """The waits and limits of the other kind of policy, which replace all fields above."""
    maximum_losses: int | None = None
    """How many attempts can be lost to the infrastructure and are repeated; None: unlimited."""
    name: str = ""
    """The name of the RetryPolicy object; empty for an inline policy."""
    circuit_breaker: bool = False
    """Whether that RetryPolicy has a circuit breaker, which can delay attempts."""

    def interval(self, attempt: int) -> timedelta:
        """The wait after the failure of `attempt` (the first is 1): ``min(initial x coefficient^(attempt-1), maximum)``."""
        if self.cloud_scheduler is not None:
            return self.cloud_scheduler.interval(attempt)
        ceiling = self.maximum_interval if self.maximum_interval is not None else 100 * self.initial_interval
        ceiling = min(ceiling, LONGEST_WAIT)
        try:
            seconds = self.initial_interval.total_seconds() * self.backoff_coefficient ** (attempt - 1)
        except OverflowError:
            return ceiling
        return ceiling if seconds >= ceiling.total_seconds() else timedelta(seconds=seconds)

    def limit(self, *, attempt: int, waited: timedelta) -> RetryState | None:
        """Why there is no further attempt after `attempt` failures, `waited` after the first start; None if there is one."""
        if self.cloud_scheduler is not None:
            return self.cloud_scheduler.limit(attempt=attempt, waited=waited)
        counted_out = self.maximum_attempts and attempt >= self.maximum_attempts
        return RetryState.MAXIMUM_ATTEMPTS_REACHED if counted_out else None


class PolicyReference(msgspec.Struct, frozen=True):
    """A RetryPolicy by name. Its spec is looked up and recorded when something is scheduled with it."""

    name: str


PolicyChoice: TypeAlias = RetryPolicy | PolicyReference
"""A retry policy as deciders specify it."""


@dataclass(frozen=True, slots=True)
class RetryDecision:
    """Whether to retry: if `state` is InProgress, after `delay`; otherwise `state` says why not, and `delay` is None."""

    state: RetryState
    delay: timedelta | None = None


def is_retryable(failure: Failure, policy: RetryPolicy) -> bool:
    """Whether `failure` may be retried at all.

    Cancellations and terminations are never retryable. Of the timeouts, only StartToClose and Heartbeat are, unless listed.
    """
    if failure.kind in {FailureKind.CANCELLED, FailureKind.TERMINATED} or failure.non_retryable:
        return False
    if failure.kind is FailureKind.TIMEOUT and failure.timeout_type in {
        TimeoutType.SCHEDULE_TO_START,
        TimeoutType.SCHEDULE_TO_CLOSE,
    }:
        return False
    return failure.type_names().isdisjoint(policy.non_retryable_error_types)


def decide_retry(
    policy: RetryPolicy,
    failure: Failure,
    *,
    attempt: int,
    now: datetime,
    expiration: datetime | None,
    since: datetime | None = None,
) -> RetryDecision:
    """Decide whether to retry after the failure of the `attempt`-th attempt (the first is 1).

    If the wait would end after `expiration` (schedule-to-close), there is no retry: the state is Timeout immediately. A delay
    from the failure replaces the computed one and the maximum interval, but not the limits.

    Args:
        policy: The retry policy.
        failure: Why the attempt failed.
        attempt: The number of counted attempts.
        now: The time.
        expiration: The deadline of all attempts; None: no deadline.
        since: When the first attempt began, for policies with a time limit. Default `now`.
    """
    if not is_retryable(failure, policy):
        return RetryDecision(RetryState.NON_RETRYABLE_FAILURE)
    delay = failure.next_retry_delay if failure.next_retry_delay is not None else policy.interval(attempt)
    limit = policy.limit(attempt=attempt, waited=now + delay - (since or now))
    if limit is not None:
        return RetryDecision(limit)
    if expiration is not None and now + delay >= expiration:
        return RetryDecision(RetryState.TIMEOUT)
    return RetryDecision(RetryState.IN_PROGRESS, delay)


def decide_retry_of(
    policy: RetryPolicy | None, failure: Failure, *, attempt: int, now: datetime, expiration: datetime | None
) -> RetryDecision:
    """Decide whether to retry a failed SDK workflow. Like Temporal's server, use the outermost failure."""
    if policy is None:
        return RetryDecision(RetryState.RETRY_POLICY_NOT_SET)
    return decide_retry(policy, failure, attempt=attempt, now=now, expiration=expiration)


def decide_run_retry(
    policy: RetryPolicy | None,
    failure: Failure,
    *,
    attempt: int,
    now: datetime,
    expiration: datetime | None,
    since: datetime | None = None,
) -> RetryDecision:
    """Decide whether to retry a whole failed run, the `attempt`-th of its chain.

    A run usually fails with the failure of one of its activities, and a failure that its author calls final is further inside.
    So each application failure of the chain counts. (Temporal's server uses only the outermost failure.) A timeout or a
    cancellation that stopped an activity or child does not prevent a retry of the run.
    """
    if policy is None:
        return RetryDecision(RetryState.RETRY_POLICY_NOT_SET)
    causes = [node for node in failure.chain() if node.kind is FailureKind.APPLICATION]
    if not all(is_retryable(node, policy) for node in causes):
        return RetryDecision(RetryState.NON_RETRYABLE_FAILURE)
    return decide_retry(policy, failure, attempt=attempt, now=now, expiration=expiration, since=since)
