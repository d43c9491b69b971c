"""What else of a run has not closed: timers, children, requests to other runs, and callbacks."""

from datetime import datetime
from typing import Any

import msgspec

from perdure.engine.failures import Failure
from perdure.engine.starts import Callback, ParentClosePolicy, WorkflowStart


class PendingTimer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """A timer that has not fired."""

    started_event_id: int
    timer_id: str
    fire_time: datetime


class PendingChild(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """A child that has not closed; in a closed run, one whose parent close policy has not been applied yet.

    It holds what is needed to start the child until that is done; then only what names it.
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
    """Of the child's first run; empty until it has started."""


class PendingExternal(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """A signal to another run, or a request that it cancel itself, which that run has not recorded yet."""

    initiated_event_id: int
    workflow_id: str
    run_id: str = ""
    child_workflow_only: bool = False
    signal_id: str | None = None
    """None: it is a request to cancel."""
    signal_name: str = ""
    input: Any = None
    reason: str = ""
    header: Any = None
    control: str = ""


class PendingCallback(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """What the end of the run completes."""

    callback: Callback
    registration_time: datetime
    request_id: str = ""
    """Of the start that has attached it to the open run; empty where it is from the start of the run."""
    event_id: int = 0
    """The event that tells of that; 0 where it is from the start of the run."""
    state: str = ""
    """Of a run that has closed: Succeeded or Failed; empty: it is still to be done, or waits for the end."""
    failure: Failure | None = None
    complete_time: datetime | None = None
