"""Resets: a run that begins with a part of another one's history, and decides anew what follows. Pure.

Temporal's model (service/history/ndc/workflow_resetter.go): the events up to the point are taken over as they are, one event
tells of the reset, and what came after the point and was not the run's own doing is applied once more.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

import msgspec

from perdure.engine import events as ev
from perdure.engine import inputs as inp
from perdure.engine.decider import Decider
from perdure.engine.failures import Failure, FailureKind
from perdure.engine.retry import RetryPolicy
from perdure.engine.state import State, apply
from perdure.engine.step import Transition, step

_CHILD_CLOSED: dict[type[ev.Event], inp.ChildOutcome] = {
    ev.ChildWorkflowExecutionCanceled: inp.ChildOutcome.CANCELLED,
    ev.ChildWorkflowExecutionCompleted: inp.ChildOutcome.COMPLETED,
    ev.ChildWorkflowExecutionFailed: inp.ChildOutcome.FAILED,
    ev.ChildWorkflowExecutionTerminated: inp.ChildOutcome.TERMINATED,
    ev.ChildWorkflowExecutionTimedOut: inp.ChildOutcome.TIMED_OUT,
}


def reset_event(
    first: ev.WorkflowExecutionStarted,
    event_id: int,
    now: datetime,
    *,
    base_run_id: str,
    new_run_id: str,
    successor: str,
    task: ev.WorkflowTaskStarted | None = None,
    reason: str = "",
    identity: str = "",
    principal: str = "",
) -> ev.WorkflowTaskFailed:
    """The event that tells of a reset.

    Args:
        first: The first event of the history; both timeouts of the run begin anew (Temporal: RefreshExpirationTimeoutTask).
        event_id: Its own id: the one after the point.
        now: When.
        base_run_id: The run whose history it is.
        new_run_id: The run that goes on with it.
        successor: Name that the WorkflowRun which continues or retries this one is to have.
        task: Of code that workers run: the event at the point.
        reason: Why.
        identity: Who, as the client says.
        principal: Who, as the API server says.
    """
    expiration = _after(now, first.workflow_execution_timeout)
    deadlines = filter(None, (_after(now, first.workflow_run_timeout), expiration))
    return ev.WorkflowTaskFailed(
        cause="ResetWorkflow",
        scheduled_event_id=task.scheduled_event_id if task else 0,
        started_event_id=task.event_id if task else 0,
        event_id=event_id,
        event_time=now,
        reason=reason,
        identity=identity,
        principal=principal,
        base_run_id=base_run_id,
        new_run_id=new_run_id,
        workflow_execution_expiration_time=expiration,
        workflow_run_expiration_time=min(deadlines, default=None),
        successor=successor,
    )


def begin(
    forked: State,
    event: ev.WorkflowTaskFailed,
    inputs: Sequence[inp.RunInput],
    decider: Decider,
    requests: Sequence[str],
    *,
    policies: Mapping[str, RetryPolicy] | None = None,
) -> Transition:
    """The first pass of a run that was reset.

    Args:
        forked: The state at the point: see `history.fork`.
        event: Tells of the reset.
        inputs: What is applied once more: see `since`.
        decider: Decides what follows.
        requests: Those that the other run has heeded: asked again, they change nothing.
        policies: The RetryPolicies that deciders may mean by name.
    """
    state = apply(forked, event)
    transition = step(state, inputs, event.event_time, decider, policies)
    state = msgspec.structs.replace(transition.state, requests=tuple(requests))
    return replace(transition, state=state, events=(event, *transition.events), durable=True)


def since(
    forked: State, later: Sequence[ev.AnyEvent], run_id: str, *, signals: bool, updates: bool = True
) -> Iterator[inp.RunInput]:
    """What happened to a run after the point, without its own doing.

    Signals and updates, and what became of children and requests.

    Args:
        forked: The state at the point.
        later: The events after it.
        run_id: Of the run that they are of.
        signals: Whether signals are wanted.
        updates: Whether updates that were accepted are wanted.
    """
    for event in later:
        match event:
            case ev.WorkflowExecutionUpdateAdmitted() | ev.WorkflowExecutionUpdateAccepted() if updates and event.name:
                yield update_again(event)
            case ev.WorkflowExecutionSignaled() if signals:
                yield signal_again(event, run_id)
            case ev.ChildWorkflowExecutionStarted() if str(event.initiated_event_id) in forked.children:
                yield inp.ChildStarted(initiated_event_id=event.initiated_event_id, run_id=event.run_id)
            case ev.StartChildWorkflowExecutionFailed() if str(event.initiated_event_id) in forked.children:
                yield inp.ChildStartFailed(initiated_event_id=event.initiated_event_id, failure=event.failure)
            case (
                ev.ChildWorkflowExecutionCanceled()
                | ev.ChildWorkflowExecutionCompleted()
                | ev.ChildWorkflowExecutionFailed()
                | ev.ChildWorkflowExecutionTerminated()
                | ev.ChildWorkflowExecutionTimedOut()
            ) if str(event.initiated_event_id) in forked.children:
                yield inp.ChildClosed(
                    initiated_event_id=event.initiated_event_id,
                    run_id=event.run_id,
                    outcome=_CHILD_CLOSED[type(event)],
                    result=getattr(event, "result", getattr(event, "details", None)),
                    failure=_child_failure(event),
                    retry_state=getattr(event, "retry_state", None),
                )
            case (
                ev.ExternalWorkflowExecutionSignaled()
                | ev.ExternalWorkflowExecutionCancelRequested()
                | ev.SignalExternalWorkflowExecutionFailed()
                | ev.RequestCancelExternalWorkflowExecutionFailed()
            ) if str(event.initiated_event_id) in forked.externals:
                yield inp.ExternalDone(
                    initiated_event_id=event.initiated_event_id, failure=getattr(event, "failure", None)
                )
            case _:
                pass


def signal_again(event: ev.WorkflowExecutionSignaled, run_id: str) -> inp.SignalRequested:
    """A signal that a run has received, to be received once more."""
    return inp.SignalRequested(
        request_id=f"{run_id}/{event.event_id}",
        signal_name=event.signal_name,
        input=event.input,
        identity=event.identity,
        principal=event.principal,
        header=event.header,
        external=event.external,
    )


def update_again(event: ev.WorkflowExecutionUpdateAdmitted | ev.WorkflowExecutionUpdateAccepted) -> inp.UpdateAdmitted:
    """An update that a run has accepted, or was given, to be processed once more."""
    return inp.UpdateAdmitted(
        update_id=event.update_id,
        name=event.name,
        input=event.input,
        header=event.header,
        identity=event.identity,
        principal=event.principal,
    )


def _child_failure(event: ev.AnyEvent) -> Failure | None:
    match event:
        case ev.ChildWorkflowExecutionFailed():
            return event.failure
        case ev.ChildWorkflowExecutionTerminated():
            return Failure(kind=FailureKind.TERMINATED, message=event.reason)
        case _:
            return None


def _after(start: datetime, length: timedelta | None) -> datetime | None:
    return start + length if length is not None else None
