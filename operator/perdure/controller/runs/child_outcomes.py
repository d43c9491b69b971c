"""Find the outcomes of a run's children for its next reconciliation."""

from typing import Any

import msgspec

from perdure.api.names import child_name
from perdure.api.reasons import ConditionReason
from perdure.controller.peers import ALREADY_STARTED, NOT_FOUND
from perdure.controller.run_entries import Entry, Standing, entry_of
from perdure.controller.runs.effects.children import stored_children
from perdure.controller.runs.effects.effect_context import application_failure
from perdure.controller.runs.effects.pending_inputs import PendingInputs
from perdure.controller.runs.effects.run_effects import Effects
from perdure.engine import events as ev
from perdure.engine import history, inputs
from perdure.engine.effects import StartChild
from perdure.engine.failures import Failure, FailureKind
from perdure.engine.inputs import ChildOutcome
from perdure.engine.state import PendingChild, RunState
from perdure.kube import client as kube
from perdure.runtime.chains import is_child
from perdure.runtime.commits import OF_RUNS, edited

_OUTCOMES = {
    "Completed": ChildOutcome.COMPLETED,
    "Failed": ChildOutcome.FAILED,
    "Cancelled": ChildOutcome.CANCELLED,
    "TimedOut": ChildOutcome.TIMED_OUT,
    "Terminated": ChildOutcome.TERMINATED,
}
SUCCESSOR_REFUSED = ConditionReason.SUCCESSOR_REFUSED.value


class ChildOutcomes:
    """The outcomes of one run's children. The ``observe…`` methods are safe to call at any time."""

    def __init__(self, effects: Effects, pending: PendingInputs) -> None:
        """Create it without outcomes.

        Args:
            effects: The effects of the run, which start its children.
            pending: Receives the outcomes.
        """
        self._context = effects.context
        self._effects = effects
        self._pending = pending
        self._news: set[str] = set()
        self._gone = False
        """Whether a child has disappeared since the children were last checked."""

    @property
    def settled(self) -> bool:
        """Whether the engine has all known outcomes."""
        return not self._news and not self._pending

    def observe_child(self, uid: str) -> None:
        """Record that a child has started or closed, or was deleted."""
        self._news.add(uid)

    def look_again(self) -> None:
        """Check all children again, because the known state may be stale."""
        self._news |= {entry.uid for entry in self._context.children()}

    async def gather(self, state: RunState) -> list[inputs.RunInput]:
        """The outcomes of children and requests, up to the limit of one step. They are returned again until `committed`."""
        children = {child.initiated_event_id: child for child in state.children.values()}
        for uid in sorted(self._news):
            entry = self._context.peers.directory.get(uid)
            self._gone |= entry is None
            child = children.get(entry.initiated_event_id) if entry and not state.closed else None
            if entry is not None and child is not None:
                self._pending.add(await self._read(child, entry, exact=state.code is not None))
            self._news.discard(uid)
        if not state.closed:
            self._pending.add(await self._lost(state))
            self._pending.add(await self._lost_unstarted(state))
        self._gone = False
        return self._pending.first()

    def committed(self, count: int) -> None:
        """Remove the first `count` of the gathered outcomes, which are committed."""
        self._pending.committed(count)

    async def _read(self, child: PendingChild, entry: Entry, *, exact: bool) -> list[inputs.RunInput]:  # noqa: PLR0911 (one for each case)
        """Convert a run of a child's chain to inputs. `exact`: whether to keep values that are not plain JSON."""
        number = child.initiated_event_id
        if entry.standing is Standing.WAITING:
            return []
        if entry.standing is Standing.OPEN:
            if child.start is None:
                return []
            return [inputs.ChildStarted(initiated_event_id=number, run_id=entry.first_uid)]
        try:
            obj = await self._context.client.get(self._context.url(entry.name))
        except kube.NotFoundError:
            return []
        status = obj.get("status") or {}
        if edited(status, OF_RUNS):
            self._context.peers.suspect(obj)
            return []
        closing = _closing_event(status)
        failure = ev.failure_of(closing) if closing is not None else None
        if has_successor(status):
            return []
        if refused := successor_refused(status):
            failure = application_failure(SUCCESSOR_REFUSED, f"the run could not continue in a new run: {refused}")
        if failure is not None and failure.type == ALREADY_STARTED:
            return [inputs.ChildStartFailed(initiated_event_id=number, failure=failure)]
        return [
            inputs.ChildClosed(
                initiated_event_id=number,
                run_id=entry.uid,
                outcome=_OUTCOMES.get(status.get("phase", ""), ChildOutcome.TERMINATED),
                result=_result(status) if exact else status.get("output"),
                failure=failure,
                retry_state=getattr(closing, "retry_state", None),
            )
        ]

    async def _lost(self, state: RunState) -> list[inputs.RunInput]:
        """The inputs for started children whose runs were deleted. Runs that no watch has shown yet are read."""
        started = {child.initiated_event_id for child in state.children.values() if child.start is None}
        if not started or started <= self._known_children():
            return []
        async for obj in stored_children(self._context, self._context.run.uid):
            self._context.peers.noted(obj)
        there = self._known_children()
        return [
            inputs.ChildClosed(
                initiated_event_id=child.initiated_event_id,
                run_id=child.run_id,
                outcome=ChildOutcome.TERMINATED,
                failure=Failure(kind=FailureKind.TERMINATED, message="its WorkflowRun was deleted"),
            )
            for child in state.children.values()
            if child.start is None and child.initiated_event_id not in there
        ]

    def _known_children(self) -> set[int]:
        """The IDs of the events that initiated the children with known runs."""
        return {entry.initiated_event_id for entry in self._context.children()}

    async def _lost_unstarted(self, state: RunState) -> list[inputs.RunInput]:
        """The inputs for children that were deleted before they started. Checked if a child has disappeared."""
        if not self._gone:
            return []
        there = self._known_children()
        message = "its WorkflowRun was deleted before it had started"
        return [
            inputs.ChildStartFailed(initiated_event_id=number, failure=application_failure(NOT_FOUND, message))
            for child in state.children.values()
            if child.start is not None
            and self._effects.has_applied(StartChild(number := child.initiated_event_id))
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
        return entry_of(found) if is_child(found, self._context.run, child) else None


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


def successor_refused(status: dict[str, Any]) -> str:
    """Why the next run of a chain cannot be created; empty if it exists or is not needed."""
    return str((status.get("state") or {}).get("successorRefused", ""))


def has_successor(status: dict[str, Any]) -> bool:
    """Whether the run continues in another one."""
    events = (status.get("history") or {}).get("events") or [{}]
    return not successor_refused(status) and bool(events[-1].get("newWorkflowRun") or events[-1].get("resetRun"))
