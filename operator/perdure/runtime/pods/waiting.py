"""The reason why a pod has not started its activity, for users."""

import re
from typing import Any, Final

from perdure.api.kinds.workflow import Activity
from perdure.runtime.attempts import KubeObject
from perdure.runtime.pods.builder import main_container_name
from perdure.runtime.pods.groups import ContainerGroup
from perdure.runtime.pods.status import PodStatus

_LIMIT: Final = 512
_ORDINARY: Final = frozenset({"ContainerCreating", "PodInitializing"})
"""Reasons of the kubelet during a normal start."""
_NO_NODE_YET: Final = "waiting for a node"
_INIT: Final = "init container "


def waiting_reason(pod: KubeObject, definition: Activity) -> str | None:
    """Return why a pod waits, as shown with a pending activity.

    Args:
        pod: A Pod as the API server returned it.
        definition: The activity's definition.

    Returns:
        For example `container activity: ImagePullBackOff: Back-off pulling image "x"`; None if the activity's container
        has started or the pod has ended.
    """
    status = PodStatus.of(pod)
    group = ContainerGroup.of(pod, main_container_name(definition))
    if status.phase in {"Succeeded", "Failed"} or group.running_since(status) or group.ended(status):
        return None
    scheduled = status.condition("PodScheduled")
    if scheduled is not None and scheduled.get("status") == "False":
        return _sentence(str(scheduled.get("reason") or "Unschedulable"), scheduled)
    waits = [(item, (item.get("state") or {}).get("waiting")) for item in (*status.init_containers, *status.containers)]
    blocked = [(item, wait) for item, wait in waits if wait and wait.get("reason") not in _ORDINARY | {None}]
    if blocked:
        item, wait = blocked[0]
        return _sentence(f"container {item.get('name')}: {wait['reason']}", wait)
    for item in status.init_containers:
        if "running" in (item.get("state") or {}) and item.get("name") not in status.sidecars:
            return f"{_INIT}{item.get('name')} is running"
    return "ContainerCreating" if status.node is not None else _NO_NODE_YET


def is_problem(reason: str) -> bool:
    """Return whether a problem keeps the pod from starting, rather than a normal phase of its start.

    Args:
        reason: The result of `waiting_reason`.

    Returns:
        True, for example, if an image cannot be pulled or no node has room.
    """
    return reason not in {*_ORDINARY, _NO_NODE_YET} and not reason.startswith(_INIT)


IMAGE_PULL_FAILED: Final = "ImagePullBackOff"
"""The type of failures caused by a missing image; the kubelet uses other reasons for single attempts."""
_IMAGE_REASONS: Final = frozenset(
    {"ErrImagePull", "ErrImageNeverPull", "ImageInspectError", "RegistryUnavailable", "SignatureValidationFailed"}
)
_NEVER: Final = frozenset({"InvalidImageName"})
"""Reasons that never resolve: only a different pod would start."""


def permanent_reason(pod: KubeObject) -> str | None:
    """Return the reason for which a pod can never start.

    Args:
        pod: A Pod as the API server returned it.

    Returns:
        Kubernetes' reason, `InvalidImageName`; None if the pod may still start.
    """
    status = PodStatus.of(pod)
    reasons = (
        ((item.get("state") or {}).get("waiting") or {}).get("reason")
        for item in (*status.init_containers, *status.containers)
    )
    return next((reason for reason in reasons if reason in _NEVER), None)


def kubernetes_reason(reason: str | None) -> str | None:
    """Return Kubernetes' reason in a result of `waiting_reason`, such as `ImagePullBackOff`; None if it has none."""
    match = re.match(r"container \S+: ([A-Za-z]+)", reason or "")
    if match is None:
        return None
    return IMAGE_PULL_FAILED if match[1] in _IMAGE_REASONS else match[1]


def remedy(reason: str | None) -> str:
    """Return what to do about a pod that does not start for this reason."""
    match reason:
        case "InvalidImageName":
            return "fix the image name"
        case "ImagePullBackOff":
            return "check that the image exists and that the node can pull it (`imagePullSecrets`)"
        case "CreateContainerConfigError":
            return "check that the ConfigMaps, Secrets, and users that the container names exist"
        case _:
            return "`kubectl describe pod` shows more"


def _sentence(subject: str, source: dict[str, Any]) -> str:
    message = str(source.get("message") or "")
    return (f"{subject}: {message}" if message else subject)[:_LIMIT]
