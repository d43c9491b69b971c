"""Callers that wait for a change of a run."""

import asyncio

from perdure.frontend.runs.gateway import RunChanges

CALLERS = 300


async def test_callers_continue_in_the_order_in_which_they_began_to_wait() -> None:
    changes, happened, continued = RunChanges(), False, list[int]()

    async def wait(number: int) -> None:
        assert await changes.wait_until("run", lambda: happened, 60)
        continued.append(number)

    callers = [asyncio.create_task(wait(number)) for number in range(CALLERS)]
    await asyncio.sleep(0)
    happened = True
    changes.changed("run")
    await asyncio.gather(*callers)
    assert continued == list(range(CALLERS))


async def test_a_caller_that_times_out_leaves_the_others_waiting() -> None:
    changes, happened = RunChanges(), False
    patient = asyncio.create_task(changes.wait_until("run", lambda: happened, 60))
    assert not await changes.wait_until("run", lambda: False, 0.01)
    happened = True
    changes.changed("run")
    assert await patient
