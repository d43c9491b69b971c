"""Events of child workflows."""

from typing import Any

from perdure.engine.events.event import CommandEvent, Event
from perdure.engine.failures import Failure, RetryState
from perdure.engine.starts import ParentClosePolicy, WorkflowStart


class StartChildWorkflowExecutionInitiated(CommandEvent, frozen=True, kw_only=True):
    """A decider asked for a child. The run that is to be made for it follows after the commit."""

    child_id: str
    """The decider's own name for it, unique among the run's open children: the step."""
    start: WorkflowStart
    parent_close_policy: ParentClosePolicy = ParentClosePolicy.TERMINATE


class StartChildWorkflowExecutionFailed(Event, frozen=True, kw_only=True):
    """The child was not started; `failure` says why, its type is for example WorkflowExecutionAlreadyStarted."""

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
    """The child has ended well."""

    result: Any = None


class ChildWorkflowExecutionFailed(_ChildClosed, frozen=True, kw_only=True):
    """The child has failed for good."""

    failure: Failure
    retry_state: RetryState = RetryState.RETRY_POLICY_NOT_SET


class ChildWorkflowExecutionCanceled(_ChildClosed, frozen=True, kw_only=True):
    """The child was cancelled."""

    details: Any = None


class ChildWorkflowExecutionTimedOut(_ChildClosed, frozen=True, kw_only=True):
    """The child ran into its timeout."""

    retry_state: RetryState = RetryState.TIMEOUT


class ChildWorkflowExecutionTerminated(_ChildClosed, frozen=True, kw_only=True):
    """The child was stopped from outside, or its resource was deleted."""

    reason: str = ""
