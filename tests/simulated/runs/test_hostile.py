"""Invalid objects, and objects with an invalid status: the operator reports each of them soon."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from perdure.controller.errors import NotYetError
from perdure.controller.runs.run import Run
from perdure.engine import inputs
from perdure.kube.events import Recorder
from perdure.simulation.cluster.store import Object, ObjectKey
from simulated.place import Place
from simulated.world import Setting, World, simulate
from support.managers import manager_over

STAY: Object = {"steps": [{"name": "stay", "waitForSignal": {"name": "go"}}]}
SECONDS = 20
"""Within which everything is answered; watches lag by up to three of them."""


def conditions(world: World, plural: str, name: str) -> list[tuple[str, str, str]]:
    found = (world.server.get(ObjectKey(plural, "default", name)).get("status") or {}).get("conditions") or ()
    return [(each["type"], each["status"], each["reason"]) for each in found]


def play(begin: Callable[[World], None], check: Callable[[World], None], seconds: float = SECONDS) -> None:
    """Run a simulation, and check its result."""

    async def scenario(world: World) -> None:
        world.begin()
        begin(world)
        await asyncio.sleep(seconds)
        check(world)

    assert simulate(scenario, Setting(seed=1, faults=0, kills=0)).violations == []


WAITS = {"startDelay": "10m", "startPaused": True}


@pytest.mark.parametrize(
    ("spec", "closed"),
    [
        ({"inline": {"steps": [{"name": "s", "set": {"v": "${nobody}"}}]}, **WAITS}, ("False", "InvalidWorkflow")),
        ({"inline": STAY, "workflowId": "one", **WAITS}, ("False", "WorkflowExecutionAlreadyStarted")),
        (
            {"inline": STAY, "workflowId": "one", "workflowIdConflictPolicy": "UseExisting", **WAITS},
            ("True", "WorkflowExecutionAlreadyStarted"),
        ),
    ],
    ids=["invalid", "workflow ID in use", "points to the open run"],
)
def test_a_rejected_run_does_not_wait_for_its_start(spec: Object, closed: tuple[str, str]) -> None:
    def begin(world: World) -> None:
        world.create("WorkflowRun", "first", {"inline": STAY, "workflowId": "one"})
        world.loop.call_later(5, world.create, "WorkflowRun", "second", spec)

    def check(world: World) -> None:
        assert world.run("first")["status"]["phase"] == "Running"
        assert conditions(world, "workflowruns", "second") == [("Succeeded", *closed)]

    play(begin, check)


@pytest.mark.parametrize("what", [{"to": "FirstWorkflowTask"}, {"to": "LastWorkflowTask"}, {"eventId": 1}])
def test_a_run_that_has_not_started_cannot_be_reset(what: Object) -> None:
    def begin(world: World) -> None:
        world.create("WorkflowRun", "run", {"workflow": {"name": "missing"}})
        world.loop.call_later(5, lambda: world.operate("reset", "run", reset=what))

    def check(world: World) -> None:
        assert conditions(world, "operations", "reset") == [("Failed", "True", "ResetPointNotFound")]

    play(begin, check)


def test_a_rejected_run_of_code_cannot_be_reset() -> None:
    def begin(world: World) -> None:
        code = {"workflow": {"type": "Order", "taskQueue": "orders"}, "searchAttributes": {"not a name": 1}}
        world.create("WorkflowRun", "run", code)
        world.loop.call_later(5, lambda: world.operate("reset", "run", reset={"to": "LastWorkflowTask"}))

    def check(world: World) -> None:
        assert conditions(world, "workflowruns", "run") == [("Succeeded", "False", "InvalidWorkflow")]
        assert conditions(world, "operations", "reset") == [("Failed", "True", "ResetPointNotFound")]

    play(begin, check)


ODD_TIMES = ["0000-01-01T00:00:00Z", "2027-01-01T00:00:00+24:00", "9999-12-31T23:00:00-14:00"]


@pytest.mark.parametrize("time", ODD_TIMES)
def test_an_operation_with_an_invalid_status_is_answered_and_blocks_no_others(time: str) -> None:
    def begin(world: World) -> None:
        world.create("WorkflowRun", "run", {"inline": STAY})
        for name in ("odd", "other"):
            world.operate(name, "run", signal={"name": "note"})
        world.edit("operations", "odd", lambda obj: obj.update(status={"completionTime": time}))

    def check(world: World) -> None:  # after the operator has reconciled all Operations
        for name in ("odd", "other"):
            assert conditions(world, "operations", name) == [("Complete", "True", "SignalNotAwaited")]

    play(begin, check, seconds=150)


@pytest.mark.parametrize("time", ODD_TIMES)
def test_a_closed_run_with_an_invalid_time_is_reported(time: str) -> None:
    def damage(obj: Object) -> None:
        obj["status"]["completionTime"] = time
        obj["status"]["conditions"].append(
            {"type": "Odd", "status": "True", "reason": "Odd", "lastTransitionTime": time}
        )

    def begin(world: World) -> None:
        world.create("WorkflowRun", "run", {"inline": {"steps": [{"name": "s", "set": {"v": 1}}]}})
        world.loop.call_later(10, world.edit, "workflowruns", "run", damage)

    def check(world: World) -> None:
        assert conditions(world, "workflowruns", "run") == [("Succeeded", "Unknown", "StateDamaged")]

    play(begin, check, seconds=60)


@pytest.mark.parametrize(
    "edit", [{"phase": "Running"}, {"output": 2}, {"history": {"events": []}}], ids=["phase", "output", "history"]
)
def test_an_edited_closed_run_is_reported_even_if_nothing_waits_for_it(edit: Object) -> None:
    def begin(world: World) -> None:
        world.create("WorkflowRun", "run", {"inline": {"steps": [{"name": "s", "set": {"v": 1}}]}})
        world.loop.call_later(10, world.edit, "workflowruns", "run", lambda obj: obj["status"].update(edit))

    def check(world: World) -> None:
        assert conditions(world, "workflowruns", "run") == [("Succeeded", "Unknown", "StateDamaged")]

    play(begin, check)


def test_deeply_nested_annotations_are_ignored() -> None:
    def begin(world: World) -> None:
        deep: dict[str, Any] = {
            f"perdure.dev/{name}": "[" * 20_000 + "]" * 20_000
            for name in ("continues", "parent", "reset", "scheduled-by", "start", "start-signal")
        }
        world.create("WorkflowRun", "run", {"inline": STAY}, annotations=deep)

    def check(world: World) -> None:
        assert conditions(world, "workflowruns", "run") == [("Succeeded", "Unknown", "Running")]

    play(begin, check)


class NoEventsError(Exception):
    """No Event can be recorded."""


class NoEvents(Recorder):
    """Records no Event."""

    def record(self, *_: Any, **__: Any) -> None:
        raise NoEventsError


def test_signals_are_recorded_once_when_events_cannot_be_written(place: Place) -> None:
    waits = {"steps": [{"name": f"wait{n}", "waitForSignal": {"name": "go"}} for n in range(5)]}
    obj = place.server.create("workflowruns", {"metadata": {"name": "hostile"}, "spec": {"inline": waits}})
    answers: list[inputs.Answer] = []

    async def reconcile() -> None:
        manager = manager_over(place.client)
        services = replace(manager.services, recorder=NoEvents(place.client, instance="test"))
        run = Run(services, manager.runs, obj, lambda: None)
        for n in range(-1, 5):
            if n >= 0:
                signal = inputs.SignalRequested(request_id=f"go{n}", signal_name="go", input=n)
                run.inbox.put(signal, answers.append)
            for _ in range(3):
                try:
                    await run.advance()
                except NotYetError as error:
                    compiled = error.awaited  # is kept while it is held
                    await asyncio.wait([compiled])
                except NoEventsError:
                    pass

    place.run(reconcile())
    status = place.server.get(ObjectKey("workflowruns", "default", "hostile"))["status"]
    assert status["phase"] == "Completed"
    history = [json.loads(event)["eventType"] for event in status["history"]["events"]]
    assert history.count("WorkflowExecutionSignaled") == 5
    assert [answer.ok for answer in answers] == [True] * 5
