"""Clients find runs that no watch of the operator has shown yet."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import pytest
from temporalio.api.common.v1 import WorkflowExecution

from perdure.controller.directory import Entry
from perdure.frontend.errors import RpcError
from perdure.frontend.runs.gateway import RunGateway
from simulated.world import Setting, World, simulate
from support.managers import gateway_of

NAP = {"inline": {"steps": [{"name": "nap", "sleep": {"duration": "100s"}}]}}


def found_while_the_watch_is_silent(play: Callable[[World, RunGateway], Awaitable[Any]]) -> list[str]:
    """Call `play` with an operator whose watch of runs is silent, and return the lists of runs that it requested."""
    requests: list[str] = []
    lists: list[str] = []

    async def scenario(world: World) -> None:
        world.begin()
        operator = world.operators[0]
        await operator.do(operator.manager.first_lists.wait())
        operator.interrupt(10, "workflowruns")
        requests.clear()
        await operator.do(play(world, gateway_of(operator.manager)))
        lists.extend(each for each in requests if "/workflowruns limit=0&fieldSelector" in each)

    result = simulate(scenario, Setting(seed=1, faults=0, kills=0), trace=lambda _, line, __: requests.append(line))
    assert result.violations == []
    return lists


@pytest.mark.parametrize("name", ["nap", "other"])
def test_a_run_that_was_just_created_is_found_by_its_workflow_id(name: str) -> None:
    async def play(world: World, runs: RunGateway) -> None:
        made = world.create("WorkflowRun", name, NAP if name == "nap" else {**NAP, "workflowId": "nap"})
        for run_id in ("", made["metadata"]["uid"]):
            entry = await runs.reach("default", WorkflowExecution(workflow_id="nap", run_id=run_id), 20)
            assert (entry.name, entry.uid) == (name, made["metadata"]["uid"])

    assert len(found_while_the_watch_is_silent(play)) == 2


def test_a_new_run_of_a_known_workflow_id_is_found_by_its_run_id() -> None:
    async def play(world: World, runs: RunGateway) -> None:
        first = world.create("WorkflowRun", "first", {**NAP, "workflowId": "nap"})
        await runs.find("default", WorkflowExecution(workflow_id="nap"))
        second = world.create("WorkflowRun", "second", {**NAP, "workflowId": "nap"})
        execution = WorkflowExecution(workflow_id="nap", run_id=second["metadata"]["uid"])
        assert (await runs.find("default", execution)).name == "second"
        execution = WorkflowExecution(workflow_id="nap", run_id=first["metadata"]["uid"])
        assert (await runs.find("default", execution)).name == "first"

    found_while_the_watch_is_silent(play)


def test_requests_for_runs_that_do_not_exist_cause_few_lists() -> None:
    async def play(_: World, runs: RunGateway) -> None:
        async def look(number: int) -> Entry:
            return await runs.find("default", WorkflowExecution(workflow_id=f"none-{number}"))

        found = await asyncio.gather(*map(look, range(100)), return_exceptions=True)
        assert {each.code for each in found if isinstance(each, RpcError)} == {grpc.StatusCode.NOT_FOUND}
        assert len(found) == 100

    assert 0 < len(found_while_the_watch_is_silent(play)) <= 2 * 20
