"""Reports of workers about the workflow task of a run. Each report identifies its delivery."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeAlias

from perdure.engine.commands import Command
from perdure.engine.failures import Failure
from perdure.engine.versioning import DeploymentVersion


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskWanted:
    """An update or a query needs a worker, although there are no new events."""

    request_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskTaken:
    """A worker takes the workflow task."""

    request_id: str
    epoch: str
    identity: str = ""
    suggest_events: int = 4_096
    """The number of events above which continue-as-new is suggested to the worker."""
    target_version_changed: bool = False
    """Whether new runs of the task queue start on another version than the pinned one of this run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskToken:
    """Identifies one delivery of a workflow task."""

    scheduled_event_id: int
    started_event_id: int
    attempt: int
    epoch: str

    def text(self) -> str:
        """The token as one word."""
        return f"{self.epoch}/{self.scheduled_event_id}/{self.started_event_id}/{self.attempt}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskCompleted:
    """A worker has decided."""

    request_id: str
    token: TaskToken
    commands: tuple[Command, ...] = ()
    identity: str = ""
    principal: str = ""
    sdk_metadata: Any = None
    metering_metadata: Any = None
    worker_version: Any = None
    binary_checksum: str = ""
    worker_deployment_name: str = ""
    deployment_version: DeploymentVersion | None = None
    versioning_behavior: str = ""
    sticky_queue: str = ""
    sticky_timeout: timedelta | None = None
    force_new_task: bool = False
    """Whether the worker has not finished and needs more time."""
    receives_again: bool = False
    """Whether the worker accepts events that it has received before (`discard_speculative_workflow_task_with_events`)."""
    rejects_only: bool = False
    """Whether the worker has only rejected updates."""
    rejected: Mapping[str, Failure] = field(default_factory=dict)
    """The updates that it has rejected, by ID, and why."""
    following: TaskTaken | None = None
    """How the worker takes the next task with the answer, if one is due; None: it does not wait for one."""
    eager: tuple[str, ...] = ()
    """IDs of scheduled activities that the worker runs itself immediately, without a task queue."""
    digest: str = ""
    """The digest of the response. A response to the same task with another digest is not a repeated one."""

    def text(self) -> str:
        """The task and the response as one word."""
        return f"{self.token.text()}/{self.digest}"

    def fence(self, activity_id: str) -> str:
        """The fence of an activity that the worker runs itself. It is the same if the worker sends its answer again."""
        return f"{self.token.text()}/{activity_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskReturned:
    """A worker disconnected before it received the task."""

    request_id: str
    token: TaskToken


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFailed:
    """A worker could not decide."""

    request_id: str
    token: TaskToken
    cause: str
    failure: Failure | None = None
    identity: str = ""
    principal: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StickinessReset:
    """The worker that has the workflow in its cache is stopping."""

    request_id: str


TaskInput: TypeAlias = TaskWanted | TaskTaken | TaskReturned | TaskCompleted | TaskFailed | StickinessReset
