"""Other runs: children, and targets of signals and cancellation requests.

Children are created, transferred after a reset, and ended with their parent; their outcomes are inputs of the parent.
"""

from collections.abc import AsyncIterator, Callable, Collection, Iterable
from functools import partial
from typing import Any

import msgspec

from perdure.api import labels
from perdure.api.json_values import mapping
from perdure.api.names import child_name
from perdure.api.policies import ParentClosePolicy
from perdure.api.reasons import ConditionReason
from perdure.controller.directory import Entry, Standing, entry_of, is_settled
from perdure.controller.payloads import add_owner_to_all
from perdure.controller.recorded_state import distrust
from perdure.controller.runs.effects.context import EffectContext, application_failure
from perdure.controller.services import ALREADY_STARTED, NOT_FOUND, OVER
from perdure.engine import events as ev
from perdure.engine import history, inputs
from perdure.engine.effects import CloseChild, Effect, RequestExternal, StartChild
from perdure.engine.failures import Failure, FailureKind
from perdure.engine.inputs import Answer, ChildOutcome
from perdure.engine.starts import ExternalReference, too_deep
from perdure.engine.state import PendingChild, PendingExternal, RunState
from perdure.engine.versioning import Versioning
from perdure.kube import client as kube
from perdure.runtime.chains import (
    Ancestor,
    adopted,
    child_run,
    first_run_id,
    is_child,
    next_run,
    parent_of,
    successor_refused,
)

_OUTCOMES = {
    "Completed": ChildOutcome.COMPLETED,
    "Failed": ChildOutcome.FAILED,
    "Cancelled": ChildOutcome.CANCELLED,
    "TimedOut": ChildOutcome.TIMED_OUT,
    "Terminated": ChildOutcome.TERMINATED,
}
SUCCESSOR_REFUSED = ConditionReason.SUCCESSOR_REFUSED.value


async def start_child(
    context: EffectContext, child: PendingChild, depth: int, priority: Any, versioning: Versioning
) -> None:
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
            await add_owner_to_all(context.client, await context.client.create(context.url(), body))
    except kube.AlreadyExistsError:
        name = body["metadata"]["name"]
        found = await context.client.get(context.url(name))
        if is_child(found, context.run, child):
            await add_owner_to_all(context.client, found)
        else:
            message = f"WorkflowRun `{name}` already exists and is not a child of this run"
            failure = application_failure(ALREADY_STARTED, message)
    except (kube.InvalidError, kube.TooLargeError) as error:
        failure = application_failure("InvalidChildWorkflow", error.message)
    if failure is not None:
        context.pending.enqueue(inputs.ChildStartFailed(initiated_event_id=child.initiated_event_id, failure=failure))


def close_child(context: EffectContext, child: PendingChild) -> bool:
    """Apply the parent close policy to the open run of a child's chain, if there is one.

    Returns:
        Whether it was applied: False while the next run of the chain is about to be created.
    """
    effect = CloseChild(child.initiated_event_id)
    runs = list(known_runs(context, child))
    named = partial(context.peers.directory.named, context.run.namespace)
    if any(entry.successor and named(entry.successor) is None for entry in runs):
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

    context.peers.send(target, request, answered)
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


async def find_children(context: EffectContext, initiated_event_ids: Collection[int]) -> None:
    """Find all runs of some children, also those that no watch has shown yet.

    Raises:
        RequestError: The Kubernetes API request failed. Call again to retry.
    """
    async for obj in stored_children(context, context.run.uid):
        context.peers.publish(obj)
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
    parent, tie = parent_of(run), parent_of(found)
    if parent is None or tie is None or first_run_id(found) != first_run_id(run):
        return False
    if parent.run_id == context.run.uid and tie.run_id != parent.run_id:
        found = await _adopt(context, found)
    context.peers.publish(found)
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


class ChildOutcomes:
    """The outcomes of one run's children. The ``observe…`` methods are safe to call at any time."""

    def __init__(self, context: EffectContext, has_applied: Callable[[Effect], bool]) -> None:
        """Create it without outcomes.

        Args:
            context: The context of the run, which collects the outcomes with the results of its effects.
            has_applied: Whether this process has started a child since it last read the run.
        """
        self._context = context
        self._has_applied = has_applied
        self._pending = context.pending
        self._changed: set[str] = set()
        self._deleted = False
        """Whether a child has disappeared since the children were last checked."""
        self._broken: dict[int, inputs.RunInput] = {}
        """The ends of children of which a next run does not exist, by initiating event. They count unless a later run exists."""

    @property
    def settled(self) -> bool:
        """Whether the engine has all known outcomes."""
        return not self._changed and not self._pending

    def update(self, uid: str) -> None:
        """Record that a child has started or closed, or was deleted."""
        self._changed.add(uid)

    def recheck(self) -> None:
        """Check all children again, because the known state may be stale."""
        self._changed |= {entry.uid for entry in self._context.children()}

    async def gather(self, state: RunState) -> list[inputs.RunInput]:
        """The outcomes of children and requests, up to the limit of one step. They are returned again until `committed`."""
        children = {child.initiated_event_id: child for child in state.children.values()}
        for uid in sorted(self._changed):
            entry = self._context.peers.directory.get(uid)
            self._deleted |= entry is None
            child = children.get(entry.initiated_event_id) if entry and not state.closed else None
            if entry is not None and child is not None:
                self._pending.add(await self._read(child, entry, exact=state.code is not None))
            self._changed.discard(uid)
        if not state.closed:
            if self._deleted:
                await self._read_stopped(children, exact=state.code is not None)
            self._pending.add(await self._lost(children))
            self._pending.add(await self._lost_unstarted(state))
        self._deleted = False
        self._broken.clear()
        return self._pending.first()

    def committed(self, count: int) -> None:
        """Remove the first `count` of the gathered outcomes, which are committed."""
        self._pending.committed(count)

    async def _read(self, child: PendingChild, entry: Entry, *, exact: bool) -> list[inputs.RunInput]:
        """Convert a run of a child's chain to inputs. `exact`: whether to keep values that are not plain JSON."""
        if entry.standing is Standing.WAITING:
            return []
        if entry.standing is Standing.OPEN:
            if child.start is None:
                return []
            return [inputs.ChildStarted(initiated_event_id=child.initiated_event_id, run_id=entry.first_uid)]
        try:
            obj = await self._context.client.get(self._context.url(entry.name))
        except kube.NotFoundError:
            return []
        status = obj.get("status") or {}
        if distrust(obj):
            self._context.peers.suspect(obj)
            return []
        end = _end(entry, status, exact=exact)
        if not next_run(status):
            return [end]
        if not await follow(self._context, obj):
            number, was_reset = entry.initiated_event_id, status.get("phase") == "Terminated"
            self._broken[number] = end if was_reset else _deleted(number, entry.first_uid)
        return []

    async def _read_stopped(self, children: dict[int, PendingChild], *, exact: bool) -> None:
        """Read the runs of children without an open run again, because a run has disappeared."""
        unfinished = self._open_children()
        for entry in list(self._context.children()):
            child = children.get(entry.initiated_event_id)
            if child is not None and entry.initiated_event_id not in unfinished:
                self._pending.add(await self._read(child, entry, exact=exact))

    async def _lost(self, children: dict[int, PendingChild]) -> list[inputs.RunInput]:
        """The inputs for children whose runs, or the last of them, were deleted. Runs that no watch has shown yet are read."""
        started = {number for number, child in children.items() if child.start is None}
        if not self._broken and (not started or started <= self._known_children()):
            return []
        async for obj in stored_children(self._context, self._context.run.uid):
            self._context.peers.publish(obj)
        existing = self._known_children()
        lost: list[inputs.RunInput] = [_deleted(number, children[number].run_id) for number in started - existing]
        return lost + [end for number, end in self._broken.items() if number not in self._open_children()]

    def _open_children(self) -> set[int]:
        """The IDs of the events that initiated children with an open run, or with one that was not read yet."""
        known = self._context.children()
        return {entry.initiated_event_id for entry in known if not is_settled(entry) or entry.uid in self._changed}

    def _known_children(self) -> set[int]:
        """The IDs of the events that initiated the children with known runs."""
        return {entry.initiated_event_id for entry in self._context.children()}

    async def _lost_unstarted(self, state: RunState) -> list[inputs.RunInput]:
        """The inputs for children that were deleted before they started. Checked if a child has disappeared."""
        if not self._deleted:
            return []
        there = self._known_children()
        message = "its WorkflowRun was deleted before it had started"
        return [
            inputs.ChildStartFailed(initiated_event_id=number, failure=application_failure(NOT_FOUND, message))
            for child in state.children.values()
            if child.start is not None
            and self._has_applied(StartChild(number := child.initiated_event_id))
            and number not in there
            and await self._unseen(child) is None
        ]

    async def _unseen(self, child: PendingChild) -> Entry | None:
        """Find a created child that no watch has shown yet."""
        name = child_name(self._context.run.name, child.initiated_event_id)
        try:
            found = await self._context.client.get(self._context.url(name))
        except kube.NotFoundError:
            return None
        is_there = is_child(found, self._context.run, child) and not found["metadata"].get("deletionTimestamp")
        return entry_of(found) if is_there else None


def _deleted(number: int, run_id: str) -> inputs.ChildClosed:
    """The end of a child whose runs were deleted. `number`: ID of the event that initiated it."""
    return inputs.ChildClosed(
        initiated_event_id=number,
        run_id=run_id,
        outcome=ChildOutcome.TERMINATED,
        failure=Failure(kind=FailureKind.TERMINATED, message="its WorkflowRun was deleted"),
    )


def _end(entry: Entry, status: dict[str, Any], *, exact: bool) -> inputs.ChildClosed | inputs.ChildStartFailed:
    """The end of a child whose last run has closed. `exact`: whether to keep values that are not plain JSON."""
    closing = _closing_event(status)
    failure = ev.failure_of(closing) if closing is not None else None
    if refused := successor_refused(status):
        failure = application_failure(SUCCESSOR_REFUSED, f"the run could not continue in a new run: {refused}")
    if failure is not None and failure.type == ALREADY_STARTED:
        return inputs.ChildStartFailed(initiated_event_id=entry.initiated_event_id, failure=failure)
    return inputs.ChildClosed(
        initiated_event_id=entry.initiated_event_id,
        run_id=entry.uid,
        outcome=_OUTCOMES.get(status.get("phase", ""), ChildOutcome.TERMINATED),
        result=_result(status) if exact else status.get("output"),
        failure=failure,
        retry_state=getattr(closing, "retry_state", None),
    )


def failure_in(status: dict[str, Any]) -> Failure | None:
    """The failure of a closed run, from its last event."""
    closing = _closing_event(status)
    return ev.failure_of(closing) if closing is not None else None


def _closing_event(status: dict[str, Any]) -> ev.AnyEvent | None:
    """The last event of a closed run; None if its history is missing or unreadable."""
    events = (status.get("history") or {}).get("events") or []
    try:
        return history.decode_events(events[-1:])[-1] if events else None
    except msgspec.ValidationError:
        return None


def _result(status: dict[str, Any]) -> Any:
    """The result of a closed run, from its last event, or from its status if the history is missing."""
    events = (status.get("history") or {}).get("events") or [{}]
    return events[-1].get("result", events[-1].get("details", status.get("output")))


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
