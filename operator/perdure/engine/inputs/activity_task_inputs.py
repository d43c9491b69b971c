"""What workers report about activities of the task queues that they poll.

Each input names the attempt, and by `fence` the delivery: a report of a worker is stale once the attempt was given to another
one. The answers are not remembered: a report that is sent again is stale.
"""

from dataclasses import dataclass
from typing import Any, TypeAlias

from perdure.engine.failures import Failure


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivityTaken:
    """A worker takes an attempt that is due."""

    request_id: str
    scheduled_event_id: int
    attempt: int
    fence: str
    identity: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivityReported:
    """A worker says how an attempt has ended: with a result, a failure, or that it was cancelled."""

    request_id: str
    scheduled_event_id: int
    attempt: int
    fence: str
    """Empty: whoever has it."""
    identity: str = ""
    principal: str = ""
    result: Any = None
    failure: Failure | None = None
    cancelled: bool = False
    heartbeat_details: Any = None
    """Those of the last heartbeat, where the failure brings them along."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivityBeat:
    """A worker says that an attempt goes on."""

    request_id: str
    scheduled_event_id: int
    attempt: int
    fence: str
    details: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivityReturned:
    """A worker went away before it had the attempt that it was given."""

    request_id: str
    scheduled_event_id: int
    attempt: int
    fence: str


ActivityInput: TypeAlias = ActivityTaken | ActivityReturned | ActivityReported | ActivityBeat
