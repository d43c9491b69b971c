"""Which state version operators write: after an installation, an upgrade, and a rollback."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from perdure.api.state_versions import FIELD, NEWEST
from perdure.simulation.cluster.kubelet import ContainerExit
from perdure.simulation.cluster.store import Object, ObjectKey
from simulated.world import RECORD, Setting, World, simulate
from support.faulty.newer import HOLD_BACK, NEWER, OLDER, release_of

NAP: Object = {"steps": [{"name": "nap", "sleep": {"duration": "1s"}}]}
NAPS: Object = {
    "steps": [{"name": "naps", "forEach": {"items": "${[1, 2, 3]}", "maxConcurrency": 1}, "sleep": {"duration": "60s"}}]
}


def play(scenario: Callable[[World], Awaitable[None]], *, operators: int = 1) -> None:
    async def begin(world: World) -> None:
        world.script = lambda _: ContainerExit(after=1)
        world.share_versions()
        await scenario(world)

    setting = Setting(seed=1, operators=operators, fleet=operators > 1, faults=0, kills=0)
    assert simulate(begin, setting).violations == []


def record(world: World) -> dict[str, str]:
    """The upgrade record without the latest release."""
    data = dict(world.server.get(ObjectKey("configmaps", "default", RECORD))["data"])
    del data["release"]
    return data


def is_counted_on(world: World, name: str) -> bool:
    """Whether another operator has found the Lease of an operator."""
    others = [each["metadata"] for each in world.server.of("leases") if each["metadata"]["name"] != name]
    return any(name in each["annotations"]["perdure.dev/members"].split(",") for each in others)


async def version_of_run(world: World, name: str) -> int | None:
    """The state version of a run that is created now."""
    world.create("WorkflowRun", name, {"inline": NAP})
    await asyncio.sleep(5)
    found: int | None = world.run(name)["status"].get(FIELD)
    return found


def test_a_new_installation_writes_the_newest_state_version_immediately() -> None:
    async def scenario(world: World) -> None:
        world.begin()
        await asyncio.sleep(5)
        assert record(world) == {"writes": str(NEWEST)}
        assert await version_of_run(world, "run") == NEWEST

    play(scenario)


def test_objects_without_a_record_are_of_the_first_version_until_the_hold_back_has_passed() -> None:
    async def scenario(world: World) -> None:
        world.create("WorkflowRun", "earlier", {"inline": NAP})
        world.begin()
        await asyncio.sleep(5)
        found = record(world)
        assert found.pop("until").startswith("2026-11-22T00:01:00")
        assert found == {"writes": "1", "next": str(NEWEST)}
        assert await version_of_run(world, "early") is None
        await asyncio.sleep(HOLD_BACK)
        assert record(world) == {"writes": str(NEWEST)}
        assert await version_of_run(world, "late") == NEWEST
        (event,) = [
            each for each in world.server.posted if "from" not in each["note"] and each["reason"] == "StateVersion"
        ]
        assert event["note"] == f"The operators write state version {NEWEST}"

    play(scenario)


def test_a_restart_does_not_begin_the_hold_back_again() -> None:
    async def scenario(world: World) -> None:
        world.create("WorkflowRun", "earlier", {"inline": NAP})
        world.begin()
        await asyncio.sleep(5)
        before = record(world)
        await world.replace(world.operators[0], 1)
        await asyncio.sleep(20)
        assert record(world) == before

    play(scenario)


def test_an_upgrade_is_finished_before_the_end_of_the_hold_back_on_request() -> None:
    async def scenario(world: World) -> None:
        world.create("WorkflowRun", "earlier", {"inline": NAP})
        world.begin()
        await asyncio.sleep(5)
        world.edit("configmaps", RECORD, lambda obj: obj["data"].update(finish=str(NEWEST)))
        await asyncio.sleep(15)
        assert record(world) == {"writes": str(NEWEST)}

    play(scenario)


def test_an_older_operator_that_is_gone_before_the_next_look_begins_the_hold_back_again() -> None:
    async def scenario(world: World) -> None:
        world.create("WorkflowRun", "earlier", {"inline": NAP})
        world.begin()
        await asyncio.sleep(33)
        before = record(world)
        assert before["next"] == str(NEWEST)
        older = world.start(reads=OLDER)
        while not is_counted_on(world, older.name):  # noqa: ASYNC110 (virtual time)
            await asyncio.sleep(0.01)
        await world.operators.pop().kill()  # the others have found it, and it has not looked at the record itself
        world.server.delete(ObjectKey("leases", "default", older.name))
        await asyncio.sleep(2.5)
        assert record(world) == before
        await asyncio.sleep(HOLD_BACK - 15)
        after = record(world)
        assert after["next"] == str(NEWEST)
        assert after["until"] > before["until"]

    play(scenario, operators=2)


def test_an_older_operator_lowers_the_written_version_and_objects_keep_theirs() -> None:
    async def scenario(world: World) -> None:
        world.begin()
        await asyncio.sleep(15)
        world.create("WorkflowRun", "naps", {"inline": NAPS})
        await asyncio.sleep(5)
        assert world.run("naps")["status"][FIELD] == NEWEST
        commits = world.run("naps")["status"]["commit"]["number"]
        world.start(reads=OLDER)
        await asyncio.sleep(40)
        assert record(world) == {"writes": str(OLDER)}
        leases = {each["metadata"]["name"]: each["metadata"]["annotations"] for each in world.server.of("leases")}
        assert [each["perdure.dev/state-versions"] for each in leases.values()] == [
            f"1-{NEWEST}",
            f"1-{NEWEST}",
            f"1-{OLDER}",
        ]
        assert {each["perdure.dev/state-version"] for each in leases.values()} == {str(OLDER)}
        assert await version_of_run(world, "run") == OLDER
        await world.operators.pop().kill()
        await asyncio.sleep(200)
        status = world.run("naps")["status"]
        assert (status["phase"], status[FIELD]) == ("Completed", NEWEST)
        assert status["commit"]["number"] > commits

    play(scenario, operators=2)


@pytest.mark.parametrize("operators", [1, 2], ids=["one operator", "a fleet"])
def test_after_a_rollback_reports_name_the_release_that_can_read_the_objects(operators: int) -> None:
    async def scenario(world: World) -> None:
        world.begin(reads=NEWER)
        await asyncio.sleep(15)
        world.create("WorkflowRun", "naps", {"inline": NAPS})
        await asyncio.sleep(15)
        for operator in list(world.operators):
            await world.replace(operator, 0, reads=NEWEST)
        await asyncio.sleep(60)
        (report,) = [each for each in world.run("naps")["status"]["conditions"] if each["type"] == "NewerState"]
        advice = f"Upgrade the operator to version {release_of(NEWER)} or later, or wait until the upgrade has replaced this one"
        assert report["message"].endswith(advice)
        world.edit("configmaps", RECORD, lambda obj: obj["data"].update(pausedBy="ops"))
        for operator in list(world.operators):
            await world.replace(operator, 0, reads=NEWER)
        await world.rest()
        assert record(world) == {"writes": str(NEWER), "pausedBy": "ops"}

    play(scenario, operators=operators)
