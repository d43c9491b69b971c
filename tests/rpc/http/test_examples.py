"""The examples of docs/http-api.md, run by bash and curl."""

import asyncio
import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from temporalio import workflow
from temporalio.client import Client
from temporalio.worker import Worker

from support.operator import OPEN, in_memory
from support.ports import free_port

PAGE = (Path(__file__).parents[3] / "docs" / "http-api.md").read_text(encoding="utf-8")
HEAD = """
call() { curl -sS "$BASE/api/v1/namespaces/orders/$@"; }
result() { curl -sS "$BASE/perdure/v1/namespaces/orders/workflows/$1/result"; }
"""
"""As on the page, without TLS and tokens."""


@workflow.defn(name="OrderWorkflow", sandboxed=False)
class Order:
    """Waits until its amount has been set."""

    def __init__(self) -> None:
        self.amount = 0
        self.approved_by = ""

    @workflow.run
    async def run(self, order: dict[str, Any]) -> dict[str, Any]:
        await workflow.wait_condition(lambda: self.amount > 0)
        return {"order": order["order_id"], "amount": self.amount, "approved_by": self.approved_by}

    @workflow.signal
    def approve(self, name: str) -> None:
        self.approved_by = name

    @workflow.query
    def status(self) -> str:
        return "approved" if self.approved_by else "waiting"

    @workflow.update
    def set_amount(self, amount: int) -> int:
        self.amount = amount
        return amount


def examples() -> dict[str, str]:
    """The commands of the section, by the comments above them."""
    block = next(
        each for each in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL) if each.startswith("# Start a workflow")
    )
    return dict(re.findall(r"^# ([^\n]*)\n(.*?)(?=^# |\Z)", block, re.DOTALL | re.MULTILINE))


@pytest.fixture(scope="module")
def address() -> Iterator[tuple[str, str]]:
    port = free_port()
    settings = replace(OPEN, http_address=f"127.0.0.1:{port}")
    with in_memory(namespace="orders", settings=settings) as server:
        yield server.address, f"http://127.0.0.1:{port}"


async def run(base: str, command: str) -> Any:
    bash = await asyncio.create_subprocess_exec(
        "bash",
        "-euc",
        HEAD + command,
        env={"BASE": base, "PATH": "/usr/local/bin:/usr/bin:/bin", "no_proxy": "*"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, error = await bash.communicate()
    assert bash.returncode == 0, error.decode()
    return json.loads(out)


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
async def test_the_examples_behave_as_their_comments_say(address: tuple[str, str]) -> None:
    client = await Client.connect(address[0], namespace="orders")
    found = examples()
    start, signal, query, update, result, listed, stop = found
    _, base = address

    async def answer(title: str) -> Any:
        return await run(base, found[title])

    async with Worker(client, task_queue="orders", workflows=[Order]):
        first = await answer(start)
        assert (await answer(start))["runId"] == first["runId"]
        assert await answer(signal)
        assert await answer(query) == {"queryResult": ["approved"]}
        assert (await answer(update))["outcome"] == {"success": [7]}
        completed = {"order": "17", "amount": 7, "approved_by": "Ada"}
        assert await answer(result) == {"status": "WORKFLOW_EXECUTION_STATUS_COMPLETED", "result": completed}
        assert await answer(listed) == {}  # it is not running any more
        cancel, terminate = found[stop].strip().splitlines()
        for command, status in ((cancel, "CANCELED"), (terminate, "TERMINATED")):
            await client.start_workflow("OrderWorkflow", {"order_id": "17"}, id="order-17", task_queue="orders")
            await run(base, command)
            assert (await answer(result))["status"] == f"WORKFLOW_EXECUTION_STATUS_{status}"
