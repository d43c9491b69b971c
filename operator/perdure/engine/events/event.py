"""The attributes that all events share."""

from datetime import datetime
from typing import Any

from perdure.api.stored_struct import StoredStruct


class Event(
    StoredStruct,
    frozen=True,
    kw_only=True,
    tag_field="eventType",
    tag=True,
):
    """The attributes of every event."""

    event_id: int
    """Position in the history: 1, 2, 3, … without gaps."""
    event_time: datetime
    """When it was recorded (UTC); for ActivityTaskStarted, when the attempt started."""
    user_metadata: Any = None
    """Summary and details from the code of an SDK workflow, opaque."""
    principal: str = ""
    """User that requested it, authenticated by the API server; empty if no user did, or if it is not known."""


class CommandEvent(Event, frozen=True, kw_only=True):
    """The attributes of every event that records a command."""

    workflow_task_completed_event_id: int = 0
    """The workflow task that the command comes from; 0 if the decider runs in the operator's process."""
