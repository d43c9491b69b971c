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
    """The run started: the first event of every history."""

    workflow_type: str
    workflow_id: str
    input: Any = None
    task_queue: str | None = None
    workflow_execution_timeout: timedelta | None = None
    workflow_run_timeout: timedelta | None = None
    workflow_task_timeout: timedelta | None = None
    workflow_execution_expiration_time: datetime | None = None
    first_workflow_task_backoff: timedelta | None = None
    """How long the first decision waits: a start delay, a retry backoff, or the time until the next run of a cron schedule."""
    retry_policy: RetryPolicy | None = None
    """None: a failed run is not retried."""
    original_execution_run_id: str
    first_execution_run_id: str
    continued_execution_run_id: str | None = None
    """The previous run of the chain, which this one continues or retries."""
    continued_failure: Failure | None = None
    """Why the previous run failed, if this one retries it or follows it by a cron schedule."""
    attempt: int = 1
    retries_since: datetime | None = None
    """When the first run in a series of retries started, if this is not the first."""
    parent: ParentReference | None = None
    search_attributes: dict[str, Any] = msgspec.field(default_factory=dict)
    successor: str = ""
    """Name of the WorkflowRun that will continue or retry this one."""
    identity: str = ""
    """The client that started it."""
    header: Any = None
    memo: Any = None
    cron_schedule: str = ""
    initiator: str = ""
    """The initiator of the run: Workflow (continue-as-new), Retry or CronSchedule; empty for the first run of a chain."""
    last_completion_result: Any = None
    priority: Any = None
    root_workflow_id: str = ""
    root_run_id: str = ""
    completion_callbacks: tuple[Callback, ...] = ()
    eager_execution_accepted: bool = False
    """The client that started the run gets its first workflow task."""
    links: Any = None
    standalone: bool = False
    """The run is a standalone activity or Nexus operation: it schedules one, and closes with its outcome."""
    versioning_override: VersioningOverride | None = None
    inherited_pinned_version: DeploymentVersion | None = None
    """The pinned version of its parent or of the previous run."""
    inherited_auto_upgrade_info: InheritedAutoUpgradeInfo | None = None


class WorkflowExecutionSignaled(Event, frozen=True, kw_only=True):
    """The run received a signal."""

    signal_name: str
    input: Any = None
    identity: str = ""
    """The client: an Operation, or another run."""
    header: Any = None
    external: ExternalReference | None = None
    """The run that sent it; None if another client did."""
    request_id: str = ""
    """The ID of the request if a client of Temporal's API chose it."""
    links: Any = None
    """JSON of temporal.api.common.v1.Link, opaque."""


class WorkflowExecutionCancelRequested(Event, frozen=True, kw_only=True):
    """The cancellation of the run was requested. Only the first request leaves an event."""

    cause: str = ""
    identity: str = ""
    external: ExternalReference | None = None
    """The run that requested it; None if another client did."""
    stop: bool = False
    """Whether only `finally` runs, and no other handler."""
    links: Any = None
    """JSON of temporal.api.common.v1.Link, opaque."""


class WorkflowExecutionPaused(Event, frozen=True, kw_only=True):
    """The run was paused: there are no decisions and no new attempts until it is unpaused."""

    reason: str = ""
    identity: str = ""


class WorkflowExecutionUnpaused(Event, frozen=True, kw_only=True):
    """The run was unpaused."""

    reason: str = ""
    identity: str = ""


class WorkflowExecutionOptionsUpdated(Event, frozen=True, kw_only=True):
    """A client changed the versioning override, or attached callbacks by starting the run or sending an update again."""

    attached_request_id: str = ""
    update_id: str = ""
    """The update that the attached callbacks wait for; empty: they wait for the end of the run."""
    versioning_override: VersioningOverride | None = None
    unset_versioning_override: bool = False
    attached_completion_callbacks: tuple[Callback, ...] = ()
    identity: str = ""
    links: Any = None


class MarkerRecorded(CommandEvent, frozen=True, kw_only=True):
    """A decider recorded something for itself or for readers of the history."""

    marker_name: str
    details: Any = None
    header: Any = None
    failure: Failure | None = None


class UpsertWorkflowSearchAttributes(CommandEvent, frozen=True, kw_only=True):
    """A decider changed search attributes of the run; null removes one."""

    search_attributes: dict[str, Any]


class WorkflowPropertiesModified(CommandEvent, frozen=True, kw_only=True):
    """A decider changed the memo of the run; null removes an entry."""

    upserted_memo: dict[str, Any]
