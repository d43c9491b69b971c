"""When a pod has ended: possibly before its phase shows it, never while a container works. And its release."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import pytest
from aiohttp import web

from perdure.api import labels
from perdure.api.kinds.workflow import Activity, Retention
from perdure.api.kinds.workspace import Workspace
from perdure.api.pods import OUTPUTS
from perdure.controller.expiry import CACHED_RESULTS, KEPT_PODS, ExpiringKind, delete_expired
from perdure.controller.pods.attempt_pods import (
    ActivityIdentity,
    AttemptBlockedError,
    AttemptImpossibleError,
    Pods,
    has_ended,
    has_succeeded,
    may_run,
)
from perdure.controller.pods.workspaces import claim_refusal
from perdure.kube.client import ConflictError
from perdure.runtime.attempts import Attempt, PodSettings, RunRef
from perdure.runtime.pods.artifacts import UPLOAD_SECONDS
from support.clock import stopped_clock
from support.http_server import api_server
from support.managers import unchanged

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
        "a terminal phase",
        "an init container has succeeded",
        "an init container has failed",
    ],
)
def test_has_ended_depends_on_phase_and_containers(status: dict[str, Any], want: bool) -> None:
    assert has_ended({"metadata": {"name": "one"}, "status": status}) is want


STOPPED = {"annotations": {"perdure.dev/stopped": "2026-01-31T12:00:00Z"}}
STOPS = {"deletionTimestamp": "2026-01-31T12:00:30Z", "deletionGracePeriodSeconds": 30}


@pytest.mark.parametrize(
    ("meta", "node", "status", "seconds", "want", "trusting"),
    [
        ({}, "n", {"phase": "Running", "containerStatuses": [RUNS]}, 0, True, True),
        (STOPS, "n", {"phase": "Running", "containerStatuses": [RUNS]}, 59, True, True),
        (STOPS, "n", {"phase": "Running", "containerStatuses": [RUNS]}, 60, False, True),
        (STOPS, "n", {"phase": "Running", "containerStatuses": [ended(137)]}, 31, False, False),
        ({}, "n", {"phase": "Unknown"}, 0, False, True),
        ({}, "", {"phase": "Pending"}, 0, True, True),
        (STOPS, "", {"phase": "Pending"}, 0, False, False),
        (STOPPED, "n", {"phase": "Running", "containerStatuses": [RUNS]}, 59, True, True),
        (STOPPED, "n", {"phase": "Running", "containerStatuses": [RUNS]}, 60, False, True),
    ],
    ids=[
        "it runs",
        "it is being stopped",
        "its node has not reported for 30 s",
        "it was killed",
        "its node is lost, as old clusters show it",
        "it waits for a node",
        "it was deleted before it had a node",
        "it was stopped without being deleted",
        "its node has not stopped it for 30 s",
    ],
)
def test_a_pod_may_run_until_it_has_ended_or_its_node_counts_as_lost(
    meta: dict[str, Any], node: str, status: dict[str, Any], seconds: float, want: bool, trusting: bool
) -> None:
    pod = {"metadata": {"name": "one", **meta}, "spec": {"nodeName": node or None}, "status": status}
    now = datetime(2026, 1, 31, 12, 0, tzinfo=UTC) + timedelta(seconds=seconds)
    assert may_run(pod, now) is want
    assert may_run(pod, now, trusts_node=True) is trusting


def pod(*containers: dict[str, Any], **spec: Any) -> dict[str, Any]:
    named = [{"name": name, **each} for name, each in zip(("main", "proxy"), containers, strict=True)]
    notes = {"kubectl.kubernetes.io/default-container": "main"}
    meta = {"name": "order-2-1", "namespace": "shop", "uid": "u", "annotations": notes}
    return {"metadata": meta, "spec": spec, "status": {"phase": "Running", "containerStatuses": named}}


def test_a_stopped_sidecar_does_not_fail_a_successful_pod() -> None:
    stopped = pod(ended(0), ended(137))
    stopped["status"]["phase"] = "Failed"
    assert has_succeeded(stopped)
    stopped = pod(ended(1), ended(0))
    assert not has_succeeded(stopped)
    assert has_succeeded({"metadata": {"name": "one"}, "status": {"phase": "Succeeded"}})


BEAT = timedelta(seconds=5)
DEADLINE = [
    {"op": "test", "path": "/metadata/uid", "value": "u"},
    {"op": "add", "path": "/spec/activeDeadlineSeconds", "value": 1},
]


KEEP, DELETE, EXPIRE = Retention.KEEP, Retention.DELETE, Retention.EXPIRE
ASKED = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)


def held(
    containers: list[dict[str, Any]], *, phase: str = "Running", stopped: bool = False, **spec: Any
) -> dict[str, Any]:
    """A pod whose outcome was just recorded; `stopped`: at `ASKED`."""
    made = pod(*containers, nodeName="n", **spec)
    made["metadata"]["finalizers"] = [labels.POD_FINALIZER]
    made["status"]["phase"] = phase
    if stopped:
        made["metadata"]["annotations"]["perdure.dev/stopped"] = "2026-01-31T12:00:00Z"
    return made


STOP = ["/metadata/uid", "/spec/activeDeadlineSeconds", "/metadata/annotations/perdure.dev~1stopped"]
DROP = ["/metadata/uid", "/metadata/finalizers/0", "/metadata/finalizers/0"]
UPLOADS = {"initContainers": [{"name": OUTPUTS}], "terminationGracePeriodSeconds": UPLOAD_SECONDS}


@pytest.mark.parametrize(
    ("found", "seconds", "refuses", "want", "again"),
    [
        (held([RUNS, RUNS]), 0, False, [STOP], 60),
        (held([RUNS, RUNS], terminationGracePeriodSeconds=5), 0, False, [STOP], 35),
        (held([RUNS, RUNS], stopped=True), 59, False, [], 1),
        (held([RUNS, RUNS], stopped=True), 60, False, ["DELETE 1", DROP], None),
        (held([RUNS, RUNS], **UPLOADS), 0, False, [STOP], 30),
        (held([RUNS, RUNS], stopped=True, **UPLOADS), 30, False, ["DELETE 1", DROP], None),
        (held([ended(0), ended(143)], phase="Failed", stopped=True), 3, False, [DROP], None),
        (held([RUNS, RUNS]), 0, True, [STOP, "DELETE None", DROP], None),
        (held([WAITS, WAITS], phase="Pending"), 0, False, ["DELETE None", DROP], None),
        (held([RUNS, RUNS], phase="Unknown"), 0, False, ["DELETE None", DROP], None),
    ],
    ids=[
        "it is stopped with the grace period of Kubernetes",
        "it is stopped with its own grace period",
        "it is being stopped",
        "its node does not stop it",
        "its grace period is for uploads",
        "it ignores SIGTERM, and its grace period is for uploads",
        "it was stopped",
        "a policy prevents the stop",
        "it has not started",
        "its node is lost, as old clusters show it",
    ],
)
async def test_the_pod_of_an_attempt_that_has_timed_out_is_stopped_and_kept(
    found: dict[str, Any], seconds: float, refuses: bool, want: list[Any], again: float | None
) -> None:
    asked: list[Any] = []

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        body = orjson.loads(await request.read())
        refused = request.method == "PATCH" and refuses and "activeDeadlineSeconds" in body[1]["path"]
        patch = request.method == "PATCH"
        asked.append([each["path"] for each in body] if patch else f"DELETE {body.get('gracePeriodSeconds')}")
        return web.json_response({"message": "denied"} if refused else {}, status=403 if refused else 200)

    now = ASKED + timedelta(seconds=seconds)
    async with api_server(answer) as client:
        pods = Pods(client, ActivityIdentity(client, "perdure-activity"), PodSettings())
        with stopped_clock(now):
            until = await pods.release(found, keep=KEEP)
    assert asked == want
    assert until == (None if again is None else now + timedelta(seconds=again))


def test_the_response_of_a_program_to_its_timeout_is_no_success() -> None:
    assert not has_succeeded(held([ended(0), ended(0)], phase="Failed", stopped=True))


@pytest.mark.parametrize(
    ("found", "keep", "refuses", "want"),
    [
        (pod(ended(1), RUNS), KEEP, False, [("PATCH", DEADLINE)]),
        (pod(ended(1), RUNS, activeDeadlineSeconds=1), KEEP, False, []),
        (pod(ended(1), RUNS), DELETE, False, ["DELETE"]),
        (pod(RUNS, ended(1)), KEEP, False, ["DELETE"]),
        (pod(ended(1), ended(0)), KEEP, False, []),
        (pod(ended(1), RUNS), KEEP, True, [("PATCH", DEADLINE), "DELETE"]),
    ],
    ids=[
        "its own sidecar still runs",
        "its own sidecar is being stopped already",
        "the activity has no retention",
        "the activity still runs",
        "everything has ended",
        "a policy prevents the stop",
    ],
)
async def test_a_pod_to_keep_is_stopped_but_not_deleted(
    found: dict[str, Any], keep: Retention, refuses: bool, want: list[Any]
) -> None:
    asked: list[Any] = []

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        asked.append(("PATCH", orjson.loads(await request.read())) if request.method == "PATCH" else request.method)
        refused = refuses and request.method == "PATCH"
        return web.json_response({"message": "denied"} if refused else {}, status=403 if refused else 200)

    async with api_server(answer) as client:
        pods = Pods(client, ActivityIdentity(client, "perdure-activity"), PodSettings())
        await pods.release(found, keep=keep)
    assert asked == want


WORK: dict[str, Any] = {"name": "work", "startToCloseTimeout": "1m"}


async def refusal(definition: Activity, status: int, message: str) -> tuple[str | None, list[dict[str, Any]]]:
    """The finding for an activity whose trial pod gets that response, and the pods that were tried."""
    tried: list[dict[str, Any]] = []

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        tried.append(orjson.loads(await request.read()))
        return web.json_response({"message": message, "reason": "Invalid"}, status=status)

    async with api_server(answer) as client:
        pods = Pods(client, ActivityIdentity(client, "perdure-activity"), PodSettings())
        return await pods.refusal("shop", definition, {}), tried


async def test_a_policy_violation_is_ignored_when_trying_a_computed_image() -> None:
    denied = "admission webhook denied request: image"
    computed = Activity.parse({**WORK, "container": {"image": "shop/app:${input.tag}", "args": ["${input.x}"]}})
    literal = Activity.parse({**WORK, "container": {"image": "shop/app:1"}})
    said, (pod_tried,) = await refusal(computed, 422, denied)
    assert said is None
    assert pod_tried["spec"]["containers"][0]["image"] == "shop/app:x"
    assert (await refusal(literal, 422, denied))[0] == denied
    wrong = "spec.containers[0].ports: wrong"
    assert (await refusal(computed, 422, wrong))[0] == wrong


@pytest.mark.parametrize(
    ("status", "message", "want"),
    [
        (201, "", None),
        (
            422,
            'PersistentVolumeClaim "{}" is invalid: spec.resources: Required value',
            "spec.resources: Required value",
        ),
        (403, "exceeded quota: storage", None),
    ],
)
async def test_the_claim_of_a_workspace_is_validated_before_the_first_run(
    status: int, message: str, want: str | None
) -> None:
    asked: list[Any] = []

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        body = orjson.loads(await request.read())
        asked.append((request.rel_url.query["dryRun"], body["metadata"]))
        said = {"message": message.format(body["metadata"]["name"]), "reason": "Invalid"}
        return web.json_response(said if message else body, status=status)

    template = {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {}}}
    async with api_server(answer) as client:
        existing = Workspace.parse({"name": "files", "persistentVolumeClaim": {"claimName": "mine"}})
        assert await claim_refusal(client, "shop", existing) is None
        workspace = Workspace.parse({"name": "files", "volumeClaimTemplate": template})
        assert await claim_refusal(client, "shop", workspace) == want
    ((dry, meta),) = asked
    assert dry == "All"
    assert "ownerReferences" not in meta


async def test_a_state_is_confirmed_when_everything_but_the_pod_exists() -> None:
    done = list[str]()

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        made = orjson.loads(await request.read())
        done.append(request.path.rsplit("/", 1)[-1])
        return web.json_response({**made, "metadata": {**made["metadata"], "uid": "p"}}, status=201)

    async def changed() -> None:
        done.append("confirm")
        raise ConflictError(409, "Conflict", "changed")

    definition = Activity.parse({**WORK, "container": {"image": "i"}})
    run = RunRef(namespace="shop", name="order", uid="u", workflow_id="w")
    async with api_server(answer) as client:
        pods = Pods(client, ActivityIdentity(client, "perdure-activity"), PodSettings())
        tried = Attempt(scheduled_event_id=2, attempt=1, activity_id="a", activity_type="work", heartbeat_timeout=BEAT)
        with pytest.raises(ConflictError):
            await pods.ensure(run, tried, definition, {}, changed)
    assert done == ["serviceaccounts", "rolebindings", "confirm"]


async def test_an_attempt_with_a_failing_expression_gets_no_pod() -> None:
    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        made = orjson.loads(await request.read())
        return web.json_response({**made, "metadata": {**made["metadata"], "uid": "p"}}, status=201)

    definition = Activity.parse({**WORK, "container": {"image": "i", "args": ["${input.x}", "${run.name}-${attempt}"]}})
    run = RunRef(namespace="shop", name="order", uid="u", workflow_id="w")
    async with api_server(answer) as client:
        pods = Pods(client, ActivityIdentity(client, "perdure-activity"), PodSettings())
        tried = Attempt(scheduled_event_id=2, attempt=3, activity_id="a", activity_type="work", input={"x": "$(A)"})
        made = await pods.ensure(run, tried, definition, {}, unchanged)
        assert made["spec"]["containers"][0]["args"] == ["$$(A)", "order-3"]
        with pytest.raises(AttemptImpossibleError) as caught:
            await pods.ensure(run, replace(tried, input={}), definition, {}, unchanged)
    assert caught.value.failure.type == "ExpressionError"


class Cluster:
    """An API server that has pods."""

    def __init__(self, *pods: dict[str, Any]) -> None:
        self.pods = list(pods)
        self.asked: list[Any] = []
        self.selectors: list[dict[str, str]] = []

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        body = await request.read()
        self.asked.append(request.method if request.method != "PATCH" else orjson.loads(body))
        name = request.path.rpartition("/")[2]
        if request.method == "GET":
            self.selectors.append(dict(request.query))
            return web.json_response({"kind": "PartialObjectMetadataList", "metadata": {}, "items": self.pods})
        if request.method == "DELETE":
            uid = orjson.loads(body)["preconditions"]["uid"]
            self.pods = [pod for pod in self.pods if (pod["metadata"]["name"], pod["metadata"]["uid"]) != (name, uid)]
        if request.method == "POST":
            message = "exceeded quota: q, requested: count/pods=1, used: count/pods=2, limited: count/pods=2"
            return web.json_response({"message": message, "reason": "Forbidden"}, status=403)
        return web.json_response({})

    @property
    def names(self) -> list[str]:
        return [pod["metadata"]["name"] for pod in self.pods]


def expiring(name: str, expires: str, namespace: str = "shop", **meta: Any) -> dict[str, Any]:
    notes = {"perdure.dev/expires": expires}
    return {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"u-{name}",
            "resourceVersion": "7",
            "labels": notes,
            **meta,
        }
    }


@pytest.mark.parametrize(
    ("ttl", "finalizers", "keep", "want"),
    [
        (300, ["perdure.dev/outcome"], EXPIRE, "labelled"),
        (0, ["perdure.dev/outcome"], EXPIRE, "deleted"),
        (300, [], EXPIRE, "deleted"),
        (300, ["perdure.dev/outcome"], KEEP, "released"),
        (300, ["perdure.dev/outcome"], DELETE, "deleted"),
    ],
)
async def test_a_pod_that_expires_is_released_with_its_time_in_one_write(
    ttl: int, finalizers: list[str], keep: Retention, want: str
) -> None:
    cluster, found = Cluster(), pod(ended(0), ended(0))
    found["metadata"] |= {"finalizers": finalizers, "labels": {"perdure.dev/run-id": "r"}}
    async with api_server(cluster.answer) as client:
        settings = PodSettings(pod_ttl=timedelta(seconds=ttl))
        before = datetime.now(UTC)  # noqa: TID251 (of this machine, as the operator's own clock)
        await Pods(client, ActivityIdentity(client, "perdure-activity"), settings).release(found, keep=keep)
    patches = [each for each in cluster.asked if each != "DELETE"]
    assert ("DELETE" in cluster.asked) is (want == "deleted")
    assert len(patches) == len(finalizers)
    labels = [each for patch in patches for each in patch if each["op"] == "add"]
    assert bool(labels) is (want == "labelled")
    for each in labels:
        assert each["path"] == "/metadata/labels/perdure.dev~1expires"
        assert ttl <= int(each["value"]) - before.timestamp() <= ttl + 60


async def test_only_expired_kept_pods_are_deleted() -> None:
    time = datetime(2026, 1, 1, tzinfo=UTC)
    now = int(time.timestamp())
    cluster = Cluster(
        expiring("over", str(now)),
        expiring("stays", str(now + 1)),
        expiring("held", "1", finalizers=["perdure.dev/outcome"]),
        expiring("leaves", "1", deletionTimestamp="2026-01-01T00:00:00Z"),
        expiring("strange", "soon"),
        {"metadata": {"name": "unlabelled", "namespace": "shop", "uid": "unlabelled"}},
    )
    async with api_server(cluster.answer) as client:
        assert await delete_expired(client, KEPT_PODS, None, time) == 1
    assert cluster.names == ["stays", "held", "leaves", "strange", "unlabelled"]
    (selectors,) = cluster.selectors
    assert selectors["labelSelector"] == "perdure.dev/run-id,perdure.dev/expires"
    assert "status.phase!=Running" in selectors["fieldSelector"]


@pytest.mark.parametrize("kind", [KEPT_PODS, CACHED_RESULTS], ids=lambda kind: kind.plural)
async def test_kept_objects_of_a_namespace_are_limited(kind: ExpiringKind) -> None:
    time = datetime(2026, 1, 1, tzinfo=UTC)
    later = int(time.timestamp()) + 100
    cluster = Cluster(
        *(expiring(f"a-{n}", str(later + n)) for n in range(5)),
        *(expiring(f"b-{n}", str(later), "other") for n in range(2)),
    )
    async with api_server(cluster.answer) as client:
        assert await delete_expired(client, kind, None, time, limit=2) == 3
    assert cluster.names == ["a-3", "a-4", "b-0", "b-1"]


async def test_kept_pods_are_deleted_when_a_quota_is_exhausted() -> None:
    cluster = Cluster(expiring("kept", str(2**40)))
    run = RunRef(namespace="shop", name="order", uid="u", workflow_id="w")
    tried = Attempt(scheduled_event_id=2, attempt=1, activity_id="a", activity_type="work")
    async with api_server(cluster.answer) as client:
        pods = Pods(client, ActivityIdentity(client, "perdure-activity"), PodSettings())
        with pytest.raises(AttemptBlockedError, match="exceeded quota"):
            await pods.ensure(run, tried, Activity.parse({**WORK, "container": {"image": "i"}}), {}, unchanged)
    assert cluster.names == []
