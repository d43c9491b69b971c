"""Work outside of a queue waits for shared results, such as a compiled definition."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from perdure.controller.errors import NotYetError, RefusedError, when_ready
from perdure.controller.workflows.definitions import Definitions
from perdure.language.program import InvalidWorkflowError, Program
from support.managers import client_without_server

NAP = {"steps": [{"name": "nap", "sleep": {"duration": "1s"}}]}


@pytest.fixture
async def definitions() -> AsyncIterator[Definitions]:
    async with client_without_server() as client:
        yield Definitions(client)


async def test_a_call_waits_until_the_definition_is_compiled(definitions: Definitions) -> None:
    with pytest.raises(NotYetError):
        definitions.compile("shop", NAP)

    async def compiled() -> Program:
        return definitions.compile("shop", NAP)

    program = await when_ready(compiled, seconds=30)
    assert program is definitions.compile("shop", NAP)


async def test_an_error_of_the_definition_is_raised(definitions: Definitions) -> None:
    async def compiled() -> Program:
        return definitions.compile("shop", {"steps": [{"name": "nap", "activity": {"name": "none"}}]})

    with pytest.raises(InvalidWorkflowError, match="none"):
        await when_ready(compiled, seconds=30)


async def test_waiting_ends_with_its_timeout_without_cancelling_the_shared_future() -> None:
    made = asyncio.get_running_loop().create_future()

    async def unready() -> None:
        raise NotYetError(made)

    async with asyncio.timeout(30):
        with pytest.raises(NotYetError):
            await when_ready(unready, seconds=0.01)
    assert not made.done()


@pytest.mark.parametrize("ending", ["fails", "is cancelled"])
async def test_a_call_is_retried_when_the_awaited_future_fails_or_is_cancelled(ending: str) -> None:
    made = asyncio.get_running_loop().create_future()
    tries: list[int] = []

    async def second_time() -> int:
        tries.append(1)
        if len(tries) == 1:
            asyncio.get_running_loop().call_soon(
                lambda: made.cancel() if ending == "is cancelled" else made.set_exception(OSError())
            )
            raise NotYetError(made)
        return len(tries)

    assert await when_ready(second_time, seconds=30) == 2


async def test_other_errors_are_not_retried() -> None:
    tries: list[int] = []

    async def refused() -> None:
        tries.append(1)
        raise RefusedError(cast("Any", "Reason"), "no")

    with pytest.raises(RefusedError):
        await when_ready(refused, seconds=30)
    assert tries == [1]
