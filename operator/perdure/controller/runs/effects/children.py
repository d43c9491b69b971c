"""Creates the children of a run, transfers them after a reset, and closes them with their parent."""

from collections.abc import AsyncIterator, Collection, Iterable
from typing import Any

from perdure.api import labels
from perdure.api.lenient import mapping
from perdure.api.policies import ParentClosePolicy
from perdure.controller.directory import Entry, Standing
from perdure.controller.payloads.payload_store import give_all
from perdure.controller.peers import ALREADY_STARTED
from perdure.controller.runs.effects.effect_context import EffectContext, application_failure
from perdure.engine import inputs
from perdure.engine.effects import CloseChild
from perdure.engine.inputs import Answer
from perdure.engine.starts import too_deep
from perdure.engine.state import PendingChild
from perdure.engine.versioning import Versioning
from perdure.kube import client as kube
from perdure.runtime.chains import Ancestor, adopted, child_run, first_run_id, is_child, next_run, parent_of


async def start(context: EffectContext, child: PendingChild, depth: int, priority: Any, versioning: Versioning) -> None:
    """Create the run of a child.

    Args:
        context: The context of the parent.
        child: The child.
        depth: Number of ancestors of the child.
        priority: Priority of the parent, as JSON.
        versioning: Versioning of the parent.

    Raises:
        RequestError: The Kubernetes API request failed. Call again to retry.
    """
    if context.reset and any(known_runs(context, child)):
        return  # the reset run's child continues as a child of this run
    body = child_run(context.run, child, depth, priority, versioning)
    failure = too_deep(depth)
    try:
        if failure is None:
            await give_all(context.client, await context.client.create(context.url(), body))
    except kube.AlreadyExistsError:
        name = body["metadata"]["name"]
        found = await context.client.get(context.url(name))
        if is_child(found, context.run, child):
            await give_all(context.client, found)
        else:
            message = f"WorkflowRun `{name}` already exists and is not a child of this run"
            failure = application_failure(ALREADY_STARTED, message)
    except (kube.InvalidError, kube.TooLargeError) as error:
        failure = application_failure("InvalidChildWorkflow", error.message)
    if failure is not None:
        context.pending.enqueue(inputs.ChildStartFailed(initiated_event_id=child.initiated_event_id, failure=failure))


def close(context: EffectContext, child: PendingChild) -> bool:
    """Apply the parent close policy to the open run of a child's chain, if there is one.

    Returns:
        Whether it was applied: False while the next run of the chain is about to be created.
    """
    effect = CloseChild(child.initiated_event_id)
    runs = list(known_runs(context, child))
    if any(entry.successor for entry in runs):
        return False
    target = next((entry for entry in runs if entry.standing is not Standing.CLOSED), None)
    if target is None or child.parent_close_policy is ParentClosePolicy.ABANDON:
        context.pending.enqueue(inputs.EffectDone(effect=effect))
        return True
    cancels = child.parent_close_policy is ParentClosePolicy.REQUEST_CANCEL
    kind = inputs.CancelRequested if cancels else inputs.TerminateRequested
    request = kind(
        request_id=f"{context.run.uid}/{child.initiated_event_id}/close",
        reason=f"its parent `{context.run.name}` has closed",
        identity=inputs.OPERATOR,
    )

    def answered(answer: Answer) -> None:
        if answer.reason == inputs.CLOSED:  # it may have just continued as new, so the next run gets the request
            context.retry_soon(effect)
        else:
            context.pending.enqueue(inputs.EffectDone(effect=effect))

    context.peers.ask(target, request, answered)
    return True


async def take_over(context: EffectContext, base: Ancestor, children: Iterable[PendingChild]) -> None:
    """Transfer the children of a reset run to the run that continues it.

    Args:
        context: The context of this run.
        base: The run that was reset.
        children: The children to transfer.

    Raises:
        RequestError: The Kubernetes API request failed. Call again to retry.
    """
    numbers = {child.initiated_event_id for child in children}
    async for found in stored_children(context, base.run_id):
        tie = parent_of(found)
        if tie is not None and tie.run_id == base.run_id and tie.initiated_event_id in numbers:
            context.peers.directory.put(await _adopt(context, found))


async def find(context: EffectContext, initiated_event_ids: Collection[int]) -> None:
    """Find all runs of some children, also those that no watch has shown yet.

    Raises:
        RequestError: The Kubernetes API request failed. Call again to retry.
    """
    async for obj in stored_children(context, context.run.uid):
        context.peers.noted(obj)
        tie = parent_of(obj)
        if tie is not None and tie.initiated_event_id in initiated_event_ids:
            await follow(context, obj)


async def follow(context: EffectContext, run: kube.Object) -> bool:
    """Find the run that continues a child's run. If it has another parent, transfer it.

    It has another parent if it was created while a reset transferred the run that it continues.

    Args:
        context: The context of the parent.
        run: The child's run, as just read.

    Returns:
        Whether the chain continues or has ended with this run: False if its next run was deleted.

    Raises:
        RequestError: The Kubernetes API request failed. Call again to retry.
    """
    status = run.get("status") or {}
    name = next_run(status)
    if not name or mapping(status.get("state")).get("startSuccessor"):
        return True
    known = context.peers.directory.named(context.run.namespace, name)
    if known is not None and known.parent_uid == context.run.uid:
        return True
    try:
        found = await context.client.get(context.url(name))
    except kube.NotFoundError:
        return False
    own, tie = parent_of(run), parent_of(found)
    if own is None or tie is None or first_run_id(found) != first_run_id(run):
        return False
    if own.run_id == context.run.uid and tie.run_id != own.run_id:
        found = await _adopt(context, found)
    context.peers.noted(found)
    await follow(context, found)
    return True


async def _adopt(context: EffectContext, child: kube.Object) -> kube.Object:
    """Make the run the parent of a child; return the child as it is stored now."""
    answer = await context.client.merge(context.url(child["metadata"]["name"]), adopted(child, context.run))
    return {**child, "metadata": answer["metadata"]}


def stored_children(context: EffectContext, parent_uid: str) -> AsyncIterator[kube.Object]:
    """List the children of a parent from the API server, because a watch may not have delivered all of them."""
    return context.client.lists.each(context.url(), labelSelector=f"{labels.PARENT_RUN_ID_LABEL}={parent_uid}")


def known_runs(context: EffectContext, child: PendingChild) -> Iterable[Entry]:
    """The known runs of a child's chain."""
    return (entry for entry in context.children() if entry.initiated_event_id == child.initiated_event_id)
