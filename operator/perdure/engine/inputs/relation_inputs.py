"""Results of what the run has requested from others."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from perdure.engine.effects import Effect
from perdure.engine.failures import Failure, RetryState


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildStarted:
    """The child's first run has started."""

    initiated_event_id: int
    run_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildStartFailed:
    """The child could not be started."""

    initiated_event_id: int
    failure: Failure


class ChildOutcome(StrEnum):
    """How a child closed."""

    COMPLETED = "Completed"
    FAILED = "Failed"
    CANCELLED = "Cancelled"
    TIMED_OUT = "TimedOut"
    TERMINATED = "Terminated"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildClosed:
    """The last run of the child's chain has closed."""

    initiated_event_id: int
    run_id: str
    outcome: ChildOutcome
    result: Any = None
    failure: Failure | None = None
    """Why, where it failed; for a terminated one the message is the reason."""
    retry_state: RetryState | None = None
    """Why it was not retried, as its last event has it; None: the event says nothing of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateAdmitted:
    """A reset has brought an update that the run before had accepted."""

    update_id: str
    name: str
    input: Any = None
    header: Any = None
    identity: str = ""
    principal: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalDone:
    """The other run has recorded the signal or the request to cancel; or could not, and `failure` says why."""

    initiated_event_id: int
    failure: Failure | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectDone:
    """What the state asked for is done, and need not be remembered."""

    effect: Effect
    refused: str = ""
    """Of `StartSuccessor`: why the next run of the chain cannot be created; empty where it was. Of `CompleteOperation`: why the
    operation was not completed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecideAgain:
    """What the decider could not decide without may be there now: it is asked again, whatever it was to wait for."""
