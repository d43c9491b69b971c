"""Retry policies in the spec of a run."""

from typing import Any

from perdure.api.times import format_decimal_duration, nearest_duration
from perdure.engine.retry import RetryPolicy


def retry_policy_json(policy: RetryPolicy) -> dict[str, Any]:
    """The inline form of a policy: a run keeps the recorded policy even if the RetryPolicy changes later."""
    google = policy.cloud_scheduler
    if google is not None:
        return {
            "cloudScheduler": {
                "retryCount": google.retry_count,
                "maxRetryDuration": format_decimal_duration(google.max_retry_duration),
                "minBackoffDuration": format_decimal_duration(google.min_backoff_duration),
                "maxBackoffDuration": format_decimal_duration(google.max_backoff_duration),
                "maxDoublings": google.max_doublings,
            }
        }
    written: dict[str, Any] = {
        "initialInterval": nearest_duration(policy.initial_interval),
        "backoffCoefficient": _coefficient(policy.backoff_coefficient),
        "maximumAttempts": policy.maximum_attempts,
        "nonRetryableErrorTypes": list(policy.non_retryable_error_types),
    }
    if policy.maximum_interval is not None:
        written["maximumInterval"] = nearest_duration(policy.maximum_interval)
    return {"exponential": written}


_LARGEST_COEFFICIENT = 999_999.999999999


def _coefficient(value: float) -> str:
    """A coefficient in the form of the API: up to six digits before the point, up to nine after it, and no exponent.

    Fifteen digits survive a round trip. Temporal clients may send longer ones, which are rounded.
    """
    return f"{min(value, _LARGEST_COEFFICIENT):.9f}".rstrip("0").removesuffix(".")
