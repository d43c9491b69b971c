"""Which finished runs are archived when, and which may be removed."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from typing import Any

import orjson
import pytest
from aiohttp import web

from perdure.api.phases import RunKind
from perdure.archive.rows import ArchiveSettings, OnUnavailable, payloads_of
from perdure.controller.archiver import Archiver
from perdure.controller.directory import Directory
from perdure.controller.fleet.shards import AllShards
from perdure.controller.payloads import Blobs
from perdure.kube import clock
from perdure.kube.client import Client
from perdure.kube.events import Recorder
from perdure.runtime import blobs
from support.archived_runs import BEGIN, finished
from support.http_server import api_server
from support.memory_archive import MemoryArchive

Json = dict[str, Any]


class SomeShards(AllShards):
    """The shards of a member that holds only some workflow IDs."""

    def __init__(self) -> None:
        self.mine: set[str] | None = None
        """The workflow IDs; None: all."""

    def holds(self, namespace: str, name: str) -> bool:
        del namespace
        return self.mine is None or name in self.mine


class Stage:
    def __init__(
        self, client: Client, runs: dict[str, Json], settings: ArchiveSettings | None = None, batch: int = 200
    ) -> None:
        self.archive, self.directory, self.shards = MemoryArchive(), Directory(), SomeShards()
        self.client, self.runs = client, runs
        self.children: list[Json] = []
        """The children of the run `parent` in the API server."""
        self.events: list[tuple[str, str]] = []
        """The reason of each Event in the API server, and the kind of the object that it is about."""
        self.recorder = Recorder(client, instance="test")
        self.archiver = Archiver(
            self.archive,
            settings or ArchiveSettings(),
            client=client,
            blobs=Blobs(client),
            directory=self.directory,
            shards=self.shards,
            recorder=self.recorder,
            batch=batch,
            operator={
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": "perdure-0", "namespace": "perdure-system", "uid": "u"},
            },
        )

    def close(self, name: str, **options: Any) -> Json:
        run = finished(name, **options)
        del run["status"]["commit"]
        return self.note(run)

    def note(self, run: Json) -> Json:
        self.runs[run["metadata"]["name"]] = run
        self.directory.put(run)
        self.archiver.update(run["metadata"]["uid"])
        return run

    async def work_until(self, condition: Callable[[], bool]) -> None:
        """Let it work until a condition holds."""
        work = asyncio.gather(self.archiver.run(), self.recorder.run())
        try:
            async with asyncio.timeout(30):
                while not condition():  # noqa: ASYNC110 (the archive calls nothing)
                    await asyncio.sleep(0.01)
        finally:
            work.cancel()
            with suppress(asyncio.CancelledError):
                await work


@pytest.fixture
async def stage(request: pytest.FixtureRequest) -> AsyncIterator[Stage]:
    runs: dict[str, Json] = {}
    made: list[Stage] = []

    async def answer(call: web.BaseRequest) -> web.StreamResponse:
        if call.method == "POST":
            event = orjson.loads(await call.read())
            made[0].events.append((event["reason"], event["regarding"]["kind"]))
            return web.json_response(event, status=201)
        if "labelSelector" in call.query:
            selected = call.query["labelSelector"].partition("=")[2]
            children = made[0].children if selected == "uid-parent" else []
            return web.json_response({"metadata": {}, "items": [{"metadata": each["metadata"]} for each in children]})
        run = runs.get(call.path.rpartition("/")[2])
        if run is not None and "fault" in run:
            return web.json_response({"reason": "InternalError", "message": run["fault"]}, status=500)
        if run is None:
            return web.json_response({"reason": "NotFound", "message": "not found"}, status=404)
        return web.json_response(run)

    async with api_server(answer) as client:
        made.append(Stage(client, runs, **getattr(request, "param", {})))
        yield made[0]


@contextmanager
def at(time: datetime) -> Iterator[None]:
    token = clock.source.set(lambda: time)
    try:
        yield
    finally:
        clock.source.reset(token)


async def test_a_run_may_be_removed_once_it_is_archived_as_it_was_read(stage: Stage) -> None:
    run = stage.close("one")
    assert not await stage.archiver.has(run)
    await stage.work_until(lambda: len(stage.archive.rows) == 1)
    assert await stage.archiver.has(run)
    changed = stage.close("one", version="11")
    assert not await stage.archiver.has(changed)
    await stage.work_until(lambda: stage.archive.rows["uid-one"].record.version == "11")
    assert await stage.archiver.has(changed)


async def test_a_namespace_with_many_runs_does_not_delay_others(stage: Stage) -> None:
    for number in range(500):
        stage.close(f"many-{number}", namespace="busy")
    stage.close("single", namespace="quiet")
    await stage.work_until(lambda: len(stage.archive.rows) == 501)
    assert "single" in stage.archive.batches[0]
    assert max(map(len, stage.archive.batches)) <= 200


async def test_a_rejected_run_does_not_block_others(stage: Stage) -> None:
    stage.archive.rejects = {"r3"}
    runs = [stage.close(f"r{number}") for number in range(8)]
    await stage.work_until(lambda: len(stage.archive.rows) == 7)
    assert not await stage.archiver.has(runs[3])
    assert stage.archiver.gives_up(runs[3])
    assert not stage.archiver.gives_up(runs[4])


async def test_a_run_that_cannot_be_read_does_not_delay_those_of_its_batch(stage: Stage) -> None:
    for number in range(8):
        stage.close(f"r{number}")
    readable = stage.runs["r3"]
    stage.runs["r3"] = {"fault": "etcdserver: corrupted"}
    await stage.work_until(lambda: len(stage.archive.rows) == 7)
    assert "uid-r3" not in stage.archive.rows
    assert stage.archiver.failing_since is None
    stage.close("later")
    await stage.work_until(lambda: len(stage.archive.rows) == 8)
    stage.runs["r3"] = readable
    with at(clock.now() + timedelta(minutes=1)):
        stage.close("last")
        await stage.work_until(lambda: "uid-r3" in stage.archive.rows)


async def test_a_run_that_has_no_row_is_rejected_alone(stage: Stage) -> None:
    runs = [stage.close(f"r{number}") for number in range(4)]
    del stage.runs["r2"]["spec"]
    await stage.work_until(lambda: len(stage.archive.rows) == 3)
    assert stage.archiver.gives_up(runs[2])
    assert not stage.archiver.gives_up(runs[1])


@pytest.mark.parametrize("stage", [{"batch": 6}], indirect=True)
async def test_batches_become_smaller_while_the_archive_does_not_take_them(stage: Stage) -> None:
    stage.archive.largest_batch = 3  # as if more take longer than a statement may
    for number in range(5):
        stage.close(f"r{number}")
    with at(BEGIN):
        await stage.work_until(lambda: len(stage.archive.rows) == 5)


async def test_an_outage_is_reported_about_the_pod_of_the_operator(stage: Stage) -> None:
    stage.archive.is_down = True
    stage.close("one")

    with at(BEGIN):
        await stage.work_until(lambda: stage.archiver.failing_since is not None)
    with at(BEGIN + timedelta(minutes=1)):
        await stage.work_until(lambda: len(stage.events) == 1)
    stage.archive.is_down = False
    await stage.work_until(lambda: len(stage.events) == 2)
    assert stage.events == [("ArchiveUnavailable", "Pod"), ("ArchiveAvailable", "Pod")]


async def test_runs_of_other_members_are_archived_once_this_one_gains_their_shards(stage: Stage) -> None:
    stage.shards.mine = {"mine"}
    stage.close("mine")
    stage.close("theirs")
    await stage.work_until(lambda: len(stage.archive.rows) == 1)
    assert "uid-mine" in stage.archive.rows
    stage.shards.mine = None
    stage.archiver.reassign()
    await stage.work_until(lambda: len(stage.archive.rows) == 2)


async def test_a_run_that_another_member_archived_may_be_removed(stage: Stage) -> None:
    run = stage.close("one")
    await stage.work_until(lambda: len(stage.archive.rows) == 1)
    other = Stage(stage.client, stage.runs)
    other.archive.rows = stage.archive.rows
    other.shards.mine = set()
    other.directory.put(run)
    assert await other.archiver.has(run)


async def test_what_wants_to_remove_runs_does_not_wait_for_an_archive_that_does_not_answer(stage: Stage) -> None:
    """With 16 expired runs of a namespace that each waited for a connection, its other runs stood still for 20 seconds."""
    stage.shards.mine = {"mine"}
    mine, theirs, others = stage.close("mine"), stage.close("theirs"), stage.close("others")
    stage.archive.answers.clear()
    assert not await stage.archiver.has(mine)
    assert stage.archive.asked == [], "it archives that one itself"
    asking = asyncio.ensure_future(stage.archiver.has(theirs))
    while not stage.archive.asked:  # noqa: ASYNC110 (the archive calls nothing)
        await asyncio.sleep(0)
    assert not await stage.archiver.has(others)
    stage.archive.answers.set()
    assert not await asking
    stage.archive.is_down = True
    await stage.work_until(lambda: stage.archiver.failing_since is not None)
    stage.archive.asked.clear()
    assert not await stage.archiver.has(others)
    assert stage.archive.asked == []


async def test_what_was_missed_during_an_outage_is_archived_afterwards(stage: Stage) -> None:
    stage.archive.is_down = True
    run = stage.close("one")
    await stage.work_until(lambda: stage.archiver.failing_since is not None)
    assert not await stage.archiver.has(run)
    stage.archive.is_down = False
    await stage.work_until(lambda: len(stage.archive.rows) == 1)
    assert stage.archiver.failing_since is None


@pytest.mark.parametrize(
    ("stage", "may_go"),
    [
        ({"settings": ArchiveSettings(on_unavailable=OnUnavailable.KEEP)}, False),
        ({"settings": ArchiveSettings(on_unavailable=OnUnavailable.DELETE)}, True),
    ],
    indirect=["stage"],
)
async def test_runs_are_given_up_only_if_the_archive_is_down_for_long(stage: Stage, *, may_go: bool) -> None:
    stage.archive.is_down = True
    run = stage.close("one")
    with at(BEGIN):
        await stage.work_until(lambda: stage.archiver.failing_since is not None)
        assert not stage.archiver.gives_up(run)
    with at(BEGIN + timedelta(minutes=1)):
        assert stage.archiver.gives_up(run) is may_go


async def test_the_large_payloads_of_a_run_are_archived_with_it(stage: Stage) -> None:
    content = b"x" * 100_000
    reference = blobs.refer(content)
    stored = blobs.first_part(reference["payloads"], "shop", None)
    stage.runs[stored["metadata"]["name"]] = stored
    run = finished("large")
    del run["status"]["commit"]
    run["status"]["output"] = reference
    stage.note(run)
    await stage.work_until(lambda: len(stage.archive.rows) == 1)
    found = await stage.archive.find("", RunKind.WORKFLOW, "", "uid-large")
    assert found is not None
    assert payloads_of(found) == {stored["metadata"]["name"]: content}


@pytest.mark.parametrize("stage", [{"settings": ArchiveSettings(retention=timedelta(days=30))}], indirect=True)
async def test_a_run_that_the_archive_would_delete_is_not_archived(stage: Stage) -> None:
    with at(BEGIN + timedelta(days=40)):
        old = stage.close("old")
        stage.close("young", begin=BEGIN + timedelta(days=35))
        await stage.work_until(lambda: len(stage.archive.rows) == 1)
        assert "uid-young" in stage.archive.rows
        assert await stage.archiver.has(old)


async def test_a_parent_may_be_removed_only_with_archived_children(stage: Stage) -> None:
    """The garbage collector deletes the children that a run owns together with it."""
    parent = finished("parent")
    del parent["status"]["commit"]
    parent["status"]["history"]["events"] = [{"eventType": "StartChildWorkflowExecutionInitiated", "eventId": 1}]
    stage.note(parent)
    child = finished("child", version="20")
    child["metadata"]["labels"] = {"perdure.dev/parent-run-id": "uid-parent"}
    child["metadata"]["ownerReferences"] = [{"kind": "WorkflowRun", "name": "parent", "uid": "uid-parent"}]
    del child["status"]["commit"]
    await stage.work_until(lambda: "uid-parent" in stage.archive.rows)
    stage.children = [child]
    assert not await stage.archiver.has(parent)
    stage.note(child)
    await stage.work_until(lambda: "uid-child" in stage.archive.rows)
    assert await stage.archiver.has(parent)
    child["metadata"]["resourceVersion"] = "21"
    assert not await stage.archiver.has(parent)
