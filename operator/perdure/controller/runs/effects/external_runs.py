"""Deliver signals and cancellation requests of a run to other runs."""

from perdure.controller.directory import Entry, Standing
from perdure.controller.peers import NOT_FOUND, OVER
from perdure.controller.runs.effects.context import EffectContext, application_failure
from perdure.engine import inputs
from perdure.engine.effects import RequestExternal
from perdure.engine.inputs import Answer
from perdure.engine.starts import ExternalReference
from perdure.engine.state import PendingExternal, RunState


def deliver(context: EffectContext, external: PendingExternal, state: RunState) -> bool:
    """Deliver a signal or a cancellation request to another run.

    Returns:
        Whether it was delivered: False while the target, a child, is about to be created.
    """
    effect, number, closed = RequestExternal(external.initiated_event_id), external.initiated_event_id, state.closed
    target = _target(context, external)
    if target is None:
        return _miss(context, external, state)
    # The reset run may have sent a request from before the reset, which must have the same ID.
    request_id = f"{(context.reset and context.reset.origin(number)) or context.run.uid}/{number}"
    run = context.run
    sender = ExternalReference(workflow_id=run.workflow_id, run_id=run.uid, initiated_event_id=number)
    request: inputs.Request
    if external.signal_id is None:
        request = inputs.CancelRequested(
            request_id=request_id, reason=external.reason, identity=context.run.name, external=sender
        )
    else:
        request = inputs.SignalRequested(
            request_id=request_id,
            signal_name=external.signal_name,
            input=external.input,
            identity=context.run.name,
            header=external.header,
            external=sender,
        )

    def answered(answer: Answer) -> None:
        over = answer.reason in OVER and _targets_chain(external) and context.peers.directory.continues(target)
        if over or answer.reason == inputs.CLOSING:
            context.retry_soon(effect)
            return
        failure = None if answer.ok or closed else application_failure(NOT_FOUND, answer.message)
        outcome = inputs.ExternalDone(initiated_event_id=number, failure=failure)
        context.pending.enqueue(outcome, lambda: context.peers.acknowledge(target, request_id))

    context.peers.send(target, request, answered)
    return True


def _miss(context: EffectContext, external: PendingExternal, state: RunState) -> bool:
    """Handle a missing target: wait for a run that is about to be created, or report the failure."""
    namespace, workflow_id, directory = context.run.namespace, external.workflow_id, context.peers.directory
    if any(child.start and child.workflow_id == workflow_id for child in state.children.values()):
        return False  # a child that is being created gets the request once it exists
    if _targets_chain(external) and directory.gap(namespace, workflow_id):
        context.retry_soon(RequestExternal(external.initiated_event_id))
        return True
    message = f"no run with workflow ID `{workflow_id}` is open in namespace `{namespace}`"
    # A cancellation is also fulfilled if the run has ended.
    ended = external.signal_id is None and directory.runs_of(namespace, workflow_id)
    failure = None if state.closed or ended else application_failure(NOT_FOUND, message)
    context.pending.enqueue(inputs.ExternalDone(initiated_event_id=external.initiated_event_id, failure=failure))
    return True


def _target(context: EffectContext, external: PendingExternal) -> Entry | None:
    directory, namespace = context.peers.directory, context.run.namespace
    if external.child_workflow_only:
        known = directory.runs_of(namespace, external.workflow_id)
        children = (entry for entry in known if entry.parent_uid == context.run.uid)
        return next((entry for entry in children if entry.standing is not Standing.CLOSED), None)
    if external.run_id:
        named, meant = directory.get(external.run_id), (namespace, external.workflow_id)
        matches = named is not None and not named.kind.standalone and (named.namespace, named.workflow_id) == meant
        return named if matches else None
    return directory.open_run(namespace, external.workflow_id)


def _targets_chain(external: PendingExternal) -> bool:
    """Whether the target is the open run of a chain: the ID of a child is that of its first run, which may have continued."""
    return external.child_workflow_only or not external.run_id
