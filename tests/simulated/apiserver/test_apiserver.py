"""The responses of the in-memory API server, which are those of a real one."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import orjson
import pytest

from perdure.simulation.cluster.apiserver import ApiServer, Request, Response, as_table
from perdure.simulation.cluster.store import ObjectKey, Write
from simulated.loop import ShuffledLoop

RUNS = "/apis/perdure.dev/v1alpha1/namespaces/default/workflowruns"
PODS = "/api/v1/namespaces/default/pods"
JSON_PATCH = {"Content-Type": "application/json-patch+json"}


@pytest.fixture
def loop() -> Iterator[ShuffledLoop]:
    found = ShuffledLoop(Random(0))
    yield found
    found.close()


@pytest.fixture
def server(loop: ShuffledLoop) -> ApiServer:
    return ApiServer(loop, Random(0), largest_page=2)


def send(server: ApiServer, method: str, url: str, body: Any = None, **more: Any) -> tuple[int, Any]:
    raw = b"" if body is None else orjson.dumps(body)
    answer: Response = server.handle(Request(method=method, url=url, body=raw, actor="test", **more))
    return answer.status, orjson.loads(answer.body)


def run(name: str = "run", **meta: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, **meta}, "spec": {"workflow": {"name": "any"}}, "status": {"phase": "Made up"}}


def pod(name: str = "pod", **meta: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, **meta}, "spec": {"containers": []}}


def test_a_new_object_gets_defaults_and_no_status_of_its_own(server: ApiServer) -> None:
    status, made = send(server, "POST", RUNS, run())
    assert status == 201
    assert made["spec"]["taskTimeout"] == "10s"
    assert made["status"] == {"phase": "Pending"}
    assert send(server, "POST", RUNS, run())[1]["reason"] == "AlreadyExists"


def _patched(server: ApiServer, version: str, *changes: dict[str, Any]) -> Any:
    """The run after a JSON patch of its status that expects a resourceVersion."""
    expected = {"op": "replace", "path": "/metadata/resourceVersion", "value": version}
    return send(server, "PATCH", f"{RUNS}/run/status", [expected, *changes], headers=JSON_PATCH)[1]


def test_only_a_changing_write_of_an_old_version_is_a_conflict(server: ApiServer) -> None:
    created = send(server, "POST", RUNS, run())[1]["metadata"]["resourceVersion"]
    stored = _patched(server, created)["metadata"]["resourceVersion"]
    assert stored != created, "the default status is stored with the first change, even an empty one"
    assert _patched(server, stored)["metadata"]["resourceVersion"] == stored
    changed = _patched(server, stored, {"op": "add", "path": "/status", "value": {"phase": "Running"}})
    same = [{"op": "replace", "path": "/metadata/resourceVersion", "value": stored}]
    assert (changed["status"], changed["metadata"]["generation"]) == ({"phase": "Running"}, 1)
    assert send(server, "PATCH", f"{RUNS}/run/status", same, headers=JSON_PATCH)[0] == 409
    failing = [{"op": "test", "path": "/spec/workflow/name", "value": "other"}]
    assert send(server, "PATCH", f"{RUNS}/run", failing, headers=JSON_PATCH)[0] == 422


def test_a_finalizer_keeps_a_deleted_object_until_it_is_removed(server: ApiServer) -> None:
    send(server, "POST", RUNS, run(finalizers=["a/b"]))
    assert "deletionTimestamp" in send(server, "DELETE", f"{RUNS}/run", {})[1]["metadata"]
    remove = [{"op": "remove", "path": "/metadata/finalizers/0"}]
    send(server, "PATCH", f"{RUNS}/run", remove, headers=JSON_PATCH)
    assert send(server, "GET", f"{RUNS}/run")[0] == 404


@pytest.mark.parametrize("part", ["uid", "resourceVersion"])
def test_a_delete_with_a_precondition_that_does_not_hold_is_a_conflict(server: ApiServer, part: str) -> None:
    made = send(server, "POST", RUNS, run())[1]["metadata"]
    assert send(server, "DELETE", f"{RUNS}/run", {"preconditions": {part: "other"}})[0] == 409
    assert send(server, "DELETE", f"{RUNS}/run", {"preconditions": {part: made[part]}})[0] == 200


def test_a_running_pod_exists_until_its_containers_stop_and_its_finalizer_is_removed(
    server: ApiServer,
) -> None:
    send(server, "POST", PODS, pod(finalizers=["a/b"]))
    key = ObjectKey("pods", "default", "pod")
    server.update(key, lambda obj: obj["spec"].update(nodeName="node"))
    assert send(server, "DELETE", f"{PODS}/pod", {})[1]["metadata"]["deletionGracePeriodSeconds"] == 30
    send(server, "PATCH", f"{PODS}/pod", [{"op": "remove", "path": "/metadata/finalizers"}], headers=JSON_PATCH)
    assert key in server.objects
    server.delete(key, actor="kubelet", grace=0)
    assert key not in server.objects


def test_the_time_of_a_pod_that_is_being_deleted_can_only_become_shorter(server: ApiServer) -> None:
    send(server, "POST", PODS, pod(finalizers=["a/b"]))
    key = ObjectKey("pods", "default", "pod")
    server.update(key, lambda obj: obj["spec"].update(nodeName="node"))

    def left(**options: int) -> int:
        found = send(server, "DELETE", f"{PODS}/pod", options)[1]["metadata"]["deletionGracePeriodSeconds"]
        assert isinstance(found, int)
        return found

    assert left() == 30
    server.update(key, lambda obj: obj["status"].update(phase="Failed"))
    assert left() == 30
    assert left(gracePeriodSeconds=60) == 30
    assert left(gracePeriodSeconds=1) == 1


def test_dependents_of_a_deleted_object_are_garbage_collected(server: ApiServer, loop: ShuffledLoop) -> None:
    owner = send(server, "POST", RUNS, run())[1]["metadata"]["uid"]
    send(server, "POST", PODS, pod(ownerReferences=[{"kind": "WorkflowRun", "name": "run", "uid": owner}]))
    send(server, "DELETE", f"{RUNS}/run", {})
    loop.call_later(10, loop.stop)
    loop.run_forever()
    assert not server.objects


def test_lists_come_in_pages_by_labels_and_fields_and_as_metadata_only(server: ApiServer) -> None:
    for number in range(5):
        send(server, "POST", RUNS, run(f"run-{number}", labels={"even": str(number % 2 == 0)}))
    page = send(server, "GET", RUNS, query={"limit": "500", "labelSelector": "even=True"})[1]
    rest = send(server, "GET", RUNS, query={"limit": "500", "continue": page["metadata"]["continue"]})[1]
    assert [obj["metadata"]["name"] for obj in (*page["items"], *rest["items"])] == ["run-0", "run-2", "run-4"]
    named = send(server, "GET", RUNS, query={"fieldSelector": "metadata.name!=run-1"})[1]["items"]
    assert len(named) == 4
    assert send(server, "GET", RUNS, query={"fieldSelector": "spec.input=1"})[0] == 400
    brief = {"Accept": "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"}
    assert [*send(server, "GET", RUNS, headers=brief)[1]["items"][0]] == ["metadata"]


def test_a_list_as_a_table_has_the_columns_of_the_crd(server: ApiServer, loop: ShuffledLoop) -> None:
    send(server, "POST", RUNS, run(labels={"perdure.dev/schedule": "nightly", "b": "c"}))
    server.update(ObjectKey("workflowruns", "default", "run"), lambda obj: obj.update(status={"phase": "Failed"}))
    loop.call_later(3_725, loop.stop)
    loop.run_forever()
    table = {"Accept": "application/json;as=Table;g=meta.k8s.io;v=v1"}
    found = send(server, "GET", RUNS, headers=table)[1]
    cells = dict(zip([each["name"] for each in found["columnDefinitions"]], found["rows"][0]["cells"], strict=True))
    wanted = {"Name": "run", "Phase": "Failed", "Workflow": "any", "Schedule": "nightly"}
    assert {key: cells[key] for key in wanted} == wanted
    assert (cells["Completed"], cells["Age"]) == ("<unknown>", "62m")
    assert found["rows"][0]["object"]["metadata"]["labels"]["b"] == "c"
    assert "object" not in send(server, "GET", RUNS, headers=table, query={"includeObject": "None"})[1]["rows"][0]


@pytest.mark.parametrize(
    ("seconds", "age"),
    [
        (-3, "0s"),
        (119, "119s"),
        (120, "2m"),
        (599, "9m59s"),
        (660, "11m"),
        (7 * 3600 + 60, "7h1m"),
        (86_400, "24h"),
        (3 * 86_400 + 3600, "3d1h"),
        (400 * 86_400, "400d"),
        (3 * 365 * 86_400 + 86_400, "3y1d"),
        (10**9, "31y"),
    ],
)
def test_an_age_has_one_or_two_units(seconds: int, age: str) -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    obj = {"metadata": {"name": "run", "creationTimestamp": (now - timedelta(seconds=seconds)).isoformat()}}
    (row,) = as_table("workflowruns", [obj], {}, now, metadata=False)["rows"]
    assert row["cells"][-1] == age


def test_observed_versions_are_immutable(server: ApiServer) -> None:
    versions: list[tuple[Any, bytes]] = []
    server.observers.append(lambda write: versions.append((write.after, orjson.dumps(write.after))))
    send(server, "POST", RUNS, run(labels={"a": "1"}))
    add = [{"op": "add", "path": "/status", "value": {"history": [{"id": 1}]}}]
    append = [
        {"op": "add", "path": "/status/history/-", "value": {"id": 2}},
        {"op": "replace", "path": "/status/history/1/id", "value": 3},
        {"op": "replace", "path": "/status/history/0/id", "value": 4},
    ]
    for operations in (add, append):
        assert send(server, "PATCH", f"{RUNS}/run/status", operations, headers=JSON_PATCH)[0] == 200
    merge = {"Content-Type": "application/merge-patch+json"}
    assert send(server, "PATCH", f"{RUNS}/run", {"metadata": {"labels": {"a": "2"}}}, headers=merge)[0] == 200
    assert send(server, "DELETE", f"{RUNS}/run")[0] == 200
    assert [orjson.dumps(obj) for obj, _ in versions] == [raw for _, raw in versions]
    assert versions[-1][0]["status"] == {"history": [{"id": 4}, {"id": 3}]}
    assert len(versions) == 5


def test_observers_are_called_in_the_order_of_their_registration(server: ApiServer) -> None:
    observed: list[str] = []

    def listen(name: str) -> Callable[[Write], None]:
        return lambda write: observed.append(f"{name}: {write.key.name}")

    leaves = listen("leaves")
    server.observers.append(listen("runs"), "workflowruns")
    server.observers.append(leaves)
    server.observers.append(listen("all"))
    server.create("workflowruns", run("one"))
    server.observers.remove(leaves)
    server.create("workflowruns", run("two"))
    server.create("configmaps", {"metadata": {"name": "other"}})
    assert observed == ["runs: one", "leaves: one", "all: one", "runs: two", "all: two", "all: other"]
