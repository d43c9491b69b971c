"""Worker versioning: which version of a worker deployment decides a run.

The rules are those of Temporal's server (service/history/workflow/mutable_state_impl.go: GetEffectiveVersioningBehavior).
"""

import msgspec

PINNED, AUTO_UPGRADE, ONE_TIME = "Pinned", "AutoUpgrade", "OneTime"
USE_RAMPING_VERSION = "UseRampingVersion"
"""What continue-as-new may ask for: the first workflow task of the next run goes to the ramping version."""


class DeploymentVersion(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """A version of a worker deployment."""

    deployment_name: str
    build_id: str

    def __str__(self) -> str:
        return f"{self.deployment_name}:{self.build_id}"


class VersioningOverride(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """What a client sets in place of the behavior that workers report."""

    behavior: str
    """Pinned, AutoUpgrade, or OneTime: pinned until that version has completed a workflow task."""
    version: DeploymentVersion | None = None
    """None with AutoUpgrade."""


class InheritedAutoUpgradeInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """What a run inherits of one that is not pinned, or that wants the next run not to be."""

    source_deployment_version: DeploymentVersion
    continue_as_new_initial_versioning_behavior: str = ""
    """AutoUpgrade or UseRampingVersion, as the command that continues the run says; empty otherwise."""


class Versioning(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """The versioning of a run; all empty while only unversioned workers have decided."""

    behavior: str = ""
    """Pinned or AutoUpgrade, as the worker reported with the last workflow task."""
    version: DeploymentVersion | None = None
    """Of the worker that completed the last workflow task; before the first one, the version that the run has inherited."""
    override: VersioningOverride | None = None
    initial_behavior: str = ""
    """UseRampingVersion until the first workflow task is completed, if the run before has asked for it."""

    @property
    def effective_behavior(self) -> str:
        """Pinned or AutoUpgrade, as the override says; empty where neither it nor a worker says."""
        if self.override is None:
            return self.behavior
        return AUTO_UPGRADE if self.override.behavior == AUTO_UPGRADE else PINNED

    @property
    def pinned_to(self) -> DeploymentVersion | None:
        """The only version that may decide the run; None where the routing of its deployment decides."""
        if self.effective_behavior != PINNED:
            return None
        return self.override.version if self.override is not None else self.version

    @property
    def inherited(self) -> DeploymentVersion | None:
        """The version that children and runs that continue this one inherit; None where they inherit none."""
        if self.override is not None and self.override.behavior == ONE_TIME:
            return self.version if self.behavior == PINNED else None
        return self.pinned_to

    @property
    def inherited_override(self) -> VersioningOverride | None:
        """The override that they inherit: one that pins them."""
        return self.override if self.override is not None and self.override.behavior == PINNED else None

    def inherited_upgrade(self, initial_behavior: str = "") -> InheritedAutoUpgradeInfo | None:
        """What they inherit if they inherit no pinned version.

        Args:
            initial_behavior: What the command that continues this run says.
        """
        if self.effective_behavior != AUTO_UPGRADE and not (self.effective_behavior == PINNED and initial_behavior):
            return None
        source = self.pinned_to or self.version
        if source is None:
            return None
        return InheritedAutoUpgradeInfo(
            source_deployment_version=source, continue_as_new_initial_versioning_behavior=initial_behavior
        )

    def completed(self, behavior: str, version: DeploymentVersion | None) -> "Versioning":
        """The versioning after a worker has completed a workflow task."""
        override = self.override
        if override is not None and override.behavior == ONE_TIME and override.version == version:
            override = None
        return Versioning(behavior=behavior, version=version if behavior else None, override=override)


UNVERSIONED = Versioning()
