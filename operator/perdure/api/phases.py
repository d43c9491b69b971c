"""The kinds of runs, and the states of runs, pending activities, Operations, and circuit breakers.

The module needs no pydantic.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final


class RunKind(StrEnum):
    """The kind of a run. Runs of different kinds can have the same ID."""

    WORKFLOW = "workflow"
    ACTIVITY = "activity"
    NEXUS_OPERATION = "nexusOperation"

    @property
    def standalone(self) -> bool:
        """Whether the run has no workflow."""
        return self is not RunKind.WORKFLOW

    @property
    def noun(self) -> str:
        """The noun for a run of this kind in messages."""
        return "Nexus operation" if self is RunKind.NEXUS_OPERATION else self.value

    @property
    def id_name(self) -> str:
        """The name of its ID in messages."""
        return _ID_NAMES[self]


_ID_NAMES = {
    RunKind.WORKFLOW: "workflow ID",
    RunKind.ACTIVITY: "activity ID",
    RunKind.NEXUS_OPERATION: "operation ID",
}


def kind_of(spec: Mapping[str, Any]) -> RunKind:
    """Return the kind of a run from the spec of its WorkflowRun, as JSON."""
    for kind in (RunKind.ACTIVITY, RunKind.NEXUS_OPERATION):
        if kind.value in spec:
            return kind
    return RunKind.WORKFLOW


def workflow_of(spec: Mapping[str, Any]) -> str:
    """Return the Workflow or workflow type of a run, or in parentheses what it is instead.

    Args:
        spec: The spec of the WorkflowRun, as JSON.
    """
    workflow = spec.get("workflow") or {}
    if named := workflow.get("name") or workflow.get("type"):
        return str(named)
    return {RunKind.ACTIVITY: "(activity)", RunKind.NEXUS_OPERATION: "(Nexus operation)"}.get(kind_of(spec), "(inline)")


class Phase(StrEnum):
    """Phase of a run, derived from the conditions."""

    PENDING = "Pending"
    """Not started: it waits for its start delay, for its workflow ID, for a definition, or for a WorkflowLimit."""

    RUNNING = "Running"
    """Started and open."""

    PAUSED = "Paused"
    """Open, but no new steps start."""

    COMPLETED = "Completed"
    """Closed successfully."""

    FAILED = "Failed"
    """Closed by a failure."""

    CANCELLED = "Cancelled"
    """Closed by a cancellation, after its handlers ran."""

    TERMINATED = "Terminated"
    """Closed immediately, without handlers."""

    TIMED_OUT = "TimedOut"
    """Closed by a timeout."""

    CONTINUED_AS_NEW = "ContinuedAsNew"
    """Closed; the next run with the same workflow ID continues its work."""

    @property
    def is_closed(self) -> bool:
        """Whether the run is closed."""
        return self not in (Phase.PENDING, Phase.RUNNING, Phase.PAUSED)


CLOSED: Final = frozenset(phase for phase in Phase if phase.is_closed)
"""The phases of closed runs."""

DELETING: Final = "Deleting"
"""What lists show in the place of the phase of a run that its deletion has ended, while a finalizer keeps its object."""


def listed_phase(metadata: Mapping[str, Any], phase: str) -> str:
    """Return what lists show as the phase of a run.

    Args:
        metadata: The metadata of its object.
        phase: The phase in its status; empty if no operator has processed it.
    """
    phase = phase or Phase.PENDING
    return DELETING if metadata.get("deletionTimestamp") and phase not in CLOSED else phase


class PendingActivityState(StrEnum):
    """State of a pending activity."""

    SCHEDULED = "Scheduled"
    """An attempt waits to start."""

    STARTED = "Started"
    """An attempt is running."""

    BACKING_OFF = "BackingOff"
    """An attempt failed; the next one waits for its backoff."""

    CIRCUIT_OPEN = "CircuitOpen"
    """The next attempt waits for the circuit breaker of its retry policy."""

    CANCEL_REQUESTED = "CancelRequested"
    """An attempt is running, and its cancellation was requested."""

    PAUSED = "Paused"
    """No attempt starts until the activity is unpaused."""


class OperationPhase(StrEnum):
    """Phase of an Operation; not set until the operator has seen it."""

    RUNNING = "Running"
    """The Operation is accepted, and its target has not recorded it yet."""

    COMPLETE = "Complete"
    """The target has recorded the request."""

    FAILED = "Failed"
    """The request failed, and is not retried."""


class CircuitState(StrEnum):
    """Whether a circuit breaker lets attempts start."""

    CLOSED = "Closed"
    """Attempts start normally."""

    OPEN = "Open"
    """No attempt starts until `openUntil`."""

    HALF_OPEN = "HalfOpen"
    """One attempt at a time starts, to find out whether it succeeds."""
