"""Finished runs become files in a bucket: RPCs and commands read single ones, and list them by month. The S3 server is real."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
import structlog
from temporalio.api.common.v1 import WorkflowExecution

from perdure.bucket.archive import BucketArchive
from perdure.bucket.objects import S3Bucket
from perdure.client.cluster import Cluster
from perdure.client.frontend import FrontendApi
from perdure.kube.access import Access
from perdure.kube.clock import now
from perdure.kube.light import LightClient
from rpc.archive.archiving import in_cluster, run, until
from support.apiserver import items, serving
from support.artifacts import gateway
from support.cli import RUNS, perdure_in_thread
from support.console import PODS, opened, shown
from support.operator import OPEN, in_memory
from support.ports import free_port
from support.temporal import Server


@dataclass(frozen=True)
class Archived:
    """An operator that has archived three runs of the namespace `shop`."""

    server: Server
    address: str
    """The address of its HTTP API."""

    def call(self, rpc: str, **fields: Any) -> Any:
        method, request, _ = self.server.rpc(rpc)
        return method(request(**{"namespace": "shop", **fields}), timeout=30)


@pytest.fixture(scope="module")
def archived(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Archived]:
    @asynccontextmanager
    async def archive() -> AsyncIterator[BucketArchive]:
        yield BucketArchive(S3Bucket(bucket.environ), timedelta(0))

    before = structlog.get_config()
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())  # the audit log is not output of the command
    port = free_port()
    specs: list[tuple[str, Any]] = [("gone-1", {}), ("gone-2", {"workflowId": "order-7"}), ("gone-3", {})]
    with (
        gateway.serving(tmp_path_factory.mktemp("store"), free_port()) as bucket,
        in_memory(
            namespace="shop",
            settings=replace(OPEN, http_address=f"127.0.0.1:{port}"),
            objects=[run(name, ttl=1, spec=spec) for name, spec in specs],
            archive=archive,
        ) as server,
    ):
        until(lambda: not in_cluster(server))
        yield Archived(server, f"http://127.0.0.1:{port}")
    structlog.configure(**before)


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The cluster of the kubeconfig, which has none of the runs."""
    with serving(tmp_path, monkeypatch) as api:
        api.answers |= {RUNS: items(), PODS: items()}
        yield


def test_a_run_is_described_and_read_with_its_history(archived: Archived) -> None:
    execution = WorkflowExecution(workflow_id="order-7")
    found = archived.call("DescribeWorkflowExecution", execution=execution).workflow_execution_info
    assert found.history_length > 0
    execution = WorkflowExecution(workflow_id="order-7", run_id=found.execution.run_id)
    history = archived.call("GetWorkflowExecutionHistory", execution=execution).history
    assert len(history.events) == found.history_length
    for rpc in ("GetWorkflowExecutionHistory", "GetWorkflowExecutionHistoryReverse"):
        ids, token = [], b""
        while not ids or token:
            page = archived.call(rpc, execution=execution, maximum_page_size=1, next_page_token=token)
            ids += [each.event_id for each in page.history.events]
            token = page.next_page_token
        assert sorted(ids) == [each.event_id for each in history.events]


def test_lists_and_counts_of_temporal_clients_cover_the_cluster(archived: Archived) -> None:
    assert list(archived.call("ListWorkflowExecutions").executions) == []
    assert archived.call("CountWorkflowExecutions").count == 0


@pytest.mark.usefixtures("cluster")
async def test_commands_find_single_runs_and_list_a_month(archived: Archived) -> None:
    at = ("--address", archived.address)
    done = await perdure_in_thread("describe", "gone-1", *at)
    assert done.exit_code == 0, done.output
    assert "The run `gone-1` was deleted from the cluster; this is the archived one." in done.stderr
    done = await perdure_in_thread("history", "-w", "order-7", *at)
    assert "gone-2" in done.stderr, done.output

    month = f"{now():%Y-%m}"
    done = await perdure_in_thread("list", "--archived", "--phase", "Completed", "-o", "name", *at)
    names = [f"workflowrun.perdure.dev/gone-{n}" for n in (1, 2, 3)]
    assert sorted(done.stdout.split()) == names, done.output
    assert f"only runs that closed in {month} are listed; choose another month with --month." in done.stderr
    done = await perdure_in_thread("list", "--archived", "--month", month, "--limit", "2", "-o", "name", *at)
    assert len(done.stdout.split()) == 2
    assert done.stderr == ""
    done = await perdure_in_thread("list", "--archived", "--month", "2020-01", "-o", "name", *at)
    assert done.stdout == ""


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--month", "2026-13"), "'2026-13' is not a month, such as `2026-11`"),
        (("--query", "TaskQueue = 'a'"), "the archive consists of files, which cannot be listed by TaskQueue, only by"),
    ],
)
async def test_what_files_cannot_do_is_a_clear_error(archived: Archived, arguments: tuple[str, ...], said: str) -> None:
    done = await perdure_in_thread("list", "--archived", *arguments, "--address", archived.address)
    assert done.exit_code != 0
    assert said in done.stderr


@pytest.mark.usefixtures("cluster")
async def test_the_console_lists_a_month(archived: Archived) -> None:
    @asynccontextmanager
    async def reach(found: Cluster) -> AsyncIterator[FrontendApi]:
        async with LightClient.open(Access(server=archived.address), user_agent="test") as client:
            yield FrontendApi(client, found.namespace, 30)

    async with opened(frontend=reach) as browser:
        page = shown(await browser.get("/namespaces/shop/archive"))
        assert f"Runs that closed in {now():%Y-%m} and were deleted from the cluster." in page
        assert all(name in page for name in ("gone-1", "gone-2", "gone-3"))
        page = shown(await browser.get("/namespaces/shop/archive?month=2020-01"))
        assert "gone-1" not in page


def test_a_deleted_run_is_deleted_from_the_archive(archived: Archived) -> None:
    execution = WorkflowExecution(workflow_id="gone-3")
    archived.call("DeleteWorkflowExecution", workflow_execution=execution)
    with pytest.raises(grpc.RpcError) as failed:
        archived.call("DescribeWorkflowExecution", execution=execution)
    assert failed.value.code() is grpc.StatusCode.NOT_FOUND
