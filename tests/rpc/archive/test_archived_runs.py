"""Commands and the console find runs that are only in the archive. Its database is a real one."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
import structlog
from aiohttp import web

from perdure.api.labels import ARCHIVE_ANNOTATION
from perdure.api.state_versions import NEWEST
from perdure.client.cluster import Cluster
from perdure.client.frontend import FrontendApi
from perdure.kube.access import Access
from perdure.kube.clock import now
from perdure.kube.light import LightClient
from perdure.postgres.archive import Connection, PostgresArchive
from rpc.archive.archiving import in_cluster, run, until
from support.apiserver import ApiServer, items, serving
from support.archived_runs import finished, ref, row
from support.cli import RUNS, perdure_in_thread
from support.console import PODS, opened, shown
from support.http_server import Server
from support.operator import OPEN, in_memory
from support.ports import free_port
from support.postgres import PostgresServer, postgres

SERVICE = "/api/v1/namespaces/perdure-system/services/perdure-temporal"


@pytest.fixture(scope="module")
def database() -> Iterator[PostgresServer]:
    with postgres() as running:
        yield running


@pytest.fixture(scope="module")
def frontend(database: PostgresServer) -> Iterator[str]:
    """The address of the HTTP API of an operator that has archived three runs of the namespace `shop`."""
    before = structlog.get_config()
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())  # the audit log is not output of the command
    port = free_port()
    runs = [run(name, ttl=1, spec=spec) for name, spec in (("gone-1", {}), ("gone-2", {"workflowId": "order-7"}))]
    runs.append(run("gone-3", ttl=1, spec={"input": {"id": "A-3"}}))
    with in_memory(
        namespace="shop",
        settings=replace(OPEN, http_address=f"127.0.0.1:{port}"),
        objects=runs,
        archive=lambda: PostgresArchive(Connection(conninfo=database.conninfo), timedelta(0)).run(),
    ) as server:
        until(lambda: not in_cluster(server))
        yield f"http://127.0.0.1:{port}"
    structlog.configure(**before)


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiServer]:
    """The cluster of the kubeconfig, which has none of the runs."""
    with serving(tmp_path, monkeypatch) as api:
        api.answers |= {RUNS: items(), PODS: items()}
        yield api


@pytest.mark.usefixtures("cluster")
async def test_commands_find_archived_runs_and_say_so(frontend: str) -> None:
    at = ("--address", frontend)
    done = await perdure_in_thread("describe", "gone-1", *at)
    assert done.exit_code == 0, done.output
    assert "The run `gone-1` was deleted from the cluster; this is the archived one." in done.stderr
    assert "Completed" in done.stdout
    assert "number" in done.stdout  # its step

    done = await perdure_in_thread("describe", "-w", "order-7", "-o", "json", *at)
    found = json.loads(done.stdout)
    assert found["name"] == "gone-2", done.output

    done = await perdure_in_thread("history", "gone-1", "-o", "json", *at)
    events = json.loads(done.stdout)["events"]
    assert [events[0]["eventType"], events[-1]["eventType"]] == [
        "WorkflowExecutionStarted",
        "WorkflowExecutionCompleted",
    ]
    done = await perdure_in_thread("history", "gone-1", "--follow", *at)
    assert done.exit_code == 0

    done = await perdure_in_thread("result", "gone-1", *at)
    assert (done.exit_code, json.loads(done.stdout)) == (0, {"name": "gone-1"}), done.output
    assert "this is the archived one" in done.stderr
    done = await perdure_in_thread("result", "--workflow-id", "order-7", *at)
    assert json.loads(done.stdout) == {"name": "gone-2"}, done.output

    done = await perdure_in_thread("trace", "gone-1", *at)
    assert done.exit_code == 0, done.output
    done = await perdure_in_thread("logs", "gone-1", "--follow", *at)
    assert done.exit_code == 1
    assert "no step of `gone-1` has started a pod" in done.stderr


def read_archived(frontend: str, name: str) -> dict[str, Any]:
    with urlopen(f"{frontend}/perdure/v1/namespaces/shop/archived-run?name={name}") as response:
        found: dict[str, Any] = json.load(response)
    return found


async def test_a_run_that_is_deleted_while_a_command_waits_is_read_from_the_archive(
    frontend: str, cluster: ApiServer
) -> None:
    archived = await asyncio.to_thread(read_archived, frontend, "gone-1")
    is_open = {**archived, "status": {"phase": "Running"}}
    for command, said in (("wait", ""), ("result", "gone-1")):
        for uid, status in ((archived["metadata"]["uid"], 0), ("of-a-later-run", 2)):
            meta = {"name": "gone-1", "namespace": "shop", "uid": uid, "resourceVersion": "1"}
            looks = iter([{**is_open, "metadata": meta}, {**is_open, "metadata": meta}])
            message = 'workflowruns.perdure.dev "gone-1" not found'
            gone = (404, {"kind": "Status", "reason": "NotFound", "message": message})
            cluster.answers[f"{RUNS}/gone-1"] = lambda looks=looks, gone=gone: next(looks, gone)
            done = await perdure_in_thread(command, "gone-1", "--address", frontend)
            assert done.exit_code == status, done.output
            if status:
                assert "the run `gone-1` was deleted before it ended" in done.stderr
            else:
                assert "The run `gone-1` was deleted from the cluster; this is the archived one." in done.stderr
                assert said in done.stdout
    del cluster.answers[f"{RUNS}/gone-1"]
    done = await perdure_in_thread("wait", "gone-1", "--address", frontend)
    assert done.exit_code == 0, done.output


async def test_a_list_says_that_there_is_an_archive(cluster: ApiServer) -> None:
    hint = "Runs that were deleted from the cluster are in the archive; list them with --archived."
    assert hint not in (await perdure_in_thread("list")).stderr
    cluster.answers[SERVICE] = {"metadata": {"name": "perdure-temporal", "annotations": {ARCHIVE_ANNOTATION: "Files"}}}
    assert hint in (await perdure_in_thread("list")).stderr
    assert hint in (await perdure_in_thread("list", "--phase", "Failed")).stderr
    assert hint not in (await perdure_in_thread("list", "--running")).stderr
    assert (await perdure_in_thread("list", "-o", "name")).stderr == ""
    cluster.answers[SERVICE] = (403, {"reason": "Forbidden", "message": "ada cannot get services"})
    assert hint not in (await perdure_in_thread("list")).stderr


async def test_a_run_starts_again_from_the_archive(frontend: str, cluster: ApiServer) -> None:
    done = await perdure_in_thread("rerun", "gone-3", "--name", "again", "--no-wait", "--address", frontend)
    assert done.exit_code == 0, done.output
    (made,) = cluster.created
    assert made["metadata"]["name"] == "again"
    assert "annotations" not in made["metadata"]
    assert made["spec"]["input"] == {"id": "A-3"}
    assert made["spec"]["inline"]["steps"]


async def test_a_list_shows_both(frontend: str, cluster: ApiServer) -> None:
    here = {
        "apiVersion": "perdure.dev/v1alpha1",
        "kind": "WorkflowRun",
        "metadata": {"name": "here", "namespace": "shop", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {},
        "status": {"phase": "Running"},
    }
    cluster.answers[RUNS] = items(here)
    at = ("--address", frontend)
    done = await perdure_in_thread("list", "--archived", *at)
    assert done.exit_code == 0, done.output
    heading, *lines = done.stdout.splitlines()
    assert heading.split()[-1] == "ARCHIVED"
    assert {line.split()[0]: line.split()[-1] == "yes" for line in lines} == {
        "gone-1": True,
        "gone-2": True,
        "gone-3": True,
        "here": False,
    }
    done = await perdure_in_thread("list", "--archived", "--limit", "2", "-o", "name", *at)
    assert len(done.stdout.splitlines()) == 2
    done = await perdure_in_thread("list", "--archived", "--phase", "Failed", *at)
    assert done.stdout == ""
    done = await perdure_in_thread("list", "--archived", "--query", "WorkflowId = 'order-7'", "-o", "name", *at)
    assert done.stdout.split() == ["workflowrun.perdure.dev/gone-2"], done.output
    for month, count in ((f"{now():%Y-%m}", 3), ("2020-12", 0)):
        done = await perdure_in_thread("list", "--archived", "--phase", "Completed", "--month", month, *at)
        assert sum("gone-" in line for line in done.stdout.splitlines()) == count, done.output
    done = await perdure_in_thread("list", "--archived", "-l", "a=b", *at)
    assert done.exit_code == 2
    assert "--query" in done.stderr


async def test_without_an_archive_the_error_is_that_of_the_cluster(frontend: str, cluster: ApiServer) -> None:
    plain = "there is no WorkflowRun `none` in namespace `shop`"
    for at in ((), ("--address", frontend)):
        done = await perdure_in_thread("describe", "none", *at)
        assert done.exit_code == 2
        assert plain in done.stderr
        assert "archive" not in done.stderr
    # The chart says that there is an archive, but the frontend does not respond.
    cluster.answers[SERVICE] = {
        "metadata": {"name": "perdure-temporal", "annotations": {ARCHIVE_ANNOTATION: "PostgreSQL"}},
        "spec": {"ports": [{"name": "grpc", "port": 7233}]},
    }
    done = await perdure_in_thread("describe", "none")
    assert plain in done.stderr
    assert "it may be archived, but the archive cannot be read" in done.stderr
    assert "temporal.httpApi.enabled" in done.stderr
    done = await perdure_in_thread("describe", "none", "--address", f"http://127.0.0.1:{free_port()}")
    assert "it may be archived, but the archive cannot be read" in done.stderr
    cluster.answers[SERVICE] = (403, {"reason": "Forbidden", "message": "ada cannot get services"})
    done = await perdure_in_thread("describe", "none")
    assert "set --address or --service-account" in done.stderr


@pytest.mark.usefixtures("cluster")
async def test_a_run_that_a_newer_version_has_archived_is_not_read(frontend: str, database: PostgresServer) -> None:
    newer = finished("newer", namespace="shop")
    newer["status"]["stateVersion"] = NEWEST + 1
    async with PostgresArchive(Connection(conninfo=database.conninfo), timedelta(0)).run() as archive:
        await archive.store([row(newer)])
    for command in (("history", "newer"), ("rerun", "newer", "--name", "again", "--no-wait")):
        done = await perdure_in_thread(*command, "--address", frontend)
        assert done.exit_code == 2
        assert "A newer version of Perdure has written the object" in done.stderr
        assert f"state version {NEWEST + 1}, and this operator reads versions 1 to {NEWEST}" in done.stderr
    async with PostgresArchive(Connection(conninfo=database.conninfo), timedelta(0)).run() as archive:
        await archive.delete(ref("newer", "shop"))


async def test_a_command_does_not_read_a_run_that_a_newer_version_has_archived(cluster: ApiServer) -> None:
    newer = finished("newer", namespace="shop")
    newer["status"]["stateVersion"] = NEWEST + 1
    async with Server(lambda _: web.json_response(newer)).serve() as newer_operator:
        for command in (("history", "newer"), ("rerun", "newer", "--name", "again", "--no-wait")):
            done = await perdure_in_thread(*command, "--address", newer_operator.address)
            assert done.exit_code == 2
            assert "a newer version of Perdure has archived the run `newer`" in done.stderr
    assert not cluster.created


async def test_an_operator_without_an_archive_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    settings = replace(OPEN, http_address=f"127.0.0.1:{port}")
    with in_memory(namespace="shop", settings=settings), serving(tmp_path, monkeypatch) as api:
        api.answers[RUNS] = items()
        done = await perdure_in_thread("list", "--archived", "--address", f"http://127.0.0.1:{port}")
        assert done.exit_code == 2
        assert "this installation has no archive" in done.stderr


async def test_an_unreachable_archive_is_an_error(frontend: str, database: PostgresServer, cluster: ApiServer) -> None:
    del cluster
    database.stop()
    try:
        done = await perdure_in_thread("describe", "gone-1", "--address", frontend)
        assert done.exit_code == 2
        assert "it may be archived, but the archive cannot be read" in done.stderr
    finally:
        database.start()


@pytest.mark.usefixtures("cluster")
async def test_the_console_shows_archived_runs(frontend: str) -> None:
    @asynccontextmanager
    async def reach(found: Cluster) -> AsyncIterator[FrontendApi]:
        async with LightClient.open(Access(server=frontend), user_agent="test") as client:
            yield FrontendApi(client, found.namespace, 30)

    async with opened(frontend=reach) as browser:
        page = shown(await browser.get("/namespaces/shop/runs/gone-1"))
        assert "this is the archived one" in page
        assert "Retry the failed steps" not in page
        assert "Rerun from the beginning" in page
        page = shown(await browser.get("/namespaces/shop/archive"))
        assert all(name in page for name in ("gone-1", "gone-2", "gone-3"))
        await browser.get("/namespaces/shop/runs/none", status=404)
    async with opened() as browser:
        page = shown(await browser.get("/namespaces/shop/archive", status=404))
        assert "no archive" in page


def test_the_object_of_an_archived_run_is_marked(frontend: str) -> None:
    """Readers of JSON see that the object is not in the cluster."""
    with urlopen(f"{frontend}/perdure/v1/namespaces/shop/archived-run?name=gone-1") as response:
        found: dict[str, Any] = json.load(response)
    assert found["metadata"]["annotations"]["perdure.dev/archived"] == "true"
    assert found["kind"] == "WorkflowRun"


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("month=9999-12", 200),
        ("month=0000-01", 400),
        ("month=%EF%BC%92026-01", 400),
        ("nextPageToken=%C3%A9", 400),
        ("pageSize=%C2%B2", 400),
        (f"pageSize={'9' * 4_400}", 400),
    ],
)
def test_odd_values_of_a_request_are_errors_of_the_request(frontend: str, query: str, status: int) -> None:
    try:
        with urlopen(f"{frontend}/perdure/v1/namespaces/shop/archived-runs?{query}") as done:
            found = done.status
    except HTTPError as error:
        found = error.code
    assert found == status
