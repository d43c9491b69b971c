"""Converts the workspaces of a task of Tekton to volumes of its pods or workspaces of Perdure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from perdure.importing.field_reader import Fields, Object
from perdure.importing.tekton_scope import VARIABLE


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


class TaskWorkspaces:
    """The converted workspaces that a task declares."""

    def __init__(
        self, declared: Sequence[Fields], bound: Mapping[str, WorkspaceBinding], *, several_steps: bool
    ) -> None:
        self._several_steps = several_steps
        self.paths: dict[str, str] = {}
        """The values of the variables of workspaces."""
        self.volumes: list[Object] = []
        self.mounts: list[Object] = []
        """The mounts of volumes, in all steps."""
        self.in_last_step: list[Object] = []
        """The mounts of workspaces of Perdure in the last step, which is the container of the activity."""
        self.in_other_steps: list[Object] = []
        """The mounts of workspaces of Perdure in the other steps."""
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
            mount: Object = {"name": binding.workspace, "mountPath": path, **read_only, **sub_path}
            self.in_last_step.append(mount)
            self.in_other_steps.append({**mount, "name": f"workspace-{binding.workspace}"})
        elif binding.source:
            self.volumes.append({"name": f"ws-{name}", **binding.source})
            self.mounts.append({"name": f"ws-{name}", "mountPath": path, **sub_path, **read_only})
