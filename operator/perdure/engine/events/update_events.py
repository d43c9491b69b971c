"""Events of updates: requests that the decider answers."""

from typing import Any

from perdure.engine.events.event import Event
from perdure.engine.failures import Failure


class WorkflowExecutionUpdateAdmitted(Event, frozen=True, kw_only=True):
    """A run that was reset is given an update which the run before had accepted."""

    update_id: str
    name: str = ""
    input: Any = None
    header: Any = None
    identity: str = ""


class WorkflowExecutionUpdateAccepted(Event, frozen=True, kw_only=True):
    """A decider has taken on an update; from here on it is durable. Where it was admitted, that event has its request."""

    update_id: str
    accepted_request_message_id: str = ""
    accepted_request_sequencing_event_id: int = 0
    name: str = ""
    input: Any = None
    header: Any = None
    identity: str = ""


class WorkflowExecutionUpdateCompleted(Event, frozen=True, kw_only=True):
    """An update has come to its end: with a result, or with a failure."""

    update_id: str
    accepted_event_id: int
    identity: str = ""
    result: Any = None
    failure: Failure | None = None
