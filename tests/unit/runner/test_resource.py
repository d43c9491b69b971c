"""Actions on Kubernetes objects as activities, against a server that keeps objects as an API server does."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from perdure.activity import ApplicationError
from perdure.api.kinds.workflow import KubernetesResource
from perdure.kube.access import Access
from perdure.kube.client import Client
from perdure.runner import resource
from perdure.runner.expressions import DeferredExpressions

Json = dict[str, Any]
JOB = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train"}}
SERVED = {
    "resources": [
        {"name": "jobs", "kind": "Job", "namespaced": True},
        {"name": "jobs/status", "kind": "Job", "namespaced": True},
        {"name": "things", "kind": "Thing", "namespaced": False},
    ]
}


class Objects:
    """Objects by path; each read may change them first."""

    def __init__(self) -> None:
        self.stored: dict[str, Json] = {}
        self.asked: list[tuple[str, str, str]] = []
        self.before_read: Callable[[str], None] = lambda _: None
        self.refusals: list[int] = []

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.asked.append((request.method, request.path, request.headers.get("Content-Type", "")))
        if request.path in {"/apis/batch/v1", "/api/v1"}:
            return web.json_response(SERVED)
        if self.refusals:
            status = self.refusals.pop(0)
            return web.json_response({"kind": "Status", "reason": "Refused", "message": "no"}, status=status)
        return getattr(self, request.method.lower())(
            request.path, await request.json() if request.can_read_body else {}
        )

    def get(self, path: str, _: Json) -> web.Response:
        self.before_read(path)
        return self.found(path)

    def post(self, path: str, body: Json) -> web.Response:
        path = f"{path}/{body['metadata']['name']}"
        if path in self.stored:
            return web.json_response({"kind": "Status", "reason": "AlreadyExists", "message": "exists"}, status=409)
        self.stored[path] = {**body, "metadata": {**body["metadata"], "uid": "u"}}
        return self.found(path)

    def patch(self, path: str, body: Any) -> web.Response:
        self.stored[path] = {**self.stored.get(path, {}), **(body if isinstance(body, dict) else {"patched": body})}
        return self.found(path)

    def delete(self, path: str, _: Json) -> web.Response:
        return self.found(path)

    def found(self, path: str) -> web.Response:
        if path not in self.stored:
            return web.json_response({"kind": "Status", "reason": "NotFound", "message": "not found"}, status=404)
        return web.json_response(self.stored[path])


@pytest.fixture
async def objects() -> AsyncIterator[tuple[Objects, Client]]:
    objects = Objects()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", objects.handle)
    async with (
        TestServer(app) as server,
        Client.open(Access(server=str(server.make_url("")).rstrip("/")), user_agent="test") as client,
    ):
        yield objects, client


Kept = tuple[Objects, Client]
PATH = "/apis/batch/v1/namespaces/shop/jobs/train"


async def perform(objects: Kept, later: DeferredExpressions, action: str, manifest: Json = JOB, **fields: Any) -> Any:
    work = {"action": action, "manifest": manifest, "serviceAccountName": "trainer", **fields}
    return await resource.perform(objects[1], KubernetesResource.parse(work).dump(), later, first_wait=0.001)


async def failure(objects: Kept, later: DeferredExpressions, action: str, **fields: Any) -> ApplicationError:
    with pytest.raises(ApplicationError) as caught:
        await perform(objects, later, action, **fields)
    return caught.value


def ends_after(objects: Objects, reads: int, status: Json) -> None:
    """The object has this status from the given read on."""
    count = 0

    def change(path: str) -> None:
        nonlocal count
        count += 1
        if count >= reads and path in objects.stored:
            objects.stored[path]["status"] = status

    objects.before_read = change


async def test_an_object_is_created_and_awaited(objects: Kept, later: DeferredExpressions) -> None:
    ends_after(objects[0], 3, {"succeeded": 1})
    result = await perform(
        objects,
        later,
        "Create",
        owned=True,
        successCondition="${object.status.succeeded > 0}",
        output={"ok": "${object.status.succeeded}", "id": "${input.id}"},
    )
    assert result == {"ok": 1, "id": 7}
    metadata = objects[0].stored[PATH]["metadata"]
    assert metadata["namespace"] == "shop"
    assert metadata["ownerReferences"] == [
        {"apiVersion": "perdure.dev/v1alpha1", "kind": "WorkflowRun", "name": "order-1", "uid": "uid-1"}
    ]
    assert [path for method, path, _ in objects[0].asked if method == "GET"].count(PATH) == 3


async def test_without_conditions_nothing_is_awaited(objects: Kept, later: DeferredExpressions) -> None:
    assert await perform(objects, later, "Create") == {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": "train",
        "namespace": "shop",
        "uid": "u",
    }
    assert [method for method, _, _ in objects[0].asked] == ["GET", "POST"]


async def test_a_repeated_attempt_finds_what_an_earlier_one_has_created(
    objects: Kept, later: DeferredExpressions
) -> None:
    manifest = {**JOB, "metadata": {"generateName": "train-"}}
    first = await perform(objects, later, "Create", manifest)
    assert await perform(objects, later, "Create", manifest) == first
    assert len(objects[0].stored) == 1


async def test_an_existing_object_of_another_owner_is_not_adopted(objects: Kept, later: DeferredExpressions) -> None:
    objects[0].stored[PATH] = {**JOB}
    error = await failure(objects, later, "Create")
    assert (error.type, error.non_retryable) == ("AlreadyExists", True)
    assert "Job `shop/train` already exists and was not created by this activity" in error.message


async def test_a_failure_condition_ends_the_activity(objects: Kept, later: DeferredExpressions) -> None:
    ends_after(objects[0], 2, {"failed": 1})
    conditions = {
        "successCondition": "${object.status.succeeded > 0}",
        "failureCondition": "${object.status.failed > 0}",
    }
    error = await failure(objects, later, "Create", **conditions)
    assert (error.type, error.non_retryable) == ("ConditionFailed", True)


@pytest.mark.parametrize(
    ("kind", "patch", "content"),
    [
        ("Merge", {"spec": {"suspend": True}}, "application/merge-patch+json"),
        ("Strategic", {"spec": {"suspend": True}}, "application/strategic-merge-patch+json"),
        ("Json", [{"op": "add", "path": "/x", "value": 1}], "application/json-patch+json"),
    ],
)
async def test_an_object_is_patched_in_each_format(
    objects: Kept, later: DeferredExpressions, kind: str, patch: Any, content: str
) -> None:
    objects[0].stored[PATH] = {**JOB}
    await perform(objects, later, "Patch", patch=patch, patchType=kind)
    assert objects[0].asked[-1] == ("PATCH", PATH, content)


async def test_an_object_is_applied(objects: Kept, later: DeferredExpressions) -> None:
    await perform(objects, later, "Apply")
    assert objects[0].asked[-1] == ("PATCH", PATH, "application/apply-patch+yaml")


async def test_a_deletion_waits_until_the_object_does_not_exist(objects: Kept, later: DeferredExpressions) -> None:
    objects[0].stored[PATH] = {**JOB}
    reads = 0

    def change(path: str) -> None:
        nonlocal reads
        reads += 1
        if reads == 3:
            objects[0].stored.pop(path)

    objects[0].before_read = change
    assert await perform(objects, later, "Delete") is None
    assert reads == 3


async def test_get_with_a_condition_waits_for_a_missing_object(objects: Kept, later: DeferredExpressions) -> None:
    error = await failure(objects, later, "Get")
    assert (error.type, error.non_retryable) == ("NotFound", True)
    reads = 0

    def change(path: str) -> None:
        nonlocal reads
        reads += 1
        if reads == 3:
            objects[0].stored[path] = {**JOB, "status": {"ready": True}}

    objects[0].before_read = change
    result = await perform(objects, later, "Get", successCondition="${object.status.ready}", output="${object.kind}")
    assert (result, reads) == ("Job", 3)


async def test_a_cluster_scoped_kind_has_no_namespace_in_its_path(objects: Kept, later: DeferredExpressions) -> None:
    await perform(objects, later, "Create", {"apiVersion": "v1", "kind": "Thing", "metadata": {"name": "a"}})
    assert list(objects[0].stored) == ["/api/v1/things/a"]


async def test_an_unknown_kind_is_a_failure(objects: Kept, later: DeferredExpressions) -> None:
    error = await failure(objects, later, "Get", manifest={**JOB, "kind": "Nope"})
    assert (error.type, error.non_retryable) == ("UnknownKind", True)


@pytest.mark.parametrize(("status", "retried"), [(403, False), (422, False), (429, True), (500, True), (409, True)])
async def test_the_error_of_the_api_server_determines_if_it_is_retried(
    objects: Kept, later: DeferredExpressions, status: int, *, retried: bool
) -> None:
    objects[0].refusals = [status]
    error = await failure(objects, later, "Apply")
    assert error.non_retryable is not retried
    assert error.message.startswith("Apply Job `shop/train`: no")
