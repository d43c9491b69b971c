"""Complete the Nexus operations of other runs with the outcome of a run or of an update.

This is the only effect that reaches another namespace.
"""

from collections.abc import Sequence

from perdure.api.reasons import ConditionReason
from perdure.controller.directory import Entry, Standing
from perdure.controller.runs.effects.context import EffectContext
from perdure.controller.runs.store import past_of
from perdure.controller.services import OVER
from perdure.engine import events as ev
from perdure.engine import history, inputs
from perdure.engine.effects import CompleteOperation
from perdure.engine.inputs import Answer
from perdure.engine.nexus import too_large
from perdure.engine.state import PendingCallback, RunState
from perdure.kube import client as kube
from perdure.runtime.callbacks import (
    OPERATION_TOKEN_HEADER,
    CallbackToken,
    OperationCompletion,
    completion_of,
    token_of,
    update_completion,
)

_LATER_SECONDS = 10.0
"""Delay before the outcome is delivered again to a run that could not process it."""


async def complete(context: EffectContext, key: str, state: RunState, run: kube.Object) -> None:
    """Deliver the outcome of this run or of an update to the run that scheduled the operation.

    That run accepts it only if it waits for an operation with this request ID, handled in this namespace.

    Args:
        context: The context of the run.
        key: The key of the callback in the state.
        state: The committed state of the run.
        run: The object of the run, as committed.

    Raises:
        RequestError: The Kubernetes API request failed.
    """
    pending = state.callbacks[key]
    effect, token = CompleteOperation(key), token_of(pending.callback)
    if token is None:
        context.pending.enqueue(inputs.EffectDone(effect=effect, refused="the callback has no valid token"))
        return
    target = _target(context, token)
    if target is None:
        await _miss(context, effect, token)
        return
    ending = await _ending(context, pending, state, run)
    request_id = f"{context.run.uid}/callback/{key}"
    ended = inputs.OperationEnded(
        request_id=request_id,
        scheduled_event_id=token.scheduled_event_id,
        operation_request_id=token.request_id,
        handler_namespace=context.run.namespace,
        outcome=ending.outcome,
        operation_token=pending.callback.header.get(OPERATION_TOKEN_HEADER, ""),
        result=ending.result,
        failure=ending.failure,
        links=[_link(context, pending, state)],
    )

    def answered(answer: Answer) -> None:
        if answer.ok:
            context.pending.enqueue(inputs.EffectDone(effect=effect))
        elif answer.reason == ConditionReason.PAYLOAD_TOO_LARGE and ended.result is not None:
            context.peers.send(target, too_large(ended), answered)
        elif answer.reason == inputs.OPERATION_NOT_FOUND:
            context.pending.enqueue(inputs.EffectDone(effect=effect, refused=answer.message))
        else:  # the run has closed, perhaps by a reset, or it cannot be processed for now
            context.retry_soon(effect, 0.0 if answer.reason in OVER else _LATER_SECONDS)

    context.peers.send(target, ended, answered)


async def _ending(
    context: EffectContext, pending: PendingCallback, state: RunState, run: kube.Object
) -> OperationCompletion:
    tail = history.decode_events(run["status"]["history"]["events"])
    if not pending.update_id:
        return completion_of(tail[-1], standalone=state.standalone)
    if not state.has_completed(pending.update_id):
        return update_completion(None, pending.rejection)
    ended = _completion(tail, pending.update_id)
    if ended is None:  # its event is sealed
        past = await past_of(context.client, run)
        ended = _completion(history.decode_events(past.events), pending.update_id)
    return update_completion(ended, None)


def _completion(events: Sequence[ev.AnyEvent], update_id: str) -> ev.WorkflowExecutionUpdateCompleted | None:
    completed = (event for event in events if isinstance(event, ev.WorkflowExecutionUpdateCompleted))
    return next((event for event in completed if event.update_id == update_id), None)


def _target(context: EffectContext, token: CallbackToken) -> Entry | None:
    """The run that scheduled the operation, or the run that continues it after a reset."""
    found = context.peers.directory.get(token.run_id)
    if found is not None and found.standing is not Standing.CLOSED:
        return found if found.namespace == token.namespace else None
    return context.peers.directory.open_run(token.namespace, token.workflow_id)


async def _miss(context: EffectContext, effect: CompleteOperation, token: CallbackToken) -> None:
    """Handle a missing target: wait for a run that is about to be created, or give up."""
    directory = context.peers.directory
    known = directory.get(token.run_id)
    if known is None:
        try:
            found = await context.client.get(kube.path(kube.PERDURE, token.namespace, "workflowruns", token.name))
        except kube.NotFoundError:
            found = None
        if found is not None and found["metadata"]["uid"] == token.run_id:
            context.peers.publish(found)
            context.retry_soon(effect)
            return
    if directory.gap(token.namespace, token.workflow_id) is not None:
        context.retry_soon(effect)
        return
    message = f"no run of workflow ID `{token.workflow_id}` in namespace `{token.namespace}` waits for the operation"
    context.pending.enqueue(inputs.EffectDone(effect=effect, refused=message))


def _link(context: EffectContext, pending: PendingCallback, state: RunState) -> dict[str, object]:
    """The link to the start of the ended run or update, as JSON of temporal.api.common.v1.Link."""
    run = context.run
    if state.standalone:
        return {"activity": {"namespace": run.namespace, "activityId": run.workflow_id, "runId": run.uid}}
    event: dict[str, object] = {"namespace": run.namespace, "workflowId": run.workflow_id, "runId": run.uid}
    if not pending.update_id:
        event["eventRef"] = {"eventId": "1", "eventType": "EVENT_TYPE_WORKFLOW_EXECUTION_STARTED"}
        return {"workflowEvent": event}
    record = state.code.updates.get(pending.update_id) if state.code is not None else None
    accepted = record is not None and record.accepted_event_id == pending.event_id
    kind = "UPDATE_ACCEPTED" if accepted else "OPTIONS_UPDATED"
    event["requestIdRef"] = {"requestId": pending.request_id, "eventType": f"EVENT_TYPE_WORKFLOW_EXECUTION_{kind}"}
    return {"workflowEvent": event}
