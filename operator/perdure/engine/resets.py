"""Resets: a new run begins with a part of another run's history, and decides again from there. Pure.

Temporal's model (service/history/ndc/workflow_resetter.go): the events up to the point are copied, one event
records the reset, and external inputs after the point are applied again.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from perdure.api.policies import WorkflowIdReusePolicy
from perdure.engine import events as ev
from perdure.engine import inputs as inp
from perdure.engine.commands import Decider
from perdure.engine.failures import Failure, FailureKind
from perdure.engine.fold import apply
from perdure.engine.retry import RetryPolicy
from perdure.engine.starts import RestartedOperation, WorkflowStart
from perdure.engine.state import KeptResult, RunState, digest_of
from perdure.engine.step import RunTransition, step

_CHILD_CLOSED: dict[type[ev.Event], inp.ChildOutcome] = {
    ev.ChildWorkflowExecutionCanceled: inp.ChildOutcome.CANCELLED,
    ev.ChildWorkflowExecutionCompleted: inp.ChildOutcome.COMPLETED,
    ev.ChildWorkflowExecutionFailed: inp.ChildOutcome.FAILED,
    ev.ChildWorkflowExecutionTerminated: inp.ChildOutcome.TERMINATED,
    ev.ChildWorkflowExecutionTimedOut: inp.ChildOutcome.TIMED_OUT,
}


def kept_results(
    forked: RunState, later: Sequence[ev.AnyEvent], kept: Iterable[int]
) -> Iterator[tuple[str, KeptResult]]:
    """The results of activities and children that completed after the point, by ID.

    Args:
        forked: The state at the point.
        later: The events after it.
        kept: IDs of the ActivityTaskCompleted and ChildWorkflowExecutionCompleted events whose results to keep.
    """
    wanted = set(kept)
    begun: dict[int, tuple[str, str, Any]] = {
        each.scheduled_event_id: (each.activity_id, each.activity_type, each.input)
        for each in forked.activities.values()
    }
    for event in later:
        match event:
            case ev.ActivityTaskScheduled():
                begun[event.event_id] = event.activity_id, event.activity_type, event.input
            case ev.StartChildWorkflowExecutionInitiated():
                begun[event.event_id] = event.child_id, event.start.workflow_type, event.start.input
            case ev.ActivityTaskCompleted() if event.event_id in wanted:
                path, type_, value = begun[event.scheduled_event_id]
                digest = digest_of(value)
                yield path, KeptResult(type=type_, input_digest=digest, result=event.result, artifacts=event.artifacts)
            case ev.ChildWorkflowExecutionCompleted() if event.event_id in wanted:
                path, type_, value = begun[event.initiated_event_id]
                digest = digest_of(value)
                yield path, KeptResult(type=type_, input_digest=digest, result=event.result, run_id=event.run_id)
            case _:
                pass


@dataclass(frozen=True, slots=True)
class Restarted:
    """The open children and Nexus operations at the point of a reset that start again."""

    children: Mapping[str, WorkflowStart] = field(default_factory=dict)
    """By the ID of the event that initiated them."""
    operations: Mapping[str, RestartedOperation] = field(default_factory=dict)
    """By the ID of the event that scheduled them."""


def restarted(
    forked: RunState,
    events: Sequence[ev.AnyEvent],
    later: Sequence[ev.AnyEvent],
    new_id: Callable[[], str],
    repeated: Collection[int] = (),
) -> Restarted:
    """What starts again: the run canceled it after the point, because of what is now decided again.

    What completed nevertheless does not start again. A child that does may use the workflow ID of the other run's child.

    Args:
        forked: The state at the point.
        events: The events up to the point.
        later: The events after it.
        new_id: Creates the ID of a request that nobody can guess.
        repeated: IDs of the events that initiated the children that a retry repeats.
    """
    canceled = {
        event.workflow_id
        for event in later
        if isinstance(event, ev.RequestCancelExternalWorkflowExecutionInitiated) and event.child_workflow_only
    }
    completed = {event.initiated_event_id for event in later if isinstance(event, ev.ChildWorkflowExecutionCompleted)}
    children = {
        child.initiated_event_id
        for child in forked.children.values()
        if child.initiated_event_id in repeated
        or (child.workflow_id in canceled and child.initiated_event_id not in completed)
    }
    operations = {event.scheduled_event_id for event in later if isinstance(event, ev.NexusOperationCancelRequested)}
    operations -= {event.scheduled_event_id for event in later if isinstance(event, ev.NexusOperationCompleted)}
    operations &= {each.scheduled_event_id for each in forked.operations.values()}
    reuse = WorkflowIdReusePolicy.ALLOW_DUPLICATE.value
    return Restarted(
        {
            str(event.event_id): msgspec.structs.replace(event.start, workflow_id_reuse_policy=reuse)
            for event in events
            if isinstance(event, ev.StartChildWorkflowExecutionInitiated) and event.event_id in children
        },
        {
            str(event.event_id): RestartedOperation(request_id=new_id(), input=event.input)
            for event in events
            if isinstance(event, ev.NexusOperationScheduled) and event.event_id in operations
        },
    )


_NOTHING: Final = Restarted()


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
    restarted: Restarted = _NOTHING,
) -> ev.WorkflowTaskFailed:
    """The event that records a reset.

    Args:
        first: The first event of the history; both timeouts of the run start again (Temporal: RefreshExpirationTimeoutTask).
        event_id: The ID of this event, which follows the point.
        now: The time of the reset.
        base_run_id: The run with the original history.
        new_run_id: The run that the reset creates.
        successor: The name for a WorkflowRun that continues or retries the new run.
        task: The event at the point, if workers decide the run.
        reason: Why the run was reset.
        identity: The client's own name for itself.
        principal: The user that the API server authenticated.
        restarted: What starts again.
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
        restarted_children=dict(restarted.children),
        restarted_operations=dict(restarted.operations),
    )


def begin(
    forked: RunState,
    event: ev.WorkflowTaskFailed,
    inputs: Sequence[inp.RunInput],
    decider: Decider,
    requests: Sequence[str],
    *,
    policies: Mapping[str, RetryPolicy] | None = None,
    kept: Iterable[tuple[str, KeptResult]] = (),
) -> RunTransition:
    """The first step of a run that a reset created.

    Args:
        forked: The state at the point: see `history.fork`.
        event: The event that records the reset.
        inputs: The inputs to apply again, from `since`.
        decider: The decider of the run.
        requests: IDs of requests that the other run has applied. They change nothing if they are sent again.
        policies: The RetryPolicies that deciders can name.
        kept: Results of activities and children that do not run again if they are scheduled with the same input, by ID.
    """
    state = msgspec.structs.replace(apply(forked, event), kept=dict(kept))
    # As on Temporal's server, the first workflow task follows the inputs that are applied again.
    together = state.code is not None
    transition = step(state, inputs, event.event_time, decider, policies, together=together)
    state = msgspec.structs.replace(transition.state, requests=tuple(requests))
    return replace(transition, state=state, events=(event, *transition.events), durable=True)


def since(
    forked: RunState,
    later: Sequence[ev.AnyEvent],
    run_id: str,
    *,
    signals: bool,
    updates: bool = True,
    restarted: Restarted = _NOTHING,
) -> Iterator[inp.RunInput]:
    """Yield the external inputs of a run after the point.

    They are signals and updates, callbacks, and the results of children, requests and Nexus operations.

    Args:
        forked: The state at the point.
        later: The events after it.
        run_id: ID of the run with these events.
        signals: Whether to include signals.
        updates: Whether to include accepted updates.
        restarted: What starts again. What happened to it after the point is omitted.
    """
    children = forked.children.keys() - restarted.children.keys()
    operations = forked.operations.keys() - restarted.operations.keys()
    started = {
        each.scheduled_event_id: each.handler_namespace
        for each in forked.operations.values()
        if each.started_time is not None
    }
    for event in later:
        match event:
            case ev.WorkflowExecutionUpdateAdmitted() | ev.WorkflowExecutionUpdateAccepted() if updates and event.name:
                yield reapply_update(event)
            case ev.WorkflowExecutionSignaled() if signals:
                yield reapply_signal(event, run_id)
            case ev.ChildWorkflowExecutionStarted() if str(event.initiated_event_id) in children:
                yield inp.ChildStarted(initiated_event_id=event.initiated_event_id, run_id=event.run_id)
            case ev.StartChildWorkflowExecutionFailed() if str(event.initiated_event_id) in children:
                yield inp.ChildStartFailed(initiated_event_id=event.initiated_event_id, failure=event.failure)
            case ev.ChildClosed() if str(event.initiated_event_id) in children:
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
            case ev.WorkflowExecutionOptionsUpdated() if updates or not event.update_id:
                yield reapply_options(event)
            case _:
                yield from _reapply_operation(event, operations, started)


_OPERATION_CLOSED: dict[type[ev.Event], inp.OperationOutcome] = {
    ev.NexusOperationCompleted: inp.OperationOutcome.COMPLETED,
    ev.NexusOperationFailed: inp.OperationOutcome.FAILED,
    ev.NexusOperationCanceled: inp.OperationOutcome.CANCELED,
}


def _reapply_operation(
    event: ev.AnyEvent, operations: Collection[str], started: dict[int, str]
) -> Iterator[inp.RunInput]:
    """Yield the inputs of a Nexus operation. `started`: the namespaces of the handlers that have started operations."""
    if str(getattr(event, "scheduled_event_id", 0)) not in operations:
        return
    match event:
        case ev.NexusOperationStarted():
            started[event.scheduled_event_id] = event.handler_namespace
            yield _operation_reported(event, inp.OperationOutcome.STARTED, event.handler_namespace)
        case ev.NexusOperationCompleted() | ev.NexusOperationFailed() | ev.NexusOperationCanceled():
            yield _operation_ended(event, started.get(event.scheduled_event_id))
        case _:
            pass


def _operation_ended(
    event: ev.NexusOperationCompleted | ev.NexusOperationFailed | ev.NexusOperationCanceled, handler: str | None
) -> inp.OperationReported | inp.OperationEnded:
    """The end of a Nexus operation. `handler` is the namespace that started it; None: it ended with the first response."""
    outcome = _OPERATION_CLOSED[type(event)]
    if handler is None:
        return _operation_reported(event, outcome, "")
    return inp.OperationEnded(
        request_id=f"{event.request_id}/again",
        scheduled_event_id=event.scheduled_event_id,
        operation_request_id=event.request_id,
        handler_namespace=handler,
        outcome=outcome,
        result=getattr(event, "result", None),
        failure=_cause(event),
    )


def _operation_reported(
    event: ev.NexusOperationStarted | ev.NexusOperationCompleted | ev.NexusOperationFailed | ev.NexusOperationCanceled,
    outcome: inp.OperationOutcome,
    handler: str,
) -> inp.OperationReported:
    return inp.OperationReported(
        request_id=f"{event.request_id}/again",
        scheduled_event_id=event.scheduled_event_id,
        attempt=1,  # the new run counts its calls from 1
        outcome=outcome,
        handler_namespace=handler,
        operation_token=getattr(event, "operation_token", ""),
        result=getattr(event, "result", None),
        failure=_cause(event),
        links=getattr(event, "links", None),
    )


def _cause(event: ev.AnyEvent) -> Failure | None:
    failure: Failure | None = getattr(event, "failure", None)
    return failure.cause if failure is not None else None


def reapply_options(event: ev.WorkflowExecutionOptionsUpdated) -> inp.CallbacksAttached | inp.OverrideChanged:
    """The input that attaches callbacks, or sets the versioning override, again."""
    if not event.attached_request_id:
        return inp.OverrideChanged(
            request_id=f"{event.event_id}/override",
            override=event.versioning_override,
            identity=event.identity,
            principal=event.principal,
        )
    return inp.CallbacksAttached(
        request_id=event.attached_request_id,
        callbacks=event.attached_completion_callbacks,
        update_id=event.update_id,
        identity=event.identity,
        principal=event.principal,
        links=event.links,
    )


def reapply_signal(event: ev.WorkflowExecutionSignaled, run_id: str) -> inp.SignalRequested:
    """The input that sends a signal again."""
    return inp.SignalRequested(
        request_id=f"{run_id}/{event.event_id}",
        signal_name=event.signal_name,
        input=event.input,
        identity=event.identity,
        principal=event.principal,
        header=event.header,
        external=event.external,
        links=event.links,
    )


def reapply_update(
    event: ev.WorkflowExecutionUpdateAdmitted | ev.WorkflowExecutionUpdateAccepted,
) -> inp.UpdateAdmitted:
    """The input that admits an update again."""
    return inp.UpdateAdmitted(
        update_id=event.update_id,
        name=event.name,
        input=event.input,
        header=event.header,
        identity=event.identity,
        principal=event.principal,
        request_id=event.request_id,
        completion_callbacks=event.completion_callbacks,
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
