"""WorkflowDefaults: runs wait for broken ones, take them at their start, and keep them when they and the operator change."""

import asyncio
from typing import Any

from perdure.simulation.cluster.store import Object, ObjectKey
from simulated.scenarios.definitions import activity
from simulated.world import Setting, World, simulate

SECONDS = 20
"""Within which a change is reported; watches lag by up to three of them."""
LIBRARY: Object = {
    "blocks": [{"name": "notify", "steps": [{"name": "told", "set": {"told": "${params}"}}], "output": "${params}"}]
}
FAILS: Object = {
    "activities": [activity("work")],
    "steps": [
        {"name": "nap", "sleep": {"duration": "1m"}},
        {"name": "work", "activity": {"name": "work"}},
        {"name": "no", "fail": {"type": "No", "message": "no"}},
    ],
}


def defaults(text: str = "first") -> Object:
    return {
        "onFailure": {"workflow": "library", "block": "notify", "input": f"{text}: ${{error.message}}"},
        "runTimeout": "1h",
        "runMetadata": {"labels": {"team": text}},
        "activities": {"podTemplate": {"metadata": {"labels": {"pool": text}}}},
    }


def reason(world: World, plural: str, name: str) -> tuple[str, str]:
    status = world.server.get(ObjectKey(plural, "default", name)).get("status") or {}
    found = next(each for each in status["conditions"] if each["type"] in {"Ready", "Succeeded"})
    return found["reason"], found.get("message", "")


def passes(scenario: Any) -> None:
    assert simulate(scenario, Setting(seed=1, faults=0, kills=0)).violations == []


def test_runs_wait_for_defaults_that_cannot_be_used_and_start_once_they_are_fixed() -> None:
    async def scenario(world: World) -> None:
        async def reports(*wanted: str) -> list[str]:
            await asyncio.sleep(SECONDS)
            places = (("workflowdefaults", "default"), ("workflowruns", "r"), ("workflowruns", "inline"))
            found = [reason(world, *place) for place in places]
            assert [each for each, _ in found] == list(wanted)
            return [message for _, message in found]

        world.begin()
        world.create("WorkflowDefaults", "default", defaults())
        world.create("Workflow", "w", FAILS)
        await asyncio.sleep(SECONDS)
        world.create("WorkflowRun", "r", {"workflow": {"name": "w"}})
        world.create("WorkflowRun", "inline", {"inline": FAILS})
        missing = "spec.onFailure.workflow: there is no Workflow `library` in namespace `default`"
        messages = await reports("WorkflowNotFound", "WorkflowNotFound", "WorkflowNotFound")
        assert messages[0] == f"{missing}; runs start once there is one"
        theirs = f"WorkflowDefaults `default`: {missing}; the run starts once there is one"
        assert messages[1:] == [f"Workflow `w` cannot be run: {theirs}", theirs]
        world.create("Workflow", "library", {"blocks": [{**LIBRARY["blocks"][0], "name": "tell"}]})
        messages = await reports("InvalidSpec", "InvalidWorkflow", "InvalidWorkflow")
        assert messages[0] == "spec.onFailure.block: Workflow `library` has no block `notify`; it has tell"
        assert messages[2].endswith("it has tell; the run starts once you fix the WorkflowDefaults")
        world.edit("workflowdefaults", "default", lambda obj: obj["spec"].update(runMetadata={"labels": {"a b": ""}}))
        messages = await reports("InvalidSpec", "InvalidWorkflow", "InvalidWorkflow")
        assert messages[0].startswith("spec.runMetadata.labels: `a b` must be a name")
        assert messages[1].startswith("WorkflowDefaults `default`: spec.runMetadata.labels: `a b` must be a name")
        world.edit("workflowdefaults", "default", lambda obj: obj.update(spec=defaults()))
        world.edit("workflows", "library", lambda obj: obj.update(spec=LIBRARY))
        messages = await reports("Accepted", "Running", "Running")
        assert messages[0] == ""
        world.delete("workflowdefaults", "default")
        world.create("WorkflowRun", "without", {"inline": FAILS})
        await world.rest()
        assert "sources" not in world.run("without")["status"]

    passes(scenario)


def test_a_run_keeps_the_defaults_that_it_has_taken_after_they_and_the_operator_are_replaced() -> None:
    async def scenario(world: World) -> None:
        pods: list[Object] = []
        world.server.observers.append(
            lambda write: pods.append(write.after) if write.before is None and write.key.plural == "pods" else None
        )
        world.begin()
        world.create("Workflow", "library", LIBRARY)
        world.create("WorkflowDefaults", "default", defaults("first"))
        world.create("WorkflowRun", "early", {"inline": FAILS})
        await asyncio.sleep(SECONDS)
        world.edit("workflowdefaults", "default", lambda obj: obj.update(spec=defaults("second")))
        await world.operators[0].kill()
        world.start()
        own = {**FAILS, "onFailure": {"block": "own"}, "blocks": [{"name": "own", "steps": FAILS["steps"][:1]}]}
        world.create("WorkflowRun", "late", {"inline": FAILS, "runTimeout": "2h"})
        world.create("WorkflowRun", "own", {"inline": own})
        await asyncio.sleep(SECONDS)
        world.delete("workflowdefaults", "default")
        world.delete("workflows", "library")
        await world.rest()
        runs = {name: world.run(name) for name in ("early", "late", "own")}
        assert {name: run["metadata"]["labels"]["team"] for name, run in runs.items()} == {
            "early": "first",
            "late": "second",
            "own": "second",
        }
        taken = {name: run["status"]["sources"][-1] for name, run in runs.items()}
        assert taken["early"] == {
            "workflowDefaults": "default",
            "generation": 1,
            "fields": ["onFailure"],
            "activityFields": {"work": ["podMetadata"]},
        }
        assert (taken["late"]["generation"], "fields" in taken["own"]) == (2, False)
        started = {name: world.checker.history(world.run(name))[0] for name in runs}
        assert {name: event["workflowRunTimeout"] for name, event in started.items()} == {
            "early": "PT3600S",
            "late": "PT7200S",
            "own": "PT3600S",
        }
        by_run = {pod["metadata"]["labels"]["perdure.dev/run"]: pod["metadata"]["labels"]["pool"] for pod in pods}
        assert by_run == {"early": "first", "late": "second", "own": "second"}

    passes(scenario)
