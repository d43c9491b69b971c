"""Invariants of the removal of finished runs and Operations: not too early, and not with pending work."""

from collections import Counter, defaultdict
from collections.abc import Callable
from datetime import datetime, timedelta

from perdure.api import labels
from perdure.api.phases import workflow_of
from perdure.runtime.chains import parent_of
from perdure.runtime.deadletters import dead_letter_of
from perdure.runtime.retention import Limits, Policy, fair_share, has_succeeded
from perdure.simulation.cluster.apiserver import ApiServer
from perdure.simulation.cluster.store import Object, ObjectKey, Write
from simulated.checks.run_facts import is_over, is_refused, state
from simulated.loop import START

CHORES = ("children", "externals", "markers", "startSuccessor", "reports")
"""Fields of the state of a run that has something left to do."""
_GRACE = timedelta(seconds=59)
"""A run that has just finished is kept for a minute, also where a namespace has too many; clocks of operators differ a little."""
_UNSEEN_SECONDS = 90.0
"""For so long a watch may not have shown a deletion: it has a gap of at most 70 seconds."""
_DECIDED_SECONDS = 15.0
"""For so long an operator may act on the spec of one object, read before it was changed, towards another object: the answers
with the spec and the other object take up to 5 seconds each, and one of them may be requested twice."""
_OUTDATED_SECONDS = 20.0
"""For so long an operator may use the retention of a namespace after a change: it reads it every five seconds."""


class RemovalChecks:
    """Checks the removal of finished runs and Operations."""

    def __init__(self, server: ApiServer, report: Callable[[Write, str], None]) -> None:
        """`report` takes a write and what is wrong with it."""
        self.limits = Limits()
        """The limits of the namespace's finished runs."""
        self._server = server
        self._report = report
        self._removed: list[tuple[float, Object]] = []
        """The removed runs, and when that was."""
        self._policies: dict[str, list[tuple[float, Policy]]] = defaultdict(lambda: [(0.0, Policy())])
        """The policies of each namespace, and since when."""
        self._edited: dict[str, tuple[float, Object]] = {}
        """By name of a Schedule, when its spec was changed last, and what it was before."""

    def observe_removed(self, write: Write) -> None:
        """Note that a run was removed."""
        self._removed.append((write.time, write.before or write.after))

    def observe_defaults(self, write: Write) -> None:
        """Note a change of the WorkflowDefaults of a namespace."""
        policy = Policy() if write.type == "DELETED" else Policy.of(write.after["spec"])
        self._policies[write.key.namespace].append((write.time, policy))

    def observe_schedule(self, write: Write) -> None:
        """Note a change of the spec of a Schedule."""
        if write.before is not None and write.before["spec"] != write.after["spec"]:
            self._edited[f"{write.key.namespace}/{write.key.name}"] = write.time, write.before["spec"]

    def check_run(self, write: Write) -> None:
        """An operator removes a run only after its end, when nothing is left to do, and no earlier than it may.

        A client's run that another start of its ID preceded did nothing: the client gets the other one, and it is removed.
        """
        run, status = write.before or {}, (write.before or {}).get("status") or {}
        if self._is_requested(run):
            return
        if not status.get("completionTime"):
            self._report(write, "is deleted while it is open")
            return
        if any((status.get("state") or {}).get(chore) for chore in CHORES):
            self._report(write, "is deleted with something left to do")
        if waiting := self._waits_for_end(write.key.namespace, run):
            self._report(write, f"is deleted before {waiting} has recorded its end")
        schedule = next((o for o in run["metadata"].get("ownerReferences") or () if o["kind"] == "Schedule"), None)
        found = schedule and self._server.objects.get(ObjectKey("schedules", write.key.namespace, schedule["name"]))
        if schedule and found and found["metadata"]["uid"] == schedule["uid"]:
            self._check_limit(write, found)
        elif not is_refused(status) and not self._is_surplus(write):
            policies = self._recent_policies(write)
            if not any(self._is_beyond_limit(write, each) for each in policies):
                name, phase = workflow_of(run["spec"]), status["phase"]
                self.check_expired(write, min(policy.ttl(name, phase) for policy in policies))

    def _recent_policies(self, write: Write) -> list[Policy]:
        """The policies of a namespace that an operator may use when it removes a run."""
        known = self._policies[write.key.namespace]
        until = [*(time for time, _ in known[1:]), write.time]
        return [policy for (_, policy), end in zip(known, until, strict=True) if end >= write.time - _OUTDATED_SECONDS]

    def _is_beyond_limit(self, write: Write, policy: Policy) -> bool:
        """Whether newer runs reach the history limit that a run counts to.

        Runs that were removed for other reasons count until the slowest watch has shown that.
        """
        run = write.before or {}
        name, well = workflow_of(run["spec"]), has_succeeded(run["status"]["phase"])
        field = "successfulRunsHistoryLimit" if well else "failedRunsHistoryLimit"
        own = policy.workflows.get(name, {}).get(field)
        limit = policy.rules.get(field) if own is None else own
        gone = [each for time, each in self._removed if time > write.time - _UNSEEN_SECONDS]
        newer = [
            each
            for each in (*self._server.of("workflowruns"), *gone)
            if is_over(each)
            and has_succeeded(each["status"]["phase"]) is well
            and each["status"]["completionTime"] >= run["status"]["completionTime"]
            and each["metadata"]["uid"] != run["metadata"]["uid"]
            and (own is None or workflow_of(each["spec"]) == name)
        ]
        return limit is not None and len({each["metadata"]["uid"] for each in newer}) >= limit

    def _is_requested(self, run: Object) -> bool:
        """Whether an Operation that deletes a run has recorded it as its target."""
        return any(
            "delete" in each["spec"] and (each.get("status") or {}).get("runId") == run["metadata"]["uid"]
            for each in self._server.of("operations")
        )

    def _is_surplus(self, write: Write) -> bool:
        """Whether the namespace has more finished runs than it may keep, or more than its share of those that all may have.

        The run must have been readable for a while.

        Runs that were removed for other reasons count until the slowest watch has shown that.
        """
        gone = [run for time, run in self._removed[:-1] if time > write.time - _UNSEEN_SECONDS]
        finished = Counter(
            run["metadata"]["namespace"] for run in (*self._server.of("workflowruns"), *gone) if is_over(run)
        )
        its = finished[write.key.namespace]
        share = fair_share(
            [count + (each == write.key.namespace) for each, count in finished.items()], self.limits.all_runs
        )
        closed = datetime.fromisoformat((write.before or {})["status"]["completionTime"])
        exceeds = its >= self.limits.runs or (share is not None and its >= share)
        return exceeds and START + timedelta(seconds=write.time) >= closed + _GRACE

    def _waits_for_end(self, namespace: str, run: Object) -> str:
        """The object that has not recorded the end of a run yet; empty if there is none."""
        tie = parent_of(run)
        parent = self._server.objects.get(ObjectKey("workflowruns", namespace, tie.name)) if tie else None
        if tie and parent and parent["metadata"]["uid"] == tie.run_id and "deletionTimestamp" not in parent["metadata"]:
            children = state(parent).get("children") or {}
            if state(parent).get("status", "Running") == "Running" and str(tie.initiated_event_id) in children:
                return f"its parent {tie.name}"
        letter = self._server.objects.get(ObjectKey("deadletters", namespace, dead_letter_of(run) or ""))
        for each in ((letter or {}).get("status") or {}).get("conditions") or ():
            if (
                each["type"] == "Redriven"
                and each["status"] == "Unknown"
                and run["metadata"]["name"] in each["message"]
            ):
                return "its DeadLetter"
        return ""

    def _check_limit(self, write: Write, schedule: Object) -> None:
        """A run is removed only if the limit of the current Schedule is exceeded by newer runs of its kind."""
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
            self._report(write, f"is deleted with {len(newer)} newer ones; the limit is {limit}")
        if any(each["name"] == write.key.name for each in state(schedule).get("running") or ()):
            self._report(write, "is deleted before its schedule has recorded its end")

    def check_expired(self, write: Write, default: int) -> None:
        """An object is removed only after its time; `default` is that of one without `ttlSecondsAfterFinished`."""
        obj = write.before or {}
        done = (obj.get("status") or {}).get("completionTime")
        if not done:
            if labels.BATCH_LABEL not in obj["metadata"].get("labels", {}):  # a client can stop a batch
                self._report(write, "is deleted before it is complete")
            return
        kept = timedelta(seconds=obj["spec"].get("ttlSecondsAfterFinished", default))
        if START + timedelta(seconds=write.time) < datetime.fromisoformat(done) + kept - timedelta(seconds=1):
            self._report(write, "is deleted before its time is over")
