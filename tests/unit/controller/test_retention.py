"""Finished runs that are removed before their TTL, and those that are not. The API server is one on loopback."""

from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any

import orjson
import pytest
from aiohttp import web

from perdure.api.labels import PARENT_ANNOTATION, SCHEDULED_BY_ANNOTATION
from perdure.api.times import format_time
from perdure.controller.dispatch.index import Index
from perdure.controller.expiry import RetentionPolicies
from perdure.controller.fleet.shards import AllShards
from perdure.controller.retention import NamespaceRetention
from perdure.controller.runs.run import Run
from perdure.kube.access import Access
from perdure.kube.client import ApiError, Client
from perdure.kube.clock import now
from perdure.kube.events import Recorder
from perdure.observe.metrics import REGISTRY
from perdure.runtime.retention import Limits
from support.http_server import serving
from support.managers import manager_over

Json = dict[str, Any]


def sample(name: str) -> float:
    """The value of a metric of the namespace `shop`."""
    return REGISTRY.get_sample_value(name, {"namespace": "shop"}) or 0.0


class Stored:
    """The API server: finished runs of the namespace `shop`, and how they were deleted."""

    def __init__(self) -> None:
        self.runs: dict[str, Json] = {}
        self.deleted: dict[str, Json] = {}
        self.before_answer: Callable[[], Any] = lambda: None
        self.address = ""
        self.broken: set[str] = set()
        """Runs for which every request fails."""
        self.retention: Json = {}
        """The `retention` of the namespace."""

    def finished(self, name: str, minutes_ago: float, **meta: Any) -> Json:
        closed = format_time(now() - timedelta(minutes=minutes_ago))
        status = {"completionTime": closed, "phase": "Completed", "state": {"status": "Completed"}}
        return self.put(name, status, **meta)

    def put(self, name: str, status: Json, workflow_id: str = "", **meta: Any) -> Json:
        meta = {"name": name, "namespace": "shop", "uid": f"uid-{name}", "resourceVersion": "7", **meta}
        spec = {"workflowId": workflow_id} if workflow_id else {}
        self.runs[name] = {"metadata": meta, "spec": spec, "status": status}
        return self.runs[name]

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        self.before_answer()
        name = request.path.rsplit("/", 1)[-1]
        if name in self.broken:
            return web.json_response({"reason": "Forbidden", "message": name}, status=403)
        if "workflowdefaults" in request.path and self.retention:
            return web.json_response({"spec": {"retention": self.retention}})
        if name not in self.runs:
            return web.json_response({"reason": "NotFound", "message": name}, status=404)
        if request.method == "DELETE":
            self.deleted[name] = orjson.loads(await request.read())["preconditions"]
        return web.json_response(self.runs[name])


@pytest.fixture
async def stored() -> AsyncIterator[Stored]:
    found = Stored()
    async with serving(found.answer) as found.address:
        yield found


async def enforce(
    stored: Stored, limits: Limits, *, works_on: tuple[str, ...] = (), seen: Json | None = None
) -> list[str]:
    """Let an operator check the namespace once, and return the names of the deleted runs.

    Args:
        stored: The API server.
        limits: The limits of the installation.
        works_on: The runs that the operator works on.
        seen: The `retention` that the watch has shown last; None: that of the API server.
    """
    index = Index()
    async with Client.open(Access(server=stored.address), user_agent="test") as client:
        manager = manager_over(client)
        for obj in stored.runs.values():
            index.directory.put(obj)
            if obj["metadata"]["uid"] in works_on:
                index.runs[obj["metadata"]["uid"]] = Run(manager.services, manager.runs, obj, lambda: None)
        policies = RetentionPolicies(client)
        policies.put("shop", {"retention": stored.retention if seen is None else seen})
        retention = NamespaceRetention(
            client,
            Recorder(client, instance="test"),
            index,
            limits,
            policies=policies,
            is_over=lambda run: bool(run["status"].get("completionTime")),
            holds=AllShards().holds,
        )
        retention.update("shop")
        await retention.enforce("shop")
    return sorted(stored.deleted)


async def test_the_oldest_runs_are_removed_with_a_precondition(stored: Stored) -> None:
    for minutes in range(2, 7):
        stored.finished(f"run-{minutes}", minutes)
    before = sample("perdure_finished_runs_removed_total")
    assert await enforce(stored, Limits(runs=3)) == ["run-5", "run-6"]
    assert stored.deleted["run-6"] == {"uid": "uid-run-6", "resourceVersion": "7"}
    assert sample("perdure_finished_runs_removed_total") == before + 2
    assert sample("perdure_finished_runs") == 5


async def test_runs_are_removed_by_total_size(stored: Stored) -> None:
    for minutes in range(2, 7):
        stored.finished(f"run-{minutes}", minutes)["spec"]["input"] = "x" * 10_000
    assert await enforce(stored, Limits(size=35_000)) == ["run-5", "run-6"]


async def test_without_limits_nothing_is_removed(stored: Stored) -> None:
    for minutes in range(2, 7):
        stored.finished(f"run-{minutes}", minutes)
    assert await enforce(stored, Limits(runs=0, size=0)) == []


async def test_the_oldest_runs_beyond_the_history_limits_of_the_namespace_are_removed(stored: Stored) -> None:
    for minutes in range(2, 7):
        stored.finished(f"run-{minutes}", minutes)
    for minutes in range(7, 10):
        stored.finished(f"bad-{minutes}", minutes)["status"]["phase"] = "Failed"
    stored.retention = {"successfulRunsHistoryLimit": 3, "failedRunsHistoryLimit": 1}
    counter = "perdure_finished_runs_beyond_history_limit_total"
    before, removed = sample(counter), sample("perdure_finished_runs_removed_total")
    assert await enforce(stored, Limits()) == ["bad-8", "bad-9", "run-5", "run-6"]
    assert stored.deleted["run-6"] == {"uid": "uid-run-6", "resourceVersion": "7"}
    assert (sample(counter), sample("perdure_finished_runs_removed_total")) == (before + 4, removed)


async def test_a_raised_history_limit_that_no_watch_has_shown_counts(stored: Stored) -> None:
    for minutes in range(2, 7):
        stored.finished(f"run-{minutes}", minutes)
    stored.retention = {"successfulRunsHistoryLimit": 4}
    assert await enforce(stored, Limits(), seen={"successfulRunsHistoryLimit": 1}) == ["run-6"]


async def test_history_limits_of_the_namespace_do_not_apply_to_runs_of_schedules(stored: Stored) -> None:
    owner = {"apiVersion": "perdure.dev/v1alpha1", "kind": "Schedule", "name": "daily", "uid": "uid-daily"}
    tie = {"name": "daily", "scheduledTime": "2026-01-01T00:00:00Z"}
    for minutes in range(2, 5):
        stored.finished(
            f"daily-{minutes}",
            minutes,
            ownerReferences=[{**owner, "controller": True}],
            annotations={SCHEDULED_BY_ANNOTATION: orjson.dumps(tie).decode()},
        )
        stored.finished(f"run-{minutes}", minutes)
    stored.retention = {"successfulRunsHistoryLimit": 0}
    assert await enforce(stored, Limits()) == ["run-2", "run-3", "run-4"]


async def test_open_and_recently_closed_runs_are_kept(stored: Stored) -> None:
    stored.put("open", {"phase": "Running", "state": {"nextEventId": 3}})
    stored.put("waits", {})
    stored.finished("young", 0.5)
    stored.finished("old", 5)
    assert await enforce(stored, Limits(runs=1, size=1)) == ["old"]


async def test_a_run_that_another_object_waits_for_is_kept(stored: Stored) -> None:
    stored.finished("works", 9)
    stored.finished("continues", 9)["status"]["state"] |= {"successor": "next", "startSuccessor": True}
    stored.finished("forked", 9, workflow_id="same")
    stored.put("fork", {}, workflow_id="same")
    stored.put("parent", {"phase": "Running", "state": {"nextEventId": 3}})
    tie = {"name": "parent", "workflowId": "parent", "runId": "uid-parent", "initiatedEventId": 2}
    stored.finished("child", 9, annotations={PARENT_ANNOTATION: orjson.dumps(tie).decode()})
    stored.finished("free", 9)
    assert await enforce(stored, Limits(runs=1), works_on=("uid-works",)) == ["free"]


async def test_a_recreated_run_is_kept(stored: Stored) -> None:
    stored.finished("again", 9)
    stored.finished("other", 8)

    def later() -> None:
        stored.put("again", {})
        stored.finished("other", 8, uid="uid-of-another")

    stored.before_answer = later
    assert await enforce(stored, Limits(runs=0, size=1)) == []


async def test_a_failed_removal_does_not_prevent_others(stored: Stored) -> None:
    for minutes in range(2, 7):
        stored.finished(f"run-{minutes}", minutes)
    stored.broken = {"run-6", "run-4"}
    assert await enforce(stored, Limits(runs=2)) == ["run-5"]
    stored.broken = set(stored.runs)
    with pytest.raises(ApiError):
        await enforce(stored, Limits(runs=2))
