"""Outcomes of attempts from pods and Leases."""

import json
from datetime import UTC, datetime
from typing import Any

from perdure.engine.failures import Failure
from perdure.engine.inputs import AttemptFailed
from perdure.runtime.attempt_outcomes import outcome

STARTED = datetime(2026, 1, 31, 12, 0, 10, tzinfo=UTC)
BEFORE, SAME, AFTER = "2026-01-31T12:00:59Z", "2026-01-31T12:01:00Z", "2026-01-31T12:01:01Z"
"""Around the time at which the builders' containers finish."""


TOO_MUCH_MEMORY = (
    "container activity was killed because it used too much memory (OOMKilled, exit code 137); raise its "
    "`resources.limits.memory`, or make it use less"
)


def outcome_of(make: Any, pod: dict[str, Any] | None, lease: dict[str, Any] | None = None, **kwargs: Any) -> Any:
    return outcome(
        kwargs.get("attempt", make.attempt),
        kwargs.get("definition", make.activity()),
        pod,
        lease,
        now=kwargs.get("now", make.now),
    )


def failure_of(reported: Any) -> Failure:
    assert isinstance(reported, AttemptFailed), reported
    return reported.failure


def document(**error: Any) -> str:
    return json.dumps({"error": error})
