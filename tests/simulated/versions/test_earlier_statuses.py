"""Runs whose status an earlier version has recorded, with values in place of texts."""

import asyncio

import orjson

from perdure.runtime import status_encoding
from perdure.simulation.cluster.store import Object, ObjectKey
from simulated.world import Setting, World, simulate

KEY = ObjectKey("workflowruns", "default", "run")
STEPS: Object = {
    "steps": [
        {"name": "greet", "set": {"word": "hello"}},
        {"name": "approval", "waitForSignal": {"name": "go"}},
        {"name": "nap", "sleep": {"duration": "5s"}},
        {"name": "done", "return": {"output": "${vars.word}, ${steps.approval.output}"}},
    ]
}


def record_as_before(obj: Object) -> None:
    obj["status"] = status_encoding.decode(obj)["status"]


def test_an_open_run_of_an_earlier_version_continues_and_completes() -> None:
    async def scenario(world: World) -> None:
        world.begin(reads=2)
        world.create("Workflow", "greeting", STEPS)
        world.create("WorkflowRun", "run", {"workflow": {"name": "greeting"}})
        await asyncio.sleep(20)
        assert isinstance(world.server.get(KEY)["status"]["definition"], str)
        await world.operators.pop().kill()
        world.edit("workflowruns", "run", record_as_before)
        before = world.server.get(KEY)["status"]
        assert not any(isinstance(event, str) for event in before["history"]["events"])
        assert isinstance(before["definition"], dict)
        world.start()
        world.operate("signal", "run", signal={"name": "go", "input": "world"})
        await asyncio.sleep(60)
        status = world.run("run")["status"]
        assert (status["phase"], status["output"]) == ("Completed", "hello, world")
        known, events = before["history"]["events"], world.server.get(KEY)["status"]["history"]["events"]
        assert all(isinstance(event, str) for event in events), "a write stores texts"
        assert [orjson.loads(event) for event in events[: len(known)]] == known
        assert len(events) > len(known)

    result = simulate(scenario, Setting(seed=1, faults=0, kills=0))
    assert result.violations == []
