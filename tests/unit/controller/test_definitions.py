"""Compiling definitions: once each, beside everything else, and with a bound on what is kept."""

import asyncio
from typing import Any

import pytest

from perdure.controller import definitions
from perdure.controller.definitions import Definitions
from perdure.kube.access import Access
from perdure.kube.client import Client
from perdure.language.program import InvalidWorkflowError


@pytest.fixture
async def compiler() -> Any:
    """Nothing is asked of an API server here."""
    async with Client.open(Access(server="http://127.0.0.1:9"), user_agent="test") as client:
        yield Definitions(client)


def definition(steps: int, of: str = "input.a") -> dict[str, Any]:
    """One with an expression of nearly 4 KB for each step."""
    expression = "${[" + ", ".join([of] * (3900 // (len(of) + 2))) + "]}"
    return {"steps": [{"name": f"step-{n}", "set": {"value": expression}} for n in range(steps)]}


async def test_everything_else_goes_on_while_a_large_definition_is_compiled(compiler: Definitions) -> None:
    compiling = asyncio.create_task(compiler.compile(definition(steps=200)))
    turns = 0
    while not compiling.done():
        await asyncio.sleep(0)
        turns += 1
    assert len((await compiling).main.steps) == 200
    assert turns > 20


async def test_equal_definitions_are_compiled_once_also_at_the_same_time(compiler: Definitions) -> None:
    first, second = await asyncio.gather(*(compiler.compile(definition(steps=5)) for _ in range(2)))
    assert first is second
    assert await compiler.compile(definition(steps=5)) is first


async def test_what_cannot_be_run_is_told_again_without_compiling(compiler: Definitions) -> None:
    for _ in range(2):
        with pytest.raises(InvalidWorkflowError, match="nobody"):
            await compiler.compile(definition(steps=1, of="nobody"))
    assert len(compiler._compiled) == 1


async def test_what_is_kept_is_bounded_by_its_size(compiler: Definitions, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(definitions, "_CACHED_BYTES", 20_000)
    kept = [await compiler.compile(definition(steps=1, of=f"input.a{n}")) for n in range(8)]
    assert 1 < len(compiler._compiled) < 8
    assert sum(map(len, compiler._compiled)) == compiler._cached <= 20_000
    assert await compiler.compile(definition(steps=1, of="input.a7")) is kept[7]
    assert await compiler.compile(definition(steps=1, of="input.a0")) is not kept[0]
