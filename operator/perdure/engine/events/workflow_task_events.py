"""Events of workflow tasks: only a run that a Temporal SDK worker decides has them."""

from datetime import datetime, timedelta
from typing import Any

from perdure.engine.events.event import Event
from perdure.engine.failures import Failure, TimeoutType
from perdure.engine.versioning import DeploymentVersion


class WorkflowTaskScheduled(Event, frozen=True, kw_only=True):
    """A worker is to decide what follows."""

    task_queue: str
    sticky: bool = False
    """Whether that is the queue of the one worker that has the workflow in its memory."""
    normal_name: str = ""
    """Of a sticky queue: the task queue that its worker polls for new workflows."""
    start_to_close_timeout: timedelta
    attempt: int = 1


class WorkflowTaskStarted(Event, frozen=True, kw_only=True):
    """A worker has taken the task. Written with what became of it: handing a task out needs no write."""

    scheduled_event_id: int
    identity: str = ""
    request_id: str = ""
    suggest_continue_as_new: bool = False
    history_size_bytes: int = 0
    target_worker_deployment_version_changed: bool = False
    """The run is pinned, and new runs of its task queue start on another version."""


class WorkflowTaskCompleted(Event, frozen=True, kw_only=True):
    """A worker has decided; the events of its commands follow."""

    scheduled_event_id: int
    started_event_id: int
    identity: str = ""
    sdk_metadata: Any = None
    metering_metadata: Any = None
    worker_version: Any = None
    binary_checksum: str = ""
    """Which build of the worker has decided, where `worker_version` does not say so: code may ask, also when replayed."""
    worker_deployment_name: str = ""
    deployment_version: DeploymentVersion | None = None
    """Of a versioned worker."""
    versioning_behavior: str = ""
    """Pinned or AutoUpgrade; empty from an unversioned worker."""


class WorkflowTaskFailed(Event, frozen=True, kw_only=True):
    """A worker could not decide, or what it has decided cannot be done.

    Or, with the cause ``ResetWorkflow``: the run was reset. Up to here it has the history of another one, and what follows is
    decided anew, as Temporal's server tells it (service/history/ndc/workflow_resetter.go). Activities that are open are tried
    from the beginning, and timeouts of the run count from here.
    """

    scheduled_event_id: int = 0
    started_event_id: int = 0
    cause: str
    """In the words of temporal.api.enums.v1.WorkflowTaskFailedCause, CamelCase."""
    failure: Failure | None = None
    reason: str = ""
    identity: str = ""
    base_run_id: str = ""
    """From here on, of a reset: the run whose history it is."""
    new_run_id: str = ""
    workflow_execution_expiration_time: datetime | None = None
    workflow_run_expiration_time: datetime | None = None
    successor: str = ""
    """Name that the WorkflowRun which continues or retries this one is to have."""


class WorkflowTaskTimedOut(Event, frozen=True, kw_only=True):
    """A worker did not answer in time, or nobody took the task from a sticky queue."""

    scheduled_event_id: int
    started_event_id: int = 0
    timeout_type: TimeoutType
