"""Messages about pods that have not started."""

from collections.abc import Callable
from typing import Any

import pytest

from perdure.runtime.pods.status import is_problem, waiting_reason


@pytest.mark.parametrize(
    ("pod", "want"),
    [
        pytest.param(lambda m: m.pod(phase="Pending", node=None), "waiting for a node", id="not scheduled yet"),
        pytest.param(
            lambda m: m.pod(
                phase="Pending",
                node=None,
                conditions=[
                    {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}
                ],
            ),
            "Unschedulable: 0/3 nodes",
            id="no node fits",
        ),
        pytest.param(
            lambda m: m.pod(m.waiting("ImagePullBackOff", "Back-off"), phase="Pending"),
            "container activity: ImagePullBackOff: Back-off",
            id="no image",
        ),
        pytest.param(
            lambda m: m.pod(
                m.waiting("PodInitializing"), phase="Pending", init=(m.waiting("ErrImagePull", name="fetch"),)
            ),
            "container fetch: ErrImagePull",
            id="no image for an init container",
        ),
        pytest.param(
            lambda m: m.pod(m.waiting("PodInitializing"), phase="Pending", init=(m.running("fetch"),)),
            "init container fetch is running",
            id="an init container runs",
        ),
        pytest.param(
            lambda m: m.pod(m.waiting("ContainerCreating"), phase="Pending"),
            "ContainerCreating",
            id="the ordinary wait",
        ),
        pytest.param(lambda m: m.pod(phase="Pending"), "ContainerCreating", id="no status of the kubelet"),
        pytest.param(lambda m: m.pod(m.running()), None, id="it runs"),
        pytest.param(lambda m: m.pod(m.terminated(1)), None, id="it ended"),
        pytest.param(lambda m: m.pod(phase="Failed"), None, id="the pod ended"),
    ],
)
def test_a_waiting_pod_has_a_reason(make: Any, pod: Callable[[Any], dict[str, Any]], want: str | None) -> None:
    assert waiting_reason(pod(make), "activity") == want


@pytest.mark.parametrize(
    ("reason", "want"),
    [
        ("container activity: ImagePullBackOff: no such image", True),
        ("container fetch: ErrImagePull", True),
        ("Unschedulable: 0/3 nodes are available", True),
        ("exceeded quota", True),
        ("ContainerCreating", False),
        ("waiting for a node", False),
        ("init container fetch is running", False),
    ],
)
def test_only_lasting_reasons_block_a_pod(reason: str, want: bool) -> None:
    assert is_problem(reason) is want


def test_a_long_message_is_shortened(make: Any) -> None:
    reason = waiting_reason(make.pod(make.waiting("ErrImagePull", "x" * 9999), phase="Pending"), "activity")
    assert reason is not None
    assert len(reason) == 512
