"""Runs found by their name or their workflow ID."""

from typing import Any

import pytest

from perdure.client.cluster import Cluster
from perdure.client.errors import NotFoundError
from support.apiserver import ApiServer, items
from support.view.flow import Flow

RUNS = "/apis/perdure.dev/v1alpha1/namespaces/shop/workflowruns"
ENDED = {"phase": "Completed", "completionTime": "2026-01-01T12:00:05Z"}


def serve(server: ApiServer, *found: dict[str, Any]) -> None:
    """Let the list return the runs that match a field selector."""

    def answer() -> dict[str, Any]:
        field, _, value = server.asked[-1][1]["fieldSelector"][0].partition("=")
        kind, key = field.split(".")
        return items(*(run for run in found if run[kind].get(key) == value.replace("\\", "")))

    server.answers[RUNS] = answer
    for run in found:
        server.answers[f"{RUNS}/{run['metadata']['name']}"] = run


def named(name: str, workflow_id: str | None, **status: Any) -> dict[str, Any]:
    run = Flow(name=name).object
    spec = run["spec"] | ({"workflowId": workflow_id} if workflow_id else {})
    return {**run, "metadata": run["metadata"] | {"uid": name}, "spec": spec, "status": run["status"] | status}


async def name_of(cluster: Cluster, workflow_id: str) -> str:
    found = await cluster.runs.find(None, workflow_id)
    return str(found["metadata"]["name"])


async def test_the_open_run_of_a_workflow_id_is_found(server: ApiServer, cluster: Cluster) -> None:
    serve(server, named("first", "A/1,b", **ENDED), named("second", "A/1,b", phase="Running"))
    assert await name_of(cluster, "A/1,b") == "second"
    assert ["spec.workflowId=A/1\\,b"] in [query.get("fieldSelector") for _, query in server.asked]


async def test_the_run_that_closed_last_is_found_unless_it_was_rejected(server: ApiServer, cluster: Cluster) -> None:
    later = {"phase": "Failed", "completionTime": "2026-01-01T12:00:09Z"}
    taken = {"failure": {"type": "WorkflowExecutionAlreadyStarted"}, "completionTime": "2026-01-01T13:00:00Z"}
    serve(server, named("last", "b", **later), named("first", "b", **ENDED), named("refused", "b", **taken))
    assert await name_of(cluster, "b") == "last"


async def test_a_run_in_deletion_is_not_open(server: ApiServer, cluster: Cluster) -> None:
    """A finalizer of another controller can keep a run in deletion for long (kestra#8459)."""
    leaving = named("leaving", "c", phase="Running")
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T12:00:30Z"
    serve(server, leaving, named("ended", "c", **ENDED))
    assert await cluster.runs.open_run("c") is None
    assert await name_of(cluster, "c") == "leaving"
    serve(server, leaving, named("open", "c", phase="Pending"))
    assert await cluster.runs.open_run("c") == "open"


async def test_a_name_is_the_workflow_id_of_a_run_without_one(server: ApiServer, cluster: Cluster) -> None:
    serve(server, named("order-7", None), named("other", "order-7", **ENDED), named("x", "y"))
    assert await name_of(cluster, "order-7") == "order-7"
    with pytest.raises(NotFoundError, match="no WorkflowRun with workflow ID `none`"):
        await name_of(cluster, "none")


async def test_a_standalone_activity_has_another_workflow_id(server: ApiServer, cluster: Cluster) -> None:
    activity = named("charge", "order-8", phase="Running")
    activity["spec"] = {"workflowId": "order-8", "activity": {"type": "Charge", "taskQueue": "q"}}
    serve(server, activity, named("old", "order-8", **ENDED))
    assert await name_of(cluster, "order-8") == "old"
    assert (await cluster.runs.find("charge", None))["metadata"]["name"] == "charge"


async def test_a_workflow_id_as_a_name_gets_a_hint(server: ApiServer, cluster: Cluster) -> None:
    serve(server, named("order-1-abc", "A 1"))
    with pytest.raises(NotFoundError) as raised:
        await cluster.runs.find("A 1", None)
    assert str(raised.value) == (
        "there is no WorkflowRun `A 1` in namespace `shop`, but that is the workflow ID of `order-1-abc`; pass it with "
        "`-w 'A 1'`"
    )
