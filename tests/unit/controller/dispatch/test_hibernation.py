"""A run that only waits takes little memory."""

from datetime import timedelta
from functools import cache
from typing import Any

import orjson
import pytest

from perdure.controller.dispatch.hibernation import HibernationSettings
from perdure.controller.manager import Manager
from perdure.handlers.assembly import OperatorOptions, assemble
from perdure.runtime.commits import OF_RUNS, committed
from simulated.loop import START
from simulated.scenarios.hibernation import SUBSCRIPTION
from simulated.world import Setting, World, simulate
from support.clock import stopped_clock
from support.managers import client_without_server
from support.memory import traced

Json = dict[str, Any]


@cache
def subscription() -> Json:
    """A run that sleeps for a month."""
    found: list[Json] = []

    async def scenario(world: World) -> None:
        world.begin()
        world.create("WorkflowRun", "order", {"inline": SUBSCRIPTION, "input": {"period": "30d"}})
        await world.calm(30)
        found.append(world.run_as_stored("order"))

    assert not simulate(scenario, Setting(seed=0, faults=0.0, kills=0)).violations
    return found[0]


def copy(number: int) -> Json:
    """One of many such runs, as it was decoded from a list: no two share a text."""
    run: Json = orjson.loads(orjson.dumps(subscription()))
    uid = f"8dcba364-1e4b-43c6-9c3b-{number:012x}"
    run["metadata"] |= {"name": f"order-{number:08}", "uid": uid, "resourceVersion": str(10_000_000 + number)}
    run["status"] = committed(run["status"], OF_RUNS, uid, 7)
    return run


@pytest.fixture(autouse=True, scope="module")
def played() -> None:
    """Play the run before a test has an event loop of its own."""
    subscription()


@pytest.mark.usefixtures("memory")
def test_a_hibernated_run_takes_little_more_than_a_kibibyte(manager: Manager) -> None:
    count = 1_000
    with stopped_clock(START + timedelta(minutes=5)):
        manager.runs.update_listed(copy(0))  # what is made once
        before = traced()
        for number in range(1, count + 1):
            manager.runs.update_listed(copy(number))
        after = traced()
    assert len(manager.runs.hibernation) == count + 1
    assert not manager.runs.all()
    print((after - before) / count)
    assert (after - before) / count <= 1_400


async def test_only_an_intact_run_whose_next_timer_is_far_away_hibernates(manager: Manager) -> None:
    with stopped_clock(START + timedelta(days=29, hours=23, minutes=58)):
        manager.runs.update_listed(copy(1))  # due in some minutes
    with stopped_clock(START + timedelta(days=31)):
        manager.runs.update_listed(copy(2))  # overdue
    edited = copy(3)
    edited["status"]["state"]["timers"] = {}
    with stopped_clock(START + timedelta(minutes=5)):
        manager.runs.update_listed(edited)
        restored = copy(4)
        restored["metadata"]["uid"] = copy(5)["metadata"]["uid"]
        manager.runs.update_listed(restored)  # it has the status of another object
    assert not manager.runs.hibernation.uids()
    assert len(manager.runs.all()) == 4


async def test_only_some_runs_stay_in_memory_because_they_are_due_soon() -> None:
    options = OperatorOptions(hibernation=HibernationSettings(most=3))
    async with client_without_server() as client:
        manager, _ = assemble(client, options)
        with stopped_clock(START + timedelta(days=29, hours=23, minutes=58)):
            for number in range(10):
                manager.runs.update_listed(copy(number))  # due in some minutes
    assert len(manager.runs.all()) == 3
    assert len(manager.runs.hibernation) == 7


async def test_hibernated_runs_count_as_open(manager: Manager) -> None:
    with stopped_clock(START + timedelta(minutes=5)):
        run = copy(1)
        manager.runs.update_listed(run)
    assert manager.runs.count_open()[0].total() == 1
    manager.informers["workflowruns"].on_event(run, deleted=True)
    assert not manager.runs.count_open()[0]
    assert not manager.runs.hibernation.uids()
