"""The column WAITS of a RetryPolicy."""

from datetime import timedelta

import pytest

from perdure.engine.retry import CloudSchedulerRetry, RetryPolicy
from perdure.runtime.retry_policies import backoff_preview

S = timedelta(seconds=1)


@pytest.mark.parametrize(
    ("policy", "want"),
    [
        (RetryPolicy(), "1s 2s 4s 8s 16s …"),
        (RetryPolicy(maximum_attempts=7), "1s 2s 4s 8s 16s …"),
        (RetryPolicy(maximum_attempts=6), "1s 2s 4s 8s 16s"),
        (RetryPolicy(maximum_attempts=3), "1s 2s"),
        (RetryPolicy(maximum_attempts=1), "none"),
        (RetryPolicy(cloud_scheduler=CloudSchedulerRetry()), "none"),
        (RetryPolicy(cloud_scheduler=CloudSchedulerRetry(retry_count=2, min_backoff_duration=S * 3.5)), "3s500ms 7s"),
        (RetryPolicy(cloud_scheduler=CloudSchedulerRetry(max_retry_duration=20 * S)), "5s 10s"),
    ],
)
def test_waits_are_listed_up_to_the_number_of_retries(policy: RetryPolicy, want: str) -> None:
    assert backoff_preview(policy) == want
