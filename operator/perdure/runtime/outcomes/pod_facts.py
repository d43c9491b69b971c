"""The facts about the pod of an attempt, with a predicate for each row of the table."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from perdure.api.workflow import Activity
from perdure.runtime import payloads
from perdure.runtime.artifacts import copies, references
from perdure.runtime.attempts import Attempt, KubeObject
from perdure.runtime.container_groups import ContainerGroup
from perdure.runtime.ownership import is_attempt
from perdure.runtime.pod_waiting import waits_in_vain
from perdure.runtime.statuses import EndedContainer, PodStatus

NODE_SILENCE: Final = timedelta(seconds=30)
"""The time after the grace period of a deleted pod within which a node must report how its containers ended."""

_DISRUPTED: Final = frozenset({"Preempting", "NodeLost", "Terminated", "Shutdown", "NodeShutdown"})
"""Reasons of a failed pod that mean that its node or the scheduler stopped it; newer kubelets also set the condition
`DisruptionTarget`."""

_OWN_REFUSALS: Final = frozenset(
    {
        "AppArmor",
        "InitContainerRestartPolicyForbidden",
        "PodFeatureUnsupported",
        "PodLevelResourcesNotSupported",
        "SupplementalGroupsPolicyNotSupported",
        "SysctlForbidden",
    }
)
"""Reasons for which a node rejects a pod because of its definition. Any other rejection (`OutOfcpu`, `NodeAffinity`,
`UnexpectedAdmissionError`, …) concerns the node: the scheduler's view of it was stale."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodFacts:
    """Everything that was observed, with a predicate for each row of the table."""

    attempt: Attempt
    definition: Activity
    pod: KubeObject | None
    status: PodStatus
    lease: KubeObject | None
    now: datetime
    group: ContainerGroup
    main: EndedContainer | None
    """How the activity ended: the end of its container or, if there are several, of the one that counts."""
    sidecar: EndedContainer | None
    """Our sidecar, if the pod has one."""
    uploader: EndedContainer | None
    """The sidecar that uploads the output artifacts, if the pod has one."""
    failed: EndedContainer | None
    """The container whose failure counts: the activity's own, or an init container that prevented its start."""
    disrupted_since: datetime | None
    """When the condition `DisruptionTarget` was set; None if it is not set or has no time."""
    due: bool = False
    """Whether a deadline of the attempt is due."""

    def gone(self) -> bool:
        """Whether the pod does not exist."""
        return self.pod is None

    def of_another_attempt(self) -> bool:
        """Whether the pod belongs to another attempt."""
        return self.pod is not None and not is_attempt(self.pod, self.attempt)

    def awaiting_sidecar(self) -> bool:
        """Whether the activity's container has ended, but our sidecars have not delivered the result or the artifacts yet."""
        over = self.status.phase in {"Succeeded", "Failed", "Unknown"} or self.node_silent()
        result = self.attempt.sidecar and self.sidecar is None
        upload = self.uploads() and self.succeeded() and self.uploader is None
        return self.group.all_ended(self.status) and (result or upload) and not over

    def uploads(self) -> bool:
        """Whether the outcome waits for an upload. At a deadline, it does not wait for an archived log."""
        artifacts = self.definition.artifacts
        return artifacts is not None and (artifacts.uploads_data or (bool(artifacts.archive_logs) and not self.due))

    def stored(self) -> dict[str, Any] | None:
        """The output artifacts, as expressions see them; None if it is not known that they are stored.

        An archived log is one of them; whether it is stored does not matter for the outcome.
        """
        artifacts = self.definition.artifacts
        if artifacts is None or not artifacts.uploads:
            return {}
        found = None
        if self.uploader is not None and self.uploader.exit_code == 0:
            report = payloads.decode(self.uploader.message)[0]
            found = references(artifacts.store, report, copies(self.pod or {}))
        return found if artifacts.uploads_data else found or {}

    def succeeded(self) -> bool:
        """Whether the container of the activity succeeded."""
        return self.main is not None and self.main.exit_code == 0

    def end_unknown(self) -> bool:
        """Whether its node does not know how the container ended."""
        return self.failed is not None and self.failed.status_unknown

    def disrupted(self) -> bool:
        """Whether the pod was disrupted, and did not fail before."""
        marked = self.status.condition("DisruptionTarget")
        by_mark = marked is not None and marked.get("status") == "True" and not self.failed_before(self.disrupted_since)
        return self.stopped() and (by_mark or self.status.reason in _DISRUPTED)

    def exceeded_own_limits(self) -> bool:
        """Whether the pod was evicted because it exceeded its own limits."""
        return self.status.reason == "Evicted" and self.stopped()

    def never_started_in_time(self) -> bool:
        """Whether the pod's deadline passed before a container ran; the kubelet then reports no container statuses."""
        struck = self.status.reason == "DeadlineExceeded" and self.status.phase == "Failed"
        return struck and not self.attempt.started and not self.status.anything_ran()

    def can_never_start(self) -> bool:
        """Whether the pod waits for something that its definition prevents."""
        return self.status.phase == "Pending" and waits_in_vain(self.pod or {}) is not None

    def exceeded_deadline(self) -> bool:
        """Whether the node stopped the attempt at the deadline of the pod."""
        struck = self.status.reason == "DeadlineExceeded" and self.stopped() and self.status.anything_ran()
        return struck and not self.failed_before(self.status.active_deadline)

    def deleted(self) -> bool:
        """Whether the pod was deleted, and its container did not fail before."""
        requested = self.status.delete_requested
        return requested is not None and self.stopped() and not self.failed_before(requested)

    def failed_itself(self) -> bool:
        """Whether a container failed."""
        return self.failed is not None

    def rejected_for_its_definition(self) -> bool:
        """Whether the node rejected the pod because of its definition."""
        return self.status.phase == "Failed" and self.status.reason in _OWN_REFUSALS

    def failed_without_container(self) -> bool:
        """Whether the pod failed."""
        return self.status.phase == "Failed"

    def finished_without_proof(self) -> bool:
        """Whether the pod succeeded."""
        return self.status.phase == "Succeeded"

    def unknown(self) -> bool:
        """Whether the node does not report the state of the pod."""
        return self.status.phase == "Unknown"

    def deleted_before_scheduled(self) -> bool:
        """Whether the pod was deleted before it had a node."""
        return self.status.delete_deadline is not None and self.status.node is None

    def node_silent(self) -> bool:
        """Whether the pod was deleted, and its node has not reported in time."""
        deadline = self.status.delete_deadline
        return deadline is not None and self.now >= deadline + NODE_SILENCE

    def running(self) -> bool:
        """Whether the container of the activity runs."""
        return self.group.running_since(self.status) is not None

    def stopped(self) -> bool:
        """Whether the activity's container has stopped for good."""
        return self.failed is not None or self.status.phase == "Failed"

    def failed_before(self, time: datetime | None) -> bool:
        """Whether the container failed by itself before the disruption.

        Kubernetes' times are whole seconds. Within the same second, the attempt counts as disrupted: that costs a retry,
        but fails no attempt wrongly.
        """
        finished = self.failed.finished if self.failed is not None else None
        return finished is not None and time is not None and finished < time
