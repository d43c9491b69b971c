"""The state of a run that Temporal SDK workers decide: its workflow task, and the events that wait for it."""

from datetime import datetime, timedelta
from typing import Any

from perdure.api.stored import StoredStruct
from perdure.engine import events as ev
from perdure.engine.versioning import UNVERSIONED, Versioning

DEFAULT_TIMEOUT = timedelta(seconds=10)
"""The default timeout of a workflow task."""
LONGEST_TIMEOUT = timedelta(seconds=120)
"""The maximum timeout of a workflow task. Longer ones are silently reduced, as on Temporal's server (create_workflow_util.go)."""


def task_timeout(wanted: timedelta | None, run_timeout: timedelta | None) -> timedelta:
    """The timeout of a workflow task: no longer than that of the run (overrideWorkflowTaskTimeout)."""
    return min(wanted or DEFAULT_TIMEOUT, LONGEST_TIMEOUT, run_timeout or LONGEST_TIMEOUT)


class WorkflowTask(StoredStruct, frozen=True, kw_only=True):
    """A workflow task that waits for a worker, or that a worker is deciding."""

    attempt: int = 1
    scheduled_event_id: int = 0
    """ID of the event that records it; 0 if there is none yet, as for further attempts and speculative tasks."""
    scheduled_time: datetime
    original_scheduled_time: datetime
    """The time of the first task in a series that a worker has only prolonged."""
    start_to_close_timeout: timedelta
    speculative: bool = False
    sticky_queue: str = ""
    """The queue of the worker that gets the task; empty: any worker of the task queue."""
    seen_event_id: int = 0
    """`next_event_id` when a further attempt was scheduled, to detect events since then."""

    # The fields below are set once a worker has the task. They stay in memory, and are written only with another commit.
    started_time: datetime | None = None
    started_event_id: int = 0
    """ID of the future WorkflowTaskStarted: nothing is appended to the history until the task has ended."""
    epoch: str = ""
    """The process that delivered the task; deliveries of other processes are no longer valid."""
    identity: str = ""
    request_id: str = ""
    suggest_continue_as_new: bool = False
    history_size_bytes: int = 0
    target_version_changed: bool = False

    @property
    def number(self) -> int:
        """ID of its WorkflowTaskScheduled, even if that is not written yet. Valid only once the task has started."""
        return self.scheduled_event_id or self.started_event_id - 1


class UpdateRecord(StoredStruct, frozen=True, kw_only=True):
    """An update that was accepted."""

    accepted_event_id: int
    completed_event_id: int = 0
    """0: not yet."""


class Code(StoredStruct, frozen=True, kw_only=True):
    """The additional state of a run that Temporal SDK workers decide."""

    workflow_type: str
    task_queue: str
    task_timeout: timedelta = DEFAULT_TIMEOUT
    cron_schedule: str = ""
    priority: Any = None
    """Priority of the start, as JSON of temporal.api.common.v1.Priority; activities and children inherit it."""
    previous_started_event_id: int = 0
    """ID of the WorkflowTaskStarted of the last completed task."""
    updates: dict[str, UpdateRecord] = {}
    """Accepted updates, by update ID."""
    memo: dict[str, Any] = {}
    search_attributes: dict[str, Any] = {}
    versioning: Versioning = UNVERSIONED

    # Not recorded by events:
    admitted: dict[str, int] = {}
    """Updates from a reset that no worker has accepted or rejected yet: the IDs of their events, by update ID."""
    task: WorkflowTask | None = None
    wanted: bool = False
    """Whether a worker must decide but no task is scheduled, because the first one is delayed or the run is paused."""
    buffered: tuple[ev.AnyEvent, ...] = ()
    """Events that occurred while a worker decides. They have no IDs, and are recorded when the task ends."""
    sticky_queue: str = ""
    sticky_timeout: timedelta = DEFAULT_TIMEOUT
    failure: str = ""
    """Why the last task failed; empty once a task is completed."""
    closing: bool = False
    """The workflow tried to close, but there were new events: signals are rejected until it has decided about them."""
    completed: str = ""
    """The last completed task and its response: the same response, sent again, gets the same answer."""

    @property
    def task_started(self) -> bool:
        """Whether a worker has a task."""
        return self.task is not None and self.task.started_time is not None

    def ended_activities(self) -> frozenset[int]:
        """The activities whose end is buffered, by the IDs of their ActivityTaskScheduled."""
        return frozenset(event.scheduled_event_id for event in self.buffered if isinstance(event, ACTIVITY_CLOSED))

    def operations_buffered(self) -> frozenset[int]:
        """The Nexus operations with buffered events, by the IDs of their NexusOperationScheduled."""
        return frozenset(event.scheduled_event_id for event in self.buffered if isinstance(event, OF_OPERATIONS))


ACTIVITY_CLOSED = (ev.ActivityTaskCompleted, ev.ActivityTaskFailed, ev.ActivityTaskTimedOut, ev.ActivityTaskCanceled)
"""The events that end an activity."""
OPERATION_CLOSED = (
    ev.NexusOperationCompleted,
    ev.NexusOperationFailed,
    ev.NexusOperationCanceled,
    ev.NexusOperationTimedOut,
)
"""The events that end a Nexus operation."""
OF_OPERATIONS = (
    *OPERATION_CLOSED,
    ev.NexusOperationStarted,
    ev.NexusOperationCancelRequestCompleted,
    ev.NexusOperationCancelRequestFailed,
)
"""The events of Nexus operations that record no command."""
