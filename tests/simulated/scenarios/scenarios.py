"""The scenarios of simulations: each fills a world, and checks its own expectations at the end."""

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from random import Random
from typing import Any

from perdure.api import labels
from perdure.engine import events as ev
from perdure.engine import history
from perdure.runtime.chains import is_open
from perdure.runtime.retention import Limits
from perdure.simulation.cluster.kubelet import ContainerExit
from perdure.simulation.cluster.patches import copy
from perdure.simulation.cluster.store import Object, Write
from simulated.loop import START
from simulated.scenarios.archive import archive
from simulated.scenarios.artifacts import artifacts
from simulated.scenarios.caching import caching
from simulated.scenarios.container_groups import container_groups
from simulated.scenarios.defaults import defaults
from simulated.scenarios.definitions import (
    CHILD,
    DEEP,
    DOOMED,
    FLOW,
    LOOP,
    MANY,
    PARENT,
    SAGA,
    SLOW,
    activity,
    parent_of,
    step,
)
from simulated.scenarios.hibernation import hibernation
from simulated.scenarios.libraries import libraries
from simulated.scenarios.limits import (
    activity_limits,
    attempt_rates,
    limits,
    newest_wins,
    selecting_limits,
    step_limits,
    together,
)
from simulated.scenarios.neighbors import neighbors
from simulated.scenarios.replacements import replacements
from simulated.scenarios.retention import retention
from simulated.scenarios.revisions import revisions
from simulated.scenarios.services import services
from simulated.scenarios.upgrades import upgrades
from simulated.scenarios.workspaces import workspaces
from simulated.sdk.limits import limited_code
from simulated.sdk.scenario import code, crowd
from simulated.world import Scenario, World


def _with_breaker() -> Object:
    steps = [step("x", "guarded"), step("y", "guarded")]
    return {"activities": [activity("guarded", retryPolicy={"name": "breaker"})], "steps": steps}


def _schedule(every: str, **more: Any) -> Object:
    template = {"spec": {"workflow": {"name": "child"}}}
    return {"intervals": [{"every": every}], "catchupWindow": "10m", "workflowRunTemplate": template, **more}


class _Plan:
    """Schedules events at times that the seed chooses."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.random = world.random("plan")

    def at(self, earliest: float, latest: float, do: Callable[..., Any], *args: Any, **named: Any) -> None:
        self.world.loop.call_at(self.random.uniform(earliest, latest), lambda: do(*args, **named))

    def run(self, earliest: float, latest: float, name: str, spec: Object) -> None:
        self.at(earliest, latest, self.world.create, "WorkflowRun", name, copy(spec))

    def operate(self, earliest: float, latest: float, name: str, run: str, **what: Any) -> None:
        self.at(earliest, latest, self.world.operate, name, run, **what)


def _failing(random: Random, share: float, activity: str) -> Callable[[Object], ContainerExit]:
    """Pods of one activity fail now and then; all take a while."""

    def script(pod: Object) -> ContainerExit:
        after = random.uniform(0.1, 8)
        if pod["metadata"]["labels"]["perdure.dev/activity"] == activity and random.random() < share:
            return ContainerExit(after=after, code=1, message='{"type": "Flaky", "message": "no"}')
        return ContainerExit(after=after)

    return script


async def flows(world: World) -> None:
    """Runs with retries, timers, a fan-out, heartbeats and signals, while operators die."""
    world.begin()
    plan = _Plan(world)
    world.script = _failing(world.random("script"), 0.25, "flaky")
    for i in range(6):
        plan.run(0, 3, f"flow{i}", {"inline": FLOW})
        plan.operate(8, 60, f"go{i}", f"flow{i}", signal={"name": "go", "input": {"i": i}})
    await asyncio.sleep(5)
    await world.trouble(60)
    await world.rest()
    for i in range(6):
        run = world.run(f"flow{i}")
        history = [event["eventType"] for event in world.checker.history(run)]
        status = run["status"]
        if (status["phase"], status.get("output")) != ("Completed", {"i": i}):
            world.checker.fail(f"flow{i} is {status['phase']} with {status.get('output')}")
        counts = history.count("ActivityTaskCompleted"), history.count("WorkflowExecutionSignaled")
        if counts != (7, 1):
            world.checker.fail(f"flow{i}: (activities, signals) are {counts}")


async def sagas(world: World) -> None:
    """Runs that compensate their steps, one item of a loop after the other, while they receive signals."""
    world.begin()
    plan = _Plan(world)
    world.script = _failing(world.random("script"), 1.0, "doomed")
    for i in range(3):
        plan.run(0, 3, f"saga{i}", {"inline": SAGA})
        for n in range(20):
            plan.operate(8, 60, f"notify{i}-{n}", f"saga{i}", signal={"name": "news", "input": n})
    await asyncio.sleep(5)
    await world.trouble(60)
    await world.rest()
    for i in range(3):
        history = [event["eventType"] for event in world.checker.history(world.run(f"saga{i}"))]
        counts = history.count("ActivityTaskCompleted"), history.count("ActivityTaskFailed")
        if counts != (10, 1):
            world.checker.fail(f"saga{i}: (completed, failed) are {counts}")
        reported = [obj for obj in world.server.of("operations") if obj["metadata"]["name"].startswith(f"notify{i}-")]
        taken = [obj for obj in reported if obj["status"]["phase"] == "Complete"]
        late = [obj for obj in reported if obj["status"]["conditions"][0]["reason"] == "WorkflowExecutionCompleted"]
        if history.count("WorkflowExecutionSignaled") != len(taken) or len(taken) + len(late) != len(reported):
            world.checker.fail(
                f"saga{i}: of {len(reported)} signals {len(taken)} were taken, {len(late)} came too late"
            )


async def mixed(world: World) -> None:
    """Parents and children, continue-as-new, four runs of one workflow ID, cancel, terminate, pause, a schedule, lost pods."""
    world.begin()
    plan, checker = _Plan(world), world.checker
    world.script = _failing(world.random("script"), 0.2, "flaky")
    world.create("Workflow", "child", CHILD)
    world.create("Workflow", "loop", LOOP)
    for i in range(3):
        plan.run(0, 10, f"parent{i}", {"inline": PARENT})
        plan.run(0, 4, f"asked{i}", {"inline": FLOW})
    plan.run(0, 5, "chain", {"workflow": {"name": "loop"}, "input": {"n": 3}})
    for i in range(4):
        plan.run(3, 3.5, f"same{i}", {"workflowId": "same", "inline": FLOW})
        plan.operate(20, 60, f"same{i}-go", f"same{i}", signal={"name": "go", "input": {"i": i}})
    plan.operate(10, 40, "cancel", "asked0", cancel={})
    plan.operate(10, 40, "terminate", "asked1", terminate={})
    plan.operate(5, 20, "pause", "asked2", pause={})
    plan.operate(40, 70, "unpause", "asked2", unpause={})
    plan.operate(15, 60, "asked2-go", "asked2", signal={"name": "go", "input": {}})
    for _ in range(3):
        plan.at(5, 60, _lose_pod, world, plan.random)
    world.create("Schedule", "every", _schedule("10s", overlapPolicy="AllowAll", successfulRunsHistoryLimit=100))
    await world.trouble(100)
    await world.calm(125)
    await _wait_for_starts(world)
    world.edit("schedules", "every", lambda obj: obj["spec"].update(paused=True))
    await world.rest()
    runs = world.runs()
    for i in range(3):
        status = runs[f"parent{i}"]["status"]
        if status["phase"] == "Completed" and status.get("output") != "donedone":
            checker.fail(f"parent{i} is Completed with {status.get('output')}")
        elif status["phase"] not in {"Completed", "Failed"}:
            checker.fail(f"parent{i} is {status['phase']}")
    chain = sorted(run["status"]["phase"] for name, run in runs.items() if name.startswith("chain"))
    if chain != ["Completed", *["ContinuedAsNew"] * 3]:
        checker.fail(f"the chain is {chain}")
    same = sorted(runs[f"same{i}"]["status"]["phase"] for i in range(4))
    if same not in (["Completed", "Failed", "Failed", "Failed"], ["Failed"] * 4):
        checker.fail(f"runs of one workflow ID are {same}")


async def mixed_with_code(world: World) -> None:
    """The scenario `mixed`, next to the workers and clients of the scenario `code`."""
    async with crowd(world):
        await mixed(world)


def _lose_pod(world: World, random: Random) -> None:
    live = sorted(
        key
        for key, obj in world.server.objects.items()
        if key.plural == "pods" and "deletionTimestamp" not in obj["metadata"]
    )
    if live:
        world.delete("pods", random.choice(live).name)


async def rough(world: World) -> None:
    """Resets, deleted runs, TerminateExisting, closed parents of open children, long histories, a breaker, overlap policies."""
    world.begin()
    plan, checker = _Plan(world), world.checker
    random = world.random("script")
    flaky, guarded = _failing(random, 0.3, "flaky"), _failing(random, 0.3, "guarded")
    world.script = lambda pod: (
        guarded(pod) if pod["metadata"]["labels"]["perdure.dev/activity"] == "guarded" else flaky(pod)
    )
    for name, spec in (("child", CHILD), ("slow", SLOW)):
        world.create("Workflow", name, spec)
    breaker = {"failureThreshold": 2, "openDuration": "10s", "successThreshold": 1}
    retries = {"initialInterval": "1s", "maximumInterval": "4s", "maximumAttempts": 12}
    world.create("RetryPolicy", "breaker", {"exponential": retries, "circuitBreaker": breaker})
    items = "${" + str(list(range(75))) + "}"
    fan = {"name": "fan", "forEach": {"items": items, "maxConcurrency": 25, "as": "x"}}
    long = {"activities": [activity("steady")], "steps": [fan | {"activity": {"name": "steady", "input": "${x}"}}]}
    plan.run(0, 5, "long", {"inline": {**long, "output": "${'done'}"}})
    for i in range(3):
        plan.run(0, 5, f"guarded{i}", {"inline": _with_breaker()})
        taking = {"workflowIdConflictPolicy": "TerminateExisting", "workflowIdReusePolicy": "AllowDuplicate"}
        plan.run(2, 40, f"taking{i}", {"workflowId": "taking", **taking, "inline": FLOW})
        plan.operate(60, 90, f"taking{i}-go", f"taking{i}", signal={"name": "go", "input": {}})
    for policy in ("Terminate", "RequestCancel", "Abandon"):
        name = f"closing-{policy.lower()}"
        plan.run(0, 5, name, {"inline": parent_of({"name": "slow"}, {}, policy)})
        plan.operate(15, 60, f"end-{name}", name, terminate={})
    plan.run(0, 3, "reset", {"inline": FLOW})
    plan.operate(25, 70, "reset-it", "reset", reset={"to": "FirstWorkflowTask", "reason": "again"})
    for i in range(3):
        plan.run(0, 3, f"gone{i}", {"inline": FLOW})
        plan.at(3, 40, world.delete, "workflowruns", f"gone{i}")
    for name, policy in (("buffer", "BufferOne"), ("cancel", "CancelOther"), ("skip", "Skip")):
        world.create("Schedule", name, _schedule("15s", overlapPolicy=policy))
    await world.trouble(110)
    await world.calm(150)
    for name in ("buffer", "cancel", "skip"):
        world.edit("schedules", name, lambda obj: obj["spec"].update(paused=True))
    await world.rest()
    runs = world.runs()
    if (runs["long"]["status"]["phase"], runs["long"]["status"].get("output")) != ("Completed", "done"):
        checker.fail(f"long is {runs['long']['status']['phase']}")
    for policy, ends in (("terminate", {"Terminated"}), ("requestcancel", {"Cancelled"}), ("abandon", {"Completed"})):
        _check_children(world, f"closing-{policy}", ends)


_CLOSING = timedelta(seconds=30)
"""How long the end of a parent may take to reach its children: messages between operators are lost, and sent again."""


def _check_children(world: World, parent: str, ends: set[str]) -> None:
    """A child of a terminated parent ends according to its policy, if it was created and does not end by itself before."""
    runs = world.runs()
    closed = datetime.fromisoformat(runs[parent]["status"]["completionTime"])
    for name, run in runs.items():
        if not name.startswith(f"{parent}-"):
            continue
        phase, end = run["status"]["phase"], datetime.fromisoformat(run["status"]["completionTime"])
        if phase not in ends and not (phase == "Completed" and end < closed + _CLOSING):
            world.checker.fail(f"child {name} of {parent} is {phase}, and ended {end - closed} after it")


async def deletion(world: World) -> None:
    """Runs are deleted at any time, with requests in flight; some names are reused."""
    world.begin()
    plan, checker = _Plan(world), world.checker
    world.script = _failing(world.random("script"), 0.25, "flaky")
    world.create("Workflow", "child", CHILD)
    for i in range(16):
        name = f"gone{i}"
        plan.run(0, 20, name, {"inline": PARENT if i % 4 == 0 else FLOW})
        for what in ({"signal": {"name": "go", "input": {}}}, {"cancel": {}}):
            plan.operate(15, 60, f"{name}-{next(iter(what))}", name, **what)
        plan.at(5, 55, _delete_when_busy, world, name, plan.random)
        if i % 2:
            checker.named_again.add(name)
            plan.run(88, 95, name, {"inline": PARENT})
    await world.trouble(60)
    await world.calm(100)
    await world.rest()


def _delete_when_busy(world: World, name: str, random: Random) -> None:
    """Delete a run soon after one of its pods has ended, when an operator is likely to write it; in any case within 30 s."""
    pending = [0.0]

    def delete() -> None:
        if pending:
            pending.clear()
            world.server.observers.remove(observe)
            world.delete("workflowruns", name)

    def observe(write: Write) -> None:
        ended = write.key.plural == "pods" and write.after.get("status", {}).get("phase") == "Succeeded"
        if ended and write.actor == "kubelet" and write.key.name.startswith(f"{name}-"):
            world.loop.call_later(random.choice([random.uniform(0, 0.06), random.uniform(0, 2)]), delete)

    world.server.observers.append(observe)
    world.loop.call_later(30, delete)


async def removal(world: World) -> None:
    """Times to live and history limits, changed at the last moment: runs, Operations and scheduled runs are removed in time."""
    world.begin()
    plan, checker = _Plan(world), world.checker
    world.script = _failing(world.random("script"), 0.5, "flaky")
    world.create("Workflow", "child", CHILD)
    flaky = {"activities": [activity("flaky", retryPolicy={"exponential": {"maximumAttempts": 1}})]}
    world.create("Workflow", "flaky", {**flaky, "steps": [step("work", "flaky")]})
    kept = 10_000
    for i in range(8):
        plan.run(0, 5, f"short{i}", {"workflow": {"name": "child"}, "ttlSecondsAfterFinished": 20})
        plan.at(15, 45, world.edit, "workflowruns", f"short{i}", _retained_for(plan.random.choice([0, 20, kept])))
        plan.run(0, 60, f"now{i}", {"inline": PARENT, "ttlSecondsAfterFinished": 0})
    for i in range(3):
        plan.operate(5, 20, f"ask{i}", f"short{i}", signal={"name": "go", "input": {}}, ttlSecondsAfterFinished=10)
        plan.at(15, 40, world.edit, "operations", f"ask{i}", _retained_for(plan.random.choice([10, kept])))
    limits = {"successfulRunsHistoryLimit": 1, "failedRunsHistoryLimit": 1}
    template = {"spec": {"workflow": {"name": "flaky"}, "ttlSecondsAfterFinished": 0}}
    for name in ("few", "raised"):
        spec = _schedule("10s", overlapPolicy="AllowAll", **limits)
        world.create("Schedule", name, {**spec, "workflowRunTemplate": template})
    more = {"successfulRunsHistoryLimit": 50, "failedRunsHistoryLimit": 50}
    plan.at(30, 80, world.edit, "schedules", "raised", lambda obj: obj["spec"].update(more))
    await world.trouble(90)
    await world.calm(125)
    for name in ("few", "raised"):
        world.edit("schedules", name, lambda obj: obj["spec"].update(paused=True))
    await world.rest()
    for name, run in world.runs().items():
        if name.startswith(("short", "now")) and run["spec"]["ttlSecondsAfterFinished"] < kept:
            checker.fail(f"run {name} is not removed")
    phases = [run["status"]["phase"] for name, run in world.runs().items() if name.startswith("few-")]
    if any(phases.count(phase) > 1 for phase in ("Completed", "Failed")):
        checker.fail(f"the schedule keeps {phases}")


async def families(world: World) -> None:
    """Parents that are ended or reset while their children fail, continue as new or are retried; deep ones."""
    world.begin()
    plan = _Plan(world)
    world.script = _failing(world.random("script"), 0.25, "flaky")
    for name, spec in (("child", CHILD), ("loop", LOOP), ("slow", SLOW)):
        world.create("Workflow", name, spec)
    for i, policy in enumerate(("Terminate", "RequestCancel", "Abandon")):
        name = f"ending-{policy.lower()}"
        plan.run(0, 5, name, {"inline": parent_of({"name": "loop"}, {"n": 12}, policy)})
        plan.operate(15, 70, f"end-{name}", name, **({"cancel": {}} if i == 1 else {"terminate": {}}))
        name = f"reset-{policy.lower()}"
        plan.run(0, 5, name, {"inline": parent_of({"name": "loop"}, {"n": 8}, policy)})
        plan.operate(15, 70, f"redo-{name}", name, reset={"to": "LastWorkflowTask", "reason": "again"})
    for i in range(3):
        plan.run(0, 5, f"deep{i}", {"workflow": {"name": "deep"}, "input": {"n": 4}})
        plan.run(0, 5, f"many{i}", {"inline": MANY})
    plan.operate(10, 60, "end-deep1", "deep1", terminate={})
    plan.operate(10, 60, "end-many1", "many1", cancel={})
    world.create("Workflow", "deep", DEEP)
    await world.trouble(110)
    await world.calm(150)
    await world.rest()
    runs = world.runs()
    for name in ("deep0", "deep2", "many0", "many2"):
        if runs[name]["status"]["phase"] != "Completed":
            world.checker.fail(f"{name} is {runs[name]['status']['phase']}: {runs[name]['status'].get('failure')}")
    for policy, ends in (("terminate", {"Terminated"}), ("requestcancel", {"Cancelled"}), ("abandon", {"Completed"})):
        _check_children(world, f"ending-{policy}", ends | {"ContinuedAsNew"})


async def bounded(world: World) -> None:
    """A namespace with more finished runs than it may keep, impatient users, and re-driven DeadLetters."""
    world.limits = Limits(runs=10)
    world.begin()
    plan, checker = _Plan(world), world.checker
    random = world.random("script")
    again, failing = _failing(random, 0.5, "doomed"), _failing(random, 1, "doomed")
    world.script = lambda pod: (
        again(pod) if "-redrive-" in pod["metadata"]["annotations"]["perdure.dev/run"] else failing(pod)
    )
    for name, spec in (("child", CHILD), ("loop", LOOP), ("doomed", DOOMED)):
        world.create("Workflow", name, spec)
    for i in range(12):
        plan.run(0, 90, f"small{i}", {"workflow": {"name": "child"}})
        plan.run(0, 60, f"parent{i}", {"inline": PARENT})
    for i in range(4):
        plan.run(0, 20, f"doomed{i}", {"workflow": {"name": "doomed"}})
        plan.run(0, 30, f"loop{i}", {"workflow": {"name": "loop"}, "input": {"n": 4}})
        plan.at(30, 100, _redrive_all, world, f"redrive{i}")
    world.create("Schedule", "often", _schedule("10s", overlapPolicy="AllowAll", successfulRunsHistoryLimit=100))
    _be_impatient(world)
    await world.trouble(110)
    await world.calm(150)
    world.edit("schedules", "often", lambda obj: obj["spec"].update(paused=True))
    await world.rest()
    finished = len(world.runs())
    if finished > world.limits.runs:
        checker.fail(f"{finished} finished runs are left; the limit is {world.limits.runs}")
    for letter in world.server.of("deadletters"):
        conditions = (letter.get("status") or {}).get("conditions") or ()
        if any(each["reason"] in {"RedriveRunning", "RedriveDeleted"} for each in conditions):
            checker.fail(f"DeadLetter {letter['metadata']['name']}: {conditions}")


async def cron(world: World) -> None:
    """A chain of runs by a cron schedule. Each one times out, as no worker polls, until the execution timeout ends the chain."""
    world.begin()
    spec = {"workflow": {"type": "Order", "taskQueue": "orders"}, "runTimeout": "20s", "executionTimeout": "10m"}
    world.create("WorkflowRun", "cron", spec, annotations={labels.START_ANNOTATION: '{"cronSchedule": "* * * * *"}'})
    world.server.observers.append(lambda _: _check_that_one_is_open(world))
    await world.trouble(300)
    await world.calm(420)
    await world.rest()
    histories = [history.decode_events(world.checker.history(run)) for run in world.runs().values()]
    histories.sort(key=lambda events: events[0].event_time)
    if len(histories) < 3:
        world.checker.fail(f"the cron schedule has made {len(histories)} runs")
    ended = None
    for number, events in enumerate(histories):
        first, last = events[0], events[-1]
        if not isinstance(first, ev.WorkflowExecutionStarted) or not isinstance(last, ev.WorkflowExecutionTimedOut):
            world.checker.fail(f"run {number} of the cron schedule ends with {type(last).__name__}")
            continue
        since = ended or first.event_time
        due = since.replace(second=0, microsecond=0) + timedelta(minutes=1)
        begins = first.event_time + (first.first_workflow_task_backoff or timedelta(0))
        if not timedelta(0) <= begins - max(due, first.event_time) < timedelta(seconds=1):
            world.checker.fail(f"run {number} of the cron schedule begins at {begins}, and is due at {due}")
        if bool(last.new_workflow_run) != (number < len(histories) - 1):
            world.checker.fail(f"run {number} of {len(histories)} of the cron schedule: {last}")
        ended = last.event_time


def _check_that_one_is_open(world: World) -> None:
    found = [name for name, run in world.runs().items() if is_open(run.get("status") or {})]
    if len(found) > 1:
        world.checker.fail(f"runs of one cron schedule are open at once: {found}")


async def standalone(world: World) -> None:
    """Standalone activities that no worker does. They share their ID with each other and with a workflow."""
    plan = _Plan(world)
    world.begin()
    activity = {"type": "Charge", "taskQueue": "q", "scheduleToStartTimeout": "40s", "startToCloseTimeout": "1m"}
    for i in range(8):
        policy = plan.random.choice(["Fail", "UseExisting", "TerminateExisting"])
        spec = {"activity": activity, "workflowId": "same", "workflowIdConflictPolicy": policy}
        plan.run(0, 150, f"same{i}", spec)
        plan.operate(0, 200, f"cancel{i}", f"same{plan.random.randrange(8)}", cancel={})
        delayed = {"activity": activity, "startDelay": f"{plan.random.randrange(60)}s"}
        plan.run(0, 60, f"own{i}", delayed)
        plan.operate(0, 120, f"pause{i}", f"own{i}", pause={})
        plan.operate(120, 200, f"unpause{i}", f"own{i}", unpause={})
    flow = {"workflow": {"type": "Order", "taskQueue": "q"}, "workflowId": "same", "runTimeout": "60s"}
    plan.run(0, 100, "flow", flow)
    await world.trouble(210)
    await world.calm(300)
    await world.rest()
    ends = {name: run["status"]["phase"] for name, run in world.runs().items()}
    if ends.pop("flow", None) != "TimedOut":
        world.checker.fail("the workflow did not run alongside the activities with its ID")
    if set(ends.values()) - {"TimedOut", "Cancelled", "Terminated", "Failed", "Completed"}:
        world.checker.fail(f"activities have ended as {ends}")
    if {phase for name, phase in ends.items() if name.startswith("own")} != {"TimedOut"}:
        world.checker.fail(f"activities that nobody does have ended as {ends}")
    for name in ends:
        _check_timeout_of_activity(world, name)


def _check_timeout_of_activity(world: World, name: str) -> None:
    """Check that an activity did not time out early."""
    events = history.decode_events(world.checker.history(world.runs()[name]))
    scheduled, last = events[min(1, len(events) - 1)], events[-1]
    if isinstance(last, ev.WorkflowExecutionTimedOut) and isinstance(scheduled, ev.ActivityTaskScheduled):
        due = scheduled.event_time + (scheduled.start_delay or timedelta(0)) + timedelta(seconds=40)
        if last.event_time < due:
            world.checker.fail(f"{name} timed out at {last.event_time}, and had time until {due}")


def _be_impatient(world: World) -> None:
    """Have half of all children and re-drives removed as soon as they have closed."""
    random = world.random("impatient")

    def observe(write: Write) -> None:
        owned = {"perdure.dev/parent-run-id", "perdure.dev/dead-letter-id"} & {
            *write.after["metadata"].get("labels", ())
        }
        if write.key.plural == "workflowruns" and write.type == "ADDED" and owned and random.random() < 0.5:
            when, name = random.uniform(0, 5), write.key.name
            world.loop.call_later(when, world.edit, "workflowruns", name, _retained_for(0))

    world.server.observers.append(observe)


def _redrive_all(world: World, name: str) -> None:
    for number, letter in enumerate(world.server.of("deadletters")):
        target = {"kind": "DeadLetter", "name": letter["metadata"]["name"]}
        world.create("Operation", f"{name}-{number}", {"target": target, "redrive": {}})


def _retained_for(seconds: int) -> Callable[[Object], None]:
    return lambda obj: obj["spec"].update(ttlSecondsAfterFinished=seconds)


_CATCH_UP_SECONDS = 120
"""How long the Schedule may take to start what is due, although requests fail: retries are up to 30 s apart."""


async def _wait_for_starts(world: World) -> None:
    """Wait until the Schedule has started what was due."""
    for _ in range(_CATCH_UP_SECONDS):
        if not (missing := _not_started(world)):
            return
        await asyncio.sleep(1)
    world.checker.fail(f"the schedule has not started {missing[:4]}")


def _not_started(world: World) -> list[str]:
    """The runs that were due but do not exist, without the latest, for which a run may just be made."""
    seconds = range(10, int(world.loop.time()) + 1, 10)
    due = [(START + timedelta(seconds=each)).strftime("every-%Y%m%dt%H%M%Sz") for each in seconds]
    return sorted(set(due[:-1]) - world.runs().keys())


SCENARIOS: dict[str, Scenario] = {
    each.__name__: each
    for each in (
        flows,
        sagas,
        mixed,
        mixed_with_code,
        rough,
        deletion,
        removal,
        families,
        bounded,
        cron,
        standalone,
        limits,
        newest_wins,
        together,
        activity_limits,
        attempt_rates,
        step_limits,
        selecting_limits,
        neighbors,
        libraries,
        defaults,
        retention,
        revisions,
        archive,
        hibernation,
        workspaces,
        artifacts,
        caching,
        container_groups,
        services,
        replacements,
        upgrades,
        code,
        limited_code,
    )
}
