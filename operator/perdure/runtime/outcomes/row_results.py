"""The report of each row of the table to the engine."""

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final, TypeAlias

from perdure.api import labels
from perdure.api.names import RESULT_ARTIFACT
from perdure.engine.failures import Failure, FailureKind, TimeoutType
from perdure.engine.inputs import AttemptCompleted, AttemptFailed, AttemptLost, AttemptStarted
from perdure.engine.state import timeout_message
from perdure.runtime import payloads
from perdure.runtime.attempts import payload_too_large
from perdure.runtime.leases import annotation, heartbeat_details
from perdure.runtime.outcomes.container_failures import (
    container_failure,
    error_document,
    init_failure,
    shortened,
    sidecar_failure,
    upload_failure,
)
from perdure.runtime.outcomes.pod_facts import PodFacts
from perdure.runtime.pod_waiting import remedy, waiting_reason, waiting_word, waits_in_vain

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
        advice = _way_for_large_results(facts)
        return _failed(facts, payload_too_large(f"container {container} succeeded, but {too_large}. {advice}"))
    return _with_result(facts, value)


def _way_for_large_results(facts: PodFacts) -> str:
    artifacts = facts.definition.artifacts
    if artifacts is not None and artifacts.large_results:
        return "Write it to the file $PERDURE_RESULT_FILE instead"
    return "Declare `resultSize: Large`, set `artifacts.largeResults`, or make the data an output artifact (`artifacts.outputs`)"


def own_failure(facts: PodFacts) -> Outcome:
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
    reason, status = facts.attempt.waiting_reason, facts.status
    word = waiting_word(reason)
    text = (
        f"pod {status.name} did not start on node {status.node} before its deadline: "
        f"{reason or status.message or 'its node does not report why'}; {remedy(word)}"
    )
    return _failed(facts, Failure(kind=FailureKind.APPLICATION, type=word or "NotStarted", message=shortened(text)))


def cannot_start(facts: PodFacts) -> Outcome:
    """Report that the pod can never start."""
    word = waits_in_vain(facts.pod or {})
    text = f"pod {facts.status.name} cannot start: {waiting_reason(facts.pod or {}, facts.definition)}; {remedy(word)}"
    return _failed(facts, Failure(kind=FailureKind.APPLICATION, type=word, message=shortened(text), non_retryable=True))


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
    return AttemptCompleted(
        scheduled_event_id=facts.attempt.scheduled_event_id,
        attempt=facts.attempt.attempt,
        result=result,
        artifacts=facts.stored() or {},
        started_time=_started_time(facts),
    )


def _failed(facts: PodFacts, failure: Failure) -> AttemptFailed:
    return AttemptFailed(
        scheduled_event_id=facts.attempt.scheduled_event_id,
        attempt=facts.attempt.attempt,
        failure=failure,
        started_time=_started_time(facts),
    )
