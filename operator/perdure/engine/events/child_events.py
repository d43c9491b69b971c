"""Events of child workflows."""

from typing import Any

from perdure.api.parent_close_policy import ParentClosePolicy
from perdure.engine.events.event import CommandEvent, Event
from perdure.engine.failures import Failure, RetryState
from perdure.engine.starts import WorkflowStart


class StartChildWorkflowExecutionInitiated(CommandEvent, frozen=True, kw_only=True):
    """A decider started a child. Its run is created after the commit."""

    child_id: str
    """The decider's own name for it, unique among the run's open children: the step."""
    start: WorkflowStart
    parent_close_policy: ParentClosePolicy = ParentClosePolicy.TERMINATE


class StartChildWorkflowExecutionFailed(Event, frozen=True, kw_only=True):
    """The child was not started. `failure` says why, for example with the type WorkflowExecutionAlreadyStarted."""

    initiated_event_id: int
    child_id: str
    workflow_id: str
    workflow_type: str = ""
    failure: Failure


class ChildWorkflowExecutionStarted(Event, frozen=True, kw_only=True):
    """The child has started."""

    initiated_event_id: int
    child_id: str
    workflow_id: str
    workflow_type: str = ""
    run_id: str
    header: Any = None


class _ChildClosed(Event, frozen=True, kw_only=True):
    initiated_event_id: int
    started_event_id: int
    child_id: str
    workflow_id: str
    workflow_type: str = ""
    run_id: str
    """The run of the child's chain that closed last."""


class ChildWorkflowExecutionCompleted(_ChildClosed, frozen=True, kw_only=True):
    """The child completed."""

    result: Any = None


class ChildWorkflowExecutionFailed(_ChildClosed, frozen=True, kw_only=True):
    """The child failed permanently."""

    failure: Failure
    retry_state: RetryState = RetryState.RETRY_POLICY_NOT_SET


class ChildWorkflowExecutionCanceled(_ChildClosed, frozen=True, kw_only=True):
    """The child was cancelled."""

    details: Any = None


class ChildWorkflowExecutionTimedOut(_ChildClosed, frozen=True, kw_only=True):
    """The child timed out."""

    retry_state: RetryState = RetryState.TIMEOUT


class ChildWorkflowExecutionTerminated(_ChildClosed, frozen=True, kw_only=True):
    """The child was terminated, or its WorkflowRun was deleted."""

    reason: str = ""
