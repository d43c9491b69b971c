"""Large payloads: storage, ownership, cost, and that no fault loses or leaks one."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from datetime import timedelta
from random import Random
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from temporalio.api.command.v1 import Command
from temporalio.api.common.v1 import Payload, Payloads, WorkflowExecution, WorkflowType
from temporalio.api.enums.v1 import CommandType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.taskqueue.v1 import TaskQueue

from perdure.controller.runs.status import MAX_STATUS
from perdure.engine.payloads import referred_to
from perdure.frontend.errors import RpcError
from perdure.kube import client as kube
from perdure.simulation.cluster.store import Object
from rpc.served import QUEUE, Served, activity, served
from simulated.world import Setting, World, simulate

if TYPE_CHECKING:
    from perdure.simulation.cluster.store import Write

MINUTE = timedelta(minutes=1)


def payload(size: int, seed: int = 0) -> Payload:
    return Payload(metadata={"encoding": b"binary/plain"}, data=Random(seed).randbytes(size))


def some(*payloads: Payload) -> Payloads:
    return Payloads(payloads=payloads)


def stored(world: World) -> dict[str, Object]:
    return {obj["metadata"]["name"]: obj for obj in world.server.of("payloads")}


def first_parts(world: World) -> dict[str, Object]:
    return {name: obj for name, obj in stored(world).items() if obj["spec"]["part"] == 0}


def owners(obj: Object) -> set[str]:
    return {each["name"] for each in obj["metadata"].get("ownerReferences") or ()}


def complete(result: Payload) -> Command:
    command = Command(command_type=CommandType.COMMAND_TYPE_COMPLETE_WORKFLOW_EXECUTION)
    command.complete_workflow_execution_command_attributes.result.CopyFrom(some(result))
    return command


def with_input(command: Command, payload_: Payload) -> Command:
    command.schedule_activity_task_command_attributes.input.CopyFrom(some(payload_))
    return command


def signaled(events: list[HistoryEvent]) -> list[bytes]:
    return [
        e.workflow_execution_signaled_event_attributes.input.payloads[0].data
        for e in events
        if e.HasField("workflow_execution_signaled_event_attributes")
    ]


async def all_events(it: Served) -> list[HistoryEvent]:
    events, token = [], b""
    while True:
        execution = WorkflowExecution(workflow_id="w")
        page = await it.call("GetWorkflowExecutionHistory", execution=execution, next_page_token=token)
        events += page.history.events
        token = page.next_page_token
        if not token:
            return events


async def signal(it: Served, payload_: Payload, request_id: str = "") -> None:
    execution = WorkflowExecution(workflow_id="w")
    await it.call(
        "SignalWorkflowExecution",
        workflow_execution=execution,
        signal_name="s",
        input=some(payload_),
        request_id=request_id,
    )


@served
async def test_large_payloads_are_separate_objects_owned_by_the_run(it: Served) -> None:
    writes: list[Write] = []
    it.world.server.observers.append(writes.append)
    await it.start(input=some(payload(2_000_000)))
    task = await it.task()
    (run,) = it.world.runs().values()
    assert len(str(run)) < 20_000
    assert sorted(obj["spec"]["part"] for obj in stored(it.world).values()) == [0, 1, 2]
    (first,) = first_parts(it.world).values()
    assert owners(first) == {run["metadata"]["name"]}
    assert "labels" not in first["metadata"] or not first["metadata"]["labels"]
    assert first["spec"]["hash"] == hashlib.sha256(some(payload(2_000_000)).SerializeToString()).hexdigest()
    started = task.history.events[0].workflow_execution_started_event_attributes
    assert started.input == some(payload(2_000_000))
    await it.complete(task, with_input(activity("a", start_to_close_timeout=MINUTE), payload(50_000)))
    handed = await it.call("PollActivityTaskQueue")
    assert handed.input == some(payload(50_000))
    await it.call("RespondActivityTaskCompleted", task_token=handed.task_token, result=some(payload(60_000)))
    await it.decide(complete(payload(70_000)))
    assert len(first_parts(it.world)) == 4
    creations = [each for each in writes if each.key.plural == "payloads" and each.type == "ADDED"]
    assert len(creations) == 6, "each part was made once"
    events = await it.history()
    assert events[-1].workflow_execution_completed_event_attributes.result == some(payload(70_000))
    it.world.delete("workflowruns", run["metadata"]["name"])
    await asyncio.sleep(120)
    assert not stored(it.world)


@served
async def test_small_payloads_need_no_additional_write(it: Served) -> None:
    writes: list[Write] = []
    await it.start(input=some(payload(10_000)))
    task = await it.task()
    it.world.server.observers.append(writes.append)
    await it.complete(task, with_input(activity("a", start_to_close_timeout=MINUTE), payload(12_000)))
    assert [each.key.plural for each in writes if each.key.plural != "events"] == ["workflowruns"]
    assert not stored(it.world)


@served
async def test_a_workflow_can_have_many_open_activities_whose_inputs_and_results_are_below_the_limit(
    it: Served,
) -> None:
    await it.start()
    inputs = {f"a{number}": payload(15_000, number) for number in range(100)}
    commands = [with_input(activity(name, start_to_close_timeout=MINUTE), input_) for name, input_ in inputs.items()]
    await it.complete(await it.task(), *commands)
    (run,) = it.world.runs().values()
    assert len(orjson.dumps(run["status"])) < MAX_STATUS * 3 // 4
    assert 0 < len(first_parts(it.world)) < len(inputs), "the first ones stay in the status"
    handed = [await it.call("PollActivityTaskQueue") for _ in inputs]
    assert all(each.input == some(inputs[each.activity_id]) for each in handed)
    result = some(payload(15_000))
    await asyncio.gather(
        *(it.call("RespondActivityTaskCompleted", task_token=each.task_token, result=result) for each in handed)
    )
    await it.decide(complete(payload(10)))
    (run,) = it.world.runs().values()
    assert run["status"]["phase"] == "Completed"


@served
async def test_payloads_become_objects_when_the_status_is_full_unless_they_are_tiny(it: Served) -> None:
    await it.start()
    filling = [
        with_input(activity(f"a{number}", start_to_close_timeout=MINUTE), payload(16_000, number))
        for number in range(30)
    ]
    await it.complete(await it.task(), *filling)
    before = len(first_parts(it.world))
    await signal(it, payload(1))
    later = [
        with_input(activity(name, start_to_close_timeout=MINUTE), payload(size))
        for name, size in (("b", 2_000), ("c", 400))
    ]
    await it.complete(await it.task(), *later)
    assert len(first_parts(it.world)) == before + 1


@served
async def test_successors_and_children_own_the_payloads_passed_to_them(it: Served) -> None:
    await it.start(input=some(payload(20_000)))
    again = Command(command_type=CommandType.COMMAND_TYPE_CONTINUE_AS_NEW_WORKFLOW_EXECUTION)
    said = again.continue_as_new_workflow_execution_command_attributes
    said.workflow_type.name, said.task_queue.name = "Order", QUEUE
    said.input.CopyFrom(some(payload(30_000)))
    await it.decide(again)
    task = await it.task()
    child = Command(command_type=CommandType.COMMAND_TYPE_START_CHILD_WORKFLOW_EXECUTION)
    asked = child.start_child_workflow_execution_command_attributes
    asked.workflow_id, asked.workflow_type.name, asked.task_queue.name = "c", "Child", "children"
    asked.input.CopyFrom(some(payload(40_000)))
    await it.complete(task, child)
    children = TaskQueue(name="children")
    of_child = await it.call("PollWorkflowTaskQueue", queue=children)
    input_ = of_child.history.events[0].workflow_execution_started_event_attributes.input
    assert input_ == some(payload(40_000))
    await it.complete(of_child, complete(payload(50_000)))
    await it.decide()
    for run in list(it.world.runs()):  # the first run, and the child: the open run owns its payload, too
        if not it.world.run(run)["status"].get("completionTime"):
            continue
        it.world.delete("workflowruns", run)
    await asyncio.sleep(120)
    events = await it.history()
    assert events[0].workflow_execution_started_event_attributes.input == some(payload(30_000))
    ended = next(e for e in events if e.HasField("child_workflow_execution_completed_event_attributes"))
    assert ended.child_workflow_execution_completed_event_attributes.result == some(payload(50_000))
    assert len(first_parts(it.world)) == 3, "the input, the child's input and its result"


@served
async def test_new_heartbeat_details_replace_the_previous_ones(it: Served) -> None:
    await it.start()
    await it.decide(activity("a", start_to_close_timeout=MINUTE, heartbeat_timeout=MINUTE))
    handed = await it.call("PollActivityTaskQueue")
    for seed in range(3):
        token = handed.task_token
        await it.call("RecordActivityTaskHeartbeat", task_token=token, details=some(payload(30_000, seed)))
    assert len(first_parts(it.world)) == 1
    described = await it.call("DescribeWorkflowExecution", execution=WorkflowExecution(workflow_id="w"))
    assert described.pending_activities[0].heartbeat_details == some(payload(30_000, 2))
    await it.call(
        "RespondActivityTaskFailed",
        task_token=handed.task_token,
        last_heartbeat_details=some(payload(40_000)),
    )
    again = await it.call("PollActivityTaskQueue")
    assert again.heartbeat_details == some(payload(40_000))


@served
async def test_a_rejected_start_leaves_no_payload(it: Served) -> None:
    await it.start(input=some(payload(20_000)))
    before = set(stored(it.world))
    again: dict[str, Any] = {"workflow_id": "w", "workflow_type": WorkflowType(name="Order"), "request_id": "other"}
    with pytest.raises(RpcError):
        await it.call("StartWorkflowExecution", input=some(payload(30_000)), **again)
    assert set(stored(it.world)) == before


@served
async def test_a_deleted_payload_is_reported_as_an_error(it: Served) -> None:
    await it.start(input=some(payload(20_000)))
    (name,) = stored(it.world)
    it.world.delete("payloads", name)
    await it.operator.kill()
    it.world.operators.remove(it.operator)
    it.restart()
    await it.frontend.ready()
    with pytest.raises(RpcError, match=f"Payload `{name}` is missing"):
        await it.history()


class _Client:
    """A client and a worker that retry until their call has succeeded, while operators are killed."""

    def __init__(self, it: Served, random: Random) -> None:
        self.it = it
        self.random = random

    async def insist(self, do: Callable[[], Awaitable[Any]]) -> Any:
        while True:
            try:
                async with asyncio.timeout(60):  # a process that was killed does not answer
                    return await do()
            except (RpcError, kube.RequestError, TimeoutError):
                pass
            except asyncio.CancelledError:
                if asyncio.current_task().cancelling():  # type: ignore[union-attr]
                    raise
            await asyncio.sleep(self.random.uniform(0.1, 3))

    async def trouble(self, kills: int) -> None:
        for _ in range(kills):
            await asyncio.sleep(self.random.uniform(2, 40))
            await self.it.operator.kill()
            self.it.world.operators.remove(self.it.operator)
            await asyncio.sleep(self.random.uniform(0, 5))
            self.it.restart()


@pytest.mark.parametrize("kills", [0, 3])
@pytest.mark.parametrize("seed", range(6))
def test_no_fault_loses_or_leaks_a_payload(seed: int, kills: int) -> None:
    async def scenario(world: World) -> None:
        it = Served(world)
        random = Random(seed)
        client = _Client(it, random)
        trouble = asyncio.create_task(client.trouble(kills))
        await client.insist(lambda: it.start(input=some(payload(900_000))))
        payloads = [payload(random.choice([17_000, 40_000, 1_000_000]), number) for number in range(8)]
        for number, each in enumerate(payloads):
            await client.insist(lambda each=each, number=number: signal(it, each, f"signal-{number}"))  # type: ignore[misc]
            if random.random() < 0.5:
                await asyncio.sleep(random.uniform(0, 10))
        await trouble
        world.faults.rate = 0
        await asyncio.sleep(90)
        events = await all_events(it)
        assert events[0].workflow_execution_started_event_attributes.input == some(payload(900_000))
        assert signaled(events) == [each.data for each in payloads]
        used = set[str]()
        for run in world.runs().values():
            used |= referred_to(orjson.dumps(run)).keys()
        for segment in world.server.of("historysegments"):
            used |= referred_to(orjson.dumps(segment)).keys()
        assert used <= first_parts(world).keys()
        await client.insist(lambda: signal(it, payload(10), "last"))  # the next commit runs alone
        await asyncio.sleep(1_200)
        left = first_parts(world).keys() - used
        assert len(left) <= kills, "what a killed operator had stored and not committed goes with its run"
        for name in list(world.runs()):
            world.delete("workflowruns", name)
        await asyncio.sleep(1_200)
        assert not stored(world)

    result = simulate(scenario, Setting(seed=seed, faults=0.05, kills=0))
    assert not result.violations
