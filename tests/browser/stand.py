"""Temporal's Web UI over the operator in memory: runs of Workflows, whose pods end as scripted here, and runs in code."""

import asyncio
import json
import os
import subprocess
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from time import monotonic, sleep
from typing import Any, TypeVar

import yaml
from temporalio.client import Client
from temporalio.worker import Worker

from browser.flows import QUEUE, Approval, Order, Parent, call_bank, charge
from cluster import gobuild
from cluster.paths import REPOSITORY, Cache
from cluster.store import locked
from perdure.api import labels
from perdure.archive.rows import Archive
from perdure.simulation.cluster.kubelet import ContainerExit
from perdure.simulation.cluster.store import Object
from support.operator import in_memory
from support.ports import free_port
from support.temporal import Server
from support.threads import join

WORKFLOWS = "workflows"
"""The task queue that starts Workflows by name."""
OpenArchive = Callable[[], AbstractAsyncContextManager[Archive | None]]
_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Stand:
    """A Web UI and its frontend."""

    url: str
    server: Server

    def do(self, work: Callable[[Client], Awaitable[_Result]]) -> _Result:
        """Do something with a client of the frontend."""

        async def connected() -> _Result:
            return await work(await Client.connect(self.server.address))

        # In a separate thread: Playwright keeps an event loop running in this one.
        with ThreadPoolExecutor(max_workers=1) as pool:
            return pool.submit(lambda: asyncio.run(connected())).result()

    def start(self, workflow: str, workflow_id: str, *arguments: Any, queue: str = WORKFLOWS, **options: Any) -> str:
        """Start a run; return its run ID."""

        async def started(client: Client) -> str:
            handle = await client.start_workflow(workflow, *arguments, id=workflow_id, task_queue=queue, **options)
            return str(handle.result_run_id)

        return self.do(started)


@contextmanager
def stand(folder: Path, *, runs: Sequence[Object] = (), archive: OpenArchive = nullcontext) -> Iterator[Stand]:
    """Serve the Web UI until the end of the block.

    Args:
        folder: For its settings.
        runs: Runs that begin when the operator does.
        archive: Opens the archive of the operator.
    """
    cache = Cache.from_environment(os.environ)
    with locked(cache.locks / "build"):
        program = gobuild.build(cache, gobuild.UI) / "server"
    with in_memory(objects=[*_objects(), *runs], pods=_pod, archive=archive) as server, _working(server.address):
        port = free_port()
        settings = {
            "temporalGrpcAddress": server.address,
            "host": "127.0.0.1",
            "port": port,
            "enableUi": True,
            "defaultNamespace": server.namespace,
            "cors": {"cookieInsecure": True},
            "hideLogs": True,
        }
        (folder / "base.yaml").write_text(yaml.safe_dump(settings))
        command = [str(program), "--root", "/", "--config", str(folder), "--env", "test", "start"]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as running:
            try:
                _wait(f"http://127.0.0.1:{port}/healthz", running)
                yield Stand(f"http://127.0.0.1:{port}", server)
            finally:
                running.terminate()


def _wait(url: str, running: "subprocess.Popen[bytes]") -> None:
    until = monotonic() + 60
    while True:
        try:
            with urllib.request.urlopen(url):
                return
        except urllib.error.URLError:
            assert running.poll() is None, "the Web UI has exited"
            assert monotonic() < until, "the Web UI does not respond"
            sleep(0.1)


@contextmanager
def _working(address: str) -> Iterator[None]:
    """A worker of the workflow in code, in its own thread."""
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()

    async def work() -> None:
        client = await Client.connect(address)
        async with Worker(
            client, task_queue=QUEUE, workflows=[Order, Approval, Parent], activities=[charge, call_bank]
        ):
            await stop.wait()

    thread = Thread(target=lambda: loop.run_until_complete(work()), daemon=True)
    thread.start()
    try:
        yield
    finally:
        loop.call_soon_threadsafe(stop.set)
        join(thread, loop)
        loop.close()


_PARENT = """
apiVersion: perdure.dev/v1alpha1
kind: Workflow
metadata: {name: parent}
spec:
  steps:
  - name: child
    childWorkflow: {workflow: {name: approval}, workflowId: "${input.child}"}
"""


def _objects() -> list[Object]:
    """Return the Workflows."""
    examples = [REPOSITORY / "examples" / name / "workflow.yaml" for name in ("order-flow", "approval")]
    return [*(each for path in examples for each in yaml.safe_load_all(path.read_text())), yaml.safe_load(_PARENT)]


def _pod(pod: Object) -> ContainerExit:
    """How a pod ends: the card network is down for two attempts, and always for order B-1."""
    meta = pod["metadata"]
    activity, attempt = meta["labels"][labels.ACTIVITY_LABEL], int(meta["annotations"][labels.ATTEMPT_ANNOTATION])
    match activity:
        case "charge-card" if attempt < 3 or '"B-1"' in meta["annotations"][labels.INPUT_ANNOTATION]:
            return _failed("CardNetworkUnavailable", "the card network does not answer")
        case "charge-card":
            return _ended({"amount": 349})
        case "ship":
            return _ended({"tracking": "T-1", "carrier": "Acme"})
        case "ask":
            return _ended(None)
        case "file":
            return _ended({"approved": True, "by": "bob", "seal": "S-1"})
        case _:
            return _ended({"reservation": "R-17", "picked": 6})


def _ended(result: Any) -> ContainerExit:
    return ContainerExit(after=0.5, message=json.dumps(result))


def _failed(type_: str, message: str) -> ContainerExit:
    return ContainerExit(after=0.5, code=1, message=json.dumps({"error": {"type": type_, "message": message}}))
