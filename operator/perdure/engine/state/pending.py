"""Other pending entries of a run: timers, children, requests to other runs, and callbacks."""

from datetime import datetime
from typing import Any

from perdure.api.parent_close_policy import ParentClosePolicy
from perdure.api.stored_struct import StoredStruct
from perdure.engine.failures import Failure
from perdure.engine.starts import Callback, WorkflowStart


class PendingTimer(StoredStruct, frozen=True, kw_only=True):
    """A timer that has not fired."""

    started_event_id: int
    timer_id: str
    fire_time: datetime


class PendingChild(StoredStruct, frozen=True, kw_only=True):
    """A child that has not closed; in a closed run, a child whose parent close policy has not been applied yet.

    Until the child starts, it has the data for the start; afterwards, it only has the child's identity.
    """

    initiated_event_id: int
    child_id: str
    workflow_id: str
    workflow_type: str = ""
    parent_close_policy: ParentClosePolicy = ParentClosePolicy.TERMINATE
    start: WorkflowStart | None = None
    """None once the child has started."""
    started_event_id: int = 0
    run_id: str = ""
    """Run ID of the first run of the child; empty until it has started."""


class PendingExternal(StoredStruct, frozen=True, kw_only=True):
    """A signal or a cancellation request to another run, which that run has not recorded yet."""

    initiated_event_id: int
    workflow_id: str
    run_id: str = ""
    child_workflow_only: bool = False
    signal_id: str | None = None
    """None: it is a cancellation request."""
    signal_name: str = ""
    input: Any = None
    reason: str = ""
    header: Any = None
    control: str = ""


class HeldLimits(StoredStruct, frozen=True, kw_only=True):
    """The WorkflowLimits that a step holds."""

    scheduled_event_id: int
    """The event that asked for them, which identifies the step in the queues of the limits."""
    activity_id: str
    limits: Any
    """The input of that event: see `perdure.language.limit_keys`."""


class PendingCallback(StoredStruct, frozen=True, kw_only=True):
    """A Nexus operation that the end of the run or of an update completes."""

    callback: Callback
    update_id: str = ""
    """The update whose end completes the operation; empty: the end of the run does."""
    rejection: Failure | None = None
    """Why a worker rejected the update, which a reset had passed on. No event records it."""
    registration_time: datetime
    request_id: str = ""
    """Request ID of the start or update that attached it to the open run; empty if it is from the start of the run."""
    event_id: int = 0
    """ID of the event that records the attachment; 0 if the callback is from the start of the run."""
    state: str = ""
    """In a closed run: Succeeded or Failed; empty if it is not done yet."""
    failure: Failure | None = None
    complete_time: datetime | None = None
