"""Runs, Schedules, and Workflows that wait for a library (`from`), and a run that is pinned to what it has copied."""

import asyncio
from typing import Any

from perdure.api.labels import API_VERSION
from perdure.simulation.cluster.store import Object, ObjectKey
from simulated.scenarios.definitions import activity
from simulated.world import Setting, World, simulate

SECONDS = 20
"""Within which a change is reported; watches lag by up to three of them."""
STEP = {"name": "one", "call": {"block": "shared"}}
USER: Object = {"blocks": [{"name": "shared", "from": {"workflow": "library"}}], "steps": [STEP]}


def library(value: Any, **more: Any) -> Object:
    return {"blocks": [{"name": "shared", "steps": [{"name": "v", "return": {"output": value}}], **more}]}


def condition(world: World, plural: str, name: str) -> tuple[str, str]:
    status = world.server.get(ObjectKey(plural, "default", name)).get("status") or {}
    found = next(each for each in status["conditions"] if each["type"] in {"Ready", "Succeeded"})
    return found["reason"], found.get("message", "")


def passes(scenario: Any) -> None:
    assert simulate(scenario, Setting(seed=1, faults=0, kills=0)).violations == []


def test_everything_waits_for_a_library_and_continues_once_it_has_the_part() -> None:
    async def scenario(world: World) -> None:
        places = (("workflows", "w"), ("schedules", "s"), ("workflowruns", "r"), ("workflowruns", "inline"))

        async def reports(*wanted: str) -> list[str]:
            await asyncio.sleep(SECONDS)
            found = [condition(world, *place) for place in places]
            assert [reason for reason, _ in found] == list(wanted)
            return [message for _, message in found]

        world.begin()
        world.create("Workflow", "w", USER)
        world.create("Schedule", "s", {"workflowRunTemplate": {"spec": {"workflow": {"name": "w"}}}})
        world.create("WorkflowRun", "r", {"workflow": {"name": "w"}})
        world.create("WorkflowRun", "inline", {"inline": USER})
        missing = "spec.blocks[0].from.workflow: there is no Workflow `library` in namespace `default`"
        messages = await reports(*["WorkflowNotFound"] * 4)
        assert messages[0] == f"{missing}; runs start once there is one"
        assert messages[1] == messages[2] == f"Workflow `w` cannot be run: {missing}; the run starts once there is one"
        assert messages[3] == f"{missing.replace('spec', 'spec.inline')}; the run starts once there is one"
        world.create("Workflow", "library", {**library(1), "blocks": [{**library(1)["blocks"][0], "name": "other"}]})
        lacking = "spec.blocks[0].from: Workflow `library` has no block `shared`; it has other"
        messages = await reports("InvalidSpec", *["InvalidWorkflow"] * 3)
        assert messages[0] == lacking
        assert messages[3] == f"{lacking.replace('spec', 'spec.inline')}; the run starts once you fix that Workflow"
        world.edit("workflows", "library", lambda obj: obj.update(spec=library(2)))
        await reports("Accepted", "Accepted", "Completed", "Completed")
        assert condition(world, "workflows", "library") == ("Accepted", "")
        for name in ("r", "inline"):
            status = world.run(name)["status"]
            assert status["output"] == 2
            assert status["sources"] == [
                {"workflow": "library", "generation": 2, "activities": {}, "blocks": {"shared": "shared"}}
            ]
        world.delete("workflows", "library")
        await asyncio.sleep(SECONDS)
        assert [condition(world, *place)[0] for place in places[:2]] == ["WorkflowNotFound"] * 2

    passes(scenario)


def test_a_run_continues_with_what_it_has_copied_after_the_library_and_the_operator_are_replaced() -> None:
    """A definition that is read again at each step breaks open runs (argo-workflows#5773: a changed WorkflowTemplate)."""

    async def scenario(world: World) -> None:
        world.begin()
        shared = library("old")
        shared["activities"] = [activity("work")]
        shared["blocks"][0]["steps"].insert(0, {"name": "nap", "sleep": {"duration": "1m"}})
        shared["blocks"][0]["steps"].insert(1, {"name": "work", "activity": {"name": "work"}})
        world.create("Workflow", "library", shared)
        world.create("WorkflowRun", "inline", {"inline": USER})
        world.create("WorkflowRun", "late", {"inline": USER, "startDelay": "30s"})
        await asyncio.sleep(SECONDS)
        world.edit("workflows", "library", lambda obj: obj.update(spec=library("new")))
        await world.operators[0].kill()
        world.start()
        await asyncio.sleep(3 * SECONDS)
        world.delete("workflows", "library")
        await world.rest()
        assert [world.run(name)["status"].get("output") for name in ("inline", "late")] == ["old", "old"]

    passes(scenario)


def test_a_library_of_another_namespace_is_used_only_if_it_allows_that() -> None:
    async def scenario(world: World) -> None:
        def create(namespace: str, spec: Object) -> None:
            body = {
                "apiVersion": "perdure.dev/v1alpha1",
                "kind": "Workflow",
                "metadata": {"name": "library"},
                "spec": spec,
            }
            world.server.create("workflows", body, namespace=namespace)

        def change(namespace: str, **spec: Any) -> None:
            world.server.update(ObjectKey("workflows", namespace, "library"), lambda obj: obj["spec"].update(spec))

        world.begin()
        base = {"name": "base", "steps": [{"name": "v", "return": {"output": "${run.namespace}"}}]}
        create("tools", {"blocks": [{"name": "shared", "from": {"workflow": "base/library", "block": "base"}}]})
        create("base", {"blocks": [base], "allowedNamespaces": ["tools"]})
        user = {"blocks": [{"name": "shared", "from": {"workflow": "tools/library"}}], "steps": [STEP]}
        world.create("Workflow", "w", user)
        world.create("WorkflowRun", "r", {"workflow": {"name": "w"}})
        for namespace in ("tools", "base"):
            await asyncio.sleep(SECONDS)
            for place in (("workflows", "w"), ("workflowruns", "r")):
                reason, message = condition(world, *place)
                assert reason == "WorkflowNotFound"
                assert f"in namespace `{namespace}` with `default` in its `allowedNamespaces`" in message
            change(namespace, allowedNamespaces=["*"] if namespace == "tools" else ["tools", "default"])
        await asyncio.sleep(SECONDS)
        assert condition(world, "workflows", "w") == ("Accepted", "")
        status = world.run("r")["status"]
        assert (status["phase"], status["output"]) == ("Completed", "default")
        assert [source["workflow"] for source in status["sources"]] == ["base/library"]

    passes(scenario)


def test_a_library_without_steps_is_ready_but_a_run_of_it_waits() -> None:
    async def scenario(world: World) -> None:
        world.begin()
        world.create("Workflow", "library", library(1))
        world.create("WorkflowRun", "r", {"workflow": {"name": "library"}})
        await asyncio.sleep(SECONDS)
        assert condition(world, "workflows", "library") == ("Accepted", "")
        reason, message = condition(world, "workflowruns", "r")
        assert reason == "InvalidWorkflow"
        assert message.startswith("Workflow `library` cannot be run: spec.steps: must have at least one step")
        world.operate("end", "r", terminate={})
        await world.rest()

    passes(scenario)


def test_an_inline_definition_whose_own_call_does_not_match_the_library_fails() -> None:
    async def scenario(world: World) -> None:
        world.begin()
        schema = {"type": "object", "required": ["text"]}
        world.create("Workflow", "library", library(1, params={"schema": schema}))
        wrong = {**USER, "steps": [{"name": "one", "call": {"block": "shared", "input": {"txt": "a"}}}]}
        world.create("WorkflowRun", "inline", {"inline": wrong})
        await world.rest()
        reason, message = condition(world, "workflowruns", "inline")
        assert reason == "InvalidWorkflow"
        assert message.startswith("spec.inline.steps[0].call.input: does not match the params of block `shared`")

    passes(scenario)


def test_a_run_uses_a_workflow_of_another_namespace_once_that_allows_it() -> None:
    """The run, its child, and that of a Schedule live in their own namespace; what the Workflow copies is of its own."""

    async def scenario(world: World) -> None:
        def workflow(name: str, spec: Object) -> None:
            body = {"apiVersion": API_VERSION, "kind": "Workflow", "metadata": {"name": name}, "spec": spec}
            world.server.create("workflows", body, namespace="tools")

        world.begin()
        workflow("library", {"allowedNamespaces": ["default"], **library("tools")})
        workflow("etl", {"allowedNamespaces": ["shop"], **USER})
        world.create("Workflow", "library", library("own"))
        world.create("WorkflowRun", "r", {"workflow": {"name": "tools/etl"}})
        child = {"name": "child", "childWorkflow": {"workflow": {"name": "tools/etl"}, "workflowId": "child"}}
        world.create("WorkflowRun", "parent", {"inline": {"steps": [child]}})
        template = {"spec": {"workflow": {"name": "tools/etl"}}}
        world.create("Schedule", "s", {"workflowRunTemplate": template, "cron": ["* * * * *"], "remainingActions": 1})
        await asyncio.sleep(SECONDS)
        refused = "there is no Workflow `etl` in namespace `tools` with `default` in its `allowedNamespaces`"
        for plural, name in (("workflowruns", "r"), ("schedules", "s")):
            assert condition(world, plural, name) == ("WorkflowNotFound", f"{refused}; the run starts once it exists")
        etl = ObjectKey("workflows", "tools", "etl")
        world.server.update(etl, lambda obj: obj["spec"].update(allowedNamespaces=["default"]))
        await asyncio.sleep(SECONDS)
        assert condition(world, "schedules", "s")[0] == "Accepted"
        await world.rest()
        runs = world.runs()
        assert len(runs) == 4
        assert {run["metadata"]["namespace"] for run in runs.values()} == {"default"}
        assert {run["status"]["output"] for run in runs.values()} == {"tools"}
        assert runs["r"]["status"]["sources"][0]["workflow"] == "tools/library"

    passes(scenario)
