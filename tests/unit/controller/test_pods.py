"""When a pod has ended: before its phase says so, and never while it still works. And how it is released then."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import orjson
import pytest
from aiohttp import web

from perdure.api.workflow import Activity
from perdure.controller.identity import ActivityIdentity
from perdure.controller.pods import AttemptImpossibleError, Pods, has_ended
from perdure.kube.access import Access
from perdure.kube.client import Client
from perdure.runtime.attempts import Attempt, PodSettings, RunRef

RUNS: dict[str, Any] = {"state": {"running": {"startedAt": "2026-01-31T12:00:00Z"}}}
WAITS: dict[str, Any] = {"state": {"waiting": {"reason": "PodInitializing"}}}


def ended(code: int) -> dict[str, Any]:
    return {"state": {"terminated": {"exitCode": code}}}


@pytest.mark.parametrize(
    ("status", "want"),
    [
        ({}, False),
        ({"phase": "Running", "containerStatuses": [RUNS]}, False),
        ({"phase": "Running", "containerStatuses": [ended(0), RUNS]}, False),
        ({"phase": "Running", "containerStatuses": [ended(0), ended(1)]}, True),
        ({"phase": "Failed"}, True),
        ({"phase": "Pending", "initContainerStatuses": [ended(0)], "containerStatuses": [WAITS]}, False),
        ({"phase": "Pending", "initContainerStatuses": [ended(1)], "containerStatuses": [WAITS]}, True),
    ],
    ids=[
        "nothing is known",
        "it runs",
        "one of two runs",
        "all containers have ended",
        "its phase says so",
        "an init container has succeeded",
        "an init container has failed",
    ],
)
def test_whether_a_pod_has_ended(status: dict[str, Any], want: bool) -> None:
    assert has_ended({"metadata": {"name": "one"}, "status": status}) is want


def pod(*containers: dict[str, Any], **spec: Any) -> dict[str, Any]:
    named = [{"name": name, **each} for name, each in zip(("main", "proxy"), containers, strict=True)]
    notes = {"kubectl.kubernetes.io/default-container": "main"}
    meta = {"name": "order-2-1", "namespace": "shop", "uid": "u", "annotations": notes}
    return {"metadata": meta, "spec": spec, "status": {"phase": "Running", "containerStatuses": named}}


DEADLINE = [
    {"op": "test", "path": "/metadata/uid", "value": "u"},
    {"op": "add", "path": "/spec/activeDeadlineSeconds", "value": 1},
]


@pytest.mark.parametrize(
    ("found", "keep", "refuses", "want"),
    [
        (pod(ended(1), RUNS), True, False, [("PATCH", DEADLINE)]),
        (pod(ended(1), RUNS, activeDeadlineSeconds=1), True, False, []),
        (pod(ended(1), RUNS), False, False, ["DELETE"]),
        (pod(RUNS, ended(1)), True, False, ["DELETE"]),
        (pod(ended(1), ended(0)), True, False, []),
        (pod(ended(1), RUNS), True, True, [("PATCH", DEADLINE), "DELETE"]),
    ],
    ids=[
        "its own sidecar still runs",
        "its own sidecar is being stopped already",
        "its activity does not want it kept",
        "the activity still runs",
        "everything has ended",
        "a policy refuses to have it stopped",
    ],
)
async def test_a_pod_that_is_to_be_kept_is_only_stopped(
    found: dict[str, Any], keep: bool, refuses: bool, want: list[Any]
) -> None:
    asked: list[Any] = []

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        asked.append(("PATCH", orjson.loads(await request.read())) if request.method == "PATCH" else request.method)
        refused = refuses and request.method == "PATCH"
        return web.json_response({"message": "denied"} if refused else {}, status=403 if refused else 200)

    runner = web.ServerRunner(web.Server(answer))
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        address = "http://{}:{}".format(*runner.addresses[0][:2])
        async with Client.open(Access(server=address), user_agent="perdure-test") as client:
            pods = Pods(client, ActivityIdentity(client, "perdure-activity"), PodSettings())
            await pods.release(found, keep=keep)
    finally:
        await runner.cleanup()
    assert asked == want


WORK: dict[str, Any] = {"name": "work", "startToCloseTimeout": "1m"}


@asynccontextmanager
async def api_server(answer: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]) -> AsyncIterator[Client]:
    """An API server that gives every request the same answer."""
    runner = web.ServerRunner(web.Server(answer))
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        address = "http://{}:{}".format(*runner.addresses[0][:2])
        async with Client.open(Access(server=address), user_agent="perdure-test") as client:
            yield client
    finally:
        await runner.cleanup()


async def refusal(definition: Activity, status: int, message: str) -> tuple[str | None, list[dict[str, Any]]]:
    """What is said of an activity whose trial the API server answers like that, and the pods that were tried."""
    tried: list[dict[str, Any]] = []

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        tried.append(orjson.loads(await request.read()))
        return web.json_response({"message": message, "reason": "Invalid"}, status=status)

    async with api_server(answer) as client:
        pods = Pods(client, ActivityIdentity(client, "perdure-activity"), PodSettings())
        return await pods.refusal("shop", definition), tried


async def test_a_trial_of_a_computed_image_does_not_fail_for_what_a_policy_says_of_it() -> None:
    denied = "admission webhook denied request: image"
    computed = Activity.parse({**WORK, "container": {"image": "shop/app:${input.tag}", "args": ["${input.x}"]}})
    literal = Activity.parse({**WORK, "container": {"image": "shop/app:1"}})
    said, (pod_tried,) = await refusal(computed, 422, denied)
    assert said is None
    assert pod_tried["spec"]["containers"][0]["image"] == "shop/app:x"
    assert (await refusal(literal, 422, denied))[0] == denied
    wrong = "spec.containers[0].ports: wrong"
    assert (await refusal(computed, 422, wrong))[0] == wrong


async def test_an_attempt_whose_expressions_have_no_value_gets_no_pod() -> None:
    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        made = orjson.loads(await request.read())
        return web.json_response({**made, "metadata": {**made["metadata"], "uid": "p"}}, status=201)

    definition = Activity.parse({**WORK, "container": {"image": "i", "args": ["${input.x}", "${run.name}-${attempt}"]}})
    run = RunRef(namespace="shop", name="order", uid="u", workflow_id="w")
    async with api_server(answer) as client:
        pods = Pods(client, ActivityIdentity(client, "perdure-activity"), PodSettings())
        tried = Attempt(scheduled_event_id=2, attempt=3, activity_id="a", activity_type="work", input={"x": "$(A)"})
        made = await pods.ensure(run, tried, definition)
        assert made["spec"]["containers"][0]["args"] == ["$$(A)", "order-3"]
        with pytest.raises(AttemptImpossibleError) as caught:
            await pods.ensure(run, replace(tried, input={}), definition)
    assert caught.value.failure.type == "ExpressionError"
