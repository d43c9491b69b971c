"""The outcome of an attempt, from its Pod and its Lease: one table, of which the first matching row applies.

There are three kinds of outcome, because they are retried differently:

* completed, only with proof: the activity's own container ended with exit code 0;
* failed: caused by the activity or its definition; counts as an attempt of the retry policy;
* lost: caused by the infrastructure; retried without counting as an attempt.

Pods that the operator deletes itself (an attempt that timed out, a run that closed) are not evaluated.
"""

from perdure.runtime.outcomes.attempt_logs import (
    LOG_LIMIT,
    failed_container,
    tail,
)
from perdure.runtime.outcomes.container_failures import (
    MESSAGE_LIMIT,
    container_failure,
)
from perdure.runtime.outcomes.outcome_table import (
    outcome,
    recheck_time,
)
from perdure.runtime.outcomes.pod_facts import (
    NODE_SILENCE,
)
from perdure.runtime.outcomes.row_results import (
    Outcome,
)

__all__ = [
    "LOG_LIMIT",
    "MESSAGE_LIMIT",
    "NODE_SILENCE",
    "Outcome",
    "container_failure",
    "failed_container",
    "outcome",
    "recheck_time",
    "tail",
]
