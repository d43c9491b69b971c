"""Workspaces: volumes for the files that the activities of a run share."""

from enum import StrEnum
from typing import Annotated

from pydantic import ConfigDict, Field

from perdure.api.fields import Flag, JsonObject, Reference, ResourceName, Template, set_list
from perdure.api.models import SpecModel
from perdure.api.rules import Rule, exactly_one_of

MAX_WORKSPACES = 20
"""Maximum number of workspaces of one definition, and of one activity."""

WorkspaceName = Annotated[str, Field(min_length=1, max_length=50, pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]
"""The name of a workspace: a DNS label, because it is part of names in Kubernetes."""

MountPath = Annotated[str, Field(min_length=2, max_length=1024, pattern="^/[^:]*$")]
"""An absolute path in a container."""


class AccessMode(StrEnum):
    """Which pods can use a volume at the same time."""

    READ_WRITE_ONCE = "ReadWriteOnce"
    """Pods on one node. The operator places pods that run at the same time on the same node."""

    READ_WRITE_MANY = "ReadWriteMany"
    """Pods on any nodes."""

    READ_ONLY_MANY = "ReadOnlyMany"
    """Pods on any nodes, which only read."""

    READ_WRITE_ONCE_POD = "ReadWriteOncePod"
    """One pod. Others wait until it has ended."""


class ClaimMetadata(SpecModel):
    """Labels and annotations of a PersistentVolumeClaim."""

    labels: Annotated[dict[str, Annotated[str, Field(max_length=63)]], Field(max_length=100)] = Field(
        default_factory=dict
    )
    """Labels of the claim. Default: none."""

    annotations: Annotated[dict[str, Annotated[str, Field(max_length=65_536)]], Field(max_length=100)] = Field(
        default_factory=dict
    )
    """Annotations of the claim. Default: none."""


class ClaimSpec(SpecModel):
    """The spec of a PersistentVolumeClaim (core/v1 PersistentVolumeClaimSpec)."""

    model_config = ConfigDict(extra="allow")

    access_modes: Annotated[list[AccessMode], set_list(4, min_items=1)]
    """Which pods can use the volume at the same time: ReadWriteOnce, ReadWriteMany, ReadOnlyMany or ReadWriteOncePod. All other
    fields of the spec of a claim are allowed too: `storageClassName`, `dataSource` and so on."""

    resources: JsonObject
    """The size, such as `{requests: {storage: 1Gi}}`."""


class VolumeClaimTemplate(SpecModel):
    """A PersistentVolumeClaim that the operator creates for each run."""

    metadata: ClaimMetadata | None = None
    """Labels and annotations of the claim. Default: none."""

    spec: ClaimSpec
    """The spec of the claim. When you apply the Workflow, the operator validates it with a dry run and reports errors in the
    condition `Ready`."""


class ExistingClaim(SpecModel):
    """A PersistentVolumeClaim that exists already."""

    claim_name: ResourceName
    """Name of a PersistentVolumeClaim in the same namespace. The operator never deletes it."""


class ClaimRetention(StrEnum):
    """Whether the PersistentVolumeClaim is deleted when the run has closed."""

    DELETE = "Delete"
    """Delete it when the run has closed."""

    KEEP = "Keep"
    """Keep it until the run is deleted."""


class WorkspaceRetention(SpecModel):
    """Whether the PersistentVolumeClaim is deleted when the run has closed."""

    on_success: ClaimRetention = ClaimRetention.DELETE
    """After a run that completed or continued as new: Delete or Keep. Default: Delete."""

    on_failure: ClaimRetention = ClaimRetention.KEEP
    """After any other run: Delete or Keep, so that a reset or a retry of the run finds the files. Default: Keep."""


class Workspace(SpecModel):
    """A volume for files. The activities that list it mount it."""

    rules = (
        exactly_one_of("volume_claim_template", "persistent_volume_claim", "empty_dir"),
        Rule(
            "`retention` must be used with `volumeClaimTemplate`: the operator deletes only claims that it has created",
            "!has(self.retention) || has(self.volumeClaimTemplate)",
            lambda workspace: workspace.retention is None or workspace.volume_claim_template is not None,
        ),
    )

    name: WorkspaceName
    """Name of the workspace; activities refer to it. Lowercase letters, digits and `-`."""

    volume_claim_template: VolumeClaimTemplate | None = None
    """A PersistentVolumeClaim of its own for each run; the operator creates it when the first activity needs it. To write this, a
    user must be allowed to create PersistentVolumeClaims in the namespace."""

    persistent_volume_claim: ExistingClaim | None = None
    """A PersistentVolumeClaim that exists and that all runs share."""

    empty_dir: JsonObject | None = None
    """An empty folder for each attempt, as in a pod: `{}`, or with `sizeLimit` and `medium`. Deleted with the pod."""

    retention: WorkspaceRetention | None = None
    """What happens to the claim of a run that has closed. Default: it is deleted if the run has succeeded, otherwise with the
    run."""


class WorkspaceMount(SpecModel):
    """Where the container of an activity mounts a workspace."""

    name: Reference
    """Name of the workspace."""

    mount_path: MountPath | None = None
    """Where the container of the activity finds the files. Default: `/workspaces/` and the name."""

    sub_path: Template = ""
    """Mount only this folder of the workspace, such as `parts/${input.number}`; relative, without `..`. It can contain
    expressions, as in `container`; Kubernetes creates a missing folder. Default: the whole workspace."""

    read_only: Flag = False
    """Whether the activity can only read. Default: false."""

    @property
    def target(self) -> str:
        """The path in the container."""
        return self.mount_path or f"/workspaces/{self.name}"
