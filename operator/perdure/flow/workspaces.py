"""Workspaces of flows: volumes whose files the activities of a run share.

    files = pf.Workspace("files", size="10Gi")

    @build.activity(workspace=files)
    def compile(target: str) -> None:
        subprocess.run(["make", target], cwd=files.path, check=True)

Which folder the path is depends on where the function runs, so that the same code works in a pod, in a local run, and in a test
of the function.
"""

from __future__ import annotations

import atexit
import re
import tempfile
from contextvars import ContextVar
from dataclasses import KW_ONLY, dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Access = Literal["ReadWriteOnce", "ReadWriteMany", "ReadWriteOncePod"]
"""Which pods can use a volume at the same time: those of one node, all, or one pod."""

QUANTITY: Final = re.compile(r"[0-9]+(\.[0-9]+)?([numkMGTPE]|[KMGTPE]i|[eE][0-9]+)?")
"""A quantity of Kubernetes."""
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,48}[a-z0-9])?")
_MOUNTS: Final = Path("/workspaces")
"""Where the pods of activities have their workspaces, each in a folder with its name."""


@dataclass(frozen=True, slots=True)
class Workspace:
    """A volume whose files the activities of a run share, also those with other images."""

    name: str
    """Its name: lowercase letters, digits, and `-`. In a run, workspaces of the same name are one."""
    _: KW_ONLY
    size: str | None = None
    """The size of the volume that each run gets, such as `10Gi`."""
    access: Access = "ReadWriteOnce"
    """Which pods can use that volume at the same time."""
    storage_class: str | None = None
    """Its StorageClass; None: the default one of the cluster."""
    keep: bool = False
    """Whether it stays until a run that succeeded is deleted, so that `perdure retry --from` finds the files."""
    claim: str | None = None
    """Name of a PersistentVolumeClaim that exists, which all runs share; in place of `size`."""
    writable: bool = True
    """Whether activities that mount it can write."""

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            ValueError: One is not valid.
        """
        name: object = self.name
        size: object = self.size
        if not (isinstance(name, str) and _NAME.fullmatch(name)):
            raise ValueError(f"the name of a workspace must have lowercase letters, digits, and `-`, not {self.name!r}")
        of = f"of the workspace `{self.name}`"
        if (self.size is None) == (self.claim is None):
            raise ValueError(f"give `size` {of}, such as `10Gi`, or `claim`, the name of a PersistentVolumeClaim")
        if size is not None and not (isinstance(size, str) and QUANTITY.fullmatch(size)):
            raise ValueError(f"`size` {of} must be a quantity of Kubernetes such as `10Gi`, not {self.size!r}")
        if self.access not in get_args(Access):
            raise ValueError(f"`access` {of} must be {', '.join(get_args(Access))}, not {self.access!r}")

    @property
    def read_only(self) -> Workspace:
        """The same workspace, for activities that only read: `@build.activity(workspace=files.read_only)`."""
        return replace(self, writable=False)

    @property
    def path(self) -> Path:
        """Its folder, in an activity that mounts it. In a function that is called directly, a temporary folder.

        Raises:
            RuntimeError: The activity does not mount it, or this is a flow.
        """
        folders = FOLDERS.get()
        if folders is None:
            return _temporary(self.name)
        if self.name not in folders:
            raise RuntimeError(
                f"the workspace `{self.name}` is not here: only activities with `workspace=…` of it have its files"
            )
        return folders[self.name]

    def __fspath__(self) -> str:
        """Return the path, so that `os.listdir(files)` works in an activity."""
        return str(self.path)


FOLDERS: ContextVar[Mapping[str, Path] | None] = ContextVar("perdure.workspaces", default=None)
"""The folders of the workspaces that the activity mounts, by name; None where functions are called directly."""


def folders_in_pod(mounted: Iterable[Workspace]) -> dict[str, Path]:
    """Return where a pod has its workspaces."""
    return {each.name: _MOUNTS / each.name for each in mounted}


@cache
def _temporary(name: str) -> Path:
    """Return the folder of a workspace for functions that this process calls directly; it is deleted at the end."""
    folder = tempfile.TemporaryDirectory(prefix=f"perdure-{name}-")
    atexit.register(folder.cleanup)
    return Path(folder.name)


def workspaces_of(activities: Iterable[tuple[str, Iterable[Workspace]]]) -> list[dict[str, Any]]:
    """Return the field of a Workflow with the workspaces that its activities mount.

    Args:
        activities: The name of each activity, and what it mounts.

    Raises:
        ValueError: Two workspaces have the same name, but differ.
    """
    found: dict[str, Workspace] = {}
    for activity, mounted in activities:
        for each in mounted:
            known = found.setdefault(each.name, replace(each, writable=True))
            if known != replace(each, writable=True):
                raise ValueError(
                    f"the activity `{activity}` mounts another workspace named `{each.name}` than the others"
                )
    return [_manifest(each) for each in found.values()]


def _manifest(workspace: Workspace) -> dict[str, Any]:
    if workspace.claim is not None:
        return {"name": workspace.name, "persistentVolumeClaim": {"claimName": workspace.claim}}
    spec: dict[str, Any] = {
        "accessModes": [workspace.access],
        "resources": {"requests": {"storage": workspace.size}},
    }
    if workspace.storage_class is not None:
        spec["storageClassName"] = workspace.storage_class
    kept: dict[str, Any] = {"retention": {"onSuccess": "Keep"}} if workspace.keep else {}
    return {"name": workspace.name, "volumeClaimTemplate": {"spec": spec}, **kept}


def mounts_of(mounted: Iterable[Workspace]) -> list[dict[str, Any]]:
    """Return the field of an activity with the workspaces that it mounts."""
    return [{"name": each.name} if each.writable else {"name": each.name, "readOnly": True} for each in mounted]
