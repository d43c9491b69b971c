"""Events of workflow tasks. Only runs that a Temporal SDK worker decides have them."""

from datetime import datetime, timedelta
from typing import Any

from perdure.engine.events.event import Event
from perdure.engine.failures import Failure, TimeoutType
from perdure.engine.versioning import DeploymentVersion


class WorkflowTaskScheduled(Event, frozen=True, kw_only=True):
    """A workflow task was scheduled for a worker."""

    task_queue: str
    sticky: bool = False
    """Whether the queue is that of the worker that has the workflow in its cache."""
    normal_name: str = ""
    """For a sticky queue: the task queue that its worker polls for new workflows."""
    start_to_close_timeout: timedelta
    attempt: int = 1


class WorkflowTaskStarted(Event, frozen=True, kw_only=True):
    """A worker took the task. This is written together with the result, so that the delivery of a task needs no write."""

    scheduled_event_id: int
    identity: str = ""
    request_id: str = ""
    suggest_continue_as_new: bool = False
    history_size_bytes: int = 0
    target_worker_deployment_version_changed: bool = False
    """Whether the run is pinned while new runs of its task queue start on another version."""


class WorkflowTaskCompleted(Event, frozen=True, kw_only=True):
    """A worker completed the task; the events of its commands follow."""

    scheduled_event_id: int
    started_event_id: int
    identity: str = ""
    sdk_metadata: Any = None
    metering_metadata: Any = None
    worker_version: Any = None
    binary_checksum: str = ""
    """The build of the worker, if `worker_version` does not have it: workflow code may read it, even during a replay."""
    worker_deployment_name: str = ""
    deployment_version: DeploymentVersion | None = None
    """The version of a versioned worker."""
    versioning_behavior: str = ""
    """Pinned or AutoUpgrade; empty from an unversioned worker."""


class WorkflowTaskFailed(Event, frozen=True, kw_only=True):
    """A worker could not decide, or its decision is not valid.

    With the cause ``ResetWorkflow``, the run was reset: the events before this one are from another run's history, and the run
    decides again from here, as on Temporal's server (service/history/ndc/workflow_resetter.go). Open activities start with their
    first attempt, and timeouts of the run count from here.
    """

    scheduled_event_id: int = 0
    started_event_id: int = 0
    cause: str
    """A name of temporal.api.enums.v1.WorkflowTaskFailedCause, in CamelCase."""
    failure: Failure | None = None
    reason: str = ""
    identity: str = ""
    base_run_id: str = ""
    """The run whose history this is. This and the fields below are set only by a reset."""
    new_run_id: str = ""
    workflow_execution_expiration_time: datetime | None = None
    workflow_run_expiration_time: datetime | None = None
    successor: str = ""
    """Name of the WorkflowRun that will continue or retry this one."""


class WorkflowTaskTimedOut(Event, frozen=True, kw_only=True):
    """A worker did not respond in time, or did not take the task from its sticky queue."""

    scheduled_event_id: int
    started_event_id: int = 0
    timeout_type: TimeoutType
