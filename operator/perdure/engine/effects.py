"""Effects: the actions outside of a run that its state requires, such as starting children or creating pods.

Effects are computed from the state alone, so every operator with the committed state, before or after a crash, computes the
same effects. When an effect of `effects` is done, the step gets `inputs.EffectDone`, and the state drops it. Effects of
`attempt_effects` last until the attempt ends. (Temporal: the transfer tasks of its history service.)
"""

from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from perdure.api.policies import ParentClosePolicy
from perdure.engine.state import PendingChild, RunState


@dataclass(frozen=True, slots=True)
class StartChild:
    """Create the run of a child."""

    initiated_event_id: int


@dataclass(frozen=True, slots=True)
class CloseChild:
    """Apply the parent close policy to a child: the run has closed."""

    initiated_event_id: int


@dataclass(frozen=True, slots=True)
class RequestExternal:
    """Signal another run, or request its cancellation."""

    initiated_event_id: int


@dataclass(frozen=True, slots=True)
class WriteDeadLetter:
    """Create the DeadLetter of a marker."""

    marker_event_id: int


@dataclass(frozen=True, slots=True)
class StartSuccessor:
    """Create the run that continues or retries this one."""


@dataclass(frozen=True, slots=True)
class CompleteOperation:
    """Complete the Nexus operation of another run with the outcome of this run or of one of its updates."""

    key: str
    """Its key in `RunState.callbacks`."""


@dataclass(frozen=True, slots=True)
class ReportAttempt:
    """Report the end of an attempt to a circuit breaker."""

    scheduled_event_id: int
    attempt: int

    @property
    def key(self) -> str:
        """Its key in `RunState.reports`."""
        return f"{self.scheduled_event_id}/{self.attempt}"

    @classmethod
    def of(cls, key: str) -> "ReportAttempt":
        """The effect of an entry of `RunState.reports`."""
        scheduled_event_id, attempt = key.split("/")
        return cls(int(scheduled_event_id), int(attempt))


Effect: TypeAlias = (
    StartChild | CloseChild | RequestExternal | WriteDeadLetter | StartSuccessor | CompleteOperation | ReportAttempt
)


@dataclass(frozen=True, slots=True)
class StartAttempt:
    """Create the pod of an attempt, and its Lease if it has one."""

    scheduled_event_id: int
    attempt: int


@dataclass(frozen=True, slots=True)
class StopAttempt:
    """Request an attempt to stop."""

    scheduled_event_id: int
    attempt: int


AttemptEffect: TypeAlias = StartAttempt | StopAttempt


def effects(state: RunState) -> tuple[Effect, ...]:
    """All effects of a state, in the order in which they must happen."""
    pending: list[Effect] = [ReportAttempt.of(key) for key in state.reports]
    for child in state.children.values():
        if is_to_be_started(child, state):
            pending.append(StartChild(child.initiated_event_id))
        if state.closed:
            pending.append(CloseChild(child.initiated_event_id))
    pending += [RequestExternal(external.initiated_event_id) for external in state.externals.values()]
    pending += [WriteDeadLetter(marker.event_id) for marker in state.markers.values()]
    pending += [CompleteOperation(key) for key, callback in state.callbacks.items() if state.is_due(callback)]
    if state.start_successor:
        pending.append(StartSuccessor())
    return tuple(pending)


def is_to_be_started(child: PendingChild, state: RunState) -> bool:
    """Whether the run of a child must be created. Once the parent has closed, this holds only for abandoned children."""
    return child.start is not None and (not state.closed or child.parent_close_policy is ParentClosePolicy.ABANDON)


def attempt_effects(state: RunState, now: datetime) -> tuple[AttemptEffect, ...]:
    """All effects of a state on the pods of its attempts, in the order in which they must happen."""
    by_pods = [activity for activity in state.open_activities() if not activity.by_worker]
    stops = (
        StopAttempt(activity.scheduled_event_id, activity.attempt)
        for activity in by_pods
        if activity.cancel_requested and activity.started_time is not None
    )
    starts = (
        StartAttempt(activity.scheduled_event_id, activity.attempt)
        for activity in by_pods
        if state.may_start(activity, now)
    )
    return (*stops, *starts)
