"""The outcome of an attempt, from its Pod and its Lease: one table, of which the first matching row applies.

There are three kinds of outcome, because they are retried differently:

* completed, only with proof: the activity's own container ended with exit code 0;
* failed: caused by the activity or its definition; counts as an attempt of the retry policy;
* lost: caused by the infrastructure; retried without counting as an attempt.

Pods that the operator deletes itself (an attempt that timed out, a run that closed) are not evaluated.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, TypeAlias

from perdure.api import labels
from perdure.api.durations import parse_decimal_duration
from perdure.api.reserved import SIDECAR
from perdure.api.workflow import Activity
from perdure.engine.failures import Failure, FailureKind, TimeoutType
from perdure.engine.inputs import AttemptCompleted, AttemptFailed, AttemptLost, AttemptStarted
from perdure.engine.state import timeout_message
from perdure.runtime import payloads
from perdure.runtime.attempts import Attempt, KubeObject, payload_too_large
from perdure.runtime.leases import annotation, heartbeat_details
from perdure.runtime.ownership import is_attempt, owns_lease
from perdure.runtime.pods import main_container_name
from perdure.runtime.statuses import EndedContainer, PodStatus
from perdure.runtime.times import read_time
from perdure.runtime.waiting import remedy, waiting_reason, waiting_word, waits_in_vain

Outcome: TypeAlias = AttemptStarted | AttemptCompleted | AttemptFailed | AttemptLost | None
"""The input for the engine; None if there is none yet."""

NODE_SILENCE: Final = timedelta(seconds=30)
"""How long a node may take, after the grace period of a deleted pod, to report how its containers ended."""

MESSAGE_LIMIT: Final = 2048
"""Maximum characters of a failure's message. It is stored in the run's status while the activity is open."""

LOG_LIMIT: Final = 4096
"""Maximum bytes of the end of a failed container's log that are stored with the failure."""

_TAIL_LIMIT: Final = 1500
_TYPE_LIMIT: Final = 256

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
class _Facts:
    """Everything that was observed, with a predicate for each row of the table."""

    attempt: Attempt
    definition: Activity
    pod: KubeObject | None
    status: PodStatus
    lease: KubeObject | None
    now: datetime
    main: EndedContainer | None
    sidecar: EndedContainer | None
    """Our sidecar, if the pod has one."""
    failed: EndedContainer | None
    """The container whose failure counts: the activity's own, or an init container that kept it from starting."""
    disrupted_since: datetime | None
    """When the condition `DisruptionTarget` was set; None if it is not set or has no time."""

    def gone(self) -> bool:
        return self.pod is None

    def of_another_attempt(self) -> bool:
        return self.pod is not None and not is_attempt(self.pod, self.attempt)

    def awaiting_sidecar(self) -> bool:
        """Whether the activity's container has ended, but our sidecar has not delivered the result yet."""
        over = self.status.phase in {"Succeeded", "Failed", "Unknown"} or self.node_silent()
        return self.attempt.sidecar and self.main is not None and self.sidecar is None and not over

    def succeeded(self) -> bool:
        return self.main is not None and self.main.exit_code == 0

    def end_unknown(self) -> bool:
        return self.failed is not None and self.failed.status_unknown

    def disrupted(self) -> bool:
        marked = self.status.condition("DisruptionTarget")
        by_mark = marked is not None and marked.get("status") == "True" and not self.failed_before(self.disrupted_since)
        return self.stopped() and (by_mark or self.status.reason in _DISRUPTED)

    def exceeded_own_limits(self) -> bool:
        return self.status.reason == "Evicted" and self.stopped()

    def never_started_in_time(self) -> bool:
        """Whether the pod's deadline passed before a container ran; the kubelet then reports no container statuses."""
        struck = self.status.reason == "DeadlineExceeded" and self.status.phase == "Failed"
        return struck and not self.attempt.started and not self.status.anything_ran()

    def can_never_start(self) -> bool:
        return self.status.phase == "Pending" and waits_in_vain(self.pod or {}) is not None

    def exceeded_deadline(self) -> bool:
        struck = self.status.reason == "DeadlineExceeded" and self.stopped() and self.status.anything_ran()
        return struck and not self.failed_before(self.status.active_deadline)

    def deleted(self) -> bool:
        requested = self.status.delete_requested
        return requested is not None and self.stopped() and not self.failed_before(requested)

    def failed_itself(self) -> bool:
        return self.failed is not None

    def rejected_for_its_definition(self) -> bool:
        return self.status.phase == "Failed" and self.status.reason in _OWN_REFUSALS

    def failed_without_container(self) -> bool:
        return self.status.phase == "Failed"

    def finished_without_proof(self) -> bool:
        return self.status.phase == "Succeeded"

    def unknown(self) -> bool:
        return self.status.phase == "Unknown"

    def deleted_before_scheduled(self) -> bool:
        return self.status.delete_deadline is not None and self.status.node is None

    def node_silent(self) -> bool:
        deadline = self.status.delete_deadline
        return deadline is not None and self.now >= deadline + NODE_SILENCE

    def running(self) -> bool:
        return self.status.running_since(main_container_name(self.definition)) is not None

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


def outcome(
    attempt: Attempt, definition: Activity, pod: KubeObject | None, lease: KubeObject | None = None, *, now: datetime
) -> Outcome:
    """Determine the outcome of an attempt.

    Args:
        attempt: The attempt.
        definition: The activity's definition that the pod was created from.
        pod: Its Pod as the API server returned it; None only if it is known not to exist (a stale cache is not enough).
        lease: Its Lease, if it has one. At the end of an activity with a large result, it must have been read just now.
        now: The current time; it only decides how long to wait for a node that does not report.

    Returns:
        The input for the engine, always the same for the same arguments; None if there is no outcome yet.
    """
    status = PodStatus.of(pod or {})
    main = status.ended(main_container_name(definition))
    marked = status.condition("DisruptionTarget") or {}
    facts = _Facts(
        attempt=attempt,
        definition=definition,
        pod=pod,
        status=status,
        lease=lease if lease is not None and owns_lease(lease, attempt, status.uid) else None,
        now=now,
        main=main,
        sidecar=status.ended_sidecar(SIDECAR),
        failed=main if main is not None and main.exit_code != 0 else status.failed_init_container(),
        disrupted_since=read_time(marked.get("lastTransitionTime")),
    )
    return next((tell(facts) for applies, tell in _TABLE if applies(facts)), None)


def failed_container(definition: Activity, pod: KubeObject) -> str | None:
    """Return the name of the container whose log explains why an attempt failed.

    Args:
        definition: The activity's definition.
        pod: Its Pod.

    Returns:
        The activity's own container, or the init container that failed before it; None if none has run and failed.
    """
    status = PodStatus.of(pod)
    main = status.ended(main_container_name(definition))
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


def look_again_at(pod: KubeObject) -> datetime | None:
    """Return when to determine the outcome of a pod again, even without a watch event.

    Args:
        pod: A Pod as the API server returned it.

    Returns:
        For a terminating pod, the time at which it counts as lost because its node has not reported; otherwise None.
    """
    deadline = PodStatus.of(pod).delete_deadline
    return None if deadline is None else deadline + NODE_SILENCE


def _nothing(_facts: _Facts) -> Outcome:
    return None


def _started(facts: _Facts) -> Outcome:
    since = _started_time(facts)
    assert since is not None, "the row asked"
    return AttemptStarted(
        scheduled_event_id=facts.attempt.scheduled_event_id, attempt=facts.attempt.attempt, time=since
    )


def _completed(facts: _Facts) -> Outcome:
    """Success is proven; read the result, completely or not at all."""
    assert facts.main is not None, "the row asked"
    message, sidecar = facts.main.message, facts.sidecar
    if sidecar is not None and sidecar.exit_code != 0:
        return _failed(facts, _error_document(sidecar, facts.definition) or _sidecar_failure(sidecar))
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
    value, is_json = payloads.decode(message)
    limit = payloads.termination_message_limit(facts.status.container_count)
    # The kubelet keeps the end of a longer message. The tail of a document does not parse, but the tail of a long number
    # or of a string with quotes in it might: of a message of exactly the limit, only an object or a list is believed.
    if payloads.size(message) >= limit and not (is_json and isinstance(value, dict | list)):
        return _failed(
            facts,
            payload_too_large(
                f"container {facts.main.name} succeeded, but its result does not fit into a termination message "
                f"({limit} bytes here). Declare `resultSize: Large`, or pass a reference to the data instead"
            ),
        )
    return _with_result(facts, value)


def _own_failure(facts: _Facts) -> Outcome:
    assert facts.failed is not None, "the row asked"
    if facts.main is None:
        return _failed(facts, _init_failure(facts.failed))
    return _failed(facts, container_failure(facts.failed, facts.definition))


def _pod_failure(facts: _Facts) -> Outcome:
    status = facts.status
    remedies = {"Evicted": "make it write less, or raise `resources.limits.ephemeral-storage`"}
    remedy_ = remedies.get(status.reason, "change the activity's pod to request only what its nodes allow")
    message = _shortened(f"pod {status.name} failed: {status.reason}: {status.message.rstrip('.')}; {remedy_}")
    return _failed(facts, Failure(kind=FailureKind.APPLICATION, type=status.reason, message=message))


def _not_started(facts: _Facts) -> Outcome:
    reason, status = facts.attempt.waiting_reason, facts.status
    word = waiting_word(reason)
    text = (
        f"pod {status.name} did not start on node {status.node} before its deadline: "
        f"{reason or status.message or 'its node does not report why'}; {remedy(word)}"
    )
    return _failed(facts, Failure(kind=FailureKind.APPLICATION, type=word or "NotStarted", message=_shortened(text)))


def _cannot_start(facts: _Facts) -> Outcome:
    word = waits_in_vain(facts.pod or {})
    text = f"pod {facts.status.name} cannot start: {waiting_reason(facts.pod or {}, facts.definition)}; {remedy(word)}"
    return _failed(
        facts, Failure(kind=FailureKind.APPLICATION, type=word, message=_shortened(text), non_retryable=True)
    )


def _timed_out(facts: _Facts) -> Outcome:
    details = None if facts.lease is None else heartbeat_details(facts.lease)
    failure = Failure(
        kind=FailureKind.TIMEOUT,
        timeout_type=TimeoutType.START_TO_CLOSE,
        message=timeout_message(TimeoutType.START_TO_CLOSE, facts.attempt.start_to_close),
        last_heartbeat_details=details,
    )
    return _failed(facts, failure)


def _lost(reason: str, sentence: str) -> Callable[[_Facts], Outcome]:
    """Build the function that reports a loss; the sentence can use `{pod}`, `{node}`, `{reason}`, and `{message}`."""

    def tell(facts: _Facts) -> Outcome:
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
            failure=Failure(kind=FailureKind.SERVER, message=_shortened(text), details=details),
            started_time=_started_time(facts),
        )

    return tell


_TABLE: Final[tuple[tuple[Callable[[_Facts], bool], Callable[[_Facts], Outcome]], ...]] = (
    # Our finalizer keeps a pod until its outcome is recorded, so someone removed it by force, or etcd was restored.
    (_Facts.gone, _lost("PodGone", "pod {pod} no longer exists, and nothing proves that it succeeded")),
    # Evidence of another attempt proves nothing about this one.
    (_Facts.of_another_attempt, _nothing),
    # Kubernetes is stopping the sidecar; it delivers the last heartbeat and the result when it ends.
    (_Facts.awaiting_sidecar, _nothing),
    # The only proof of success. Whatever else happened to the pod (deletion, eviction, a failed sidecar), the work is
    # done and must not be repeated.
    (_Facts.succeeded, _completed),
    # It never started, because an image, a volume, or a configuration was missing, until its node gave up. A retry would
    # usually end the same way, so it counts as an attempt.
    (_Facts.never_started_in_time, _not_started),
    # The kubelet or containerd lost track of the container during a restart and invented its exit code.
    (
        _Facts.end_unknown,
        _lost("ContainerStatusUnknown", "node {node} does not know how the container of pod {pod} ended"),
    ),
    # Eviction through the API, preemption, taints, a drained, failing, or vanished node: not caused by the activity. How the
    # container reacted to being stopped (exit code 143, "cancelled") is only a consequence.
    (_Facts.disrupted, _lost("", "pod {pod} was disrupted on node {node}: {reason}: {message}")),
    # Without that condition, a kubelet evicts only a pod that exceeds its own storage limits, which would happen again.
    (_Facts.exceeded_own_limits, _pod_failure),
    # The backstop: the node stopped the attempt after start-to-close, because no operator did.
    (_Facts.exceeded_deadline, _timed_out),
    # Deleted by someone else (pods that the operator deletes are not evaluated), and then it stopped. A container that failed
    # before the deletion was requested is handled below, by its own failure.
    (_Facts.deleted, _lost("PodDeleted", "pod {pod} was deleted by someone else before it succeeded")),
    # The activity's container failed, or an init container before it.
    (_Facts.failed_itself, _own_failure),
    # The node rejected the definition; a retry would usually be rejected too, so it counts as an attempt.
    (_Facts.rejected_for_its_definition, _pod_failure),
    # The pod failed, but no container did: the node rejected it (OutOfcpu, NodeAffinity, …), or it was deleted as an orphan.
    (_Facts.failed_without_container, _lost("", "pod {pod} failed without running: {reason}: {message}")),
    # The phase alone says nothing about the activity's own container.
    (
        _Facts.finished_without_proof,
        _lost("NoProof", "pod {pod} ended, and nothing proves that the activity succeeded"),
    ),
    # The node stopped answering; newer clusters delete the pod instead.
    (_Facts.unknown, _lost("NodeLost", "node {node} does not report the state of pod {pod}")),
    # No kubelet will ever report on it; only our finalizer still holds it.
    (_Facts.deleted_before_scheduled, _lost("PodDeleted", "pod {pod} was deleted before it had a node")),
    # Deleted, the grace period is over, and the node has not reported: it is down or cut off. Start-to-close may be hours away.
    (_Facts.node_silent, _lost("NodeLost", "pod {pod} was deleted, and node {node} did not report how it ended")),
    # It can never start: its definition is invalid and pinned.
    (_Facts.can_never_start, _cannot_start),
    # Running, perhaps terminating: it can still succeed.
    (_Facts.running, _started),
    # Everything else waits for a node, an image, a volume, or an init container. `waiting_reason` says for what.
)


def _started_time(facts: _Facts) -> datetime | None:
    if facts.main is not None:
        return facts.main.started
    return facts.status.running_since(main_container_name(facts.definition))


def _with_result(facts: _Facts, result: Any) -> AttemptCompleted:
    return AttemptCompleted(
        scheduled_event_id=facts.attempt.scheduled_event_id,
        attempt=facts.attempt.attempt,
        result=result,
        started_time=_started_time(facts),
    )


def _failed(facts: _Facts, failure: Failure) -> AttemptFailed:
    return AttemptFailed(
        scheduled_event_id=facts.attempt.scheduled_event_id,
        attempt=facts.attempt.attempt,
        failure=failure,
        started_time=_started_time(facts),
    )


def container_failure(ended: EndedContainer, definition: Activity) -> Failure:
    """Return why an activity's own container failed: what it wrote, or otherwise its exit code.

    Args:
        ended: How it ended, with a nonzero exit code.
        definition: The activity's definition.

    Returns:
        The failure.
    """
    return _error_document(ended, definition) or _exit_failure(ended, definition)


def _error_document(ended: EndedContainer, definition: Activity) -> Failure | None:
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
            message=_shortened(text or ""),
            details=error.get("details"),
            stack_trace=stack_trace,
        )
    if kind is None and text is None:
        return None
    by_code = _exit_failure(ended, definition)
    message = text or f"container {ended.name} failed with {kind}"
    delay, mistake = _retry_delay(error.get("nextRetryDelay"))
    return Failure(
        kind=FailureKind.APPLICATION,
        type=by_code.type if kind is None else kind[:_TYPE_LIMIT],
        message=_shortened(message + mistake),
        details=error.get("details"),
        non_retryable=error.get("nonRetryable") is True or (kind is None and by_code.non_retryable),
        next_retry_delay=delay,
        stack_trace=stack_trace,
    )


def _retry_delay(given: Any) -> tuple[timedelta | None, str]:
    """Return the delay, or a remark about an invalid one: a mistake in it must not hide the failure itself."""
    if given is None:
        return None, ""
    try:
        return parse_decimal_duration(given if isinstance(given, str) else ""), ""
    except ValueError:
        return None, f" (nextRetryDelay {str(given)[:40]!r} is not a valid duration and was ignored)"


def _exit_failure(ended: EndedContainer, definition: Activity) -> Failure:
    """Return the failure for an exit code.

    Its type is the first of: the type that `failureTypes` assigns to the code; `OOMKilled`; Kubernetes' reason unless it
    is `Error` (`StartError`: the command does not exist); the signal (`SIGSEGV`); `ExitCode<n>`.
    """
    rule = next((rule for rule in definition.failure_types if ended.exit_code in rule.exit_codes), None)
    word = ended.reason if ended.reason not in {"", "Error", "Completed"} else None
    kind = (rule.type if rule else None) or word or ended.signal or f"ExitCode{ended.exit_code}"
    return Failure(
        kind=FailureKind.APPLICATION,
        type=kind,
        message=_shortened(_how_it_ended(ended)),
        details=_exit_details(ended),
        non_retryable=rule is not None and rule.non_retryable,
    )


def _init_failure(ended: EndedContainer) -> Failure:
    """Return the failure of an init container; `failureTypes` apply only to the activity's own container."""
    return Failure(
        kind=FailureKind.APPLICATION,
        type="InitContainerFailed",
        message=_shortened("init " + _how_it_ended(ended)),
        details=_exit_details(ended),
    )


def _sidecar_failure(ended: EndedContainer) -> Failure:
    """Return the failure for work that is done, but whose result is unknown."""
    return Failure(
        kind=FailureKind.APPLICATION,
        type="ResultMissing",
        message=_shortened("the activity succeeded, but its result was not delivered: " + _how_it_ended(ended)),
        details=_exit_details(ended),
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


def _shortened(text: str) -> str:
    return text if len(text) <= MESSAGE_LIMIT else text[: MESSAGE_LIMIT - 1] + "…"
