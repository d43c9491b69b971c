"""Results of the requests of a run to other runs."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from perdure.engine.effects import Effect
from perdure.engine.failures import Failure, RetryState
from perdure.engine.starts import Callback


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
    """Why the child failed; for a terminated child, the message is the reason."""
    retry_state: RetryState | None = None
    """Why the child was not retried, from its last event; None if the event does not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateAdmitted:
    """A reset passes on an update that the previous run had accepted."""

    update_id: str
    name: str
    input: Any = None
    header: Any = None
    identity: str = ""
    principal: str = ""
    request_id: str = ""
    completion_callbacks: tuple[Callback, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalDone:
    """The other run has recorded the signal or the cancellation request, or could not record it: see `failure`."""

    initiated_event_id: int
    failure: Failure | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectDone:
    """An effect of the state is done, so the state can drop it."""

    effect: Effect
    refused: str = ""
    """For `StartSuccessor`: why the next run of the chain cannot be created; empty if it was. For `CompleteOperation`: why the
    operation was not completed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecideAgain:
    """An object that the decider was missing may exist now: decide again, without waiting for the backoff."""
