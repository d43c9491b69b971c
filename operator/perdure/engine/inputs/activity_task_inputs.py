"""Reports of workers about activities of the task queues that they poll.

Each input identifies the attempt, and `fence` identifies its delivery: a report is stale once the attempt was given to another
worker. The answers are not stored: a report that is sent again is stale.
"""

from dataclasses import dataclass
from typing import Any, TypeAlias

from perdure.engine.failures import Failure


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivityTaken:
    """A worker takes a due attempt."""

    request_id: str
    scheduled_event_id: int
    attempt: int
    fence: str
    identity: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivityReported:
    """A worker reports the end of an attempt: a result, a failure, or a cancellation."""

    request_id: str
    scheduled_event_id: int
    attempt: int
    fence: str
    """The delivery; empty: the report is valid for every delivery."""
    identity: str = ""
    principal: str = ""
    result: Any = None
    failure: Failure | None = None
    cancelled: bool = False
    heartbeat_details: Any = None
    """Details of the last heartbeat, if the failure contains them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivityBeat:
    """A worker sends a heartbeat of an attempt."""

    request_id: str
    scheduled_event_id: int
    attempt: int
    fence: str
    details: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivityReturned:
    """A worker disconnected before it received the attempt."""

    request_id: str
    scheduled_event_id: int
    attempt: int
    fence: str


ActivityInput: TypeAlias = ActivityTaken | ActivityReturned | ActivityReported | ActivityBeat
