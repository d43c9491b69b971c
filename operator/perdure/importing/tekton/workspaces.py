"""Converts the workspaces of a task of Tekton to volumes of its pods or workspaces of Perdure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from perdure.importing.reader import Fields, Object
from perdure.importing.tekton.variables import VARIABLE


@dataclass(frozen=True, slots=True)
class WorkspaceBinding:
    """A workspace, mounted into the pods of a task."""

    source: Mapping[str, Any]
    """The volume, without its name; empty if the workspace is not bound."""
    sub_path: str = ""
    workspace: str = ""
    """The name of the workspace of Perdure; empty for a volume of the pods."""

    @property
    def is_bound(self) -> bool:
        """Whether there is a volume."""
        return bool(self.source or self.workspace)


@dataclass(frozen=True, slots=True)
class StepUses:
    """The workspaces that a step uses."""

    listed: Mapping[str, str]
    """Those that it lists, each with the path of its mount; empty for the path of the task."""
    isolated: frozenset[str]
    """Those that only the steps that list them use."""

    @classmethod
    def read(cls, step: Object, isolated: frozenset[str]) -> "StepUses":
        """Read the `workspaces` of a step, or of a sidecar."""
        return cls(dict(_listed_names(step)), isolated)

    def of(self, mounts: Mapping[str, Object]) -> list[Object]:
        """Select its mounts."""
        return [
            {**mount, "mountPath": self.listed.get(name) or mount["mountPath"]}
            for name, mount in mounts.items()
            if name in self.listed or name not in self.isolated
        ]


def isolated_workspaces(parts: Iterable[Object]) -> frozenset[str]:
    """Return the workspaces that steps or sidecars list: Tekton mounts them only there."""
    return frozenset(name for part in parts for name, _ in _listed_names(part))


def _listed_names(part: Object) -> Iterator[tuple[str, str]]:
    for each in part.get("workspaces") or []:
        fields = {key.lower(): value for key, value in each.items()}  # Tekton ignores the case of fields
        yield str(fields.get("name")), str(fields.get("mountpath") or "")


class TaskWorkspaces:
    """The converted workspaces that a task declares."""

    def __init__(
        self, declared: Sequence[Fields], bound: Mapping[str, WorkspaceBinding], *, several_steps: bool
    ) -> None:
        self._several_steps = several_steps
        self.paths: dict[str, str] = {}
        """The values of the variables of workspaces."""
        self.volumes: list[Object] = []
        self._mounts: dict[str, Object] = {}
        """The mounts of volumes, by the name of the workspace."""
        self._own: dict[str, Object] = {}
        """The mounts of workspaces of Perdure, by the name of the workspace."""
        for each in declared:
            name = each.text("name") or ""
            self._add(each, name, bound.get(name))

    def _add(self, declared: Fields, name: str, binding: WorkspaceBinding | None) -> None:
        path = declared.text("mountPath") or f"/workspace/{name}"
        optional = declared.take("optional", False)
        read_only: Object = {"readOnly": True} if declared.take("readOnly", False) else {}
        declared.drop("description")
        declared.done({})
        bound = binding is not None and binding.is_bound
        self.paths[f"workspaces.{name}.path"] = path if bound else ""
        self.paths[f"workspaces.{name}.bound"] = "true" if bound else "false"
        self.paths[f"workspaces.{name}.volume"] = f"ws-{name}" if bound else ""
        if binding is None:
            if not optional:
                declared.gap("", "is not bound; import it together with the run that binds it")
            return
        sub_path: Object = {"subPath": binding.sub_path} if binding.sub_path else {}
        if binding.workspace:
            if sub_path and self._several_steps and VARIABLE.search(binding.sub_path):
                declared.gap("subPath", "must be known before the run if the task has several steps; write it here")
            self._own[name] = {"name": binding.workspace, "mountPath": path, **read_only, **sub_path}
        elif binding.source:
            self.volumes.append({"name": f"ws-{name}", **binding.source})
            self._mounts[name] = {"name": f"ws-{name}", "mountPath": path, **sub_path, **read_only}

    def of_activity(self, uses: StepUses) -> list[Object]:
        """Return the workspaces of Perdure for the last step, which is the container of the activity.

        Args:
            uses: The workspaces of that step.
        """
        return uses.of(self._own)

    def mounts(self, uses: StepUses, *, is_last: bool) -> list[Object]:
        """Return the mounts of a step, or of a sidecar.

        Args:
            uses: Its workspaces.
            is_last: Whether it is the last step.
        """
        own = [] if is_last else uses.of(self._own)
        return [*uses.of(self._mounts), *({**each, "name": f"workspace-{each['name']}"} for each in own)]
