"""Invariants of histories: they grow without gaps, never change, and end with one closing event."""

from collections.abc import Callable

from perdure.runtime.chains import parent_of
from perdure.simulation.cluster.apiserver import ApiServer
from perdure.simulation.cluster.store import Object, Write
from simulated.checks import event_order
from simulated.checks.attempts import AttemptChecks
from simulated.checks.run_facts import DecodedRuns, continues, existing_runs

_CLOSING = frozenset(
    f"WorkflowExecution{word}"
    for word in ("Completed", "Failed", "TimedOut", "Terminated", "Canceled", "ContinuedAsNew")
)
_CHILD_CLOSED = {
    f"ChildWorkflowExecution{event}": phase
    for event, phase in (
        ("Completed", "Completed"),
        ("Failed", "Failed"),
        ("Canceled", "Cancelled"),
        ("TimedOut", "TimedOut"),
        ("Terminated", "Terminated"),
    )
}
"""Events that record the end of a child, and the phase of the run that has ended so."""


class HistoryChecks:
    """Follows the histories of all runs."""

    def __init__(
        self, server: ApiServer, decoded: DecodedRuns, attempts: AttemptChecks, report: Callable[[Write, str], None]
    ) -> None:
        """`report` takes a write and what is wrong with it."""
        self._attempts = attempts
        self._server = server
        self._decoded = decoded
        self._report = report
        self._histories: dict[str, list[Object]] = {}

    def of(self, run: Object) -> list[Object]:
        """All events of a run."""
        return self._histories.get(run["metadata"]["uid"], [])

    def check_write(self, write: Write) -> None:
        """Check the history in a write of a run."""
        before, stored = ((each or {}).get("status") or {} for each in (write.before, write.after))
        if stored.get("history") != before.get("history"):
            history = self._decoded.of(write.after)["status"].get("history") or {}
            self._check(write, write.after["metadata"]["uid"], history)

    def problems(self, run: Object) -> list[str]:
        """Describe the errors in the history of a closed run."""
        history = self.of(run)
        closed = [event["eventType"] for event in history if event["eventType"] in _CLOSING]
        found = [] if len(closed) == 1 else [f"has {len(closed)} closing events"]
        found += event_order.problems(history)
        return found

    def _check(self, write: Write, uid: str, stored: Object) -> None:
        known, tail = self._histories.setdefault(uid, []), stored.get("events") or []
        if not tail:
            return
        if not known and stored.get("segments"):
            known += self._sealed(uid)  # a reset: the history of another run comes first
        first = int(tail[0]["eventId"])
        if [int(event["eventId"]) for event in tail] != list(range(first, first + len(tail))) or first > len(known) + 1:
            self._report(
                write, f"its history has a gap: {len(known)} events, then {[event['eventId'] for event in tail]}"
            )
            return
        if first > 1 and len(self._sealed(uid)) < first - 1:
            self._report(write, f"events up to {first - 1} are dropped, and {len(self._sealed(uid))} are sealed")
        again = known[first - 1 :]
        if again != tail[: len(again)]:
            self._report(write, "its history was changed")
            return
        if any(event["eventType"] in _CLOSING for event in known) and len(again) < len(tail):
            self._report(write, "its history continues after its end")
        for event in tail[len(again) :]:
            if event["eventType"] in _CHILD_CLOSED:
                self._check_child_closed(write, uid, event)
            elif event["eventType"] == "ActivityTaskCompleted":
                self._attempts.check_completed(write, uid, event, [*known, *tail])
        known += tail[len(again) :]

    def _check_child_closed(self, write: Write, uid: str, event: Object) -> None:
        """A child is recorded as it has ended: as terminated if its last run was deleted, in any way if no run of it exists."""
        chain = [run for run in existing_runs(self._server) if _tie(run) == (uid, int(event["initiatedEventId"]))]
        if continues(chain):
            self._report(write, f"records {event['eventType']} of {chain[0]['metadata']['name']}, which is open")
            return
        ends = {run["status"]["phase"] for run in chain} - {"ContinuedAsNew"} or {"Terminated"}
        if chain and _CHILD_CLOSED[event["eventType"]] not in ends:
            self._report(write, f"records {event['eventType']} of a child that is {chain[-1]['status']['phase']}")

    def _sealed(self, uid: str) -> list[Object]:
        found = [
            segment["spec"]
            for segment in self._server.of("historysegments")
            if any(owner["uid"] == uid for owner in segment["metadata"].get("ownerReferences") or ())
        ]
        return [event for each in sorted(found, key=lambda each: each["index"]) for event in each["events"]]


def _tie(run: Object) -> tuple[str, int] | None:
    """UID of the parent of a run, and the ID of the event that initiated the run; None if it has no parent."""
    parent = parent_of(run)
    return (parent.run_id, parent.initiated_event_id) if parent else None
