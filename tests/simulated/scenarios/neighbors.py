"""Runs whose steps fail next to others, or exceed their deadline, and retries of these runs."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from typing import Any

from perdure.api.reasons import ConditionReason
from perdure.engine import events as ev
from perdure.engine import history
from perdure.engine.failures import Failure
from perdure.runtime.chains import parent_of
from perdure.simulation.cluster.kubelet import ContainerExit
from perdure.simulation.cluster.store import Object
from simulated.scenarios.definitions import CHILD, activity, step
from simulated.world import World

_ITEMS = 6
_SECONDS = 40
"""The deadline of some runs."""
_POLICIES = ("CancelRunning", "FinishRunning", "Continue")
_TWICE = {"exponential": {"initialInterval": "1s", "maximumAttempts": 2}}
_FINALLY = ":finally/note"
_DEADLINE = ":stepsTimeout"


def _flow(policy: str, *, deadline: str | None = None) -> Object:
    after = {"needs": ["first"]}
    loop = {"items": f"${{lists.range({_ITEMS})}}", "maxConcurrency": 2}
    return {
        "failurePolicy": policy,
        **({"stepsTimeout": deadline} if deadline else {}),
        "activities": [activity("steady"), activity("once", retryPolicy=_TWICE), activity("tidy")],
        "steps": [
            step("first", "steady"),
            {"name": "all", **after, "forEach": loop, "activity": {"name": "once", "input": "${item}"}},
            {"name": "kid", **after, "childWorkflow": {"workflow": {"name": "child"}}},
            {**step("side", "steady"), **after},
            {**step("broken", "once"), **after},
            {**step("last", "steady"), "needs": ["broken"]},
            {**step("beside", "steady"), "needs": ["side"]},
        ],
        "blocks": [{"name": "tidy", "steps": [step("note", "tidy")]}],
        "finally": {"block": "tidy"},
    }


async def neighbors(world: World) -> None:
    """Runs of each `failurePolicy` with failing steps, items, and children, and runs with a deadline; then their retries."""
    random, repaired = world.random("neighbors"), False

    def script(pod: Object) -> ContainerExit:
        fails = pod["metadata"]["labels"]["perdure.dev/activity"] == "once" and not repaired and random.random() < 0.6
        return ContainerExit(after=random.uniform(0.5, 2 if repaired else 12), code=int(fails))

    world.script = script
    world.begin()
    world.create("Workflow", "child", CHILD)
    plain = [f"{policy.lower()}{i}" for policy in _POLICIES for i in range(3)]
    late = [f"late{i}" for i in range(3)]
    for i, name in enumerate(random.sample([*plain, *late], len(plain) + len(late))):
        await asyncio.sleep(random.uniform(0, 1))
        spec = _flow(_POLICIES[i % 3], deadline=f"{_SECONDS}s") if name in late else _flow(_policy_of(name))
        world.create("WorkflowRun", name, {"inline": spec})
    await world.trouble(60)
    await world.calm(200)
    await world.rest()
    before = {name: history.decode_events(world.checker.history(world.run(name))) for name in (*plain, *late)}
    for name, events in before.items():
        for problem in _problems(world.run(name), events):
            world.checker.fail(f"{name} {problem}")
    repaired = True
    again = [name for name in before if world.run(name)["status"]["phase"] == "Failed"]
    for name in again:
        world.operate(f"retry-{name}", name, retry={})
    await world.trouble(40)
    await world.calm(world.loop.time() + 100)
    await world.rest()
    for name in again:
        for problem in _problems_of_retry(world, name, before[name]):
            world.checker.fail(f"the retry of {name} {problem}")


def _policy_of(name: str) -> str:
    return next(policy for policy in _POLICIES if name.startswith(policy.lower()))


def _problems(run: Object, events: tuple[ev.AnyEvent, ...]) -> Iterator[str]:
    """What is wrong with a run that has closed for the first time."""
    fired = [event for event in events if isinstance(event, ev.TimerFired) and event.timer_id == _DEADLINE]
    cancelled = {event.activity_id for event in events if isinstance(event, ev.ActivityTaskCancelRequested)}
    failed = {event.activity_id for event in events if isinstance(event, ev.ActivityTaskFailed)} - cancelled
    last, started = events[-1], events[0]
    if not isinstance(last, ev.WorkflowExecutionFailed if failed or fired else ev.WorkflowExecutionCompleted):
        yield f"ends with {type(last).__name__} though {sorted(failed) or 'nothing'} failed"
        return
    completed = Counter(event.activity_id for event in events if isinstance(event, ev.ActivityTaskCompleted))
    if completed[_FINALLY] != 1:
        yield f"runs `finally` {completed[_FINALLY]} times"
    reason = run["status"]["conditions"][0]["reason"]
    policy = str(run["spec"]["inline"]["failurePolicy"])
    before = events[: events.index(fired[0])] if fired else events
    stops = policy == "CancelRunning" and any(isinstance(event, ev.ActivityTaskFailed) for event in before)
    too_late = bool(fired) and not stops  # what stopped the steps is the reason
    if (reason == ConditionReason.DEADLINE_EXCEEDED) != too_late:
        yield f"has the reason {reason}, and its deadline has {'' if fired else 'not '}passed"
    if fired and (fired[0].event_time - started.event_time).total_seconds() < _SECONDS:
        yield "exceeds its deadline too early"
    named = set(_named(last.failure)) if isinstance(last, ev.WorkflowExecutionFailed) else set()
    if not named <= failed or (named < failed and policy != "CancelRunning"):
        yield f"names the failures of {sorted(named)}, but {sorted(failed)} failed"
    if not fired:
        yield from _of_policy(policy, events, failed)


def _named(failure: Failure) -> Iterator[str]:
    if failure.activity_id:
        yield failure.activity_id
    for other in failure.suppressed:
        yield from _named(other)


def _of_policy(policy: str, events: tuple[ev.AnyEvent, ...], failed: set[str]) -> Iterator[str]:
    """What is wrong with what happened next to failures."""
    steps: set[str] = set()
    failing: set[str] = set()
    for event in events:
        match event:
            case ev.ActivityTaskFailed():
                failing |= {event.activity_id, event.activity_id.partition("[")[0]}
            case ev.ActivityTaskScheduled(activity_id=path) | ev.StartChildWorkflowExecutionInitiated(child_id=path):
                name = path.partition("[")[0]
                stopped = failing if name in steps else failing and {name}
                if name in stopped and path != _FINALLY and policy != "Continue":
                    yield f"starts {path} after the failure of {sorted(failing)}, with {policy}"
                steps.add(name)
            case ev.ActivityTaskCancelRequested() | ev.RequestCancelExternalWorkflowExecutionInitiated():
                if policy != "CancelRunning":
                    yield f"cancels {event}, with {policy}"
            case _:
                pass
    if policy == "Continue" and failed:
        begun = {event.activity_id for event in events if isinstance(event, ev.ActivityTaskScheduled)}
        wanted = {*(f"all[{i}]" for i in range(_ITEMS)), "side", "beside"} | (
            {"last"} if "broken" not in failed else set()
        )
        if missing := wanted - begun:
            yield f"does not start {sorted(missing)}, with {policy}"
        if "broken" in failed and "last" in begun:
            yield "starts what needs a failed step"


def _had_its_time(events: tuple[ev.AnyEvent, ...]) -> bool:
    """Whether the deadline of a retry has passed, which counts from its reset: while operators are killed, it may."""
    begun = max(event.event_time for event in events if isinstance(event, ev.WorkflowTaskFailed))
    fired = [event for event in events if isinstance(event, ev.TimerFired) and event.timer_id == _DEADLINE]
    return bool(fired) and (fired[-1].event_time - begun).total_seconds() >= _SECONDS


def _problems_of_retry(world: World, name: str, before: tuple[ev.AnyEvent, ...]) -> Iterator[str]:
    """A retry completes, and repeats nothing that had completed before it."""
    (new,) = (
        run for other, run in world.runs().items() if other.startswith(f"{name}-retry-") and parent_of(run) is None
    )
    events = history.decode_events(world.checker.history(new))
    if new["status"]["phase"] != "Completed" and not _had_its_time(events):
        yield f"is {new['status']['phase']}: {new['status'].get('failure')}"
        return
    done = {event.activity_id for event in before if isinstance(event, ev.ActivityTaskCompleted)} - {_FINALLY}
    paths = {str(event.event_id): event.activity_id for event in events if isinstance(event, ev.ActivityTaskScheduled)}
    for pod in world.server.of("pods"):
        notes: dict[str, Any] = pod["metadata"]["annotations"]
        path = paths.get(notes["perdure.dev/scheduled-event-id"])
        if notes["perdure.dev/run"] == new["metadata"]["name"] and path in done:
            yield f"repeats {path}"
    kids = [
        run
        for run in world.server.of("workflowruns")
        if (tie := parent_of(run)) and tie.run_id == new["metadata"]["uid"]
    ]
    completed = any(isinstance(event, ev.ChildWorkflowExecutionCompleted) for event in before)
    begun = [run for run in kids if run["metadata"]["name"].startswith(new["metadata"]["name"])]
    if completed and begun:
        yield "starts the child again, which had completed"
