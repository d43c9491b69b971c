"""Events of the run itself, except those that close it."""

from datetime import datetime, timedelta
from typing import Any

import msgspec

from perdure.engine.events.event import CommandEvent, Event
from perdure.engine.failures import Failure
from perdure.engine.retry import RetryPolicy
from perdure.engine.starts import Callback, ExternalReference, ParentReference
from perdure.engine.versioning import DeploymentVersion, InheritedAutoUpgradeInfo, VersioningOverride


class WorkflowExecutionStarted(Event, frozen=True, kw_only=True):
    """The first event of every history."""

    workflow_type: str
    workflow_id: str
    input: Any = None
    task_queue: str | None = None
    workflow_execution_timeout: timedelta | None = None
    workflow_run_timeout: timedelta | None = None
    workflow_task_timeout: timedelta | None = None
    workflow_execution_expiration_time: datetime | None = None
    first_workflow_task_backoff: timedelta | None = None
    """How long the first decision waits: a start delay, the wait before a retry, or for the next time of a cron schedule."""
    retry_policy: RetryPolicy | None = None
    """None: a failed run is not retried."""
    original_execution_run_id: str
    first_execution_run_id: str
    continued_execution_run_id: str | None = None
    """The run before in the chain: this one continues or retries it."""
    continued_failure: Failure | None = None
    """Why the run before failed, where this one is its retry, or follows it by a cron schedule."""
    attempt: int = 1
    retries_since: datetime | None = None
    """When the first of the runs that retry each other has started, where this is not the first."""
    parent: ParentReference | None = None
    search_attributes: dict[str, Any] = msgspec.field(default_factory=dict)
    successor: str = ""
    """Name that the WorkflowRun which continues or retries this one is to have."""
    identity: str = ""
    """Who started it."""
    header: Any = None
    memo: Any = None
    cron_schedule: str = ""
    initiator: str = ""
    """What made the run: Workflow (it continues another as new), Retry or CronSchedule; empty for other first runs."""
    last_completion_result: Any = None
    priority: Any = None
    root_workflow_id: str = ""
    root_run_id: str = ""
    completion_callbacks: tuple[Callback, ...] = ()
    links: Any = None
    standalone: bool = False
    """The run is a standalone activity: it schedules one activity, and closes as that closes."""
    versioning_override: VersioningOverride | None = None
    inherited_pinned_version: DeploymentVersion | None = None
    """The version of its parent, or of the run before, which was pinned to it."""
    inherited_auto_upgrade_info: InheritedAutoUpgradeInfo | None = None


class WorkflowExecutionSignaled(Event, frozen=True, kw_only=True):
    """Somebody has told the run something."""

    signal_name: str
    input: Any = None
    identity: str = ""
    """Who: an Operation, or another run."""
    header: Any = None
    external: ExternalReference | None = None
    """The run that has sent it; None where no run has."""
    request_id: str = ""
    """The ID of the request if a client of Temporal's API chose it."""


class WorkflowExecutionCancelRequested(Event, frozen=True, kw_only=True):
    """Somebody has asked the run to cancel itself. The first time counts, there is no second event."""

    cause: str = ""
    identity: str = ""
    external: ExternalReference | None = None
    """The run that has asked for it; None where no run has."""
    stop: bool = False
    """Whether only `finally` is to run, and no other handler."""


class WorkflowExecutionPaused(Event, frozen=True, kw_only=True):
    """Nothing is decided, and no attempt is started, until the run is unpaused."""

    reason: str = ""
    identity: str = ""


class WorkflowExecutionUnpaused(Event, frozen=True, kw_only=True):
    """A pause has ended."""

    reason: str = ""
    identity: str = ""


class WorkflowExecutionOptionsUpdated(Event, frozen=True, kw_only=True):
    """A client has set or removed the versioning override, or another start has attached what the end of the run completes."""

    attached_request_id: str = ""
    versioning_override: VersioningOverride | None = None
    unset_versioning_override: bool = False
    attached_completion_callbacks: tuple[Callback, ...] = ()
    identity: str = ""
    links: Any = None


class MarkerRecorded(CommandEvent, frozen=True, kw_only=True):
    """A decider noted something for itself or for whoever reads the history."""

    marker_name: str
    details: Any = None
    header: Any = None
    failure: Failure | None = None


class UpsertWorkflowSearchAttributes(CommandEvent, frozen=True, kw_only=True):
    """A decider has changed what the run can be found by; null removes one."""

    search_attributes: dict[str, Any]


class WorkflowPropertiesModified(CommandEvent, frozen=True, kw_only=True):
    """A decider has changed the run's memo; null removes an entry."""

    upserted_memo: dict[str, Any]
