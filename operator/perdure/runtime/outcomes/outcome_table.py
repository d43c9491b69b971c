"""The table: the first row that applies determines the outcome."""

from collections.abc import Callable
from datetime import datetime
from typing import Final

from perdure.api.reserved import OUTPUTS, SIDECAR
from perdure.api.workflow import Activity
from perdure.runtime.attempts import Attempt, KubeObject
from perdure.runtime.container_groups import ContainerGroup
from perdure.runtime.kubernetes_times import read_time
from perdure.runtime.outcomes import row_results
from perdure.runtime.outcomes.pod_facts import NODE_SILENCE, PodFacts
from perdure.runtime.outcomes.row_results import Outcome
from perdure.runtime.ownership import owns_lease
from perdure.runtime.pods import main_container_name
from perdure.runtime.statuses import PodStatus

_TABLE: Final[tuple[tuple[Callable[[PodFacts], bool], Callable[[PodFacts], Outcome]], ...]] = (
    # Our finalizer keeps a pod until its outcome is recorded, so someone removed it by force, or etcd was restored.
    (PodFacts.gone, row_results.lost("PodGone", "pod {pod} no longer exists, and nothing proves that it succeeded")),
    # Evidence of another attempt proves nothing about this one.
    (PodFacts.of_another_attempt, row_results.undecided),
    # Kubernetes is stopping the sidecars; they deliver the last heartbeat and the result, and the artifacts, when they end.
    (PodFacts.awaiting_sidecar, row_results.undecided),
    # The only proof of success. Whatever else happened to the pod (deletion, eviction, a failed sidecar), the work is
    # done and must not be repeated.
    (PodFacts.succeeded, row_results.completed),
    # It never started, because an image, a volume, or a configuration was missing, until its node gave up. A retry would
    # usually end the same way, so it counts as an attempt.
    (PodFacts.never_started_in_time, row_results.not_started),
    # The kubelet or containerd lost track of the container during a restart and invented its exit code.
    (
        PodFacts.end_unknown,
        row_results.lost("ContainerStatusUnknown", "node {node} does not know how the container of pod {pod} ended"),
    ),
    # Eviction through the API, preemption, taints, a drained, failing, or vanished node: not caused by the activity. How the
    # container reacted to being stopped (exit code 143, "cancelled") is only a consequence.
    (PodFacts.disrupted, row_results.lost("", "pod {pod} was disrupted on node {node}: {reason}: {message}")),
    # Without that condition, a kubelet evicts only a pod that exceeds its own storage limits, which would happen again.
    (PodFacts.exceeded_own_limits, row_results.pod_failure),
    # The backstop: the node stopped the attempt after start-to-close, because no operator did.
    (PodFacts.exceeded_deadline, row_results.timed_out),
    # Deleted by someone else (pods that the operator deletes are not evaluated), and then it stopped. A container that failed
    # before the deletion was requested is handled below, by its own failure.
    (PodFacts.deleted, row_results.lost("PodDeleted", "pod {pod} was deleted by someone else before it succeeded")),
    # The activity's container failed, or an init container before it.
    (PodFacts.failed_itself, row_results.own_failure),
    # The node rejected the definition; a retry would usually be rejected too, so it counts as an attempt.
    (PodFacts.rejected_for_its_definition, row_results.pod_failure),
    # The pod failed, but no container did: the node rejected it (OutOfcpu, NodeAffinity, …), or it was deleted as an orphan.
    (PodFacts.failed_without_container, row_results.lost("", "pod {pod} failed without running: {reason}: {message}")),
    # The phase alone says nothing about the activity's own container.
    (
        PodFacts.finished_without_proof,
        row_results.lost("NoProof", "pod {pod} ended, and nothing proves that the activity succeeded"),
    ),
    # The node stopped answering; newer clusters delete the pod instead.
    (PodFacts.unknown, row_results.lost("NodeLost", "node {node} does not report the state of pod {pod}")),
    # No kubelet will ever report on it; only our finalizer still holds it.
    (PodFacts.deleted_before_scheduled, row_results.lost("PodDeleted", "pod {pod} was deleted before it had a node")),
    # Deleted, the grace period is over, and the node has not reported: it is down or disconnected. Start-to-close may end hours
    # later.
    (
        PodFacts.node_silent,
        row_results.lost("NodeLost", "pod {pod} was deleted, and node {node} did not report how it ended"),
    ),
    # It can never start: its definition is invalid and pinned.
    (PodFacts.can_never_start, row_results.cannot_start),
    # Running, perhaps terminating: it can still succeed.
    (PodFacts.running, row_results.started),
    # Everything else waits for a node, an image, a volume, or an init container. `waiting_reason` says for what.
)


def outcome(
    attempt: Attempt,
    definition: Activity,
    pod: KubeObject | None,
    lease: KubeObject | None = None,
    *,
    now: datetime,
    due: bool = False,
) -> Outcome:
    """Determine the outcome of an attempt.

    Args:
        attempt: The attempt.
        definition: The activity's definition that the pod was created from.
        pod: Its Pod as the API server returned it; None only if it is known not to exist (a stale cache is not enough).
        lease: Its Lease, if it has one. At the end of an activity with a large result, it must have been read just now.
        now: The current time; it only decides how long to wait for a node that does not report.
        due: Whether a deadline of the attempt is due.

    Returns:
        The input for the engine, always the same for the same arguments; None if there is no outcome yet.
    """
    status = PodStatus.of(pod or {})
    group = ContainerGroup.of(pod or {}, main_container_name(definition))
    main = group.ended(status)
    marked = status.condition("DisruptionTarget") or {}
    facts = PodFacts(
        attempt=attempt,
        definition=definition,
        pod=pod,
        status=status,
        lease=lease if lease is not None and owns_lease(lease, attempt, status.uid) else None,
        now=now,
        group=group,
        main=main,
        sidecar=status.ended_sidecar(SIDECAR),
        uploader=status.ended_sidecar(OUTPUTS),
        failed=main if main is not None and main.exit_code != 0 else status.failed_init_container(),
        disrupted_since=read_time(marked.get("lastTransitionTime")),
        due=due,
    )
    return next((report(facts) for applies, report in _TABLE if applies(facts)), None)


def recheck_time(pod: KubeObject) -> datetime | None:
    """Return when to determine the outcome of a pod again, even without a watch event.

    Args:
        pod: A Pod as the API server returned it.

    Returns:
        For a terminating pod, the time at which it counts as lost because its node has not reported; otherwise None.
    """
    deadline = read_time((pod.get("metadata") or {}).get("deletionTimestamp"))
    return None if deadline is None else deadline + NODE_SILENCE
