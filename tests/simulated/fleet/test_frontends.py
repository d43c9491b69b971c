"""Clients of a fleet, right after a shard has another owner."""

import asyncio

import grpc
import pytest
from temporalio.api.command.v1 import Command
from temporalio.api.enums.v1 import CommandType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import (
    PollWorkflowTaskQueueRequest,
    PollWorkflowTaskQueueResponse,
    RespondWorkflowTaskCompletedRequest,
)

from perdure.controller.fleet.shards import shard_of
from perdure.frontend.errors import RpcError
from perdure.simulation.cluster.apiserver import Request
from simulated.fleet.members import calm, is_covered, is_divided, until
from simulated.sdk.frontends import Frontends, start
from simulated.sdk.wires import Wires
from simulated.world import World, simulate
from support.faulty.operators import FaultyOperator


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


def eager() -> Command:
    command = Command(command_type=CommandType.COMMAND_TYPE_SCHEDULE_ACTIVITY_TASK)
    attributes = command.schedule_activity_task_command_attributes
    attributes.activity_id, attributes.activity_type.name, attributes.task_queue.name = "pay", "Pay", "orders"
    attributes.start_to_close_timeout.FromSeconds(60)
    attributes.request_eager_execution = True
    return command


POLL = PollWorkflowTaskQueueRequest(namespace="default", identity="worker", task_queue=TaskQueue(name="orders"))


async def first_tasks(frontends: Frontends, operator: FaultyOperator) -> list[PollWorkflowTaskQueueResponse]:
    """Start workflows, and take their first tasks."""
    tasks = []
    for number in range(60):
        await frontends.call(operator, "StartWorkflowExecution", start(f"w{number}", "one"), 20)
        tasks.append(await frontends.call(operator, "PollWorkflowTaskQueue", POLL, 60))
    return tasks


async def check_eager_activities(
    world: World, frontends: Frontends, operator: FaultyOperator, tasks: list[PollWorkflowTaskQueueResponse]
) -> None:
    """Respond to the tasks as SDKs do: the worker gets each activity that the run records as started by it."""
    received: set[str] = set()

    async def respond(task: PollWorkflowTaskQueueResponse, after: float) -> None:
        await asyncio.sleep(after)
        request = RespondWorkflowTaskCompletedRequest(
            namespace="default", identity="worker", task_token=task.task_token
        )
        request.commands.append(eager())
        while True:
            try:
                answer = await frontends.call(operator, "RespondWorkflowTaskCompleted", request, 20)
            except RpcError as error:
                if error.code is grpc.StatusCode.NOT_FOUND:
                    return  # the task was not recorded, and goes to a worker again
                assert error.code is grpc.StatusCode.UNAVAILABLE  # noqa: PT017 (others come often)
                await asyncio.sleep(0.5)
            else:
                received.update(task.workflow_execution.workflow_id for _ in answer.activity_tasks)
                return

    random = world.random("responses")
    await asyncio.gather(*(respond(task, random.uniform(0, 0.01)) for task in tasks))
    started = {run["spec"]["workflowId"] for run in world.runs().values() if run["status"].get("pendingActivities")}
    assert started == received


@pytest.mark.parametrize("seed", range(4))
def test_a_worker_gets_its_eager_activities_while_another_operator_joins(seed: int) -> None:
    """Runs move between the commit, which records that the worker has the activity, and the response with the activity."""

    async def scenario(world: World) -> None:
        world.frontends = frontends = Frontends(
            world.loop, Wires(world.random("wires"), world.faults), world.checker.fail
        )
        world.begin()
        await until(lambda: is_covered(world))
        [first] = world.operators
        tasks = await first_tasks(frontends, first)
        joins = asyncio.Event()

        def observe(request: Request) -> None:
            if request.actor == first.name and request.url.endswith("/leases") and len(world.server.of("leases")) > 1:
                joins.set()  # the operator learns now that it has to share its runs

        world.server.interceptors.append(observe)
        world.start()
        await joins.wait()
        await check_eager_activities(world, frontends, first, tasks)

    assert simulate(scenario, calm(seed, 1)).violations == []


@pytest.mark.parametrize("seed", range(4))
def test_a_worker_gets_its_eager_activities_while_its_operator_leaves(seed: int) -> None:
    async def scenario(world: World) -> None:
        world.frontends = frontends = Frontends(
            world.loop, Wires(world.random("wires"), world.faults), world.checker.fail
        )
        world.begin()
        await until(lambda: is_divided(world))
        first, _ = world.operators
        tasks = await first_tasks(frontends, first)
        manager = first.manager
        leaving = asyncio.ensure_future(first.do(manager.shards.leave(manager.drain, first.operations.drain)))
        await check_eager_activities(world, frontends, first, tasks)
        await leaving

    assert simulate(scenario, calm(seed, 2)).violations == []
