"""Runs that mostly wait: for timers of minutes and hours, or for signals. They hibernate, and wake on time and for messages."""

import asyncio
from collections.abc import Iterator
from datetime import datetime, timedelta

from perdure.controller.dispatch.hibernation import HibernationSettings
from perdure.controller.runs.run import Run
from perdure.engine import history
from perdure.engine.events import TimerFired, TimerStarted
from perdure.simulation.cluster.kubelet import ContainerExit
from perdure.simulation.cluster.store import Object
from simulated.loop import START
from simulated.scenarios.definitions import activity, parent_of, step
from simulated.world import World

_RUNS = 5
_QUIET = 5
_UNCHANGED = 70
"""Longer than an operator keeps a run in memory that waits, in seconds."""
_LATE = 5.0
"""The most seconds by which a timer may be late while nothing fails. A watch lags by up to 3 seconds."""
_IN_FLIGHT = 15
"""For so long requests that were sent before may still fail, and be repeated, in seconds."""
SUBSCRIPTION: Object = {
    "activities": [activity("bill", retryPolicy={"exponential": {"initialInterval": "1s", "maximumInterval": "5s"}})],
    "steps": [
        step("first", "bill"),
        {"name": "month", "sleep": {"duration": "${input.period}"}},
        step("second", "bill"),
        {"name": "change", "waitForSignal": {"name": "change", "timeout": "12h"}},
        {"name": "again", "waitForSignal": {"name": "change", "timeout": "12h"}},
        {"name": "end", "sleep": {"duration": "15m"}},
    ],
    "output": "${[steps.change.output, steps.again.output]}",
}


async def hibernation(world: World) -> None:
    """Runs that wait for hours get signals, edits, and operators that die; in between, none of them is in memory."""
    random = world.random("hibernation")
    world.script = lambda _: ContainerExit(after=random.uniform(0.1, 4), code=random.random() < 0.1)
    world.hibernation = HibernationSettings(most=world.random("most in memory").choice([0, 2, 1_000]))
    world.begin()
    periods = [random.choice([600, 1_100, 1_600]) for _ in range(_RUNS)]
    for i, period in enumerate(periods):
        spec = {"inline": SUBSCRIPTION, "input": {"period": f"{period}s"}}
        world.loop.call_at(random.uniform(0, 60), world.create, "WorkflowRun", f"run{i}", spec)
    world.create("Workflow", "subscription", SUBSCRIPTION)
    family = {"inline": parent_of({"name": "subscription"}, {"period": "900s"}, "Terminate")}
    world.loop.call_at(random.uniform(0, 60), world.create, "WorkflowRun", "family", family)
    delayed = {"inline": {"steps": [{"name": "nap", "sleep": {"duration": "1s"}}]}, "startDelay": "15m"}
    world.loop.call_at(random.uniform(0, 60), world.create, "WorkflowRun", "delayed", delayed)
    for i in range(_QUIET):  # nothing but their timer, which may be due while no operator runs, wakes them
        spec = {"inline": {"steps": [{"name": "nap", "sleep": {"duration": f"{random.randint(1_000, 1_900)}s"}}]}}
        world.loop.call_at(random.uniform(0, 60), world.create, "WorkflowRun", f"quiet{i}", spec)
    for i in range(_RUNS):
        for n in range(2):
            when = random.uniform(65, 2_200)  # once the run exists
            world.loop.call_at(
                when, lambda i=i, n=n: world.operate(f"s{i}-{n}", f"run{i}", signal={"name": "change", "input": n})
            )
        world.loop.call_at(random.uniform(200, 1_500), world.edit, "workflowruns", f"run{i}", _label)
    await asyncio.sleep(5)
    await world.trouble(900)
    await world.calm(1_000)
    await _outage(world, random.uniform(200, 800))
    await world.calm(2_400)
    await _check_memory(world)
    world.operate("stop-family", "family", cancel={})
    world.faults.rate = 0
    reliable = world.loop.time() + _IN_FLIGHT
    await world.rest(limit=60_000)
    for i in range(_RUNS):
        status = world.run(f"run{i}")["status"]
        if status["phase"] != "Completed" or sorted(status["output"]) != [0, 1]:
            world.checker.fail(f"run{i} is {status['phase']} with {status.get('output')}")
    _check_timers(world, reliable)


async def _outage(world: World, seconds: float) -> None:
    """No operator runs for a while, in which timers are due."""
    world.stop_checking()
    victims = list(world.operators)
    for operator in victims:
        await operator.kill()
        world.operators.remove(operator)
    await asyncio.sleep(seconds)
    for _ in victims:
        world.start()


def _label(run: Object) -> None:
    run["metadata"].setdefault("labels", {})["edited"] = "yes"


async def _check_memory(world: World) -> None:
    """Nobody keeps a run in memory that waits for more than some minutes. Who has lost its Lease may have read it moments ago."""
    before = [run for _, run in _awake(world)]
    await asyncio.sleep(_UNCHANGED)
    for name, run in _awake(world):
        if any(run is each for each in before):
            world.checker.fail(f"{name} has {run.ref.name} in memory, which waits")


def _awake(world: World) -> Iterator[tuple[str, Run]]:
    """The runs in memory whose next timer is due in more than some minutes, with their operators."""
    soon = START + timedelta(seconds=world.loop.time() + 500)
    for operator in world.operators:
        for run in operator.manager.runs.all():
            state = run.state
            waits = state is not None and state.timers and not (state.activities or state.children)
            if waits and all(timer.fire_time > soon for timer in state.timers.values()):
                yield operator.name, run


def _check_timers(world: World, reliable: float) -> None:
    """The timers that were due since no request fails fired on time."""
    since = START + timedelta(seconds=reliable)
    for name, run in world.runs().items():
        due: dict[str, datetime] = {}
        for event in history.decode_events(world.checker.history(run)):
            if isinstance(event, TimerStarted):
                due[event.timer_id] = event.event_time + event.start_to_fire_timeout
            elif isinstance(event, TimerFired) and due[event.timer_id] > since:
                late = (event.event_time - due[event.timer_id]).total_seconds()
                if late > _LATE:
                    world.checker.fail(f"{name}: timer {event.timer_id} fired {late:.1f} s late")
