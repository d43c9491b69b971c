"""A Nexus operation that has not closed, and the calls of its handler."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import msgspec

from perdure.api.stored_struct import StoredStruct
from perdure.engine.failures import Failure, TimeoutType
from perdure.engine.state.deadlines import deadline_after

REQUEST_TIMEOUT = timedelta(seconds=10)
"""The timeout of one call of the handler of a Nexus operation (component.nexusoperations.request.timeout)."""

SHORTEST_REQUEST = timedelta(seconds=1.5)
"""If less of the timeout of an operation is left, its handler is not called again (limit.request.timeout.min)."""

_ANSWER_BUFFER = timedelta(seconds=1)
"""How much earlier than the caller the handler times out (limit.dispatch.task.timeout.min)."""

_FIRST_BACKOFF, _LONGEST_BACKOFF = timedelta(seconds=1), timedelta(hours=1)


class HandlerCalls(StoredStruct, frozen=True, kw_only=True):
    """The calls of the handler of a Nexus operation, which are retried after a failure."""

    due: datetime
    """When the next call begins, or has begun."""
    attempts: int = 0
    """Number of calls with a response."""
    last_attempt_complete_time: datetime | None = None
    last_failure: Failure | None = None

    @property
    def attempt(self) -> int:
        """Number of the due call; the first is 1."""
        return self.attempts + 1

    def answered(self, now: datetime) -> "HandlerCalls":
        """Return these calls after the last one got its response."""
        return msgspec.structs.replace(self, attempts=self.attempt, last_attempt_complete_time=now, last_failure=None)

    def failed(self, failure: Failure, now: datetime) -> "HandlerCalls":
        """Return these calls after a failed one. The delay before the next call grows each time."""
        wait = min(_FIRST_BACKOFF * (1 << min(self.attempts, 16)), _LONGEST_BACKOFF)
        return msgspec.structs.replace(self.answered(now), last_failure=failure, due=now + wait)


class OperationCancellation(StoredStruct, frozen=True, kw_only=True):
    """The cancellation of a Nexus operation."""

    requested_event_id: int
    calls: HandlerCalls | None = None
    """None until the operation has started."""
    requested_time: datetime | None = None
    """When the handler could first be called."""
    state: str = ""
    """The response: Succeeded or Failed; empty if there is none yet."""


class PendingOperation(StoredStruct, frozen=True, kw_only=True):
    """A Nexus operation that has not closed."""

    scheduled_event_id: int
    endpoint: str
    endpoint_id: str
    handler_namespace: str
    service: str
    operation: str
    input: Any = None
    """The input; None once the operation has started."""
    schedule_to_close_timeout: timedelta | None = None
    schedule_to_start_timeout: timedelta | None = None
    start_to_close_timeout: timedelta | None = None
    header: dict[str, str] = {}
    request_id: str
    scheduled_time: datetime
    started_time: datetime | None = None
    operation_token: str = ""
    cancellation: OperationCancellation | None = None
    calls: HandlerCalls

    @property
    def open_call(self) -> HandlerCalls | None:
        """The pending calls: to start the operation or, once it has started, to cancel it."""
        if self.started_time is None:
            return self.calls
        cancellation = self.cancellation
        return cancellation.calls if cancellation is not None and not cancellation.state else None

    def deadlines(self) -> Iterator[tuple[datetime, TimeoutType]]:
        """Yield every deadline; of equal ones, the first counts."""
        expiration = deadline_after(self.scheduled_time, self.schedule_to_close_timeout)
        start = (
            deadline_after(self.scheduled_time, self.schedule_to_start_timeout) if self.started_time is None else None
        )
        close = deadline_after(self.started_time, self.start_to_close_timeout)
        for deadline, kind in (
            (expiration, TimeoutType.SCHEDULE_TO_CLOSE),
            (start, TimeoutType.SCHEDULE_TO_START),
            (close, TimeoutType.START_TO_CLOSE),
        ):
            if deadline is not None:
                yield deadline, kind

    def call_deadline(self, calls: HandlerCalls) -> datetime:
        """The deadline for the response to a call."""
        ends = (deadline for deadline, _ in self.deadlines())
        return min((calls.due + REQUEST_TIMEOUT, *ends)) - _ANSWER_BUFFER

    def too_late_for(self, calls: HandlerCalls) -> TimeoutType | None:
        """The timeout that leaves no time for a call; None if there is time."""
        ends = sorted((deadline, kind) for deadline, kind in self.deadlines())
        return ends[0][1] if ends and ends[0][0] - calls.due < SHORTEST_REQUEST else None
