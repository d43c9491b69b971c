"""What must hold whatever happens, checked at every write and at the end (docs/architecture.md: Invariants).

At every write: histories grow without gaps, are never changed, and end with one closing event. One run of a workflow ID is open.
No name of a pod or run is used twice, and no attempt follows one that has succeeded. Nothing that is still waited for is deleted
or released. A parent and a Schedule record the end of a run only as it has ended. At the end: nothing is held, no pod runs for a
run that has closed, nothing is left to do for it, and nothing is written any more.
"""

from collections import Counter
from datetime import datetime, timedelta
from typing import Any

from perdure.api import labels
from perdure.api.reasons import ConditionReason
from perdure.runtime.chains import continuation_of, first_run_id, parent_of
from perdure.runtime.deadletters import letter_of
from perdure.runtime.kinds import kind_of
from perdure.runtime.retention import Limits
from perdure.simulation.cluster.apiserver import ApiServer
from perdure.simulation.cluster.object_store import Write
from perdure.simulation.cluster.storage import Object, ObjectKey
from simulated.loop import START

_FINALIZER = "perdure.dev/outcome"
_CLOSING = frozenset(
    f"WorkflowExecution{word}"
    for word in ("Completed", "Failed", "TimedOut", "Terminated", "Canceled", "ContinuedAsNew")
)
_ACTIVITY_CLOSED = frozenset(f"ActivityTask{word}" for word in ("Completed", "Failed", "TimedOut", "Canceled"))
_CHORES = ("children", "externals", "markers", "startSuccessor", "reports")
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
_MOST_VIOLATIONS = 10
_GRACE = timedelta(seconds=59)
"""A run that has just finished is kept for a minute, also where a namespace has too many; clocks of operators differ a little."""
_UNSEEN_SECONDS = 90.0
"""For so long a watch may not have shown a deletion: it has a gap of at most 70 seconds."""
_DECIDED_SECONDS = 2.0
"""For so long an operator may act on the spec of one object, read before it was changed, towards another object."""


class Checker:
    """Watches every write, and notes what must not happen."""

    def __init__(self, server: ApiServer, operators: set[str]) -> None:
        """`operators` are the names of those whose writes are judged."""
        self.violations: list[str] = []
        self.writes: Counter[str] = Counter()
        self.pods: Counter[tuple[str, str]] = Counter()
        self.runs: Counter[str] = Counter()
        """How often a run of each name was created."""
        self.named_again: set[str] = set()
        """Names of runs that people delete, and use once more."""
        self.limits = Limits()
        """What the namespace may keep of its finished runs."""
        self._server = server
        self._operators = operators
        self._histories: dict[str, list[Object]] = {}
        self._open: dict[tuple[str, str, str], set[str]] = {}
        self._removed: list[float] = []
        """When runs were removed."""
        self._succeeded: set[tuple[str, str]] = set()
        """Activities, by run and scheduling event, of which a pod has succeeded."""
        self._edited: dict[str, tuple[float, Object]] = {}
        """By name of a Schedule, when its spec was changed last, and what it was before."""
        server.observers.append(self._observe)

    def fail(self, message: str) -> None:
        """Note a violation."""
        if len(self.violations) < _MOST_VIOLATIONS:
            self.violations.append(message)

    # At every write

    def _observe(self, write: Write) -> None:
        if labels.FLEET_LABEL in (write.after["metadata"].get("labels") or {}):
            return
        if write.key.plural != "pods" or write.type != "DELETED":  # pods are kept for a while, and go when that is over
            self.writes[write.actor] += 1
        judged = write.actor in self._operators
        match write.key.plural:
            case "pods":
                self._check_pod(write, judged=judged)
            case "workflowruns":
                self._check_run(write)
                if judged and write.asked_to_delete:
                    self._check_run_deleted(write)
            case "schedules" if write.before is not None and write.type == "MODIFIED":
                if write.before["spec"] != write.after["spec"]:
                    self._edited[f"{write.key.namespace}/{write.key.name}"] = write.time, write.before["spec"]
                self._check_schedule(write)
            case "operations" if judged and write.asked_to_delete:
                self._check_expired(write, 3_600)

    def _at(self, write: Write, message: str) -> None:
        self.fail(f"{write.time:.3f} {write.actor}: {write.key.plural} {write.key.name}: {message}")

    def _check_pod(self, write: Write, *, judged: bool) -> None:
        meta = write.after["metadata"]
        run_id = meta["labels"].get("perdure.dev/run-id", "")
        activity_id = run_id, meta["annotations"]["perdure.dev/scheduled-event-id"]
        if write.type == "ADDED":
            made = run_id, write.key.name
            self.pods[made] += 1
            if self.pods[made] > 1:
                self._at(write, f"is created {self.pods[made]} times")
            if activity_id in self._succeeded:
                self._at(write, "is created after an earlier attempt of the activity has succeeded")
        if write.after["status"]["phase"] == "Succeeded":
            self._succeeded.add(activity_id)
        if not judged or write.before is None:
            return
        released = _held(write.before) and (write.type == "DELETED" or not _held(write.after))
        activity = self._waiting(write.after)
        if activity is None:
            return
        if released:
            self._at(write, "is released while its run waits for its result")
        elif write.asked_to_delete and not activity.get("cancelRequested"):
            self._at(write, "is deleted while its run waits for it")

    def _waiting(self, pod: Object) -> Object | None:
        """The open activity that waits for the pod, in its run as it is now; None if nothing does."""
        meta = pod["metadata"]
        owner = next((each for each in meta.get("ownerReferences") or () if each["kind"] == "WorkflowRun"), None)
        run = self._server.objects.get(ObjectKey("workflowruns", meta["namespace"], owner["name"])) if owner else None
        if owner is None or run is None or run["metadata"]["uid"] != owner["uid"]:
            return None
        if "deletionTimestamp" in run["metadata"]:
            return None
        state = (run.get("status") or {}).get("state") or {}
        if state.get("status", "Running") != "Running":
            return None
        notes = meta["annotations"]
        activity = (state.get("activities") or {}).get(notes["perdure.dev/scheduled-event-id"])
        due = activity is not None and str(activity.get("attempt", 1)) == notes["perdure.dev/attempt"]
        return activity if due else None

    def _check_run(self, write: Write) -> None:
        run, status = write.after, write.after.get("status") or {}
        uid = run["metadata"]["uid"]
        if write.type == "ADDED":
            self.runs[write.key.name] += 1
            if self.runs[write.key.name] > 1 + (write.key.name in self.named_again):
                self._at(write, f"is created {self.runs[write.key.name]} times")
        kind = kind_of(run["spec"])
        identity = (write.key.namespace, kind, run["spec"].get("workflowId") or write.key.name)
        open_ = self._open.setdefault(identity, set())
        open_.discard(uid)
        if write.type != "DELETED" and status.get("state") and not status.get("completionTime"):
            open_.add(uid)
            if len(open_) > 1:
                self._at(write, f"is open while another run of {kind} ID {identity[2]} is")
        if write.type == "DELETED":
            self._removed.append(write.time)
            return
        before = ((write.before or {}).get("status") or {}).get("history") or {}
        if (status.get("history") or {}) != before:
            self._check_history(write, uid, status.get("history") or {})

    def _check_history(self, write: Write, uid: str, stored: Object) -> None:
        known, tail = self._histories.setdefault(uid, []), stored.get("events") or []
        if not tail:
            return
        if not known and stored.get("segments"):
            known += self._sealed(uid)  # a reset: the history of another run comes first
        first = int(tail[0]["eventId"])
        if [int(event["eventId"]) for event in tail] != list(range(first, first + len(tail))) or first > len(known) + 1:
            self._at(write, f"its history has a gap: {len(known)} events, then {[event['eventId'] for event in tail]}")
            return
        if first > 1 and len(self._sealed(uid)) < first - 1:
            self._at(write, f"events up to {first - 1} are dropped, and {len(self._sealed(uid))} are sealed")
        again = known[first - 1 :]
        if again != tail[: len(again)]:
            self._at(write, "its history was changed")
            return
        if any(event["eventType"] in _CLOSING for event in known) and len(again) < len(tail):
            self._at(write, "its history continues after its end")
        for event in tail[len(again) :]:
            if event["eventType"] in _CHILD_CLOSED:
                self._check_child_closed(write, uid, event)
        known += tail[len(again) :]

    def _check_child_closed(self, write: Write, uid: str, event: Object) -> None:
        """A child is recorded as it has ended; one of which no run exists any more, in any way."""
        chain = [run for run in self._server.of("workflowruns") if _tie(run) == (uid, int(event["initiatedEventId"]))]
        if _goes_on(chain):
            self._at(write, f"records {event['eventType']} of {chain[0]['metadata']['name']}, which is open")
        elif chain and _CHILD_CLOSED[event["eventType"]] not in {run["status"]["phase"] for run in chain}:
            self._at(write, f"records {event['eventType']} of a child that is {chain[-1]['status']['phase']}")

    def _check_schedule(self, write: Write) -> None:
        """A Schedule stops following a run only when that has ended, with all that continue it."""
        before, after = (
            {run["runId"]: run["name"] for run in _state(each).get("running") or () if run.get("runId")}
            for each in (write.before or {}, write.after)
        )
        for run_id in before.keys() - after.keys():
            chain = [run for run in self._server.of("workflowruns") if first_run_id(run) == run_id]
            if _goes_on(chain):
                self._at(write, f"no longer follows run {before[run_id]}, which is open")

    def _sealed(self, uid: str) -> list[Object]:
        found = [
            segment["spec"]
            for segment in self._server.of("historysegments")
            if any(owner["uid"] == uid for owner in segment["metadata"].get("ownerReferences") or ())
        ]
        return [event for each in sorted(found, key=lambda each: each["index"]) for event in each["events"]]

    def _check_run_deleted(self, write: Write) -> None:
        """An operator removes a run only after its end, when nothing is left to do, and no earlier than it may.

        A client's run that another start of its ID preceded did nothing: the client gets the other one, and it is removed.
        """
        run, status = write.before or {}, (write.before or {}).get("status") or {}
        if not status.get("completionTime"):
            self._at(write, "is deleted while it is open")
            return
        if any((status.get("state") or {}).get(chore) for chore in _CHORES):
            self._at(write, "is deleted with something left to do")
        if waiting := self._waits_for_end(write.key.namespace, run):
            self._at(write, f"is deleted before {waiting} has recorded its end")
        schedule = next((o for o in run["metadata"].get("ownerReferences") or () if o["kind"] == "Schedule"), None)
        found = schedule and self._server.objects.get(ObjectKey("schedules", write.key.namespace, schedule["name"]))
        if schedule and found and found["metadata"]["uid"] == schedule["uid"]:
            self._check_limit(write, found)
        elif not _is_refused(status) and not self._is_surplus(write):
            self._check_expired(write, 86_400)

    def _is_surplus(self, write: Write) -> bool:
        """Whether the namespace has more finished runs than it may keep, and this one has been readable for a while.

        Runs that were removed for other reasons count until the slowest watch has shown that.
        """
        finished = sum(_is_over(run) for run in self._server.of("workflowruns"))
        finished += sum(time > write.time - _UNSEEN_SECONDS for time in self._removed[:-1])
        closed = datetime.fromisoformat((write.before or {})["status"]["completionTime"])
        return finished >= self.limits.runs and START + timedelta(seconds=write.time) >= closed + _GRACE

    def _waits_for_end(self, namespace: str, run: Object) -> str:
        """What has yet to record the end of a run; empty for nothing."""
        tie = parent_of(run)
        parent = self._server.objects.get(ObjectKey("workflowruns", namespace, tie.name)) if tie else None
        if tie and parent and parent["metadata"]["uid"] == tie.run_id and "deletionTimestamp" not in parent["metadata"]:
            children = _state(parent).get("children") or {}
            if _state(parent).get("status", "Running") == "Running" and str(tie.initiated_event_id) in children:
                return f"its parent {tie.name}"
        letter = self._server.objects.get(ObjectKey("deadletters", namespace, letter_of(run) or ""))
        for each in ((letter or {}).get("status") or {}).get("conditions") or ():
            if (
                each["type"] == "Redriven"
                and each["status"] == "Unknown"
                and run["metadata"]["name"] in each["message"]
            ):
                return "its DeadLetter"
        return ""

    def _check_limit(self, write: Write, schedule: Object) -> None:
        """More runs of its sort, newer ones, are kept than the Schedule, as it is now, wants."""
        run = write.before or {}
        well = run["status"]["phase"] == "Completed"
        name = "successfulRunsHistoryLimit" if well else "failedRunsHistoryLimit"
        limit = schedule["spec"].get(name)
        edited, before = self._edited.get(write.key.namespace + "/" + schedule["metadata"]["name"], (0.0, {}))
        if limit is not None and write.time < edited + _DECIDED_SECONDS:
            limit = min(limit, before.get(name, limit))
        newer = [
            each
            for each in self._server.of("workflowruns")
            if any(o["uid"] == schedule["metadata"]["uid"] for o in each["metadata"].get("ownerReferences") or ())
            and ((each.get("status") or {}).get("phase") == "Completed") is well
            and (each.get("status") or {}).get("completionTime", "") >= run["status"]["completionTime"]
            and each["metadata"]["uid"] != run["metadata"]["uid"]
        ]
        if limit is not None and len(newer) < limit and not self._is_surplus(write):
            self._at(write, f"is deleted with {len(newer)} newer ones; the limit is {limit}")
        if any(each["name"] == write.key.name for each in _state(schedule).get("running") or ()):
            self._at(write, "is deleted before its schedule has recorded its end")

    def _check_expired(self, write: Write, default: int) -> None:
        obj = write.before or {}
        done = (obj.get("status") or {}).get("completionTime")
        if not done:
            self._at(write, "is deleted before it is complete")
            return
        kept = timedelta(seconds=obj["spec"].get("ttlSecondsAfterFinished", default))
        if START + timedelta(seconds=write.time) < datetime.fromisoformat(done) + kept - timedelta(seconds=1):
            self._at(write, "is deleted before its time is over")

    # At the end

    def finish(self) -> None:
        """Check what must be so once everything has come to rest."""
        for obj in self._server.of("pods"):
            meta = obj["metadata"]
            if _held(obj):
                self.fail(f"pod {meta['name']} is still held")
            elif "deletionTimestamp" in meta:
                self.fail(f"pod {meta['name']} is still terminating")
            elif obj["status"]["phase"] not in {"Succeeded", "Failed"}:
                self.fail(f"pod {meta['name']} still runs")
        owners = {obj["metadata"]["uid"] for obj in self._server.of("pods")} | self._server.garbage.pending
        for lease in self._server.of("leases"):
            meta = lease["metadata"]
            of_member = labels.FLEET_LABEL in meta["labels"]
            if not of_member and not any(owner["uid"] in owners for owner in meta["ownerReferences"]):
                self.fail(f"Lease {meta['name']} is left behind")
        for run in self._server.of("workflowruns"):
            self._check_closed(run)

    def _check_closed(self, run: Object) -> None:
        name, uid = run["metadata"]["name"], run["metadata"]["uid"]
        if chores := [chore for chore in _CHORES if _state(run).get(chore)]:
            self.fail(f"run {name} has closed, and its {', '.join(chores)} are left")
        history = self._histories.get(uid, [])
        closed = [event["eventType"] for event in history if event["eventType"] in _CLOSING]
        if len(closed) != 1:
            self.fail(f"run {name} has {len(closed)} closing events")
        ended: Counter[Any] = Counter(
            event["scheduledEventId"] for event in history if event["eventType"] in _ACTIVITY_CLOSED
        )
        if twice := [number for number, times in ended.items() if times > 1]:
            self.fail(f"run {name}: activities {twice} have ended twice")

    def history(self, run: Object) -> list[Object]:
        """All events of a run."""
        return self._histories.get(run["metadata"]["uid"], [])


def _state(obj: Object) -> Object:
    return (obj.get("status") or {}).get("state") or {}


def _is_over(run: Object) -> bool:
    """Whether a run has closed and no other one continues it that is still to be created."""
    return _is_closed(run) and not _state(run).get("startSuccessor")


def _is_refused(status: Object) -> bool:
    """Whether another run has the ID of this one, which never began."""
    reason = ConditionReason.WORKFLOW_EXECUTION_ALREADY_STARTED
    return any(each["reason"] == reason for each in status.get("conditions") or ())


def _is_closed(run: Object) -> bool:
    return bool((run.get("status") or {}).get("completionTime"))


def _goes_on(chain: list[Object]) -> bool:
    """Whether any run of a chain is open, or has yet to start the next one, which may be there without its knowing."""
    followed = {before.run_id for run in chain if (before := continuation_of(run))}
    return any(not _is_closed(run) or (not _is_over(run) and run["metadata"]["uid"] not in followed) for run in chain)


def _tie(run: Object) -> tuple[str, int] | None:
    """UID of the parent of a run, and the event that has initiated it; None where it has none."""
    parent = parent_of(run)
    return (parent.run_id, parent.initiated_event_id) if parent else None


def _held(pod: Object) -> bool:
    return _FINALIZER in (pod["metadata"].get("finalizers") or ())
