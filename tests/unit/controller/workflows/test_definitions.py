"""Compiling definitions: once each, in the background, namespaces in turn, and with a bound on what is kept."""

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest

from perdure.controller.errors import NotYetError
from perdure.controller.workflows.definitions import Definitions, compile_definition
from perdure.kube.client import Client
from perdure.language.program import InvalidWorkflowError, Program
from support.managers import client_without_server


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    """No API server is used here."""
    async with client_without_server() as client:
        yield client


def definition(steps: int, of: str = "input.a") -> dict[str, Any]:
    """One with an expression of nearly 4 KB for each step."""
    expression = "${[" + ", ".join([of] * (3900 // (len(of) + 2))) + "]}"
    return {"steps": [{"name": f"step-{n}", "set": {"value": expression}} for n in range(steps)]}


class Runs:
    """Callers that need definitions: each returns when it is woken."""

    def __init__(self, definitions: Definitions) -> None:
        self.definitions = definitions
        self.visits = 0

    async def compile(self, spec: dict[str, Any], namespace: str = "shop") -> Program:
        while True:
            self.visits += 1
            try:
                return self.definitions.compile(namespace, spec)
            except NotYetError as error:
                held = error.awaited
                await asyncio.wait([held])


@pytest.fixture
def runs(client: Client) -> Runs:
    return Runs(Definitions(client))


async def test_compiling_a_large_definition_does_not_block_the_event_loop(runs: Runs) -> None:
    compiling = asyncio.create_task(runs.compile(definition(steps=200)))
    turns = 0
    while not compiling.done():
        await asyncio.sleep(0)
        turns += 1
    assert len((await compiling).main.steps) == 200
    assert turns > 20
    assert runs.visits == 2


async def test_equal_definitions_of_several_namespaces_are_compiled_once(runs: Runs) -> None:
    wanted = [runs.compile(definition(steps=5), name) for name in ("shop", "shop", "bank")]
    first, second, third = await asyncio.gather(*wanted)
    assert first is second is third
    assert await runs.compile(definition(steps=5)) is first


async def test_a_namespace_with_many_definitions_does_not_delay_others(client: Client) -> None:
    order: list[str] = []
    compiling, release = threading.Event(), threading.Event()

    def slow(spec: dict[str, Any]) -> Any:
        order.append(spec["steps"][0]["name"])
        compiling.set()
        if order[-1].startswith("busy"):
            release.wait()
        return compile_definition(spec)

    runs = Runs(Definitions(client, slow))
    many = [
        asyncio.create_task(runs.compile({"steps": [{"name": f"busy-{n}", "set": {"v": n}}]}, "busy")) for n in range(9)
    ]
    await asyncio.to_thread(compiling.wait)
    try:
        await runs.compile({"steps": [{"name": "other", "set": {"v": 1}}]}, "other")
        assert order == ["busy-0", "other"]
    finally:
        release.set()
    await asyncio.gather(*many)
    assert len(order) == 10


async def test_a_shared_definition_does_not_wait_for_the_queue_of_another_namespace(client: Client) -> None:
    release = threading.Event()

    def slow(spec: dict[str, Any]) -> Any:
        if "busy" in str(spec):
            release.wait()
        return compile_definition(spec)

    runs = Runs(Definitions(client, slow))
    busy = asyncio.create_task(runs.compile({"steps": [{"name": "busy", "set": {"v": 1}}]}, "busy"))
    behind = asyncio.create_task(runs.compile(definition(steps=1), "busy"))
    await asyncio.sleep(0)
    try:
        program = await runs.compile(definition(steps=1), "other")
    finally:
        release.set()
    await busy
    assert await behind is program


async def test_a_compiled_definition_is_returned_even_if_it_is_not_cached(runs: Runs) -> None:
    runs.definitions.cached_bytes = 1
    await asyncio.gather(*(runs.compile(definition(steps=1, of=f"input.a{n}")) for n in range(8)))
    assert runs.visits == 16


async def test_a_cached_error_is_raised_without_compiling(runs: Runs) -> None:
    for visits in (2, 3):
        with pytest.raises(InvalidWorkflowError, match="nobody"):
            await runs.compile(definition(steps=1, of="nobody"))
        assert runs.visits == visits


def test_a_definition_that_crashes_the_compiler_is_invalid() -> None:
    def crash(_: Any) -> Any:
        raise RecursionError("maximum recursion depth exceeded")

    (found,) = compile_definition(definition(steps=1), crash).broken
    assert found.message.startswith("cannot be checked: RecursionError")


async def test_the_cache_is_limited_by_size(runs: Runs) -> None:
    runs.definitions.cached_bytes = 20_000
    kept = [await runs.compile(definition(steps=1, of=f"input.a{n}")) for n in range(8)]
    assert await runs.compile(definition(steps=1, of="input.a7")) is kept[7]
    del kept[0]
    visits = runs.visits
    await runs.compile(definition(steps=1, of="input.a0"))
    assert runs.visits == visits + 2
