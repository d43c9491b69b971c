"""The order of the containers in a pod template: each starts when the containers in its `needs` have succeeded."""

from collections.abc import Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Any, Final

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
    given = {name: _needed(i, each, names) for i, (name, each) in enumerate(zip(names, containers, strict=True))}
    needed = {other for needs in given.values() for other in needs}
    for i, (name, each) in enumerate(zip(names, containers, strict=True)):
        own = name in needed or NEEDS in each
        if own and not name:
            raise ContainerOrderError(f"containers[{i}].name", "must be set, because the container has `needs`")
        if (name in needed or given[name]) and not each.get("command"):
            raise ContainerOrderError(
                f"containers[{i}].command",
                f"must be set: a shell of the image starts the command, because container `{name}` needs others, or "
                "others need it",
            )
    try:
        tuple(TopologicalSorter(given).static_order())
    except CycleError as error:
        cycle = " → ".join(f"`{name}`" for name in reversed(error.args[1]))
        where = names.index(error.args[1][0])
        raise ContainerOrderError(f"containers[{where}].{NEEDS}", f"the containers need each other: {cycle}") from error
    return {
        name: given[name]
        for i, (name, each) in enumerate(zip(names, containers, strict=True))
        if i == 0 or name in needed or NEEDS in each
    }


def _needed(index: int, container: Mapping[str, Any], names: Sequence[str]) -> list[str]:
    field, given = f"containers[{index}].{NEEDS}", container.get(NEEDS, [])
    if not isinstance(given, list):
        raise ContainerOrderError(field, "must be a list of names of other containers")
    for i, other in enumerate(given):
        if not isinstance(other, str) or not other or other not in names:
            known = ", ".join(f"`{name}`" for name in names if name)
            raise ContainerOrderError(f"{field}[{i}]", f"`{other}` is not a container of the pod; there are {known}")
    return list(dict.fromkeys(given))
