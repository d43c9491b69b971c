"""For people: what a pod that has not started its activity is waiting for."""

from typing import Any, Final

from perdure.api.workflow import Activity
from perdure.runtime.attempts import KubeObject
from perdure.runtime.pods import main_container_name
from perdure.runtime.statuses import PodStatus

_LIMIT: Final = 512
_ORDINARY: Final = frozenset({"ContainerCreating", "PodInitializing"})
"""What the kubelet says while all goes well."""


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
            return f"init container {item.get('name')} is running"
    return "ContainerCreating" if status.node is not None else "waiting for a node"


def _sentence(beginning: str, source: dict[str, Any]) -> str:
    message = str(source.get("message") or "")
    return (f"{beginning}: {message}" if message else beginning)[:_LIMIT]
