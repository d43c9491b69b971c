"""Facts about runs that the checks need."""

from perdure.api.reasons import ConditionReason
from perdure.runtime.chains import continuation_of
from perdure.simulation.cluster.storage import Object


def state(obj: Object) -> Object:
    """The folded state of a run or a Schedule."""
    return (obj.get("status") or {}).get("state") or {}


def is_over(run: Object) -> bool:
    """Whether a run has closed and no other one continues it that is still to be created."""
    return is_closed(run) and not state(run).get("startSuccessor")


def is_closed(run: Object) -> bool:
    """Whether a run has closed."""
    return bool((run.get("status") or {}).get("completionTime"))


def continues(chain: list[Object]) -> bool:
    """Whether any run of a chain is open, or has yet to start the next one, which may be there without its knowing."""
    followed = {before.run_id for run in chain if (before := continuation_of(run))}
    return any(not is_closed(run) or (not is_over(run) and run["metadata"]["uid"] not in followed) for run in chain)


def is_refused(status: Object) -> bool:
    """Whether another run has the ID of this one, which never began."""
    reason = ConditionReason.WORKFLOW_EXECUTION_ALREADY_STARTED
    return any(each["reason"] == reason for each in status.get("conditions") or ())
