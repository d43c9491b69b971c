"""For people: what a pod that has not started its activity is waiting for."""

import re
from typing import Any, Final

from perdure.api.workflow import Activity
from perdure.runtime.attempts import KubeObject
from perdure.runtime.pods import main_container_name
from perdure.runtime.statuses import PodStatus

_LIMIT: Final = 512
_ORDINARY: Final = frozenset({"ContainerCreating", "PodInitializing"})
"""What the kubelet says while all goes well."""
_NO_NODE_YET: Final = "waiting for a node"
_INIT: Final = "init container "


def waiting_reason(pod: KubeObject, definition: Activity) -> str | None:
    """Tell what a pod waits for, as shown beside a pending activity.

    Args:
        pod: A Pod as the API server has it.
        definition: The activity's definition.

    Returns:
        For instance `container activity: ImagePullBackOff: Back-off pulling image "x"`; None where the activity's container
        has started, or the pod has ended.
    """
    status = PodStatus.of(pod)
    main = main_container_name(definition)
    if status.phase in {"Succeeded", "Failed"} or status.running_since(main) or status.ended(main):
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


def hinders(reason: str) -> bool:
    """Tell whether what a pod waits for is in its way, rather than its way of starting.

    Args:
        reason: What `waiting_reason` says.

    Returns:
        True for instance for an image that cannot be pulled, or where no node has room.
    """
    return reason not in {*_ORDINARY, _NO_NODE_YET} and not reason.startswith(_INIT)


IMAGE_PULL_FAILED: Final = "ImagePullBackOff"
"""The type of failures for want of an image; the kubelet has other words for single tries."""
_IMAGE_WORDS: Final = frozenset(
    {"ErrImagePull", "ErrImageNeverPull", "ImageInspectError", "RegistryUnavailable", "SignatureValidationFailed"}
)
_NEVER: Final = frozenset({"InvalidImageName"})
"""What waiting does not help against: the pod would have to be another one."""


def waits_in_vain(pod: KubeObject) -> str | None:
    """Tell whether a pod waits for what will never be.

    Args:
        pod: A Pod as the API server has it.

    Returns:
        Kubernetes' word for it, `InvalidImageName`; None where waiting may help.
    """
    status = PodStatus.of(pod)
    words = (
        ((item.get("state") or {}).get("waiting") or {}).get("reason")
        for item in (*status.init_containers, *status.containers)
    )
    return next((word for word in words if word in _NEVER), None)


def waiting_word(reason: str | None) -> str | None:
    """Kubernetes' word in what `waiting_reason` has told: `ImagePullBackOff`, `CreateContainerConfigError`; None: none."""
    match = re.match(r"container \S+: ([A-Za-z]+)", reason or "")
    if match is None:
        return None
    return IMAGE_PULL_FAILED if match[1] in _IMAGE_WORDS else match[1]


def remedy(word: str | None) -> str:
    """What to do about a pod that does not start for that reason."""
    match word:
        case "InvalidImageName":
            return "mend the name of the image"
        case "ImagePullBackOff":
            return "see whether the image exists, and whether its registry lets the node have it (`imagePullSecrets`)"
        case "CreateContainerConfigError":
            return "see whether the ConfigMaps, Secrets and users that the container names exist"
        case _:
            return "`kubectl describe pod` tells more"


def _sentence(beginning: str, source: dict[str, Any]) -> str:
    message = str(source.get("message") or "")
    return (f"{beginning}: {message}" if message else beginning)[:_LIMIT]
