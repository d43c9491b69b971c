"""Nexus operations of other runs, which the end of a run completes. The only effect that reaches another namespace."""

from perdure.api.reasons import ConditionReason
from perdure.controller.directory import Entry, Standing
from perdure.controller.peers import OVER
from perdure.controller.runs.effects.effect_context import EffectContext
from perdure.engine import history, inputs
from perdure.engine.effects import CompleteOperation
from perdure.engine.inputs import Answer
from perdure.engine.nexus import too_large
from perdure.engine.state import PendingCallback
from perdure.kube import client as kube
from perdure.runtime.callbacks import OPERATION_TOKEN_HEADER, CallbackToken, ending_of, token_of

_LATER_SECONDS = 10.0
"""After this a run that could not take the outcome is asked again."""


async def complete(context: EffectContext, key: str, pending: PendingCallback, run: kube.Object) -> None:
    """Tell the run that has scheduled an operation how this run, which was started for it, has ended.

    That run takes it only if it waits for an operation with this request ID, handled in this namespace.

    Args:
        context: Of the run that has closed.
        key: Of the callback in the state.
        pending: The callback.
        run: The object of the run, as committed.

    Raises:
        ApiError, OSError, aiohttp.ClientError, TimeoutError: the API server did not do its part.
    """
    effect, token = CompleteOperation(key), token_of(pending.callback)
    if token is None:
        context.pending.enqueue(inputs.EffectDone(effect=effect, refused="the callback has no valid token"))
        return
    target = _target(context, token)
    if target is None:
        await _miss(context, effect, token)
        return
    closing = history.decode_events(run["status"]["history"]["events"][-1:])[0]
    ending = ending_of(closing)
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
        links=[_link(context)],
    )

    def answered(answer: Answer) -> None:
        if answer.ok:
            context.pending.enqueue(inputs.EffectDone(effect=effect))
        elif answer.reason == ConditionReason.PAYLOAD_TOO_LARGE and ended.result is not None:
            context.peers.ask(target, too_large(ended), answered)
        elif answer.reason == inputs.OPERATION_NOT_FOUND:
            context.pending.enqueue(inputs.EffectDone(effect=effect, refused=answer.message))
        else:  # it has closed, perhaps by a reset; or it cannot be processed for now
            context.retry_soon(effect, 0.0 if answer.reason in OVER else _LATER_SECONDS)

    context.peers.ask(target, ended, answered)


def _target(context: EffectContext, token: CallbackToken) -> Entry | None:
    """The run that has scheduled the operation; where that was reset, the one that goes on with it."""
    found = context.peers.directory.get(token.run_id)
    if found is not None and found.standing is not Standing.CLOSED:
        return found if found.namespace == token.namespace else None
    return context.peers.directory.open_run(token.namespace, token.workflow_id)


async def _miss(context: EffectContext, effect: CompleteOperation, token: CallbackToken) -> None:
    """No open run is known: one is to come, or nobody waits any more."""
    directory = context.peers.directory
    known = directory.get(token.run_id)
    if known is None:
        try:
            found = await context.client.get(kube.path(kube.PERDURE, token.namespace, "workflowruns", token.name))
        except kube.NotFoundError:
            found = None
        if found is not None and found["metadata"]["uid"] == token.run_id:
            context.peers.noted(found)
            context.retry_soon(effect)
            return
    if directory.gap(token.namespace, token.workflow_id) is not None:
        context.retry_soon(effect)
        return
    message = f"no run of workflow ID `{token.workflow_id}` in namespace `{token.namespace}` waits for the operation"
    context.pending.enqueue(inputs.EffectDone(effect=effect, refused=message))


def _link(context: EffectContext) -> dict[str, object]:
    """To the first event of the run: JSON of temporal.api.common.v1.Link."""
    run = context.run
    reference = {"eventId": "1", "eventType": "EVENT_TYPE_WORKFLOW_EXECUTION_STARTED"}
    event = {"namespace": run.namespace, "workflowId": run.workflow_id, "runId": run.uid, "eventRef": reference}
    return {"workflowEvent": event}
