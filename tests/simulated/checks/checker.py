"""Invariants, checked at every write and at the end (docs/architecture.md: Invariants).

At every write: histories grow without gaps, are never changed, and end with one closing event. One run of a workflow ID is
open. No name of a pod or run is used twice, and no attempt follows one that has succeeded. Nothing that is still waited for is
deleted or released. A revision to which a run refers exists. No pod that stays after its activity has completed is deleted. The
containers of two attempts do not run at the same time, unless their activity permits it or a node is lost. A parent and a
Schedule record the end of a run only as it has ended. At the end: nothing is held, no pod runs for a run that has closed, nothing
is left to do for it, and nothing is written any more.
"""

from collections import Counter

from perdure.api import labels
from perdure.api.kinds.workflow import Retention
from perdure.api.phases import kind_of
from perdure.api.times import read_kubernetes_time
from perdure.runtime.chains import first_run_id
from perdure.runtime.pods.builder import retention_of
from perdure.runtime.pods.status import PodStatus
from perdure.simulation.cluster.apiserver import ApiServer
from perdure.simulation.cluster.store import Object, ObjectKey, Write
from simulated.checks.attempts import AttemptChecks
from simulated.checks.event_order import ACTIVITY_CLOSED
from simulated.checks.histories import HistoryChecks
from simulated.checks.removals import CHORES, RemovalChecks
from simulated.checks.revisions import RevisionChecks
from simulated.checks.run_facts import DecodedRuns, continues, existing_runs, state

_FINALIZER = "perdure.dev/outcome"
_MAX_VIOLATIONS = 10


class Checker:
    """Observes every write, and records violations of invariants."""

    def __init__(self, server: ApiServer, operators: set[str]) -> None:
        """`operators` are the names of those whose writes are judged."""
        self.violations: list[str] = []
        self.writes: Counter[str] = Counter()
        self.pods: Counter[tuple[str, str]] = Counter()
        self.runs: Counter[str] = Counter()
        """How often a run of each name was created."""
        self.named_again: set[str] = set()
        """Names of runs that people delete, and use once more."""
        self.failed_by_clients: set[str] = set()
        """Names of runs of which clients fail attempts, also those that have succeeded a moment ago."""
        self.removals = RemovalChecks(server, self._at)
        self.revisions = RevisionChecks(server, self._at)
        self._server = server
        self._operators = operators
        self.decoded = DecodedRuns()
        self.attempts = AttemptChecks(self._at)
        self._histories = HistoryChecks(server, self.decoded, self.attempts, self._at)
        self._open: dict[tuple[str, str, str], set[str]] = {}
        self._succeeded: set[tuple[str, str]] = set()
        """Activities, by run and scheduling event, of which a pod has succeeded."""
        server.observers.append(self._observe)

    def fail(self, message: str) -> None:
        """Note a violation."""
        if len(self.violations) < _MAX_VIOLATIONS:
            self.violations.append(message)

    # At every write

    def _observe(self, write: Write) -> None:
        if labels.FLEET_LABEL in (write.after["metadata"].get("labels") or {}):
            return
        if write.key.plural != "pods" or write.type != "DELETED":  # pods are kept for a while, and then deleted
            self.writes[write.actor] += 1
        judged = write.actor in self._operators
        match write.key.plural:
            case "pods" if labels.ARTIFACT_STORE_LABEL not in write.after["metadata"]["labels"]:
                self._check_pod(write, judged=judged)
            case "workflowruns":
                self._check_run(write)
                if judged:
                    self.revisions.check_run(write)
                if judged and write.delete_requested:
                    self.removals.check_run(write)
            case "workflowrevisions" if judged:
                self.revisions.check_revision(write)
            case "schedules" if write.before is not None and write.type == "MODIFIED":
                self.removals.observe_schedule(write)
                self._check_schedule(write)
            case "workflowdefaults" if (
                write.type in {"ADDED", "DELETED"} or write.before["spec"] != write.after["spec"]
            ):
                self.removals.observe_defaults(write)
            case "operations" if judged and write.delete_requested:
                self.removals.check_expired(write, 3_600)

    def _at(self, write: Write, message: str) -> None:
        self.fail(f"{write.time:.3f} {write.actor}: {write.key.plural} {write.key.name}: {message}")

    def _check_pod(self, write: Write, *, judged: bool) -> None:
        self.attempts.observe_pod(write)
        meta = write.after["metadata"]
        run_id = meta["labels"].get("perdure.dev/run-id", "")
        activity_id = run_id, meta["annotations"]["perdure.dev/scheduled-event-id"]
        if write.type == "ADDED":
            made = run_id, write.key.name
            self.pods[made] += 1
            if self.pods[made] > 1:
                self._at(write, f"is created {self.pods[made]} times")
            if (
                activity_id in self._succeeded
                and meta["annotations"][labels.RUN_ANNOTATION] not in self.failed_by_clients
            ):
                self._at(write, "is created after an earlier attempt of the activity has succeeded")
        self._note_success(write, activity_id)
        if not judged or write.before is None:
            return
        if write.delete_requested and self._stays(write.before):
            self._at(write, "is deleted although its activity has completed and keeps it")
        released = _held(write.before) and (write.type == "DELETED" or not _held(write.after))
        activity = self._waiting(write.after)
        if activity is None:
            return
        if released:
            self._at(write, "is released while its run waits for its result")
        elif write.delete_requested and not activity.get("cancelRequested"):
            self._at(write, "is deleted while its run waits for it")

    def _note_success(self, write: Write, activity_id: tuple[str, str]) -> None:
        """Note the success of a pod that its run waits for. Later writes, such as the release of the pod, take nothing back."""
        if write.after["status"]["phase"] != "Succeeded":
            return
        if not _proves_success(write.after):
            self._succeeded.discard(activity_id)
        elif self._waiting(write.after) is not None:
            self._succeeded.add(activity_id)

    def _stays(self, pod: Object) -> bool:
        """Whether a pod has succeeded, its run has recorded this, and nothing has decided yet when the pod expires."""
        run = self._run_of(pod)
        if run is None or pod["status"]["phase"] != "Succeeded" or labels.EXPIRES_LABEL in pod["metadata"]["labels"]:
            return False
        notes = pod["metadata"]["annotations"]
        attempt = notes[labels.SCHEDULED_EVENT_ANNOTATION], int(notes[labels.ATTEMPT_ANNOTATION])
        events = self._histories.of(run)
        completed = (e for e in events if e["eventType"] == "ActivityTaskCompleted")
        # The deletion of a canceled activity's pod may be under way when another operator records that it has completed.
        if any(
            e["eventType"] == "ActivityTaskCancelRequested" and str(e["scheduledEventId"]) == attempt[0] for e in events
        ):
            return False
        kept = retention_of(pod, succeeded=True) is not Retention.DELETE
        return kept and attempt in {(str(event["scheduledEventId"]), event.get("attempt", 1)) for event in completed}

    def _run_of(self, pod: Object) -> Object | None:
        """The run of a pod; None if it was deleted."""
        meta = pod["metadata"]
        owner = next((each for each in meta.get("ownerReferences") or () if each["kind"] == "WorkflowRun"), None)
        run = self._server.objects.get(ObjectKey("workflowruns", meta["namespace"], owner["name"])) if owner else None
        if owner is None or run is None or run["metadata"]["uid"] != owner["uid"]:
            return None
        return None if "deletionTimestamp" in run["metadata"] else run

    def _waiting(self, pod: Object) -> Object | None:
        """The open activity that waits for the pod, in the current state of its run; None if there is none."""
        run = self._run_of(pod)
        decided = state(self.decoded.of(run)) if run is not None else {}
        if run is None or decided.get("status", "Running") != "Running":
            return None
        notes = pod["metadata"]["annotations"]
        event_id = notes["perdure.dev/scheduled-event-id"]
        if event_id in _ended(decided):
            return None
        activity = (decided.get("activities") or {}).get(event_id)
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
        gone = write.type == "DELETED" or "deletionTimestamp" in run["metadata"]
        if not gone and status.get("state") and not status.get("completionTime"):
            open_.add(uid)
            if len(open_) > 1:
                self._at(write, f"is open while another run of {kind} ID {identity[2]} is")
        if write.type == "DELETED":
            self.removals.observe_removed(write)
            return
        self._histories.check_write(write)

    def _check_schedule(self, write: Write) -> None:
        """A Schedule stops following a run only when the run and its successors have closed."""
        before, after = (
            {run["runId"]: run["name"] for run in state(each).get("running") or () if run.get("runId")}
            for each in (write.before or {}, write.after)
        )
        for run_id in before.keys() - after.keys():
            chain = [run for run in existing_runs(self._server) if first_run_id(run) == run_id]
            if continues(chain):
                self._at(write, f"no longer follows run {before[run_id]}, which is open")

    # At the end

    def finish(self) -> None:
        """Check the invariants of the final state."""
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
        name = run["metadata"]["name"]
        if chores := [chore for chore in CHORES if state(run).get(chore)]:
            self.fail(f"run {name} has closed, and its {', '.join(chores)} are left")
        for problem in self._histories.problems(run):
            self.fail(f"run {name} {problem}")

    def history(self, run: Object) -> list[Object]:
        """All events of a run."""
        return self._histories.of(run)


def _ended(state: Object) -> set[str]:
    """The activities whose end is committed, and waits in the buffer until a worker has decided."""
    buffered = (state.get("code") or {}).get("buffered") or ()
    return {str(event["scheduledEventId"]) for event in buffered if event["eventType"] in ACTIVITY_CLOSED}


def _proves_success(pod: Object) -> bool:
    """Whether the exit code 0 of a pod proves success: with a result, or if it ended before someone requested its deletion."""
    meta = pod["metadata"]
    ends = [each["state"]["terminated"] for each in pod["status"]["containerStatuses"]]
    if "deletionTimestamp" not in meta or any(end["message"] for end in ends):
        return True
    stopped = PodStatus.of(pod).delete_requested
    return stopped is None or all(read_kubernetes_time(end["finishedAt"]) < stopped for end in ends)


def _held(pod: Object) -> bool:
    return _FINALIZER in (pod["metadata"].get("finalizers") or ())
