"""Events of updates: requests that the decider answers."""

from typing import Any

from perdure.engine.events.event import Event
from perdure.engine.failures import Failure
from perdure.engine.starts import Callback


class WorkflowExecutionUpdateAdmitted(Event, frozen=True, kw_only=True):
    """A run that a reset created received an update that the previous run had accepted."""

    update_id: str
    name: str = ""
    input: Any = None
    header: Any = None
    identity: str = ""
    request_id: str = ""
    completion_callbacks: tuple[Callback, ...] = ()


class WorkflowExecutionUpdateAccepted(Event, frozen=True, kw_only=True):
    """A decider accepted an update, which is durable now. If it was admitted before, that event has its request."""

    update_id: str
    accepted_request_message_id: str = ""
    accepted_request_sequencing_event_id: int = 0
    name: str = ""
    input: Any = None
    header: Any = None
    identity: str = ""
    request_id: str = ""
    completion_callbacks: tuple[Callback, ...] = ()


class WorkflowExecutionUpdateCompleted(Event, frozen=True, kw_only=True):
    """An update completed, with a result or a failure."""

    update_id: str
    accepted_event_id: int
    identity: str = ""
    result: Any = None
    failure: Failure | None = None
