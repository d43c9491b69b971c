"""Worker versioning: determine the version of a worker deployment that decides a run.

The rules are those of Temporal's server (service/history/workflow/mutable_state_impl.go: GetEffectiveVersioningBehavior).
"""

from perdure.api.stored import StoredStruct

PINNED, AUTO_UPGRADE, ONE_TIME = "Pinned", "AutoUpgrade", "OneTime"
USE_RAMPING_VERSION = "UseRampingVersion"
"""An option of continue-as-new: the first workflow task of the next run goes to the ramping version."""


class DeploymentVersion(StoredStruct, frozen=True, kw_only=True):
    """A version of a worker deployment."""

    deployment_name: str
    build_id: str

    def __str__(self) -> str:
        return f"{self.deployment_name}:{self.build_id}"


class VersioningOverride(StoredStruct, frozen=True, kw_only=True):
    """A client's override of the behavior that workers report."""

    behavior: str
    """Pinned, AutoUpgrade, or OneTime: pinned until that version has completed a workflow task."""
    version: DeploymentVersion | None = None
    """The version; None with AutoUpgrade."""


class InheritedAutoUpgradeInfo(StoredStruct, frozen=True, kw_only=True):
    """The version information that a run inherits from an unpinned run, or from a pinned run that continues without its pin."""

    source_deployment_version: DeploymentVersion
    continue_as_new_initial_versioning_behavior: str = ""
    """AutoUpgrade or UseRampingVersion, from the continue-as-new command; otherwise empty."""


class Versioning(StoredStruct, frozen=True, kw_only=True):
    """The versioning of a run; all fields are empty while only unversioned workers have decided."""

    behavior: str = ""
    """Pinned or AutoUpgrade, as the worker reported with the last workflow task."""
    version: DeploymentVersion | None = None
    """The version of the worker that completed the last workflow task; before that, the version that the run inherited."""
    override: VersioningOverride | None = None
    initial_behavior: str = ""
    """UseRampingVersion until the first workflow task is completed, if the previous run requested it."""

    @property
    def effective_behavior(self) -> str:
        """Pinned or AutoUpgrade, from the override or the last worker; empty if neither has set it."""
        if self.override is None:
            return self.behavior
        return AUTO_UPGRADE if self.override.behavior == AUTO_UPGRADE else PINNED

    @property
    def pinned_to(self) -> DeploymentVersion | None:
        """The only version that may decide the run; None if the routing of its deployment selects the version."""
        if self.effective_behavior != PINNED:
            return None
        return self.override.version if self.override is not None else self.version

    @property
    def inherited(self) -> DeploymentVersion | None:
        """The version that children and continuing runs inherit; None if they inherit none."""
        if self.override is not None and self.override.behavior == ONE_TIME:
            return self.version if self.behavior == PINNED else None
        return self.pinned_to

    @property
    def inherited_override(self) -> VersioningOverride | None:
        """The pinning override that children and continuing runs inherit."""
        return self.override if self.override is not None and self.override.behavior == PINNED else None

    def inherited_upgrade(self, initial_behavior: str = "") -> InheritedAutoUpgradeInfo | None:
        """The version information that children and continuing runs inherit if they inherit no pinned version.

        Args:
            initial_behavior: The behavior in the continue-as-new command.
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
