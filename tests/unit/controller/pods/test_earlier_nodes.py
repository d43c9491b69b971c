"""A retry prefers other nodes than those of the attempts before it."""

from typing import Any

import orjson
import pytest
from aiohttp import web

from perdure.api.kinds.workflow import Activity
from perdure.controller.pods.attempt_pods import ActivityIdentity, Pods
from perdure.runtime.attempts import Attempt, PodSettings, RunRef
from support.http_server import api_server
from support.managers import unchanged

RUN = RunRef(namespace="shop", name="order", uid="uid-1", workflow_id="order")


async def avoided(attempt: int, stored: dict[str, Any], **fields: Any) -> tuple[list[str], list[str]]:
    """The nodes that the pod of an attempt avoids, and the names of the pods that were read."""
    read: list[str] = []
    created: list[dict[str, Any]] = []

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        if request.method == "POST":
            created.append(orjson.loads(await request.read()))
            return web.json_response(created[-1])
        name = request.path.rpartition("/")[2]
        read.append(name)
        found = stored.get(name)
        return web.json_response(found or {"reason": "NotFound", "message": "gone"}, status=200 if found else 404)

    definition = Activity.parse({"name": "a", "startToCloseTimeout": "1m", "container": {"image": "i"}, **fields})
    current = Attempt(scheduled_event_id=5, attempt=attempt, activity_id="a", activity_type="a")
    async with api_server(answer) as client:
        await Pods(client, ActivityIdentity(client, "perdure-activity"), PodSettings()).ensure(
            RUN, current, definition, {}, unchanged
        )
    terms = created[0]["spec"].get("affinity", {}).get("nodeAffinity", {})
    terms = terms.get("preferredDuringSchedulingIgnoredDuringExecution", [])
    return [field["values"][0] for term in terms for field in term["preference"]["matchFields"]], read


def pod(node: str | None, uid: str = "uid-1") -> dict[str, Any]:
    return {"metadata": {"labels": {"perdure.dev/run-id": uid}}, "spec": {"nodeName": node} if node else {}}


async def test_the_nodes_of_earlier_attempts_are_avoided() -> None:
    stored = {"order-5-3": pod("n2"), "order-5-2": pod("n1"), "order-5-1": pod("n2")}
    assert await avoided(4, stored, retryOnAnotherNode=True) == (["n2", "n1"], ["order-5-3", "order-5-2", "order-5-1"])


async def test_only_the_last_attempts_are_read() -> None:
    nodes, read = await avoided(100, {"order-5-94": pod("n1"), "order-5-95": pod("n2")}, retryOnAnotherNode=True)
    assert nodes == ["n2"]
    assert read == [f"order-5-{number}" for number in (99, 98, 97, 96, 95)]


@pytest.mark.parametrize("found", [pod(None), pod("n1", "other")], ids=["not scheduled", "of another run"])
async def test_a_pod_without_a_node_is_ignored(found: dict[str, Any]) -> None:
    assert (await avoided(2, {"order-5-1": found}, retryOnAnotherNode=True))[0] == []


async def test_no_pods_are_read_for_a_first_attempt_or_by_default() -> None:
    assert await avoided(1, {"order-5-1": pod("n1")}, retryOnAnotherNode=True) == ([], [])
    assert await avoided(2, {"order-5-1": pod("n1")}) == ([], [])
