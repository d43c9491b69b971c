"""Events of signals and cancellation requests to other workflows."""

from typing import Any

from perdure.engine.events.event import CommandEvent, Event
from perdure.engine.failures import Failure


class SignalExternalWorkflowExecutionInitiated(CommandEvent, frozen=True, kw_only=True):
    """A decider sent a signal to another run."""

    signal_id: str
    """The decider's own name for it: the step."""
    workflow_id: str
    run_id: str = ""
    """Empty: the open run of the workflow ID."""
    signal_name: str
    input: Any = None
    child_workflow_only: bool = False
    header: Any = None
    control: str = ""


class ExternalWorkflowExecutionSignaled(Event, frozen=True, kw_only=True):
    """The other run has recorded the signal."""

    initiated_event_id: int
    signal_id: str
    workflow_id: str
    run_id: str = ""
    control: str = ""


class SignalExternalWorkflowExecutionFailed(Event, frozen=True, kw_only=True):
    """The signal could not be delivered: no such run is open."""

    initiated_event_id: int
    signal_id: str
    workflow_id: str
    run_id: str = ""
    control: str = ""
    failure: Failure


class RequestCancelExternalWorkflowExecutionInitiated(CommandEvent, frozen=True, kw_only=True):
    """A decider requested the cancellation of another run, usually a child."""

    workflow_id: str
    run_id: str = ""
    child_workflow_only: bool = False
    reason: str = ""
    control: str = ""


class ExternalWorkflowExecutionCancelRequested(Event, frozen=True, kw_only=True):
    """The other run has recorded the request."""

    initiated_event_id: int
    workflow_id: str
    run_id: str = ""
    control: str = ""


class RequestCancelExternalWorkflowExecutionFailed(Event, frozen=True, kw_only=True):
    """The request could not be delivered: no such run is open."""

    initiated_event_id: int
    workflow_id: str
    run_id: str = ""
    control: str = ""
    failure: Failure
