"""The pod of an activity, as manifests know it: the names in it that are reserved for Perdure, and the order of its containers.

Each container starts when the containers in its `needs` have succeeded.
"""

from collections.abc import Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Any, Final

VOLUME: Final = "perdure"
"""The volume with the input, and with the details of the last heartbeat."""

MOUNT_PATH: Final = "/perdure"
"""Where the container of the activity mounts it."""

SCRIPT_PATH: Final = f"{MOUNT_PATH}/script"
"""The file with the script of the activity."""

WORK_PATH: Final = f"{MOUNT_PATH}/work.json"
"""The file with the HTTP request or the action of the activity, JSON."""

DEFAULT_CONTAINER: Final = "activity"
"""Name of the container of the activity if the user does not set one."""

SIDECAR: Final = "perdure-sidecar"
"""The sidecar container, and the volume that it shares with the container of the activity."""

FILES_PATH: Final = "/perdure-files"
"""Where both containers mount the shared volume."""

ACCOUNT_VOLUME: Final = "perdure-account"
"""The volume with the token of the sidecar."""

WORKSPACE_VOLUME: Final = "workspace-"
"""The beginning of the names of the volumes that workspaces are."""

ARTIFACTS: Final = "perdure-artifacts"
"""The init container that prepares artifacts, and the volume that it fills."""

ARTIFACTS_PATH: Final = "/perdure-artifacts"
"""Where that container mounts the volume."""

OUTPUTS: Final = "perdure-outputs"
"""The sidecar that uploads output artifacts, and the volume that the container of the activity writes them to."""

LOG: Final = "perdure-log"
"""The volume with the copy of the activity's log that the sidecar stores."""

LOG_PATH: Final = "/perdure-log"
"""Where the container of the activity and that sidecar mount it."""

RESULT_PATH: Final = "/perdure-result"
"""The folder of a large result in the container of the activity."""

RESULT_FILE: Final = f"{RESULT_PATH}/result.json"
"""The file with a large result."""

OUTPUTS_PATH: Final = "/perdure-outputs"
"""Where that sidecar mounts the folders of output artifacts, each at the path that it has in the container."""

ORDER: Final = "perdure-order"
"""The volume in which the containers of an activity record that they have ended, if some wait for others."""

ORDER_PATH: Final = "/perdure-order"
"""Where these containers mount it."""


NEEDS: Final = "needs"
"""The field of a container."""


class ContainerOrderError(ValueError):
    """The containers have no valid order."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field
        """The field, such as `containers[1].needs`."""
        self.message = message


def needs_of(containers: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Return the containers that are parts of the activity, with the containers that each one needs.

    These are the first container, those with `needs`, and those that others need.

    Args:
        containers: The containers of a pod. The first one is the activity.

    Returns:
        By name, in the order of the list; empty if no container has `needs`.

    Raises:
        ContainerOrderError: The containers have no valid order.
    """
    if not any(NEEDS in each for each in containers):
        return {}
    names = [str(each.get("name") or "") for each in containers]
    needs = {name: _needed(i, each, names) for i, (name, each) in enumerate(zip(names, containers, strict=True))}
    needed = {other for others in needs.values() for other in others}
    for i, (name, each) in enumerate(zip(names, containers, strict=True)):
        is_ordered = name in needed or NEEDS in each
        if is_ordered and not name:
            raise ContainerOrderError(f"containers[{i}].name", "must be set, because the container has `needs`")
        if (name in needed or needs[name]) and not each.get("command"):
            raise ContainerOrderError(
                f"containers[{i}].command",
                f"must be set: a shell of the image starts the command, because container `{name}` needs others, or "
                "others need it",
            )
    try:
        tuple(TopologicalSorter(needs).static_order())
    except CycleError as error:
        cycle = " → ".join(f"`{name}`" for name in reversed(error.args[1]))
        where = names.index(error.args[1][0])
        raise ContainerOrderError(f"containers[{where}].{NEEDS}", f"the containers need each other: {cycle}") from error
    return {
        name: needs[name]
        for i, (name, each) in enumerate(zip(names, containers, strict=True))
        if i == 0 or name in needed or NEEDS in each
    }


def _needed(index: int, container: Mapping[str, Any], names: Sequence[str]) -> list[str]:
    field, needs = f"containers[{index}].{NEEDS}", container.get(NEEDS, [])
    if not isinstance(needs, list):
        raise ContainerOrderError(field, "must be a list of names of other containers")
    for i, other in enumerate(needs):
        if not isinstance(other, str) or not other or other not in names:
            known = ", ".join(f"`{name}`" for name in names if name)
            raise ContainerOrderError(f"{field}[{i}]", f"`{other}` is not a container of the pod; there are {known}")
    return list(dict.fromkeys(needs))
