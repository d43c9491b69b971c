"""Facts about runs that the checks need."""

from perdure.api.reasons import ConditionReason
from perdure.runtime import status_encoding
from perdure.runtime.chains import continuation_of
from perdure.simulation.cluster.apiserver import ApiServer
from perdure.simulation.cluster.store import Object, ObjectKey


class DecodedRuns:
    """Runs with the values of their statuses. A stored run never changes, so each version is decoded once."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[Object, Object]] = {}
        """The last version of each run, as it is stored and decoded, by UID."""

    def of(self, run: Object) -> Object:
        """A stored run with the values of its status."""
        stored, found = self._last.get(run["metadata"]["uid"], (None, run))
        if stored is not run:
            found = status_encoding.decode(run)
            self._last[run["metadata"]["uid"]] = run, found
        return found


def with_definition(server: ApiServer, run: Object) -> Object:
    """A decoded run with the definition of its revision in its status, if it refers to one."""
    status = run.get("status") or {}
    if "revision" not in status:
        return run
    key = ObjectKey("workflowrevisions", run["metadata"]["namespace"], status["revision"]["name"])
    return {**run, "status": {**status, "definition": server.objects[key]["spec"]["definition"]}}


def state(obj: Object) -> Object:
    """The folded state of a run or a Schedule."""
    return (obj.get("status") or {}).get("state") or {}


def is_over(run: Object) -> bool:
    """Whether a run has closed and no other one continues it that is still to be created."""
    return is_closed(run) and not state(run).get("startSuccessor")


def is_closed(run: Object) -> bool:
    """Whether a run has closed."""
    return bool((run.get("status") or {}).get("completionTime"))


def existing_runs(server: ApiServer) -> list[Object]:
    """All runs, without those in deletion."""
    return [run for run in server.of("workflowruns") if "deletionTimestamp" not in run["metadata"]]


def continues(chain: list[Object]) -> bool:
    """Whether any run of a chain is open, or has yet to start the next one, which may be there without its knowing."""
    followed = {before.run_id for run in chain if (before := continuation_of(run))}
    return any(not is_closed(run) or (not is_over(run) and run["metadata"]["uid"] not in followed) for run in chain)


def is_refused(status: Object) -> bool:
    """Whether another run has the ID of this one, which never began."""
    reason = ConditionReason.WORKFLOW_EXECUTION_ALREADY_STARTED
    return any(each["reason"] == reason for each in status.get("conditions") or ())
