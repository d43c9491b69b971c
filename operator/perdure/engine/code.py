"""What the engine keeps of a run that Temporal SDK workers decide: its workflow task, and what waits for it."""

from datetime import datetime, timedelta
from typing import Any

import msgspec

from perdure.engine import events as ev
from perdure.engine.versioning import UNVERSIONED, Versioning

DEFAULT_TIMEOUT = timedelta(seconds=10)
"""How long a worker has for a workflow task, where nobody says."""
LONGEST_TIMEOUT = timedelta(seconds=120)
"""More is cut to this, in silence, as by Temporal's server (create_workflow_util.go)."""


def task_timeout(wanted: timedelta | None, run_timeout: timedelta | None) -> timedelta:
    """How long a worker has for a workflow task: no longer than the run may take (overrideWorkflowTaskTimeout)."""
    return min(wanted or DEFAULT_TIMEOUT, LONGEST_TIMEOUT, run_timeout or LONGEST_TIMEOUT)


class WorkflowTask(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """A workflow task that waits for a worker, or that a worker is deciding."""

    attempt: int = 1
    scheduled_event_id: int = 0
    """0: no event says so (yet). So it is with further attempts, and with tasks that may leave no trace (speculative)."""
    scheduled_time: datetime
    original_scheduled_time: datetime
    """Of the first of a row of tasks that a worker has only prolonged."""
    start_to_close_timeout: timedelta
    speculative: bool = False
    sticky_queue: str = ""
    """The one worker that it is meant for; empty: any of the task queue."""
    seen_event_id: int = 0
    """`next_event_id` when a further attempt was scheduled: whether anything has happened since."""

    # Once a worker has it. Kept in memory, and written only if a commit comes by meanwhile.
    started_time: datetime | None = None
    started_event_id: int = 0
    """What the id of its WorkflowTaskStarted will be: nothing is appended to the history until the task has ended."""
    epoch: str = ""
    """The process that has handed it out; what another one has handed out counts no more."""
    identity: str = ""
    request_id: str = ""
    suggest_continue_as_new: bool = False
    history_size_bytes: int = 0
    target_version_changed: bool = False

    @property
    def number(self) -> int:
        """Id of its WorkflowTaskScheduled, also of one that is not written; only once it has started."""
        return self.scheduled_event_id or self.started_event_id - 1


class UpdateRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """An update that was accepted."""

    accepted_event_id: int
    completed_event_id: int = 0
    """0: not yet."""


class Code(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """What a run has beside its state when code decides that Temporal SDK workers run."""

    workflow_type: str
    task_queue: str
    task_timeout: timedelta = DEFAULT_TIMEOUT
    cron_schedule: str = ""
    priority: Any = None
    """As the workflow was started with, JSON of temporal.api.common.v1.Priority; activities and children inherit it."""
    previous_started_event_id: int = 0
    """WorkflowTaskStarted of the last task that was completed."""
    updates: dict[str, UpdateRecord] = {}
    """By update id."""
    memo: dict[str, Any] = {}
    search_attributes: dict[str, Any] = {}
    versioning: Versioning = UNVERSIONED

    # Kept beside the history:
    admitted: dict[str, int] = {}
    """Updates that a reset has brought and no worker has accepted or rejected: their events, by update id."""
    task: WorkflowTask | None = None
    wanted: bool = False
    """Something has happened that a worker has to decide about, and no task is scheduled: the first one waits, or a pause."""
    buffered: tuple[ev.AnyEvent, ...] = ()
    """What has happened while a worker decides: without ids; recorded when the task has ended."""
    sticky_queue: str = ""
    sticky_timeout: timedelta = DEFAULT_TIMEOUT
    failure: str = ""
    """Why the last task came to nothing; empty again once one is completed."""
    closing: bool = False
    """The workflow wanted to close, but something had come up: nothing more is taken until it has decided about that."""
    completed: str = ""
    """The token of the last completed task: asked twice, it is answered as before."""

    @property
    def deciding(self) -> bool:
        """Whether a worker has a task."""
        return self.task is not None and self.task.started_time is not None

    def ended_activities(self) -> frozenset[int]:
        """The activities whose end is buffered, by the ids of their ActivityTaskScheduled."""
        return frozenset(event.scheduled_event_id for event in self.buffered if isinstance(event, ACTIVITY_CLOSED))

    def operations_buffered(self) -> frozenset[int]:
        """The Nexus operations about which something is buffered, by the ids of their NexusOperationScheduled."""
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
"""The events about a Nexus operation that record no command."""
