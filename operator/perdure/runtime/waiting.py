"""For people: what a pod that has not started its activity is waiting for."""

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


def _sentence(beginning: str, source: dict[str, Any]) -> str:
    message = str(source.get("message") or "")
    return (f"{beginning}: {message}" if message else beginning)[:_LIMIT]
