"""Outcomes of attempts from pods: completed, failed or lost."""

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.engine.failures import Failure, FailureKind, TimeoutType
from perdure.engine.inputs import AttemptCompleted, AttemptLost, AttemptStarted
from perdure.runtime.attempt_outcomes import failed_container
from unit.runtime.attempt_outcomes import AFTER, BEFORE, SAME, STARTED, document, failure_of, outcome_of

# --- Nothing yet, and started -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(lambda m: m.pod(phase="Pending", node=None), id="a pod without a node"),
        pytest.param(lambda m: m.pod(m.waiting("ContainerCreating"), phase="Pending"), id="a container being created"),
        pytest.param(lambda m: m.pod(m.waiting("ImagePullBackOff"), phase="Pending"), id="a missing image"),
        pytest.param(
            lambda m: m.pod(m.waiting("PodInitializing"), init=(m.running("i"),)), id="an init container that runs"
        ),
        pytest.param(
            lambda m: m.pod(m.waiting("ContainerCreating"), phase="Pending", conditions=[m.disruption("X")]),
            id="a disruption that is only announced",
        ),
        pytest.param(
            lambda m: m.pod(m.waiting("ContainerCreating"), phase="Pending", deleted_at=AFTER),
            id="a terminating pod whose node has not responded yet",
        ),
    ],
)
def test_a_pending_pod_has_no_outcome(make: Any, pod: Callable[[Any], dict[str, Any]]) -> None:
    assert outcome_of(make, pod(make)) is None


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(lambda m: m.pod(m.running()), id="runs"),
        pytest.param(lambda m: m.pod(m.running("istio-proxy"), m.running()), id="runs behind an injected container"),
        pytest.param(lambda m: m.pod(m.running(), deleted_at=AFTER), id="runs while terminating"),
        pytest.param(
            lambda m: m.pod(m.running(), conditions=[m.disruption("X")]), id="runs despite a pending eviction"
        ),
    ],
)
def test_an_attempt_starts_with_its_container(make: Any, pod: Callable[[Any], dict[str, Any]]) -> None:
    assert outcome_of(make, pod(make)) == AttemptStarted(scheduled_event_id=5, attempt=2, time=STARTED)


def test_the_start_of_a_sidecar_does_not_start_the_attempt(make: Any) -> None:
    assert outcome_of(make, make.pod(make.running("sidecar"), make.waiting("ContainerCreating"))) is None


def test_a_pod_of_another_attempt_is_ignored(make: Any) -> None:
    pod = make.pod(make.terminated(0), phase="Succeeded", attempt=make.with_attempt(attempt=1))
    assert outcome_of(make, pod) is None


# --- Completed --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(lambda m: m.pod(m.terminated(0), phase="Succeeded"), id="the pod succeeded"),
        pytest.param(lambda m: m.pod(m.running("sidecar"), m.terminated(0)), id="a sidecar still runs"),
        pytest.param(
            lambda m: m.pod(m.terminated(1, name="side"), m.terminated(0), phase="Failed"), id="a sidecar failed"
        ),
        pytest.param(lambda m: m.pod(m.terminated(0), phase="Succeeded", deleted_at=AFTER), id="the pod was deleted"),
        pytest.param(
            lambda m: m.pod(
                m.terminated(0),
                phase="Failed",
                reason="Evicted",
                conditions=[m.disruption("TerminationByKubelet", at=AFTER)],
            ),
            id="the pod was evicted meanwhile",
        ),
        pytest.param(
            lambda m: m.pod(m.terminated(0), phase="Failed", reason="DeadlineExceeded"), id="the deadline has passed"
        ),
        pytest.param(lambda m: m.pod(m.terminated(0), phase="Unknown"), id="the node no longer responds"),
    ],
)
def test_exit_code_0_of_the_activity_container_is_success(make: Any, pod: Callable[[Any], dict[str, Any]]) -> None:
    assert outcome_of(make, pod(make)) == AttemptCompleted(
        scheduled_event_id=5, attempt=2, result=None, started_time=STARTED
    )


@pytest.mark.parametrize(
    ("message", "want"),
    [
        pytest.param("", None, id="nothing is null"),
        pytest.param(" \n", None, id="blanks are null"),
        pytest.param('{"id": 7}\n', {"id": 7}, id="JSON is read"),
        pytest.param("null", None, id="null is null"),
        pytest.param('"text"', "text", id="a JSON string is its text"),
        pytest.param("done\n", "done", id="other text is a string without its line end"),
        pytest.param("{not json", "{not json", id="broken JSON is text"),
        pytest.param("NaN", "NaN", id="NaN is no JSON"),
        pytest.param('"\\ud800"', '"\\ud800"', id="half a surrogate pair is no JSON"),
        pytest.param("[" * 500 + "]" * 500, "[" * 500 + "]" * 500, id="JSON too deep to write again is text"),
        pytest.param(
            document(type="X", message="y"), {"error": {"type": "X", "message": "y"}}, id="no error after exit 0"
        ),
        pytest.param("x" * 4095, "x" * 4095, id="a text just below the limit was not cut"),
        pytest.param(json.dumps(["x" * 4092]), ["x" * 4092], id="nor was a whole document of exactly the limit"),
    ],
)
def test_the_termination_message_is_the_result(make: Any, message: str, want: Any) -> None:
    reported = outcome_of(make, make.pod(make.terminated(0, message=message)))
    assert reported.result == want


@pytest.mark.parametrize(
    ("message", "containers"),
    [
        pytest.param("x" * 4096, 1, id="a text of exactly the limit"),
        pytest.param("…" + "x" * 4093, 1, id="counted in bytes"),
        pytest.param("1" * 4096, 1, id="the tail of a number is a number"),
        pytest.param('"' + "x" * 4094 + '"', 1, id="the tail of a string may be a string"),
        pytest.param('x"]}' * 1024, 1, id="the tail of a document"),
        pytest.param("x" * 2457, 5, id="five containers have 2,457 bytes each"),
    ],
)
def test_a_possibly_truncated_result_is_rejected(make: Any, message: str, containers: int) -> None:
    pod = make.pod(make.terminated(0, message=message))
    pod["spec"]["containers"] += [{"name": f"sidecar-{n}"} for n in range(containers - 1)]
    failure = failure_of(outcome_of(make, pod))
    assert failure.type == "PayloadTooLarge"
    assert failure.non_retryable
    assert "resultSize: Large" in failure.message


# --- Large results ----------------------------------------------------------------------------------------------------


def test_a_large_result_is_read_from_the_lease(make: Any) -> None:
    attempt = make.with_attempt(large_result=True)
    pod = make.pod(make.terminated(0, message="ignored"), attempt=attempt)
    reported = outcome_of(make, pod, make.lease(attempt, result=json.dumps(["x" * 10_000])), attempt=attempt)
    assert reported.result == ["x" * 10_000]


def test_a_small_result_of_a_large_activity_is_read_from_the_message(make: Any) -> None:
    attempt = make.with_attempt(large_result=True)
    pod = make.pod(make.terminated(0, message="[1]"), attempt=attempt)
    assert outcome_of(make, pod, make.lease(attempt), attempt=attempt).result == [1]


@pytest.mark.parametrize(
    "lease",
    [
        pytest.param(lambda _m, _a: None, id="the Lease does not exist"),
        pytest.param(lambda m, a: m.lease(a), id="the Lease holds none"),
        pytest.param(lambda m, _a: m.lease(m.with_attempt(attempt=1), result="1"), id="the Lease is another attempt's"),
        pytest.param(
            lambda m, a: {
                **m.lease(a, result="1"),
                "metadata": {**m.lease(a, result="1")["metadata"], "ownerReferences": []},
            },
            id="the Lease is not the pod's",
        ),
    ],
)
def test_a_missing_large_result_fails_the_attempt(make: Any, lease: Callable[[Any, Any], Any]) -> None:
    attempt = make.with_attempt(large_result=True)
    pod = make.pod(make.terminated(0), attempt=attempt)
    failure = failure_of(outcome_of(make, pod, lease(make, attempt), attempt=attempt))
    assert failure.type == "ResultMissing"
    assert "perdure.dev/result" in failure.message


def test_a_result_in_the_lease_is_ignored_for_small_results(make: Any) -> None:
    attempt = make.with_attempt(heartbeat_timeout=timedelta(seconds=5))
    pod = make.pod(make.terminated(0, message="1"), attempt=attempt)
    assert outcome_of(make, pod, make.lease(attempt, result="2"), attempt=attempt).result == 1


def test_a_sidecar_init_container_does_not_determine_the_outcome(make: Any) -> None:
    definition = make.activity(
        podTemplate={
            "spec": {
                "containers": [{"name": "activity", "image": "a"}],
                "initContainers": [{"name": "proxy", "image": "b", "restartPolicy": "Always"}],
            }
        }
    )
    pod = make.pod(make.running(), definition=definition, init=(make.terminated(1, name="proxy"),))
    assert isinstance(outcome_of(make, pod, definition=definition), AttemptStarted)


def test_the_activity_container_is_found_by_name(make: Any) -> None:
    definition = make.activity(podTemplate={"spec": {"containers": [{"name": "work", "image": "a"}, {"name": "side"}]}})
    pod = make.pod(make.terminated(1, name="side"), make.terminated(0, name="work"), definition=definition)
    assert isinstance(outcome_of(make, pod, definition=definition), AttemptCompleted)


def test_exceeding_a_storage_limit_is_a_failure(make: Any) -> None:
    text = 'Usage of EmptyDir volume "tmp" exceeds the limit "1Gi".'
    pod = make.pod(make.terminated(137), phase="Failed", reason="Evicted", message=text)
    failure = failure_of(outcome_of(make, pod))
    assert failure.type == "Evicted"
    assert failure.message == (
        f"pod order-42-5-2 failed: Evicted: {text.rstrip('.')}; make it write less, or raise `resources.limits.ephemeral-storage`"
    )


@pytest.mark.parametrize("reason", ["SysctlForbidden", "AppArmor"])
def test_a_definition_rejected_by_the_node_is_a_failure(make: Any, reason: str) -> None:
    failure = failure_of(outcome_of(make, make.pod(phase="Failed", reason=reason, message="not allowed")))
    assert failure.type == reason


def test_the_deadline_of_the_pod_is_a_start_to_close_timeout(make: Any) -> None:
    attempt = make.with_attempt(heartbeat_timeout=timedelta(seconds=5))
    end = make.terminated(143, finishedAt="2026-01-31T12:10:01Z", message=document(cancelled=True, message="SIGTERM"))
    pod = make.pod(end, phase="Failed", reason="DeadlineExceeded", attempt=attempt)
    reported = outcome_of(make, pod, make.lease(attempt, heartbeat_details='{"done": 3}'), attempt=attempt)
    assert failure_of(reported) == Failure(
        kind=FailureKind.TIMEOUT,
        timeout_type=TimeoutType.START_TO_CLOSE,
        message="activity StartToClose timeout after 5m",
        last_heartbeat_details={"done": 3},
    )


def test_the_deadline_applies_while_init_containers_run(make: Any) -> None:
    end = make.terminated(137, name="fetch", finishedAt="2026-01-31T12:10:01Z")
    pod = make.pod(make.waiting("PodInitializing"), phase="Failed", reason="DeadlineExceeded", init=(end,))
    assert failure_of(outcome_of(make, pod)).timeout_type is TimeoutType.START_TO_CLOSE


def test_a_container_that_failed_before_the_deadline_is_a_failure(make: Any) -> None:
    pod = make.pod(make.terminated(3), phase="Failed", reason="DeadlineExceeded")
    assert failure_of(outcome_of(make, pod)).type == "ExitCode3"


NEVER_RAN = {"reason": "ContainerStatusUnknown", "startedAt": None, "finishedAt": None}
"""What the kubelet says at the end of a container that it never started."""


@pytest.mark.parametrize(
    ("reason", "want", "reported"),
    [
        ("container activity: ImagePullBackOff: not found", "ImagePullBackOff", "check that the image exists"),
        ("container activity: ErrImagePull: not found", "ImagePullBackOff", "imagePullSecrets"),
        ("container activity: CreateContainerConfigError: no Secret", "CreateContainerConfigError", "Secrets"),
        ("ContainerCreating", "NotStarted", "describe pod"),
        (None, "NotStarted", "on the node longer than"),
    ],
)
def test_an_attempt_that_never_started_before_the_deadline_fails_with_the_waiting_reason(
    make: Any, reason: str | None, want: str, reported: str
) -> None:
    for end in (make.terminated(137, **NEVER_RAN), make.waiting("ContainerCreating")):
        pod = make.pod(end, phase="Failed", reason="DeadlineExceeded", message="on the node longer than allowed")
        failure = failure_of(outcome_of(make, pod, attempt=make.with_attempt(waiting_reason=reason)))
        assert failure.type == want
        assert reported in failure.message
        assert not failure.non_retryable


def test_a_started_attempt_without_a_known_end_is_lost_at_the_deadline(make: Any) -> None:
    pod = make.pod(make.terminated(137, **NEVER_RAN), phase="Failed", reason="DeadlineExceeded")
    reported = outcome_of(make, pod, attempt=make.with_attempt(started=True))
    assert isinstance(reported, AttemptLost)
    assert reported.failure.details["reason"] == "ContainerStatusUnknown"


def test_an_invalid_image_name_is_not_retried(make: Any) -> None:
    pod = make.pod(make.waiting("InvalidImageName", 'couldn\'t parse "a b"'), phase="Pending")
    failure = failure_of(outcome_of(make, pod))
    assert failure.type == "InvalidImageName"
    assert failure.non_retryable
    assert 'couldn\'t parse "a b"; fix the image name' in failure.message


@pytest.mark.parametrize(
    ("pod", "want"),
    [
        (lambda m: m.pod(m.running("side"), m.terminated(1)), "activity"),
        (lambda m: m.pod(m.waiting("PodInitializing"), init=(m.terminated(1, name="fetch"),)), "fetch"),
        (lambda m: m.pod(m.terminated(0)), None),
        (lambda m: m.pod(m.terminated(137, **NEVER_RAN)), None),
        (lambda m: m.pod(phase="Failed", reason="AppArmor"), None),
    ],
)
def test_failed_container_explains_the_failure(
    make: Any, pod: Callable[[Any], dict[str, Any]], want: str | None
) -> None:
    assert failed_container(make.activity(), pod(make)) == want


# --- Random pods ------------------------------------------------------------------------------------------------------

STATES = st.one_of(
    st.none(),
    st.just({"waiting": {"reason": "ContainerCreating"}}),
    st.just({"running": {"startedAt": "2026-01-31T12:00:10Z"}}),
    st.builds(
        lambda code, reason, message, finished: {
            "terminated": {"exitCode": code, "reason": reason, "message": message, "finishedAt": finished}
        },
        st.integers(0, 255),
        st.sampled_from(["Error", "Completed", "OOMKilled", "ContainerStatusUnknown", ""]),
        st.text(max_size=20),
        st.sampled_from([BEFORE, SAME, AFTER, None, "0001-01-01T00:00:00Z", "nonsense"]),
    ),
)


def _may_follow(end: str | None, request: str) -> bool:
    """Whether a container may have ended after its pod was requested to stop: unless it is known to have ended before."""
    return end not in {BEFORE, SAME, AFTER} or str(end) >= request


@settings(max_examples=300, deadline=None)
@given(
    state=STATES,
    init=STATES,
    phase=st.sampled_from(["Pending", "Running", "Succeeded", "Failed", "Unknown"]),
    reason=st.sampled_from(["", "Evicted", "DeadlineExceeded", "NodeLost", "OutOfcpu", "AppArmor"]),
    condition=st.booleans(),
    deleted=st.sampled_from([None, BEFORE, AFTER]),
    node=st.sampled_from([None, "node-1"]),
)
def test_random_pods_complete_only_with_exit_code_0_and_end_only_when_terminated(
    state: dict[str, Any] | None,
    init: dict[str, Any] | None,
    phase: str,
    reason: str,
    condition: bool,
    deleted: str | None,
    node: str | None,
    maker: Any,
) -> None:
    make = maker
    pod = make.pod(
        *([{"name": "activity", "state": state}] if state else []),
        init=({"name": "fetch", "state": init},) if init else (),
        phase=phase,
        reason=reason,
        node=node,
        deleted_at=deleted,
        conditions=[make.disruption("EvictionByEvictionAPI")] if condition else [],
    )
    reported = outcome_of(make, pod)
    end = state.get("terminated", {}) if state is not None else {}
    ended = end.get("exitCode") == 0
    times = [deleted] if deleted else []
    times += [SAME] if condition else []  # when the condition was set
    stopped = ended and not end["message"].strip() and any(_may_follow(end["finishedAt"], time) for time in times)
    assert isinstance(reported, AttemptCompleted) is (ended and not stopped)
    if stopped:
        assert isinstance(reported, AttemptLost)
    over = ended or phase in {"Succeeded", "Failed", "Unknown"} or deleted or "terminated" in (state or init or {})
    if not over and "terminated" not in (init or {}):
        assert reported is None or isinstance(reported, AttemptStarted)
    if phase == "Failed" or (state is not None and "terminated" in state):
        assert reported is not None, "an attempt that is over never waits"
        assert not isinstance(reported, AttemptStarted)
