"""The outcome of an attempt, from its Pod and its Lease: one table, of which the first matching row applies.

There are three kinds of outcome, because they are retried differently:

* completed, only with proof: the activity's own container ended with exit code 0, by itself or with a result;
* failed: caused by the activity or its definition; counts as an attempt of the retry policy;
* lost: caused by the infrastructure; retried without counting as an attempt.

Pods that the operator deletes itself (an attempt that timed out, a run that closed) are not evaluated.

Each row of `_TABLE` has a predicate on `PodFacts` and a function that builds the report to the engine; `outcome` applies the
table. The functions at the end describe failures: how a container failed, and which container's log explains it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, TypeAlias

from perdure.api import labels
from perdure.api.kinds.workflow import Activity
from perdure.api.names import ARTIFACT_FIELD, RESULT_ARTIFACT
from perdure.api.pods import OUTPUTS, SIDECAR
from perdure.api.times import parse_decimal_duration, read_kubernetes_time
from perdure.engine.failures import Failure, FailureKind, TimeoutType
from perdure.engine.inputs import AttemptCompleted, AttemptFailed, AttemptLost, AttemptStarted
from perdure.engine.state import timeout_message
from perdure.runtime.attempts import Attempt, KubeObject, is_attempt, owns_lease, payload_too_large
from perdure.runtime.leases import annotation, heartbeat_details
from perdure.runtime.pods import payloads
from perdure.runtime.pods.artifacts import copies, references, stop_seconds
from perdure.runtime.pods.builder import main_container_name
from perdure.runtime.pods.status import (
    ContainerGroup,
    EndedContainer,
    PodStatus,
    kubernetes_reason,
    permanent_reason,
    remedy,
    waiting_reason,
)

NODE_SILENCE: Final = timedelta(seconds=30)
"""The time after the grace period of a deleted pod within which a node must report how its containers ended."""

_DISRUPTED: Final = frozenset({"Preempting", "NodeLost", "Terminated", "Shutdown", "NodeShutdown"})
"""Reasons of a failed pod that mean that its node or the scheduler stopped it; newer kubelets also set the condition
`DisruptionTarget`."""

_DEFINITION_REFUSALS: Final = frozenset(
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
    stopping: bool = False
    """Whether the workflow has requested the cancellation of the activity."""

    def missing(self) -> bool:
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

    def stopped_without_result(self) -> bool:
        """Whether the container succeeded only after someone else had its pod stopped, and left no result.

        A program that handles SIGTERM often exits with 0, but that says nothing about its work.
        """
        if not self.succeeded() or self.stopping or self.left_result():
            return False
        assert self.main is not None
        marked = self.status.condition("DisruptionTarget")
        disrupted = self.disrupted_since if marked is not None and marked.get("status") == "True" else None
        stops = [time for time in (disrupted, self.status.delete_requested) if time is not None]
        return any(self.main.finished is None or self.main.finished >= time for time in stops)

    def left_result(self) -> bool:
        """Whether the activity has left a result or output artifacts."""
        messages = [each.message for each in (self.main, self.sidecar) if each is not None and each.exit_code == 0]
        by_lease = None if self.lease is None else annotation(self.lease, labels.RESULT_ANNOTATION)
        return any(message.strip() for message in messages) or by_lease is not None or bool(self.stored())

    def end_unknown(self) -> bool:
        """Whether its node does not know how the container ended."""
        return self.failed is not None and self.failed.status_unknown

    def disrupted(self) -> bool:
        """Whether the pod was disrupted, and did not fail before."""
        marked = self.status.condition("DisruptionTarget")
        by_mark = marked is not None and marked.get("status") == "True" and not self.failed_before(self.disrupted_since)
        return self.stopped() and (by_mark or self.status.reason in _DISRUPTED)

    def evicted_for_usage(self) -> bool:
        """Whether the pod was evicted because it exceeded its own limits."""
        return self.status.reason == "Evicted" and self.stopped()

    def never_started_in_time(self) -> bool:
        """Whether the pod's deadline passed before a container ran; the kubelet then reports no container statuses."""
        struck = self.status.reason == "DeadlineExceeded" and self.status.phase == "Failed"
        return struck and not self.attempt.started and not self.status.has_run()

    def can_never_start(self) -> bool:
        """Whether the pod waits for something that its definition prevents."""
        return self.status.phase == "Pending" and permanent_reason(self.pod or {}) is not None

    def exceeded_deadline(self) -> bool:
        """Whether the node stopped the attempt at the deadline of the pod."""
        struck = self.status.reason == "DeadlineExceeded" and self.stopped() and self.status.has_run()
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
        return self.status.phase == "Failed" and self.status.reason in _DEFINITION_REFUSALS

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


_REPLACEMENT: Final = "\ufffd"
"""What Kubernetes puts in place of each byte that is not UTF-8; it takes three."""
_CUT: Final = 3
"""Maximum number of bytes that can be left of a character whose beginning is missing."""
Outcome: TypeAlias = AttemptStarted | AttemptCompleted | AttemptFailed | AttemptLost | None
"""The input for the engine; None if there is none yet."""


def undecided(_facts: PodFacts) -> Outcome:
    """Report nothing yet."""
    return None


def started(facts: PodFacts) -> Outcome:
    """Report that the attempt has started."""
    since = _started_time(facts)
    assert since is not None, "the row has checked it"
    return AttemptStarted(
        scheduled_event_id=facts.attempt.scheduled_event_id, attempt=facts.attempt.attempt, time=since
    )


def completed(facts: PodFacts) -> Outcome:
    """Success is proven; read the result, completely or not at all."""
    assert facts.main is not None, "the row has checked it"
    stored = facts.stored()
    if stored is None:
        return _failed(facts, upload_failure(facts.uploader, facts.definition))
    message, sidecar = facts.main.message, facts.sidecar
    if sidecar is not None and sidecar.exit_code != 0:
        return _failed(facts, error_document(sidecar, facts.definition) or sidecar_failure(sidecar))
    if RESULT_ARTIFACT in stored:
        return _with_result(facts, stored[RESULT_ARTIFACT])
    if sidecar is not None and sidecar.message.strip():
        message = sidecar.message
    if facts.attempt.large_result or facts.attempt.sidecar:
        text = None if facts.lease is None else annotation(facts.lease, labels.RESULT_ANNOTATION)
        if text is not None:
            return _with_result(facts, payloads.decode(text)[0])
        if facts.attempt.large_result and not message.strip() and not facts.attempt.sidecar:
            return _failed(
                facts,
                Failure(
                    kind=FailureKind.APPLICATION,
                    type="ResultMissing",
                    message=f"container {facts.main.name} succeeded, but left no result: an activity with a large result "
                    f"writes it to the annotation {labels.RESULT_ANNOTATION} of its Lease before it ends",
                ),
            )
    return _with_message(facts, facts.main.name, message)


def _with_message(facts: PodFacts, container: str, message: str) -> AttemptCompleted | AttemptFailed:
    """Report a result from a termination message."""
    value, is_json = payloads.decode(message)
    limit = payloads.termination_message_limit(facts.status.container_count)
    # The kubelet keeps the end of a longer message. The tail of a document does not parse, but the tail of a long number
    # or of a string with quotes might: if a message has exactly the limit, only an object or a list is accepted.
    if payloads.size(message) >= limit and not (is_json and isinstance(value, dict | list)):
        binary = "is not UTF-8 text, and " if _REPLACEMENT in message[_CUT:] else ""
        too_large = f"its result {binary}does not fit into a termination message ({limit} bytes here)"
        advice = _large_result_hint(facts)
        return _failed(facts, payload_too_large(f"container {container} succeeded, but {too_large}. {advice}"))
    return _with_result(facts, value)


def _large_result_hint(facts: PodFacts) -> str:
    artifacts = facts.definition.artifacts
    if artifacts is not None and artifacts.large_results:
        return "Write it to the file $PERDURE_RESULT_FILE instead"
    return "Declare `resultSize: Large`, set `artifacts.largeResults`, or make the data an output artifact (`artifacts.outputs`)"


def container_failed(facts: PodFacts) -> Outcome:
    """Report the failure of a container."""
    assert facts.failed is not None, "the row has checked it"
    if facts.main is None:
        return _failed(facts, init_failure(facts.failed))
    return _failed(facts, container_failure(facts.failed, facts.definition))


def pod_failure(facts: PodFacts) -> Outcome:
    """Report that the pod failed because of its definition."""
    status = facts.status
    remedies = {"Evicted": "make it write less, or raise `resources.limits.ephemeral-storage`"}
    remedy_ = remedies.get(status.reason, "change the activity's pod to request only what its nodes allow")
    message = shortened(f"pod {status.name} failed: {status.reason}: {status.message.rstrip('.')}; {remedy_}")
    return _failed(facts, Failure(kind=FailureKind.APPLICATION, type=status.reason, message=message))


def not_started(facts: PodFacts) -> Outcome:
    """Report that no container started before the deadline of the pod."""
    waiting, status = facts.attempt.waiting_reason, facts.status
    reason = kubernetes_reason(waiting)
    text = (
        f"pod {status.name} did not start on node {status.node} before its deadline: "
        f"{waiting or status.message or 'its node does not report why'}; {remedy(reason)}"
    )
    return _failed(facts, Failure(kind=FailureKind.APPLICATION, type=reason or "NotStarted", message=shortened(text)))


def cannot_start(facts: PodFacts) -> Outcome:
    """Report that the pod can never start."""
    reason = permanent_reason(facts.pod or {})
    text = (
        f"pod {facts.status.name} cannot start: {waiting_reason(facts.pod or {}, facts.group.main)}; {remedy(reason)}"
    )
    return _failed(
        facts, Failure(kind=FailureKind.APPLICATION, type=reason, message=shortened(text), non_retryable=True)
    )


def timed_out(facts: PodFacts) -> Outcome:
    """Report that start-to-close has passed."""
    details = None if facts.lease is None else heartbeat_details(facts.lease)
    failure = Failure(
        kind=FailureKind.TIMEOUT,
        timeout_type=TimeoutType.START_TO_CLOSE,
        message=timeout_message(TimeoutType.START_TO_CLOSE, facts.attempt.start_to_close),
        last_heartbeat_details=details,
    )
    return _failed(facts, failure)


def lost(reason: str, sentence: str) -> Callable[[PodFacts], Outcome]:
    """Build the function that reports a loss; the sentence can use `{pod}`, `{node}`, `{reason}`, and `{message}`."""

    def report(facts: PodFacts) -> Outcome:
        status = facts.status
        disruption = status.condition("DisruptionTarget") or {}
        why = reason or str(disruption.get("reason") or status.reason or "PodFailed")
        text = sentence.format(
            pod=status.name if facts.pod is not None else "of the attempt",
            node=status.node or "none",
            reason=why,
            message=str(disruption.get("message") or status.message or "no message").rstrip("."),
        )
        details = {"reason": why, "node": status.node} if status.node else {"reason": why}
        return AttemptLost(
            scheduled_event_id=facts.attempt.scheduled_event_id,
            attempt=facts.attempt.attempt,
            failure=Failure(kind=FailureKind.SERVER, message=shortened(text), details=details),
            started_time=_started_time(facts),
        )

    return report


def _started_time(facts: PodFacts) -> datetime | None:
    if facts.main is not None:
        return facts.main.started
    return facts.group.running_since(facts.status)


def _with_result(facts: PodFacts, result: Any) -> AttemptCompleted:
    stored = facts.stored() or {}
    return AttemptCompleted(
        scheduled_event_id=facts.attempt.scheduled_event_id,
        attempt=facts.attempt.attempt,
        result=_with_references(result, stored) if stored else result,
        artifacts=stored,
        started_time=_started_time(facts),
    )


def _with_references(result: Any, stored: Mapping[str, Any]) -> Any:
    """Return a result with the fields of references in place of names of output artifacts, for code, which sees results only."""
    if isinstance(result, list):
        return [_with_references(each, stored) for each in result]
    if not isinstance(result, dict):
        return result
    reference = stored.get(name) if isinstance(name := result.get(ARTIFACT_FIELD), str) else None
    if reference is None:
        return {key: _with_references(value, stored) for key, value in result.items()}
    return {key: value for key, value in result.items() if key != ARTIFACT_FIELD} | reference


def _failed(facts: PodFacts, failure: Failure) -> AttemptFailed:
    return AttemptFailed(
        scheduled_event_id=facts.attempt.scheduled_event_id,
        attempt=facts.attempt.attempt,
        failure=failure,
        started_time=_started_time(facts),
    )


_TABLE: Final[tuple[tuple[Callable[[PodFacts], bool], Callable[[PodFacts], Outcome]], ...]] = (
    # Our finalizer keeps a pod until its outcome is recorded, so someone removed it by force, or etcd was restored.
    (PodFacts.missing, lost("PodGone", "pod {pod} no longer exists, and nothing proves that it succeeded")),
    # Evidence of another attempt proves nothing about this one.
    (PodFacts.of_another_attempt, undecided),
    # Kubernetes is stopping the sidecars; they deliver the last heartbeat and the result, and the artifacts, when they end.
    (PodFacts.awaiting_sidecar, undecided),
    # Exit code 0 in response to SIGTERM, for example `trap "exit 0" TERM`, proves nothing without a result.
    (
        PodFacts.stopped_without_result,
        lost("StoppedWithoutResult", "pod {pod} was stopped on node {node}, and ended with exit code 0 but no result"),
    ),
    # The only proof of success. Whatever else happened to the pod (deletion, eviction, a failed sidecar), the work is
    # done and must not be repeated.
    (PodFacts.succeeded, completed),
    # It never started, because an image, a volume, or a configuration was missing, until its node gave up. A retry would
    # usually end the same way, so it counts as an attempt.
    (PodFacts.never_started_in_time, not_started),
    # The kubelet or containerd lost track of the container during a restart and invented its exit code.
    (
        PodFacts.end_unknown,
        lost("ContainerStatusUnknown", "node {node} does not know how the container of pod {pod} ended"),
    ),
    # Eviction through the API, preemption, taints, a drained, failing, or vanished node: not caused by the activity. How the
    # container reacted to being stopped (exit code 143, "cancelled") is only a consequence.
    (PodFacts.disrupted, lost("", "pod {pod} was disrupted on node {node}: {reason}: {message}")),
    # Without that condition, a kubelet evicts only a pod that exceeds its own storage limits, which would happen again.
    (PodFacts.evicted_for_usage, pod_failure),
    # The backstop: the node stopped the attempt after start-to-close, because no operator did.
    (PodFacts.exceeded_deadline, timed_out),
    # Deleted by someone else (pods that the operator deletes are not evaluated), and then it stopped. A container that failed
    # before the deletion was requested is handled below, by its own failure.
    (PodFacts.deleted, lost("PodDeleted", "pod {pod} was deleted by someone else before it succeeded")),
    # The activity's container failed, or an init container before it.
    (PodFacts.failed_itself, container_failed),
    # The node rejected the definition; a retry would usually be rejected too, so it counts as an attempt.
    (PodFacts.rejected_for_its_definition, pod_failure),
    # The pod failed, but no container did: the node rejected it (OutOfcpu, NodeAffinity, …), or it was deleted as an orphan.
    (PodFacts.failed_without_container, lost("", "pod {pod} failed without running: {reason}: {message}")),
    # The phase alone says nothing about the activity's own container.
    (
        PodFacts.finished_without_proof,
        lost("NoProof", "pod {pod} ended, and nothing proves that the activity succeeded"),
    ),
    # The node stopped answering; newer clusters delete the pod instead.
    (PodFacts.unknown, lost("NodeLost", "node {node} does not report the state of pod {pod}")),
    # No kubelet will ever report on it; only our finalizer still holds it.
    (PodFacts.deleted_before_scheduled, lost("PodDeleted", "pod {pod} was deleted before it had a node")),
    # Deleted, the grace period is over, and the node has not reported: it is down or disconnected. Start-to-close may end hours
    # later.
    (
        PodFacts.node_silent,
        lost("NodeLost", "pod {pod} was deleted, and node {node} did not report how it ended"),
    ),
    # It can never start: its definition is invalid and pinned.
    (PodFacts.can_never_start, cannot_start),
    # Running, perhaps terminating: it can still succeed.
    (PodFacts.running, started),
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
    stopping: bool = False,
) -> Outcome:
    """Determine the outcome of an attempt.

    Args:
        attempt: The attempt.
        definition: The activity's definition that the pod was created from.
        pod: Its Pod as the API server returned it; None only if it is known not to exist (a stale cache is not enough).
        lease: Its Lease, if it has one. At the end of an activity with a large result, it must have been read just now.
        now: The current time; it only decides how long to wait for a node that does not report.
        due: Whether a deadline of the attempt is due.
        stopping: Whether the workflow has requested the cancellation of the activity.

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
        disrupted_since=read_kubernetes_time(marked.get("lastTransitionTime")),
        due=due,
        stopping=stopping,
    )
    return next((report(facts) for applies, report in _TABLE if applies(facts)), None)


def stop_deadline(pod: KubeObject) -> datetime | None:
    """Return when the grace period ends of a pod that was deleted, or whose containers the operator has stopped.

    Args:
        pod: A Pod as the API server returned it.

    Returns:
        The time; None if it is not being stopped.
    """
    status, seconds = PodStatus.of(pod), stop_seconds(pod)
    grace = status.grace if seconds is None else timedelta(seconds=seconds)
    stopped = None if status.stopped is None else status.stopped + grace
    return min(filter(None, (stopped, status.delete_deadline)), default=None)


def recheck_time(pod: KubeObject) -> datetime | None:
    """Return when to determine the outcome of a pod again, even without a watch event.

    Args:
        pod: A Pod as the API server returned it.

    Returns:
        For a pod that is being stopped, the time at which it counts as lost because its node has not reported; otherwise None.
    """
    deadline = stop_deadline(pod)
    return None if deadline is None else deadline + NODE_SILENCE


def forced_deletion_time(pod: KubeObject) -> datetime | None:
    """Return when to delete a pod whose containers the operator has stopped without deleting it, if they still run.

    Nodes apply the whole grace period of the pod. If it is meant for uploads, only a deletion shortens it.

    Args:
        pod: A Pod as the API server returned it.

    Returns:
        The time; None if the operator has not stopped them.
    """
    if PodStatus.of(pod).stopped is None:
        return None
    return stop_deadline(pod) if stop_seconds(pod) is not None else recheck_time(pod)


MESSAGE_LIMIT: Final = 2048
"""Maximum characters of a failure's message. It is stored in the run's status while the activity is open."""

_TAIL_LIMIT: Final = 1500

_TYPE_LIMIT: Final = 256


def container_failure(ended: EndedContainer, definition: Activity) -> Failure:
    """Return the failure of an activity's own container, from its error document or otherwise from its exit code.

    Args:
        ended: The end of the container, with a nonzero exit code.
        definition: The activity's definition.

    Returns:
        The failure.
    """
    return error_document(ended, definition) or exit_failure(ended, definition)


def error_document(ended: EndedContainer, definition: Activity) -> Failure | None:
    """The failure that the container itself described, if its termination message is such a document.

    `{"error": {"type", "message", "details", "nonRetryable", "nextRetryDelay", "stackTrace", "cancelled"}}`; at least
    `type`, `message`, or `cancelled` is required.
    """
    document, is_json = payloads.decode(ended.message)
    error = document.get("error") if is_json and isinstance(document, dict) else None
    if not isinstance(error, dict):
        return None
    kind, text = _text(error.get("type")), _text(error.get("message"))
    stack_trace = _text(error.get("stackTrace"))
    if error.get("cancelled") is True:
        return Failure(
            kind=FailureKind.CANCELLED,
            message=shortened(text or ""),
            details=error.get("details"),
            stack_trace=stack_trace,
        )
    if kind is None and text is None:
        return None
    by_code = exit_failure(ended, definition)
    message = text or f"container {ended.name} failed with {kind}"
    delay, mistake = _retry_delay(error.get("nextRetryDelay"))
    return Failure(
        kind=FailureKind.APPLICATION,
        type=by_code.type if kind is None else kind[:_TYPE_LIMIT],
        message=shortened(message + mistake),
        details=error.get("details"),
        non_retryable=error.get("nonRetryable") is True or (kind is None and by_code.non_retryable),
        next_retry_delay=delay,
        stack_trace=stack_trace,
    )


def _retry_delay(value: Any) -> tuple[timedelta | None, str]:
    """Return the delay, or a remark about an invalid one: a mistake in it must not hide the failure itself."""
    if value is None:
        return None, ""
    try:
        return parse_decimal_duration(value if isinstance(value, str) else ""), ""
    except ValueError:
        return None, f" (nextRetryDelay {str(value)[:40]!r} is not a valid duration and was ignored)"


def exit_failure(ended: EndedContainer, definition: Activity) -> Failure:
    """Return the failure for an exit code.

    Its type is the first of: the type that `failureTypes` assigns to the code; `OOMKilled`; Kubernetes' reason unless it
    is `Error` (`StartError`: the command does not exist); the signal (`SIGSEGV`); `ExitCode<n>`.
    """
    rule = next((rule for rule in definition.failure_types if ended.exit_code in rule.exit_codes), None)
    reason = ended.reason if ended.reason not in {"", "Error", "Completed"} else None
    kind = (rule.type if rule else None) or reason or ended.signal or f"ExitCode{ended.exit_code}"
    return Failure(
        kind=FailureKind.APPLICATION,
        type=kind,
        message=shortened(_how_it_ended(ended)),
        details=_exit_details(ended),
        non_retryable=rule is not None and rule.non_retryable,
    )


def init_failure(ended: EndedContainer) -> Failure:
    """Return the failure of an init container; `failureTypes` apply only to the activity's own container."""
    return Failure(
        kind=FailureKind.APPLICATION,
        type="InitContainerFailed",
        message=shortened("init " + _how_it_ended(ended)),
        details=_exit_details(ended),
    )


def sidecar_failure(ended: EndedContainer) -> Failure:
    """Return the failure for work that is done, but whose result is unknown."""
    return Failure(
        kind=FailureKind.APPLICATION,
        type="ResultMissing",
        message=shortened("the activity succeeded, but its result was not delivered: " + _how_it_ended(ended)),
        details=_exit_details(ended),
    )


def upload_failure(ended: EndedContainer | None, definition: Activity) -> Failure:
    """Return the failure for work that is done, but whose output artifacts are not stored.

    Args:
        ended: The end of the sidecar that uploads them; None if it is not known.
        definition: The activity's definition.
    """
    reported = error_document(ended, definition) if ended is not None else None
    if reported is not None:
        return reported
    how = "their upload was not reported" if ended is None else _how_it_ended(ended)
    return Failure(
        kind=FailureKind.APPLICATION,
        type="ArtifactsNotStored",
        message=shortened(f"the activity succeeded, but its artifacts are not stored: {how}"),
        details=None if ended is None else _exit_details(ended),
    )


def _exit_details(ended: EndedContainer) -> dict[str, Any]:
    details: dict[str, Any] = {"container": ended.name, "exitCode": ended.exit_code}
    if ended.reason:
        details["reason"] = ended.reason
    if ended.signal is not None:
        details["signal"] = ended.signal
    return details


def _how_it_ended(ended: EndedContainer) -> str:
    code = f"exit code {ended.exit_code}"
    match ended.reason:
        case "OOMKilled":
            sentence = (
                f"container {ended.name} was killed because it used too much memory (OOMKilled, {code}); "
                "raise its `resources.limits.memory`, or make it use less"
            )
        case "" | "Error" | "Completed" if ended.signal is not None:
            sentence = f"container {ended.name} was killed by {ended.signal} ({code})"
        case "" | "Error" | "Completed":
            sentence = f"container {ended.name} failed ({code})"
        case "StartError" | "ContainerCannotRun":
            sentence = (
                f"container {ended.name} could not be started ({ended.reason}, {code}); check that the image contains "
                "its `command`"
            )
        case _:
            sentence = f"container {ended.name} failed ({ended.reason}, {code})"
    tail = ended.message.strip()
    if len(tail) > _TAIL_LIMIT:
        tail = "…" + tail[-_TAIL_LIMIT:]
    return f"{sentence}:\n{tail}" if tail else sentence


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def shortened(text: str) -> str:
    """The text, truncated to the maximum length of a message."""
    return text if len(text) <= MESSAGE_LIMIT else text[: MESSAGE_LIMIT - 1] + "…"


LOG_LIMIT: Final = 4096
"""Maximum bytes of the end of a failed container's log that are stored with the failure."""


def failed_container(definition: Activity, pod: KubeObject) -> str | None:
    """Return the name of the container whose log explains why an attempt failed.

    Args:
        definition: The activity's definition.
        pod: Its Pod.

    Returns:
        A container of the activity, or the init container that failed before it; None if none has run and failed.
    """
    status = PodStatus.of(pod)
    main = ContainerGroup.of(pod, main_container_name(definition)).ended(status)
    failed = main if main is not None and main.exit_code != 0 else status.failed_init_container()
    return failed.name if failed is not None and not failed.status_unknown else None


def tail(text: str) -> str:
    """Return the end of a log, at most `LOG_LIMIT` bytes, in whole lines if there are any."""
    raw = text.rstrip().encode()
    if len(raw) <= LOG_LIMIT:
        return raw.decode()
    end = raw[-LOG_LIMIT:]
    _, found, lines = end.partition(b"\n")
    return (lines if found and lines else end).decode(errors="ignore")
