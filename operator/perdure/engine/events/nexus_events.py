"""Events of Nexus operations."""

from datetime import timedelta
from typing import Any

import msgspec

from perdure.engine.events.event import CommandEvent, Event
from perdure.engine.failures import Failure


class NexusOperationScheduled(CommandEvent, frozen=True, kw_only=True):
    """A decider scheduled an operation, which workers of another namespace may handle."""

    endpoint: str
    endpoint_id: str
    handler_namespace: str
    """The namespace of the endpoint at that time. Only this namespace can complete the operation."""
    service: str
    operation: str
    input: Any = None
    schedule_to_close_timeout: timedelta | None = None
    schedule_to_start_timeout: timedelta | None = None
    start_to_close_timeout: timedelta | None = None
    nexus_header: dict[str, str] = msgspec.field(default_factory=dict)
    request_id: str
    """The ID of the request, which only the two namespaces know. It is the same for every attempt, so that a handler finds the
    operation that it has started."""


class NexusOperationStarted(Event, frozen=True, kw_only=True):
    """The handler has started the operation, and will complete it later."""

    scheduled_event_id: int
    operation_token: str
    request_id: str
    handler_namespace: str
    links: Any = None


class NexusOperationCancelRequested(CommandEvent, frozen=True, kw_only=True):
    """A decider requested the cancellation of an operation."""

    scheduled_event_id: int


class NexusOperationCancelRequestCompleted(Event, frozen=True, kw_only=True):
    """The handler has accepted the cancellation request. The operation may end later because of it."""

    scheduled_event_id: int
    requested_event_id: int


class NexusOperationCancelRequestFailed(Event, frozen=True, kw_only=True):
    """The handler has rejected the cancellation request."""

    scheduled_event_id: int
    requested_event_id: int
    failure: Failure


class _OperationClosed(Event, frozen=True, kw_only=True):
    scheduled_event_id: int
    request_id: str


class NexusOperationCompleted(_OperationClosed, frozen=True, kw_only=True):
    """The operation succeeded."""

    result: Any = None
    links: Any = None


class NexusOperationFailed(_OperationClosed, frozen=True, kw_only=True):
    """The operation failed."""

    failure: Failure


class NexusOperationCanceled(_OperationClosed, frozen=True, kw_only=True):
    """The operation was cancelled."""

    failure: Failure


class NexusOperationTimedOut(_OperationClosed, frozen=True, kw_only=True):
    """A timeout of the operation has passed."""

    failure: Failure
