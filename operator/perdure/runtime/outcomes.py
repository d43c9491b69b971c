"""From a Pod (and its Lease) to what became of the attempt: one table, read from the top, the first row that applies.

Three kinds of ending, told apart because they are retried differently:

* completed, only with positive proof: the activity's own container ended with exit code 0;
* failed: the activity, or its definition, did it; counts against the retry policy;
* lost: the infrastructure did it; tried again for free.

Pods that the operator deletes itself (an attempt that timed out, a run that closed) are not asked about.
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
"""What the engine is told; None: nothing yet."""

NODE_SILENCE: Final = timedelta(seconds=30)
"""How long after a deleted pod's grace period its node may take to say how the containers ended."""

MESSAGE_LIMIT: Final = 2048
"""Characters of a failure's message. It rides in the run's status while the activity is open."""

LOG_LIMIT: Final = 4096
"""Bytes of the end of a failed container's log that are kept with the failure."""

_TAIL_LIMIT: Final = 1500
_TYPE_LIMIT: Final = 256

_DISRUPTED: Final = frozenset({"Preempting", "NodeLost", "Terminated", "Shutdown", "NodeShutdown"})
"""Reasons of a whole pod's failure that say that its node or the scheduler stopped it; newer kubelets also set the condition
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
"""Reasons for which a node refuses a pod because of what its definition asks for. Any other refusal (`OutOfcpu`,
`NodeAffinity`, `UnexpectedAdmissionError`, …) is about the node: the scheduler's picture of it was old."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Facts:
    """Everything observed, by the questions that the table asks."""

    attempt: Attempt
    definition: Activity
    pod: KubeObject | None
    status: PodStatus
    lease: KubeObject | None
    now: datetime
    main: EndedContainer | None
    sidecar: EndedContainer | None
    """Our sidecar, where there is one."""
    failed: EndedContainer | None
    """The container whose failure counts: the activity's own, or an init container that kept it from starting."""
    disrupted_since: datetime | None
    """When the condition `DisruptionTarget` was set; None where it is not, or says no time."""

    def gone(self) -> bool:
        return self.pod is None

    def of_another_attempt(self) -> bool:
        return self.pod is not None and not is_attempt(self.pod, self.attempt)

    def about_to_hand_over(self) -> bool:
        """The activity's container has ended, and our sidecar has yet to say what it has left in files."""
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

    def over_own_limits(self) -> bool:
        return self.status.reason == "Evicted" and self.stopped()

    def never_started_in_time(self) -> bool:
        """The node's deadline struck before anything ran; of its containers the kubelet then knows nothing."""
        struck = self.status.reason == "DeadlineExceeded" and self.status.phase == "Failed"
        return struck and not self.attempt.started and not self.status.anything_ran()

    def waits_in_vain(self) -> bool:
        return self.status.phase == "Pending" and waits_in_vain(self.pod or {}) is not None

    def past_deadline(self) -> bool:
        struck = self.status.reason == "DeadlineExceeded" and self.stopped() and self.status.anything_ran()
        return struck and not self.failed_before(self.status.active_deadline)

    def deleted(self) -> bool:
        requested = self.status.delete_requested
        return requested is not None and self.stopped() and not self.failed_before(requested)

    def failed_itself(self) -> bool:
        return self.failed is not None

    def refused_for_its_definition(self) -> bool:
        return self.status.phase == "Failed" and self.status.reason in _OWN_REFUSALS

    def failed_without_container(self) -> bool:
        return self.status.phase == "Failed"

    def finished_without_proof(self) -> bool:
        return self.status.phase == "Succeeded"

    def unknown(self) -> bool:
        return self.status.phase == "Unknown"

    def deleted_before_a_node_had_it(self) -> bool:
        return self.status.delete_deadline is not None and self.status.node is None

    def node_silent(self) -> bool:
        deadline = self.status.delete_deadline
        return deadline is not None and self.now >= deadline + NODE_SILENCE

    def running(self) -> bool:
        return self.status.running_since(main_container_name(self.definition)) is not None

    def stopped(self) -> bool:
        """Whether nothing more will come from the activity's container."""
        return self.failed is not None or self.status.phase == "Failed"

    def failed_before(self, time: datetime | None) -> bool:
        """Whether the container had failed by itself when the disruption came.

        Kubernetes' times are whole seconds: within the same second it counts as disrupted, which costs a retry but fails
        nothing wrongly.
        """
        finished = self.failed.finished if self.failed is not None else None
        return finished is not None and time is not None and finished < time


def outcome(
    attempt: Attempt, definition: Activity, pod: KubeObject | None, lease: KubeObject | None = None, *, now: datetime
) -> Outcome:
    """Tell what became of an attempt.

    Args:
        attempt: The attempt.
        definition: The activity's definition, the one that the pod was made from.
        pod: Its Pod as the API server has it; None where it is known to be gone (not: where a cache has not seen it yet).
        lease: Its Lease, where it has one. For the end of an activity with a large result it has to be read just now.
        now: The time; decides only how long a silent node is waited for.

    Returns:
        The input for the engine, the same for the same arguments; None where there is nothing to tell yet.
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
    """Name the container whose log says why an attempt failed.

    Args:
        definition: The activity's definition.
        pod: Its Pod.

    Returns:
        The activity's own, or the init container that kept it from starting; None where none has run and failed.
    """
    status = PodStatus.of(pod)
    main = status.ended(main_container_name(definition))
    failed = main if main is not None and main.exit_code != 0 else status.failed_init_container()
    return failed.name if failed is not None and not failed.status_unknown else None


def tail(text: str) -> str:
    """The end of a log, in whole lines where that leaves any: at most `LOG_LIMIT` bytes."""
    raw = text.rstrip().encode()
    if len(raw) <= LOG_LIMIT:
        return raw.decode()
    end = raw[-LOG_LIMIT:]
    _, found, lines = end.partition(b"\n")
    return (lines if found and lines else end).decode(errors="ignore")


def look_again_at(pod: KubeObject) -> datetime | None:
    """Tell when a pod's outcome has to be asked for again although nothing was heard of it.

    Args:
        pod: A Pod as the API server has it.

    Returns:
        For a pod that is being deleted, the time at which its node's silence is taken as its loss; None for others.
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
    """Success is proven; what is left is the result, which is taken whole or not at all."""
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
    remedies = {"Evicted": "let it write less, or raise `resources.limits.ephemeral-storage`"}
    remedy_ = remedies.get(status.reason, "let the activity's pod ask for what its nodes allow")
    message = _shortened(f"pod {status.name} failed: {status.reason}: {status.message.rstrip('.')}; {remedy_}")
    return _failed(facts, Failure(kind=FailureKind.APPLICATION, type=status.reason, message=message))


def _not_started(facts: _Facts) -> Outcome:
    reason, status = facts.attempt.waiting_reason, facts.status
    word = waiting_word(reason)
    text = (
        f"pod {status.name} had not started when its time on node {status.node} was over: "
        f"{reason or status.message or 'its node does not say why'}; {remedy(word)}"
    )
    return _failed(facts, Failure(kind=FailureKind.APPLICATION, type=word or "NotStarted", message=_shortened(text)))


def _in_vain(facts: _Facts) -> Outcome:
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
    """Make the teller of a loss: `{pod}`, `{node}`, `{reason}` and `{message}` of the sentence are the pod's."""

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
    # Our finalizer keeps a pod until its outcome is recorded, so someone took it away by force, or etcd was restored.
    (_Facts.gone, _lost("PodGone", "pod {pod} is gone, and nothing proves that it succeeded")),
    # Evidence of another attempt proves nothing about this one.
    (_Facts.of_another_attempt, _nothing),
    # Kubernetes stops it now; the last heartbeat and the result come with its end.
    (_Facts.about_to_hand_over, _nothing),
    # The one proof of success. Whatever happened to the pod besides (deletion, eviction, a failed sidecar), the work is
    # done and must not be done again.
    (_Facts.succeeded, _completed),
    # It never started, for want of an image, a volume, a configuration, until its node gave up. Mostly it would be so again, so
    # it has to count.
    (_Facts.never_started_in_time, _not_started),
    # The kubelet or containerd lost track of the container over a restart and made its exit code up.
    (
        _Facts.end_unknown,
        _lost("ContainerStatusUnknown", "node {node} does not know how the container of pod {pod} ended"),
    ),
    # Eviction through the API, preemption, taints, a drained, dying or vanished node: not the activity's doing. What the
    # container said when it was told to stop (exit code 143, "cancelled") is the echo of that.
    (_Facts.disrupted, _lost("", "pod {pod} was disrupted on node {node}: {reason}: {message}")),
    # Without that condition a kubelet evicts only a pod that exceeds its own storage limits: that would happen again.
    (_Facts.over_own_limits, _pod_failure),
    # The backstop: the node stopped the attempt beyond start-to-close, because nobody else could.
    (_Facts.past_deadline, _timed_out),
    # Deleted by someone (we do not ask about pods that we delete), and then it stopped. A container that had failed
    # before the deletion was asked for is judged by its own failure, further down.
    (_Facts.deleted, _lost("PodDeleted", "pod {pod} was deleted by someone before it had succeeded")),
    # The activity's container failed, or an init container before it.
    (_Facts.failed_itself, _own_failure),
    # The node refused what the definition asks for; another try would mostly be refused too, so it has to count.
    (_Facts.refused_for_its_definition, _pod_failure),
    # No container failed and the pod did: the node refused it (OutOfcpu, NodeAffinity, …) or it was collected as an orphan.
    (_Facts.failed_without_container, _lost("", "pod {pod} failed without running: {reason}: {message}")),
    # The phase alone says nothing about the activity's own container.
    (
        _Facts.finished_without_proof,
        _lost("NoProof", "pod {pod} ended, and nothing proves that the activity succeeded"),
    ),
    # The node stopped answering; newer clusters delete the pod instead.
    (_Facts.unknown, _lost("NodeLost", "node {node} does not say how pod {pod} is")),
    # No kubelet will ever report on it; only our finalizer still holds it.
    (_Facts.deleted_before_a_node_had_it, _lost("PodDeleted", "pod {pod} was deleted before it had a node")),
    # Deleted, grace period over, and no word: the node is dead or cut off. Start-to-close may be hours away.
    (_Facts.node_silent, _lost("NodeLost", "pod {pod} was deleted, and node {node} does not say how it ended")),
    # It will never start: its definition is wrong, and pinned.
    (_Facts.waits_in_vain, _in_vain),
    # Running, also while it is being deleted: it can still succeed.
    (_Facts.running, _started),
    # Anything else waits: for a node, an image, a volume, an init container. `waiting_reason` tells people for what.
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
    """Tell why an activity's own container failed: by what it wrote, else by its exit code.

    Args:
        ended: How it ended, with another exit code than 0.
        definition: The activity's definition.

    Returns:
        The failure.
    """
    return _error_document(ended, definition) or _exit_failure(ended, definition)


def _error_document(ended: EndedContainer, definition: Activity) -> Failure | None:
    """The failure that the container itself described, if its termination message is such a document.

    `{"error": {"type", "message", "details", "nonRetryable", "nextRetryDelay", "stackTrace", "cancelled"}}`, of which one
    of the first two, or `cancelled`, has to be there.
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
    """The delay, or a remark about one that cannot be read: a mistake in it must not hide the failure it came with."""
    if given is None:
        return None, ""
    try:
        return parse_decimal_duration(given if isinstance(given, str) else ""), ""
    except ValueError:
        return None, f" (nextRetryDelay {str(given)[:40]!r} is no duration and was left out)"


def _exit_failure(ended: EndedContainer, definition: Activity) -> Failure:
    """The failure that an exit code stands for.

    Its type is the one that `failureTypes` gives the code; else `OOMKilled`; else a word of Kubernetes' own other than
    `Error` (`StartError`: the command is not there); else the signal (`SIGSEGV`); else `ExitCode<n>`.
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
    """`failureTypes` are about the activity's own container, so they do not name this one."""
    return Failure(
        kind=FailureKind.APPLICATION,
        type="InitContainerFailed",
        message=_shortened("init " + _how_it_ended(ended)),
        details=_exit_details(ended),
    )


def _sidecar_failure(ended: EndedContainer) -> Failure:
    """The work is done, but nobody knows with which result."""
    return Failure(
        kind=FailureKind.APPLICATION,
        type="ResultMissing",
        message=_shortened("the activity succeeded, but its result was not handed over: " + _how_it_ended(ended)),
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
                "raise its `resources.limits.memory`, or let it use less"
            )
        case "" | "Error" | "Completed" if ended.signal is not None:
            sentence = f"container {ended.name} was killed by {ended.signal} ({code})"
        case "" | "Error" | "Completed":
            sentence = f"container {ended.name} failed ({code})"
        case "StartError" | "ContainerCannotRun":
            sentence = (
                f"container {ended.name} could not be started ({ended.reason}, {code}); see whether the image has its "
                "`command`"
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
