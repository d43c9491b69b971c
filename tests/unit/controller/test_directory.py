"""A workflow ID has one open run, with events in any order and two operators."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.api import labels
from perdure.api.policies import WorkflowIdConflictPolicy, WorkflowIdReusePolicy
from perdure.controller.directory import Directory, Standing, Start, Wait, entry_of
from perdure.kube import client as kube


class Server:
    """The API server: runs of one workflow ID, and their watch events in order."""

    def __init__(self) -> None:
        self.runs: dict[str, kube.Object] = {}
        self.events: list[kube.Object] = []
        self._version = 0

    def create(self, uid: str, second: int) -> kube.Object:
        meta = {
            "name": f"run-{uid}",
            "namespace": "default",
            "uid": uid,
            "creationTimestamp": f"2026-01-01T00:00:{second:02}Z",
        }
        return self._written({"metadata": meta, "spec": {"workflowId": "same"}})

    def start(self, run: kube.Object) -> kube.Object | None:
        """The compare-and-swap that starts a run; None after a conflicting write."""
        current = self.runs[run["metadata"]["uid"]]
        if current["metadata"]["resourceVersion"] != run["metadata"]["resourceVersion"]:
            return None
        return self._written({**current, "status": {"phase": "Running", "state": {"runId": "x"}}})

    def close(self, uid: str) -> None:
        before = self.runs[uid]["status"]
        closed = {"phase": "Completed", "completionTime": "2026-01-01T00:01:00Z"}
        status = {**before, **closed, "state": {**before["state"], "status": "Completed"}}
        self._written({**self.runs[uid], "status": status})

    def open(self) -> list[str]:
        statuses = {uid: run.get("status") or {} for uid, run in self.runs.items()}
        return [uid for uid, status in statuses.items() if "state" in status and "completionTime" not in status]

    def _written(self, obj: kube.Object) -> kube.Object:
        self._version += 1
        made = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(self._version)}}
        self.runs[made["metadata"]["uid"]] = made
        self.events.append(made)
        return made


class Operator:
    """An operator that decides by its observations; its writes arrive later."""

    def __init__(self, server: Server) -> None:
        self.directory, self._server = Directory(), server
        self.known: dict[str, kube.Object] = {}
        self.going: list[kube.Object] = []
        self.observed = 0

    def observe(self, obj: kube.Object) -> None:
        self.directory.put(obj)
        known = self.known.setdefault(obj["metadata"]["uid"], obj)
        if not kube.older(obj["metadata"]["resourceVersion"], known["metadata"]["resourceVersion"]):
            self.known[obj["metadata"]["uid"]] = obj

    def observe_next(self) -> None:
        if self.observed < len(self._server.events):
            self.observe(self._server.events[self.observed])
            self.observed += 1

    def decide(self, uid: str) -> None:
        entry = self.directory.get(uid)
        if entry is None or entry.standing.value != "waiting":
            return
        reuse, conflict = WorkflowIdReusePolicy.ALLOW_DUPLICATE, WorkflowIdConflictPolicy.FAIL
        others = self.directory.sharing(entry)
        if isinstance(self.directory.claims.claim(entry, others, reuse=reuse, conflict=conflict), Start):
            self.going.append(self.known[uid])

    def land(self) -> None:
        if self.going:
            written = self._server.start(self.going.pop(0))
            if written is not None:
                self.observe(written)


UIDS = st.permutations([f"{n:x}" for n in range(6)])
SECONDS = st.lists(st.integers(0, 1), min_size=6, max_size=6).map(sorted)


@given(uids=UIDS, seconds=SECONDS, data=st.data())
def test_one_operator_starts_one_run_with_events_in_any_order(uids: list[str], seconds: list[int], data: Any) -> None:
    server = Server()
    operator = Operator(server)
    pending = list(zip(uids, seconds, strict=True))
    for _ in range(60):
        match data.draw(st.sampled_from(["create", "observe", "decide", "decide", "land", "close"])):
            case "create" if pending:
                server.create(*pending.pop(0))
            case "observe" if server.events:
                operator.observe(data.draw(st.sampled_from(server.events)))
            case "decide":
                operator.decide(data.draw(st.sampled_from(sorted(operator.known) or uids)))
            case "land":
                operator.land()
            case "close" if server.open():
                server.close(server.open()[0])
        assert len(server.open()) <= 1


@given(uids=UIDS, seconds=SECONDS, data=st.data())
def test_two_operators_with_ordered_events_start_one_run(uids: list[str], seconds: list[int], data: Any) -> None:
    server = Server()
    operators = [Operator(server), Operator(server)]
    pending = list(zip(uids, seconds, strict=True))
    for _ in range(60):
        operator = data.draw(st.sampled_from(operators))
        match data.draw(st.sampled_from(["create", "observe", "observe", "decide", "decide", "land"])):
            case "create" if pending:
                server.create(*pending.pop(0))
            case "observe":
                operator.observe_next()
            case "decide":
                operator.decide(data.draw(st.sampled_from(sorted(operator.known) or uids)))
            case "land":
                operator.land()
        assert len(server.open()) <= 1


def test_an_admitted_run_is_not_overtaken_by_an_older_one_observed_later() -> None:
    server = Server()
    operator = Operator(server)
    early, late = server.create("a", 0), server.create("b", 1)
    operator.observe(late)
    operator.decide("b")
    operator.observe(early)
    entry = operator.directory.get("a")
    assert entry is not None
    verdict = operator.directory.claims.claim(
        entry,
        operator.directory.sharing(entry),
        reuse=WorkflowIdReusePolicy.ALLOW_DUPLICATE,
        conflict=WorkflowIdConflictPolicy.FAIL,
    )
    assert isinstance(verdict, Wait)
    assert verdict.other.uid == "b"
    operator.going.clear()  # `b` was deleted before it began
    operator.directory.drop("b")
    operator.decide("a")
    operator.land()
    assert server.open() == ["a"]


def run(uid: str, version: int, status: Any = None) -> kube.Object:
    meta = {"name": f"run-{uid}", "namespace": "default", "uid": uid, "resourceVersion": str(version)}
    return {"metadata": meta, "spec": {"workflowId": "same"}, "status": status or {}}


def test_a_run_and_its_successor_have_a_gap_between_them() -> None:
    directory, going_on = Directory(), {"status": "Failed", "successor": "run-b", "startSuccessor": True}
    directory.put(run("a", 1, {"state": {"successor": "run-b"}}))
    assert directory.gap("default", "same") is None
    directory.put(run("a", 2, {"state": going_on, "completionTime": "2026-01-01T00:01:00Z"}))
    directory.put(run("new", 3))
    gap = directory.gap("default", "same")
    assert gap is not None
    assert gap.uid == "a"
    directory.put(run("b", 4))
    assert directory.gap("default", "same") is None
    directory.drop("b")
    directory.put(run("a", 5, {"state": {"successorRefused": "no"}, "completionTime": "2026-01-01T00:01:00Z"}))
    assert directory.gap("default", "same") is None


def test_owner_references_to_another_namespace_are_ignored() -> None:
    """UIDs can be read by others, and copied."""
    owner = {
        "apiVersion": labels.API_VERSION,
        "kind": "Schedule",
        "name": "nightly",
        "uid": "of-schedule",
        "controller": True,
    }
    tie = {"name": "nightly", "scheduledTime": "2026-01-01T00:00:00Z"}
    parent = {"name": "order", "workflowId": "order", "runId": "of-parent", "initiatedEventId": 5}
    marks = {
        labels.SCHEDULED_BY_ANNOTATION: msgspec.json.encode(tie).decode(),
        labels.PARENT_ANNOTATION: msgspec.json.encode(parent).decode(),
    }

    def run(namespace: str, name: str, **more: Any) -> kube.Object:
        meta = {"name": name, "namespace": namespace, "uid": f"{namespace}-{name}", "resourceVersion": "1"}
        return {"metadata": meta | {"ownerReferences": [owner]} | more, "spec": {}}

    directory = Directory()
    directory.put(run("shop", "own", annotations=marks))
    directory.put(run("shop", "forged"))
    directory.put(run("other", "own", annotations=marks))
    assert [entry.uid for entry in directory.of_schedule("shop", "of-schedule")] == ["shop-own"]
    assert [entry.uid for entry in directory.children_of("shop", "of-parent")] == ["shop-own"]
    directory.drop("shop-own")
    assert directory.of_schedule("shop", "of-schedule") == []
    assert directory.children_of("shop", "of-parent") == []


def test_a_completion_time_alone_does_not_close_a_run() -> None:
    directory = Directory()
    _, entry = directory.put(run("a", 1, {"state": {"nextEventId": 3}, "completionTime": "2020-01-01T00:00:00Z"}))
    assert (entry.standing, entry.closed) == (Standing.OPEN, "")
    assert directory.open_run("default", "same") == entry


def test_a_run_waits_until_the_run_that_it_continues_is_seen_to_be_closed() -> None:
    """A new owner of the shard may see the new run before the end of the previous one."""
    server = Server()
    operator = Operator(server)
    server.start(server.create("a", 0))
    server.create("b", 1)
    operator.observe(server.runs["a"])
    operator.observe(server.runs["b"])
    found = operator.directory.get("b")
    assert found is not None
    entry = msgspec.structs.replace(found, continues="run-a")
    claims, reuse = operator.directory.claims, WorkflowIdReusePolicy.ALLOW_DUPLICATE
    for conflict in WorkflowIdConflictPolicy:
        verdict = claims.claim(entry, operator.directory.sharing(entry), reuse=reuse, conflict=conflict)
        assert isinstance(verdict, Wait)
        assert not verdict.terminate
    server.close("a")
    operator.observe(server.runs["a"])
    others = operator.directory.sharing(entry)
    assert isinstance(claims.claim(entry, others, reuse=reuse, conflict=WorkflowIdConflictPolicy.FAIL), Start)


def _closed(name: str, phase: str, minute: int) -> kube.Object:
    meta = {
        "name": name,
        "namespace": "default",
        "uid": name,
        "resourceVersion": "1",
        "creationTimestamp": "2026-01-01T00:00:00Z",
    }
    status = {"phase": phase, "completionTime": f"2026-01-01T00:{minute:02}:00Z", "state": {"status": phase}}
    return {"metadata": meta, "spec": {"workflowId": "same"}, "status": status}


@pytest.mark.parametrize(
    ("last", "want"), [("Completed", None), ("Terminated", "last"), ("Failed", "last"), ("ContinuedAsNew", None)]
)
def test_only_the_pods_of_the_last_run_may_still_stop_and_only_if_it_ended_early(last: str, want: str | None) -> None:
    directory = Directory()
    for run in (_closed("last", last, 9), _closed("earlier", "Terminated", 5)):
        directory.put(run)
    new = {"metadata": {**_closed("new", "", 0)["metadata"]}, "spec": {"workflowId": "same"}}
    directory.put(new)
    found = directory.stopped_before(entry_of(new))
    assert (found and found.name) == want
