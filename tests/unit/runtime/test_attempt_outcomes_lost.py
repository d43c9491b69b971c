"""Lost attempts: their nodes, pods, or containers no longer exist."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from perdure.engine.failures import FailureKind
from perdure.engine.inputs import AttemptCompleted, AttemptLost, AttemptStarted
from perdure.runtime.attempt_outcomes import outcome, recheck_time
from unit.runtime.attempt_outcomes import AFTER, BEFORE, SAME, STARTED, document, failure_of, outcome_of


@pytest.mark.parametrize(
    ("pod", "want_reason"),
    [
        pytest.param(lambda _m: None, "PodGone", id="the pod does not exist"),
        pytest.param(
            lambda m: m.pod(m.terminated(143), phase="Failed", deleted_at=BEFORE), "PodDeleted", id="someone deleted it"
        ),
        pytest.param(
            lambda m: m.pod(m.terminated(1), phase="Failed", deleted_at=SAME),
            "PodDeleted",
            id="someone deleted it in the second in which it failed",
        ),
        pytest.param(
            lambda m: m.pod(m.terminated(137), phase="Failed", deleted_at=AFTER, grace=0),
            "PodDeleted",
            id="someone deleted it, and the kubelet deleted it again when its containers had ended",
        ),
        pytest.param(
            lambda m: m.pod(m.terminated(1, message=document(cancelled=True)), deleted_at=BEFORE),
            "PodDeleted",
            id="the activity answered to the deletion",
        ),
        pytest.param(
            lambda m: m.pod(m.waiting("ContainerCreating"), phase="Failed", deleted_at=BEFORE),
            "PodDeleted",
            id="someone deleted it while its image was pulled",
        ),
        pytest.param(
            lambda m: m.pod(phase="Pending", node=None, deleted_at=BEFORE), "PodDeleted", id="deleted without a node"
        ),
        pytest.param(
            lambda m: m.pod(m.running(), deleted_at="2026-01-31T12:01:00Z"),
            "NodeLost",
            id="deleted, without a further status",
        ),
        *(
            pytest.param(
                lambda m, reason=reason: m.pod(
                    m.terminated(137), phase="Failed", deleted_at=BEFORE, conditions=[m.disruption(reason, at=BEFORE)]
                ),
                reason,
                id=f"disrupted: {reason}",
            )
            for reason in (
                "PreemptionByScheduler",
                "DeletionByTaintManager",
                "EvictionByEvictionAPI",
                "DeletionByPodGC",
                "TerminationByKubelet",
            )
        ),
        pytest.param(
            lambda m: m.pod(
                m.terminated(137), phase="Failed", reason="Evicted", conditions=[m.disruption("TerminationByKubelet")]
            ),
            "TerminationByKubelet",
            id="evicted because the node ran short",
        ),
        pytest.param(
            lambda m: m.pod(m.running(), phase="Failed", conditions=[m.disruption("DeletionByPodGC")]),
            "DeletionByPodGC",
            id="collected after its node vanished",
        ),
        pytest.param(
            lambda m: m.pod(
                m.terminated(143, message=document(cancelled=True)),
                phase="Failed",
                conditions=[m.disruption("EvictionByEvictionAPI", at=BEFORE)],
            ),
            "EvictionByEvictionAPI",
            id="the activity stopped when its node was drained",
        ),
        *(
            pytest.param(
                lambda m, r=reason: m.pod(m.terminated(143), phase="Failed", reason=r), reason, id=f"node: {reason}"
            )
            for reason in ("Preempting", "NodeLost", "Terminated", "NodeShutdown")
        ),
        *(
            pytest.param(lambda m, r=reason: m.pod(phase="Failed", reason=r), reason, id=f"refused: {reason}")
            for reason in ("UnexpectedAdmissionError", "NodeAffinity", "OutOfcpu", "OutOfpods", "NodeName", "Later")
        ),
        pytest.param(lambda m: m.pod(phase="Failed"), "PodFailed", id="failed without a message"),
        pytest.param(
            lambda m: m.pod(m.terminated(137, reason="ContainerStatusUnknown", finishedAt=None), phase="Failed"),
            "ContainerStatusUnknown",
            id="the kubelet lost track of the container",
        ),
        pytest.param(
            lambda m: m.pod(m.terminated(255, reason="Unknown"), phase="Failed"),
            "ContainerStatusUnknown",
            id="the node was restarted",
        ),
        pytest.param(
            lambda m: m.pod(
                m.waiting("PodInitializing"), phase="Failed", init=(m.terminated(255, name="i", reason="Unknown"),)
            ),
            "ContainerStatusUnknown",
            id="the node was restarted while an init container ran",
        ),
        pytest.param(lambda m: m.pod(phase="Succeeded"), "NoProof", id="a phase without containers proves nothing"),
        pytest.param(lambda m: m.pod(m.running(), phase="Unknown"), "NodeLost", id="the node does not respond"),
    ],
)
def test_disruptions_lose_the_attempt(make: Any, pod: Callable[[Any], dict[str, Any] | None], want_reason: str) -> None:
    reported = outcome_of(make, pod(make))
    assert isinstance(reported, AttemptLost), reported
    assert reported.failure.kind is FailureKind.SERVER
    assert reported.failure.details["reason"] == want_reason
    assert not reported.failure.non_retryable


POLITE: list[Any] = [
    pytest.param({"deleted_at": SAME}, id="someone deleted the pod"),
    pytest.param({"deleted_at": BEFORE}, id="someone deleted the pod a second earlier"),
]


@pytest.mark.parametrize("options", POLITE)
def test_a_stopped_container_without_a_result_is_lost_although_it_exits_with_0(
    make: Any, options: dict[str, Any]
) -> None:
    """argo-workflows#12231."""
    reported = outcome_of(make, make.pod(make.terminated(0), phase="Succeeded", **options))
    assert isinstance(reported, AttemptLost)
    assert reported.failure.details["reason"] == "StoppedWithoutResult"
    evicted = make.pod(
        make.terminated(0), phase="Succeeded", conditions=[make.disruption("EvictionByEvictionAPI", at=SAME)]
    )
    assert isinstance(outcome_of(make, evicted), AttemptLost)


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(lambda m: m.pod(m.terminated(0, message='"all"'), deleted_at=BEFORE), id="it left its result"),
        pytest.param(lambda m: m.pod(m.terminated(0), deleted_at=AFTER), id="it was deleted after its end"),
        pytest.param(
            lambda m: m.pod(m.terminated(0), conditions=[m.disruption("EvictionByEvictionAPI", at=AFTER)]),
            id="its node was drained after its end",
        ),
        pytest.param(
            lambda m: m.pod(m.terminated(0), conditions=[m.disruption("PreemptionByScheduler", status="False")]),
            id="a disruption that was called off",
        ),
    ],
)
def test_a_container_that_finished_its_work_is_not_lost(make: Any, pod: Callable[[Any], dict[str, Any]]) -> None:
    assert isinstance(outcome_of(make, pod(make)), AttemptCompleted)


def test_a_cancelled_activity_may_end_with_0(make: Any) -> None:
    pod = make.pod(make.terminated(0), phase="Succeeded", deleted_at=BEFORE)
    reported = outcome(make.attempt, make.activity(), pod, now=make.now, stopping=True)
    assert isinstance(reported, AttemptCompleted)


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(lambda m: m.pod(m.terminated(1), phase="Failed", deleted_at=AFTER), id="someone deleted the pod"),
        pytest.param(
            lambda m: m.pod(m.terminated(1), phase="Failed", deleted_at="2026-01-31T12:01:31Z", grace=0),
            id="someone deleted the pod, and so did the kubelet, longer after its end than a grace period lasts",
        ),
        pytest.param(
            lambda m: m.pod(
                m.terminated(1), phase="Failed", conditions=[m.disruption("EvictionByEvictionAPI", at=AFTER)]
            ),
            id="its node was drained",
        ),
        pytest.param(
            lambda m: m.pod(
                m.terminated(1), conditions=[m.disruption("PreemptionByScheduler", at=BEFORE, status="False")]
            ),
            id="a disruption that was called off",
        ),
    ],
)
def test_a_failure_before_a_disruption_is_a_failure(make: Any, pod: Callable[[Any], dict[str, Any]]) -> None:
    assert failure_of(outcome_of(make, pod(make))).type == "ExitCode1"


def test_a_loss_has_a_message_with_cause_and_node(make: Any) -> None:
    pod = make.pod(make.terminated(137), phase="Failed", conditions=[make.disruption("PreemptionByScheduler")])
    reported = outcome_of(make, pod)
    assert reported.failure.message == (
        "pod order-42-5-2 was disrupted on node node-1: PreemptionByScheduler: told by PreemptionByScheduler"
    )
    assert reported.failure.details == {"reason": "PreemptionByScheduler", "node": "node-1"}
    assert reported.started_time == STARTED


def test_braces_in_a_message_of_the_kubelet_are_literal(make: Any) -> None:
    reported = outcome_of(make, make.pod(phase="Failed", reason="OutOfcpu", message="{pod} {0} {"))
    assert reported.failure.message.endswith("OutOfcpu: {pod} {0} {")


def test_an_unresponsive_node_gets_some_time(make: Any) -> None:
    pod = make.pod(make.running(), deleted_at="2026-01-31T12:00:20Z", grace=30)
    when = recheck_time(pod)
    assert when == datetime(2026, 1, 31, 12, 1, 20, tzinfo=UTC)
    assert isinstance(outcome_of(make, pod, now=when - timedelta(microseconds=1)), AttemptStarted)
    assert isinstance(outcome_of(make, pod, now=when), AttemptLost)


def test_a_pod_that_is_not_terminating_has_no_recheck_time(make: Any) -> None:
    assert recheck_time(make.pod(make.running())) is None
