"""Find the outcomes of a run's children for its next reconciliation."""

from typing import Any

import msgspec

from perdure.api.names import child_name
from perdure.api.reasons import ConditionReason
from perdure.controller.directory import Entry, Standing, entry_of, is_settled
from perdure.controller.peers import ALREADY_STARTED, NOT_FOUND
from perdure.controller.recorded_state import distrust
from perdure.controller.runs.effects.children import follow, stored_children
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
from perdure.runtime.chains import is_child, next_run, successor_refused

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
        self._changed: set[str] = set()
        self._gone = False
        """Whether a child has disappeared since the children were last checked."""
        self._broken: dict[int, inputs.RunInput] = {}
        """The ends of children of which a next run does not exist, by initiating event. They count unless a later run exists."""

    @property
    def settled(self) -> bool:
        """Whether the engine has all known outcomes."""
        return not self._changed and not self._pending

    def observe_child(self, uid: str) -> None:
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
            self._gone |= entry is None
            child = children.get(entry.initiated_event_id) if entry and not state.closed else None
            if entry is not None and child is not None:
                self._pending.add(await self._read(child, entry, exact=state.code is not None))
            self._changed.discard(uid)
        if not state.closed:
            if self._gone:
                await self._read_stopped(children, exact=state.code is not None)
            self._pending.add(await self._lost(children))
            self._pending.add(await self._lost_unstarted(state))
        self._gone = False
        self._broken.clear()
        return self._pending.first()

    def committed(self, count: int) -> None:
        """Remove the first `count` of the gathered outcomes, which are committed."""
        self._pending.committed(count)

    async def _read(self, child: PendingChild, entry: Entry, *, exact: bool) -> list[inputs.RunInput]:  # noqa: PLR0911 (one for each case)
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
            self._context.peers.noted(obj)
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
