"""What all events have in common."""

from datetime import datetime
from typing import Any

import msgspec


class Event(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    rename="camel",
    tag_field="eventType",
    tag=True,
):
    """What every event has."""

    event_id: int
    """Position in the history, from 1, without gaps."""
    event_time: datetime
    """When it was recorded (UTC); for ActivityTaskStarted, when the attempt started."""
    user_metadata: Any = None
    """Summary and details that a program gave along, opaque; only where a Temporal SDK decides."""
    principal: str = ""
    """User that asked for what it records, as the API server has authenticated it; empty where none did, or it is not known."""


class CommandEvent(Event, frozen=True, kw_only=True):
    """What every event has that records a command."""

    workflow_task_completed_event_id: int = 0
    """The workflow task that asked for it; 0 where the decider runs in the operator's process."""
