"""Clients of a fleet, right after a shard has another owner."""

import asyncio

import grpc
import pytest

from perdure.controller.fleet.shards import shard_of
from perdure.frontend.errors import RpcError
from simulated.fleet.members import calm, is_covered, is_divided, until
from simulated.sdk.frontends import Frontends, start
from simulated.sdk.wires import Wires
from simulated.world import World, simulate


@pytest.mark.parametrize("seed", range(3))
def test_a_new_owner_finds_an_open_run_that_its_watch_has_not_shown(seed: int) -> None:
    async def scenario(world: World) -> None:
        world.frontends = frontends = Frontends(
            world.loop, Wires(world.random("wires"), world.faults), world.checker.fail
        )
        world.begin()
        await until(lambda: is_divided(world))
        await asyncio.sleep(40)
        first, second = world.operators
        workflow_id = next(f"w{n}" for n in range(1_000) if shard_of("default", f"w{n}") in first.shards)
        second.interrupt(60, "workflowruns")
        started = await frontends.call(second, "StartWorkflowExecution", start(workflow_id, "one"), 20)
        assert started.run_id
        world.operators.remove(first)
        await first.kill()
        await until(lambda: is_covered(world))
        with pytest.raises(RpcError, match=started.run_id) as refused:
            await frontends.call(second, "StartWorkflowExecution", start(workflow_id, "two"), 20)
        assert refused.value.code is grpc.StatusCode.ALREADY_EXISTS
        assert len(world.runs()) == 1

    assert simulate(scenario, calm(seed, 2)).violations == []
