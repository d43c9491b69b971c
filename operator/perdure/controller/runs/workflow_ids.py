"""Claim the workflow ID of a run: only one run of an ID is open at a time."""

from perdure.api.policies import WorkflowIdConflictPolicy, WorkflowIdReusePolicy
from perdure.api.reasons import ConditionReason
from perdure.api.workflowrun import WorkflowRunSpec
from perdure.controller.directory import Entry, Taken, Wait
from perdure.controller.fleet.shards import Shards
from perdure.controller.peers import ALREADY_STARTED, Peers
from perdure.controller.runs.first_event import Pointer
from perdure.controller.workflows.definitions import NotReadyError
from perdure.engine import inputs
from perdure.engine.decider import Decider
from perdure.language.interpreter import Refuser
from perdure.runtime.attempts import RunRef
from perdure.runtime.chains import ResetOrigin


def claim(peers: Peers, entry: Entry, spec: WorkflowRunSpec, reset: ResetOrigin | None) -> Decider | None:
    """Ensure that no other run of the workflow ID is open. Return the decider of the run if another one is, otherwise None.

    The run of a reset replaces the open run.

    Args:
        peers: The other runs. One that must make room gets a request.
        entry: The run to start.
        spec: Its spec.
        reset: The reset that created it, if one did.

    Raises:
        NotReadyError: The run must wait for another run.
    """
    reuse, conflict = spec.workflow_id_reuse_policy, spec.workflow_id_conflict_policy
    if reset is not None:
        reuse, conflict = WorkflowIdReusePolicy.ALLOW_DUPLICATE, WorkflowIdConflictPolicy.TERMINATE_EXISTING
    others = peers.directory.sharing(entry)
    match peers.directory.claims.claim(entry, others, reuse=reuse, conflict=conflict):
        case Taken(other, message, use_existing):
            return Pointer(other.name, other.uid) if use_existing else Refuser(message, ALREADY_STARTED)
        case Wait(other, terminate):
            if terminate:
                peers.ask(other, _makes_room(entry, other, reset), lambda _: None)
            else:
                peers.record_start(other)
            message = f"waits for `{other.name}`, which has {entry.kind.id_name} `{entry.workflow_id}` too"
            raise NotReadyError(ConditionReason.WORKFLOW_ID_IN_USE, message)
        case _:
            return None


def decides(shards: Shards, run: RunRef) -> bool:
    """Whether this process decides if a run may start: only the owner of the shard knows the other runs of the workflow ID."""
    return shards.owns(run.namespace, run.workflow_id)


def _makes_room(entry: Entry, other: Entry, reset: ResetOrigin | None) -> inputs.TerminateRequested:
    """The request to another run of the workflow ID to close for this one."""
    request_id = f"{entry.uid}/conflict"
    if reset is None:
        reason = f"`{entry.name}` replaces it (workflowIdConflictPolicy: TerminateExisting)"
        # Temporal's wording: service/history/api/workflow_id_dedup.go
        details = f"terminated by new runID: {entry.uid}"
        return inputs.TerminateRequested(
            request_id=request_id, reason=reason, details=details, identity=inputs.OPERATOR
        )
    base = reset.base
    reason = f"reset to event {base.event_id} of `{base.name}`, as `{entry.name}`"
    return inputs.TerminateRequested(
        request_id=request_id,
        reason=f"{reason}: {reset.reason}" if reset.reason else reason,
        identity=reset.identity,
        principal=reset.principal,
        reset_run=entry.name,
        reset_event_id=base.event_id if other.uid == base.run_id else 0,
    )
