"""An invalid Lease or failing requests of a member leave no shard without an owner for long."""

import asyncio

from perdure.api.labels import FLEET_LABEL
from perdure.controller.fleet.shards import SHARDS
from perdure.kube import client as kube
from perdure.simulation.cluster.apiserver import Request, Response, refused
from perdure.simulation.cluster.store import ObjectKey, Refusal
from simulated.fleet.members import calm, is_covered, is_divided, until
from simulated.world import World, simulate
from support.faulty.operators import FaultyOperator


def named(world: World, name: str) -> FaultyOperator:
    return next(each for each in world.operators if each.name == name)


def owners_besides(world: World, but: FaultyOperator) -> int:
    return sum(len(each.shards) for each in world.operators if each is not but)


def test_a_member_takes_over_no_shard_before_it_has_read_the_runs() -> None:
    """With many runs that takes a minute, in which the others keep what they own."""

    async def scenario(world: World) -> None:
        world.begin()
        await until(lambda: is_divided(world))
        runs = kube.path(kube.PERDURE, None, "workflowruns")
        world.faults.slow["GET", runs] = 40.5
        world.start()
        added = world.operators[-1]
        for _ in range(400):
            await asyncio.sleep(0.1)
            assert owners_besides(world, added) == SHARDS
        del world.faults.slow["GET", runs]
        assert await until(lambda: bool(added.shards) and is_covered(world)) < 4

    assert simulate(scenario, calm(1, 2)).violations == []


def test_a_removed_label_of_a_lease_is_restored() -> None:
    """Without it, the others own the shards of its member, which decides for them, too: until it renews, here for seconds."""

    async def scenario(world: World) -> None:
        world.begin()
        await until(lambda: is_divided(world))
        await asyncio.sleep(5)
        world.stop_checking()
        lease = world.server.objects[ObjectKey("leases", "default", "op-0")]
        del lease["metadata"]["labels"][FLEET_LABEL]
        await asyncio.sleep(5)
        assert sorted(shard for each in world.operators for shard in each.shards) == list(range(SHARDS))
        assert named(world, "op-0").shards

    assert simulate(scenario, calm(1)).violations == []


def test_a_member_that_cannot_list_the_others_gives_up_its_shards() -> None:
    """It decides nothing, so its Lease must not make the others wait."""

    async def scenario(world: World) -> None:
        world.begin()
        await until(lambda: is_divided(world))
        victim = world.operators[0]

        def refuse_lists(request: Request) -> Response | None:
            lists = request.method == "GET" and request.url.partition("?")[0].endswith("/leases")
            if lists and request.actor == victim.name:
                return refused(Refusal(403, "Forbidden", "leases.coordination.k8s.io is forbidden"))
            return None

        world.server.interceptors.append(refuse_lists)
        assert await until(lambda: owners_besides(world, victim) == SHARDS) < 25
        assert not victim.shards
        world.server.interceptors.remove(refuse_lists)
        await until(lambda: bool(victim.shards) and is_covered(world), 30)
        assert victim.shards

    assert simulate(scenario, calm(1)).violations == []


def test_a_member_that_cannot_renew_its_lease_knows_who_owns_its_shards() -> None:
    """It forwards requests of clients to the new owners."""

    async def scenario(world: World) -> None:
        world.begin()
        await until(lambda: is_divided(world))
        victim = world.operators[0]
        owned = victim.shards
        victim.freeze(60)
        await until(lambda: owners_besides(world, victim) == SHARDS)
        membership = victim.manager.shards
        for shard in owned:
            assert shard in named(world, membership.owner(shard)).shards

    assert simulate(scenario, calm(1)).violations == []
