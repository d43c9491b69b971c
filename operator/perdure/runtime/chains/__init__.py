"""Runs that other runs start: children, and the next run of a chain (continue-as-new, retry, cron, reset). Pure.

Annotations, which only the operator may write (templates/runfence.yaml), store the relations of a run. They are not in the
spec, because the spec belongs to the user.
"""

from perdure.runtime.chains.child_runs import (
    adopted,
    child_run,
    inherited_priority,
    is_child,
)
from perdure.runtime.chains.policy_fields import (
    retry_policy_json,
)
from perdure.runtime.chains.reset_runs import (
    reset_run,
)
from perdure.runtime.chains.run_annotations import (
    Ancestor,
    Continuation,
    Parent,
    ResetOrigin,
    continuation_of,
    created_by,
    depth_of,
    extras_of,
    first_run_id,
    parent_of,
    reset_of,
)
from perdure.runtime.chains.run_objects import (
    is_open,
)
from perdure.runtime.chains.successor_runs import (
    is_by_cron,
    is_successor,
    next_run,
    successor_refused,
    successor_run,
)

__all__ = [
    "Ancestor",
    "Continuation",
    "Parent",
    "ResetOrigin",
    "adopted",
    "child_run",
    "continuation_of",
    "created_by",
    "depth_of",
    "extras_of",
    "first_run_id",
    "inherited_priority",
    "is_by_cron",
    "is_child",
    "is_open",
    "is_successor",
    "next_run",
    "parent_of",
    "reset_of",
    "reset_run",
    "retry_policy_json",
    "successor_refused",
    "successor_run",
]
