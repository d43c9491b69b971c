"""Retrying: one pure function that also says why it stops (temporal: service/history/workflow/retry.go)."""

from dataclasses import dataclass
from datetime import datetime, timedelta

import msgspec

from perdure.engine.failures import Failure, FailureKind, RetryState, TimeoutType


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """Exponential backoff, Temporal's defaults: 1 s, doubling, at most 100 times the first, without end."""

    initial_interval: timedelta = timedelta(seconds=1)
    backoff_coefficient: float = 2.0
    """At least 1."""
    maximum_interval: timedelta | None = None
    """None: 100 times `initial_interval`."""
    maximum_attempts: int = 0
    """0: unlimited; 1: no retry."""
    non_retryable_error_types: tuple[str, ...] = ()
    """Exact failure types; timeouts go by ``TemporalTimeout:StartToClose`` and the like."""

    def interval(self, attempt: int) -> timedelta:
        """The wait after `attempt` (from 1) has failed: ``min(initial x coefficient^(attempt-1), maximum)``, at any attempt."""
        ceiling = self.maximum_interval if self.maximum_interval is not None else 100 * self.initial_interval
        try:
            seconds = self.initial_interval.total_seconds() * self.backoff_coefficient ** (attempt - 1)
        except OverflowError:
            return ceiling
        return ceiling if seconds >= ceiling.total_seconds() else timedelta(seconds=seconds)


@dataclass(frozen=True, slots=True)
class RetryDecision:
    """Whether to try again: after `delay` when `state` is InProgress; otherwise `state` says why not and `delay` is None."""

    state: RetryState
    delay: timedelta | None = None


def is_retryable(failure: Failure, policy: RetryPolicy) -> bool:
    """Whether `failure` may be retried at all.

    Cancellation and termination never are; of the timeouts only StartToClose and Heartbeat are, unless listed.
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
    policy: RetryPolicy, failure: Failure, *, attempt: int, now: datetime, expiration: datetime | None
) -> RetryDecision:
    """Decide what follows the failure of the `attempt`-th attempt (from 1).

    A retry whose wait would end past `expiration` (schedule-to-close) is not waited for: the state is Timeout at once. A delay
    given by the failure replaces the computed one and the maximum interval, but no limit.
    """
    if not is_retryable(failure, policy):
        return RetryDecision(RetryState.NON_RETRYABLE_FAILURE)
    if policy.maximum_attempts and attempt >= policy.maximum_attempts:
        return RetryDecision(RetryState.MAXIMUM_ATTEMPTS_REACHED)
    delay = failure.next_retry_delay if failure.next_retry_delay is not None else policy.interval(attempt)
    if expiration is not None and now + delay >= expiration:
        return RetryDecision(RetryState.TIMEOUT)
    return RetryDecision(RetryState.IN_PROGRESS, delay)


def decide_retry_of(
    policy: RetryPolicy | None, failure: Failure, *, attempt: int, now: datetime, expiration: datetime | None
) -> RetryDecision:
    """Decide what follows the failure of a run that code has decided: as Temporal's server, by the outermost failure."""
    if policy is None:
        return RetryDecision(RetryState.RETRY_POLICY_NOT_SET)
    return decide_retry(policy, failure, attempt=attempt, now=now, expiration=expiration)


def decide_run_retry(
    policy: RetryPolicy | None, failure: Failure, *, attempt: int, now: datetime, expiration: datetime | None
) -> RetryDecision:
    """Decide what follows the failure of a whole run, the `attempt`-th of its chain.

    A run fails, for the most part, with the failure of one of its activities, and what its author calls final stands further
    in: so each application failure of the chain counts. (Temporal's server looks at the outermost failure only.) What an
    activity or child was stopped by, a timeout or a cancellation, is no reason not to try the run again.
    """
    if policy is None:
        return RetryDecision(RetryState.RETRY_POLICY_NOT_SET)
    causes = [node for node in failure.chain() if node.kind is FailureKind.APPLICATION]
    if not all(is_retryable(node, policy) for node in causes):
        return RetryDecision(RetryState.NON_RETRYABLE_FAILURE)
    return decide_retry(policy, failure, attempt=attempt, now=now, expiration=expiration)
