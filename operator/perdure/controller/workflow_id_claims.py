"""Decide which run of a workflow ID may start: at most one is open at a time.

No lock in the API server is needed for this. A run that was once admitted stays first until the directory knows that it has
started or was deleted: its start is in progress, and no run may overtake it, even one that turns out to be older. That holds
within one operator in any order of events. In a fleet, only the owner of the shard decides, after it has read what the previous
owner has done (`informers/catch_up.py`). Operators that do not share the work usually agree, because a watch reports objects in
the order in which they were created, and of several runs that wait, the one that was created first goes first; the start itself
is a compare-and-swap of the run's own object. So an operator that knows less than another either starts the run that the other
would start, or loses the swap, unless it has created a run itself that its watch has not shown.

`creationTimestamp` alone cannot tell which run was created first, because it has whole seconds: within a second, the
resourceVersion decides that a run had when it was first seen.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from perdure.api.phases import RunKind
from perdure.api.policies import WorkflowIdConflictPolicy, WorkflowIdReusePolicy
from perdure.controller.run_entries import Entry, Standing

_FAILED = frozenset({"Failed", "Cancelled", "Terminated", "TimedOut"})


@dataclass(frozen=True, slots=True)
class Go:
    """The run may start."""


@dataclass(frozen=True, slots=True)
class Wait:
    """The run must wait until another one has started or closed."""

    other: Entry
    terminate: bool = False
    """Whether the other run must be terminated first."""


@dataclass(frozen=True, slots=True)
class Taken:
    """The run does not start, because the workflow ID is in use."""

    other: Entry
    message: str
    use_existing: bool = False


Verdict = Go | Wait | Taken


class WorkflowIdClaims:
    """The claims of waiting runs to their workflow IDs."""

    def __init__(self) -> None:
        self._admitted: dict[tuple[str, str, RunKind], str] = {}
        """The admitted runs that are not known to have started, by workflow, activity, or operation ID."""

    def claim(
        self,
        entry: Entry,
        others: Iterable[Entry],
        *,
        reuse: WorkflowIdReusePolicy,
        conflict: WorkflowIdConflictPolicy,
    ) -> Verdict:
        """Decide whether a waiting run may start now. If so, it has precedence until it has started or was deleted.

        Args:
            entry: The run.
            others: The other runs of its workflow ID.
            reuse: Whether the ID of a closed run may be used again.
            conflict: What to do about an open run.
        """
        verdict = self._verdict(entry, list(others), reuse, conflict)
        if isinstance(verdict, Go):
            self._admitted[_claimed(entry)] = entry.uid
        return verdict

    def _verdict(  # noqa: PLR0911 (one for each case)
        self, entry: Entry, others: list[Entry], reuse: WorkflowIdReusePolicy, conflict: WorkflowIdConflictPolicy
    ) -> Verdict:
        for other in others:
            if other.standing is Standing.OPEN:
                # The run that `entry` continues has closed, but no watch has shown this yet.
                return Wait(other) if other.name == entry.continues else _conflict(other, conflict)
            if other.standing is Standing.CLOSED and other.successor and other.successor != entry.name:
                return Wait(other)
        waiting = (other for other in others if other.standing is Standing.WAITING)
        first = min(waiting, key=self.order, default=entry)
        if self.order(first) < self.order(entry):
            return Wait(first)
        if entry.continues:
            return Go()
        newest = max(
            (o for o in others if o.standing is Standing.CLOSED and not o.refused),
            key=lambda e: (e.closed, e.uid),
            default=None,
        )
        if newest is None or reuse is WorkflowIdReusePolicy.ALLOW_DUPLICATE:
            return Go()
        if reuse is WorkflowIdReusePolicy.ALLOW_DUPLICATE_FAILED_ONLY and newest.phase in _FAILED:
            return Go()
        message = (
            f"{entry.kind.id_name} `{entry.workflow_id}` was used by `{newest.name}`, which is {newest.phase}, and "
            f"`workflowIdReusePolicy` is {reuse}"
        )
        return Taken(newest, message)

    def order(self, entry: Entry) -> tuple[bool, bool, str, int, str, str]:
        """The sort key of runs that wait for the same ID: a run that continues another one precedes new runs."""
        admitted = self._admitted.get(_claimed(entry)) == entry.uid
        return not entry.continues, not admitted, entry.created, len(entry.first_seen), entry.first_seen, entry.uid

    def release(self, entry: Entry) -> None:
        """Record that a run has started or was deleted."""
        if self._admitted.get(_claimed(entry)) == entry.uid:
            del self._admitted[_claimed(entry)]


def _claimed(entry: Entry) -> tuple[str, str, RunKind]:
    """The ID that only one open run may have."""
    return entry.namespace, entry.workflow_id, entry.kind


def _conflict(other: Entry, policy: WorkflowIdConflictPolicy) -> Verdict:
    match policy:
        case WorkflowIdConflictPolicy.TERMINATE_EXISTING:
            return Wait(other, terminate=True)
        case WorkflowIdConflictPolicy.USE_EXISTING:
            return Taken(
                other, f"`{other.name}` is open with {other.kind.id_name} `{other.workflow_id}`", use_existing=True
            )
        case WorkflowIdConflictPolicy.FAIL:
            return Taken(other, f"`{other.name}` is open with {other.kind.id_name} `{other.workflow_id}`")
