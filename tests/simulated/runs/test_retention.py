"""The retention of a namespace: what it keeps follows each change of it, and no run is written for that."""

import asyncio
from datetime import datetime, timedelta
from typing import Any

import yaml

from perdure.api.labels import API_VERSION
from perdure.runtime.retention import Limits
from perdure.simulation.cluster.store import Object
from simulated.loop import START
from simulated.world import Setting, World, simulate
from support.histories import EXAMPLES

MINUTE, HOUR = 60, 3_600
QUICK: Object = {"steps": [{"name": "one", "set": {"number": 1}}]}


def passes(scenario: Any) -> None:
    assert simulate(scenario, Setting(seed=1, faults=0, kills=0)).violations == []


def keep(world: World, **retention: Any) -> None:
    world.edit("workflowdefaults", "default", lambda obj: obj["spec"].update(retention=retention))


def test_finished_runs_follow_each_change_of_the_retention_also_after_a_restart() -> None:
    async def scenario(world: World) -> None:
        world.begin()
        world.create("WorkflowDefaults", "default", {"runTimeout": "1h"})
        world.create("Workflow", "load", QUICK)
        world.create("WorkflowRun", "theirs", {"inline": QUICK})
        world.create("WorkflowRun", "own", {"inline": QUICK, "ttlSecondsAfterFinished": HOUR})
        world.create("WorkflowRun", "load", {"workflow": {"name": "load"}})
        await asyncio.sleep(MINUTE)
        closed = {name: run["metadata"]["resourceVersion"] for name, run in world.runs().items()}

        keep(world, ttlSecondsAfterFinished=2 * HOUR, workflows=[{"name": "load", "ttlSecondsAfterFinished": 150}])
        await asyncio.sleep(5 * MINUTE)
        assert sorted(world.runs()) == ["own", "theirs"]

        keep(world, ttlSecondsAfterFinished=7 * 24 * HOUR)
        await asyncio.sleep(3 * HOUR)
        assert sorted(world.runs()) == ["theirs"]

        await world.operators[0].kill()
        world.start()
        await asyncio.sleep(30 * HOUR)
        assert world.run("theirs")["metadata"]["resourceVersion"] == closed["theirs"]

        world.delete("workflowdefaults", "default")
        await asyncio.sleep(5 * MINUTE)
        assert not world.runs()

    passes(scenario)


def test_a_run_is_kept_longer_although_no_watch_has_shown_the_new_retention() -> None:
    async def scenario(world: World) -> None:
        world.begin()
        world.create("WorkflowDefaults", "default", {"retention": {"ttlSecondsAfterFinished": 5 * MINUTE}})
        world.create("WorkflowRun", "r", {"inline": QUICK})
        await asyncio.sleep(MINUTE)
        expires = datetime.fromisoformat(world.run("r")["status"]["completionTime"]) + timedelta(minutes=5)
        await asyncio.sleep((expires - START).total_seconds() - world.loop.time() - 0.005)
        keep(world, ttlSecondsAfterFinished=HOUR)  # a watch lags by at least ten milliseconds
        await asyncio.sleep(10 * MINUTE)
        assert sorted(world.runs()) == ["r"]
        await asyncio.sleep(HOUR)
        assert not world.runs()

    passes(scenario)


def test_the_newest_runs_of_each_outcome_stay() -> None:
    async def scenario(world: World) -> None:
        world.begin()
        limits = {"successfulRunsHistoryLimit": 2, "failedRunsHistoryLimit": 1}
        world.create("WorkflowDefaults", "default", {"retention": {**limits, "ttlSecondsAfterFinished": HOUR}})
        fails = {"steps": [{"name": "stop", "fail": {"type": "Stopped", "message": "as planned"}}]}
        for number in range(5):
            world.create("WorkflowRun", f"good{number}", {"inline": QUICK})
            world.create("WorkflowRun", f"bad{number}", {"inline": fails})
            await asyncio.sleep(20)
        await asyncio.sleep(3 * MINUTE)
        assert sorted(world.runs()) == ["bad4", "good3", "good4"]
        keep(world, successfulRunsHistoryLimit=1)
        await asyncio.sleep(MINUTE)
        assert sorted(world.runs()) == ["bad4", "good4"]

    passes(scenario)


def test_the_example_keeps_runs_by_outcome_workflow_and_number() -> None:
    def manifest(name: str) -> Object:
        found: Object = yaml.safe_load((EXAMPLES / "retention" / name).read_text(encoding="utf-8"))
        return found

    async def scenario(world: World) -> None:
        world.begin()
        world.create("WorkflowDefaults", "default", manifest("retention.yaml")["spec"])
        world.create("Workflow", "probe", manifest("workflow.yaml")["spec"])
        run = manifest("run.yaml")["spec"]
        for number in range(12):
            world.create("WorkflowRun", f"good{number:02}", run)
            world.create("WorkflowRun", f"bad{number:02}", {**run, "input": {"healthy": False}})
        world.create("WorkflowRun", "other", {"inline": QUICK})
        await asyncio.sleep(MINUTE)
        assert len(world.runs()) == 25
        await asyncio.sleep(4 * MINUTE)
        kept = world.runs()
        assert sorted(run["status"]["phase"] for run in kept.values()) == ["Completed", *["Failed"] * 10]
        await asyncio.sleep(25 * HOUR)
        assert sorted(world.runs()) == ["other"]

    passes(scenario)


def test_a_flood_of_one_namespace_costs_smaller_ones_no_runs() -> None:
    async def scenario(world: World) -> None:
        world.limits = Limits(runs=0, size=0, all_runs=20, all_size=0)
        world.begin()

        def create(namespace: str, number: int) -> None:
            body = {"apiVersion": API_VERSION, "kind": "WorkflowRun", "metadata": {"name": f"{namespace}{number:02}"}}
            world.server.create("workflowruns", {**body, "spec": {"inline": QUICK}}, namespace=namespace)

        def kept(namespace: str) -> list[str]:
            return sorted(name for name in world.runs() if name.startswith(namespace))

        for number in range(4):
            create("small", number)
        for number in range(30):
            create("flood", number)
            if number < 12:
                create("large", number)
            await asyncio.sleep(1)
        await asyncio.sleep(4 * MINUTE)
        assert [len(kept(each)) for each in ("small", "flood", "large")] == [4, 8, 8]
        assert kept("flood") == [f"flood{number}" for number in range(22, 30)]

    passes(scenario)
