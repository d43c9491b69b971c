"""At most one run of a workflow ID is open, although members of a fleet learn about new runs at different times.

The checker judges that at every write ("is open while another run of workflow ID ... is").
"""

import asyncio
from collections.abc import Callable

import pytest

from perdure.controller.directory import Standing
from perdure.controller.fleet.shards import shard_of
from perdure.simulation.cluster.apiserver import Request
from perdure.simulation.cluster.store import Object
from simulated.fleet.members import calm, is_covered, is_divided, until
from simulated.sdk.frontends import Frontends, start
from simulated.sdk.wires import Wires
from simulated.world import World, simulate
from support.faulty.operators import FaultyOperator

_NAP = {"steps": [{"name": "nap", "sleep": {"duration": "300s"}}]}


def _owned(by: FaultyOperator, prefix: str) -> str:
    """A workflow ID whose shard an operator owns."""
    return next(f"{prefix}{n}" for n in range(1_000) if shard_of("default", f"{prefix}{n}") in by.shards)


def _after(seconds: int, **step: Object) -> Object:
    """The spec of a run that executes a step after a while."""
    return {"inline": {"steps": [{"name": "wait", "sleep": {"duration": f"{seconds}s"}}, {"name": "then", **step}]}}


def _nap(workflow_id: str) -> Object:
    return {"workflow": {"name": "nap"}, "workflowId": workflow_id}


def _phases(world: World, workflow_id: str) -> list[str]:
    runs = (run for run in world.runs().values() if run["spec"].get("workflowId") == workflow_id)
    return sorted(run.get("status", {}).get("phase", "") for run in runs)


def _is_open(world: World, run_id: str) -> bool:
    found = (run for run in world.runs().values() if run["metadata"]["uid"] == run_id)
    return any(run.get("status", {}).get("phase") == "Running" for run in found)


async def _begin(world: World) -> Frontends:
    """Start operators that serve clients, and a Workflow."""
    world.frontends = frontends = Frontends(world.loop, Wires(world.random("wires"), world.faults), world.checker.fail)
    world.begin()
    await until(lambda: is_divided(world))
    world.create("Workflow", "nap", _NAP)
    for operator in world.operators:
        world.create(
            "WorkflowRun", _owned(operator, "early"), {"inline": _NAP}
        )  # it has caught up when this has started
    return frontends


async def _take_over(world: World, lost: FaultyOperator) -> None:
    world.operators.remove(lost)
    await lost.kill()
    await until(lambda: is_covered(world))


def _by_kubectl(world: World, _: FaultyOperator, workflow_id: str) -> Callable[[], None]:
    def create() -> None:
        world.create("WorkflowRun", "unseen", _nap(workflow_id))

    return create


def _by_a_parent(world: World, second: FaultyOperator, workflow_id: str) -> Callable[[], None]:
    world.create("WorkflowRun", _owned(second, "parent"), _after(30, childWorkflow=_nap(workflow_id)))
    return lambda: None


def _by_a_reset(world: World, _: FaultyOperator, workflow_id: str) -> Callable[[], None]:
    steps = [{"name": "nap", "sleep": {"duration": "1s"}}]
    world.create("WorkflowRun", "old", {"workflowId": workflow_id, "inline": {"steps": steps}})
    return lambda: world.operate("reset", "old", reset={"to": "FirstWorkflowTask", "reason": "again"})


def _has_waiting(operator: FaultyOperator, workflow_id: str) -> bool:
    """Whether an operator knows a waiting run of a workflow ID."""
    known = operator.manager.directory.runs_of("default", workflow_id)
    return any(entry.standing is Standing.WAITING for entry in known)


@pytest.mark.parametrize(
    ("plan", "phases"),
    [
        (_by_kubectl, ["Failed", "Running"]),
        (_by_a_parent, ["Failed", "Running"]),
        (_by_a_reset, ["Completed", "Completed", "Terminated"]),
    ],
)
@pytest.mark.parametrize("seed", range(2))
def test_a_new_owner_starts_no_run_that_the_previous_owner_had_not_seen(
    seed: int, plan: Callable[[World, FaultyOperator, str], Callable[[], None]], phases: list[str]
) -> None:
    """The previous owner has opened a later run of a client. The watch of the new owner has not shown that one."""

    async def scenario(world: World) -> None:
        frontends = await _begin(world)
        first, second = world.operators
        workflow_id = _owned(first, "w")
        create = plan(world, second, workflow_id)
        await asyncio.sleep(20)
        first.interrupt(200, "workflowruns")
        create()
        await until(lambda: _has_waiting(second, workflow_id))
        second.interrupt(200, "workflowruns")
        started = await frontends.call(first, "StartWorkflowExecution", start(workflow_id, "one"), 20)
        await until(lambda: _is_open(world, started.run_id))
        assert _is_open(world, started.run_id)
        await _take_over(world, first)
        await until(lambda: _phases(world, workflow_id) == phases)
        assert _phases(world, workflow_id) == phases

    assert simulate(scenario, calm(seed, 2)).violations == []


@pytest.mark.parametrize("seed", range(2))
def test_a_member_that_sends_a_signal_leaves_the_start_of_the_run_to_its_owner(seed: int) -> None:
    """The owner does not know the run yet, and opens another one."""

    async def scenario(world: World) -> None:
        frontends = await _begin(world)
        first, second = world.operators
        workflow_id, sender = _owned(first, "w"), _owned(second, "sender")
        world.create("WorkflowRun", sender, _after(30, signal={"workflowId": workflow_id, "name": "go"}))
        await asyncio.sleep(20)
        first.interrupt(60, "workflowruns")
        unseen = world.create("WorkflowRun", "unseen", _nap(workflow_id))["metadata"]["uid"]
        await until(lambda: second.manager.runs.fleet.is_guest(unseen))
        await asyncio.sleep(5)
        started = await frontends.call(first, "StartWorkflowExecution", start(workflow_id, "one"), 20)
        await until(lambda: _phases(world, workflow_id) == ["Failed", "Running"])
        assert _is_open(world, started.run_id)
        assert _phases(world, workflow_id) == ["Failed", "Running"]
        assert world.run("unseen")["status"]["phase"] == "Failed"
        await until(lambda: world.run(sender)["status"]["phase"] != "Running")
        assert world.run(sender)["status"]["phase"] != "Running"

    assert simulate(scenario, calm(seed, 2)).violations == []


def test_a_member_that_sends_a_signal_delivers_it_after_the_owner_has_started_the_run() -> None:
    async def scenario(world: World) -> None:
        world.begin()
        await until(lambda: is_divided(world))
        first, second = world.operators
        receiver, sender = _owned(first, "receiver"), _owned(second, "sender")
        signal = {"workflowId": receiver, "name": "go", "input": "hello"}
        world.create("WorkflowRun", sender, _after(20, signal=signal))
        await asyncio.sleep(10)
        first.interrupt(40, "workflowruns")
        steps = [{"name": "wait", "waitForSignal": {"name": "go"}}]
        world.create("WorkflowRun", receiver, {"inline": {"steps": steps, "output": "${steps.wait.output}"}})
        await asyncio.sleep(20)
        assert not world.run(receiver).get("status", {}).get("state")
        await world.rest()
        assert world.run(receiver)["status"]["output"] == "hello"
        assert world.run(sender)["status"]["phase"] == "Completed"

    assert simulate(scenario, calm(1, 2)).violations == []


def test_many_starts_after_a_take_over_cause_one_list() -> None:
    lists: list[str] = []

    async def scenario(world: World) -> None:
        world.begin()
        await until(lambda: is_divided(world))

        def record(request: Request) -> None:
            is_list = request.method == "GET" and request.url.endswith("/namespaces/default/workflowruns")
            if is_list and "continue" not in request.query:
                lists.append(request.actor)

        world.server.interceptors.append(record)

        async def start(prefix: str) -> None:
            lists.clear()
            for number in range(20):
                world.create("WorkflowRun", f"{prefix}-{number}", {"inline": _NAP})
            await until(lambda: all(run.get("status", {}).get("phase") == "Running" for run in world.runs().values()))

        await start("one")
        assert len(lists) == 2  # each member has gained its shards when it joined
        await _take_over(world, world.operators[0])
        await start("two")
        assert len(lists) == 1
        await start("three")
        assert lists == []
        await world.rest()

    assert simulate(scenario, calm(1, 2)).violations == []
