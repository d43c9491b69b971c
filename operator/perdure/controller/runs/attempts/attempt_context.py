"""The state shared by the parts that manage the attempts of one run."""

from dataclasses import dataclass

from perdure.controller.artifacts.holders import RunArtifacts
from perdure.controller.pods.attempt_pods import Pods
from perdure.controller.pods.workspaces import WorkspaceVolumes
from perdure.controller.runs.attempts.activity_definitions import ActivityDefinitions
from perdure.controller.runs.attempts.blocked import Blocked
from perdure.controller.runs.attempts.cached_attempts import CachedAttempts
from perdure.controller.runs.attempts.held_pods import HeldPods
from perdure.controller.runs.attempts.limit_grants import LimitGrants
from perdure.runtime.attempts import RunRef


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptContext:
    """A run and the known state of its attempts."""

    api: Pods
    run: RunRef
    held: HeldPods
    blocked: Blocked
    definitions: ActivityDefinitions
    workspaces: WorkspaceVolumes
    artifacts: RunArtifacts
    cached: CachedAttempts
    granted: LimitGrants
