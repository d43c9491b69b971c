"""Runs and activities that take WorkflowLimits, and a check at every write that no capacity is exceeded."""

import asyncio
import json
from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta
from random import Random
from typing import Any

from perdure.api.times import parse_duration
from perdure.runtime import status_encoding
from perdure.simulation.cluster.kubelet import ContainerExit
from perdure.simulation.cluster.store import Object, Write
from simulated.world import World

_CAPACITY = {"pool": 3, "mutex": 1}
_ATTEMPTS = 5
"""The last attempt of each activity succeeds."""
_RATE = {"count": 4, "period": "10s"}
_GIVE_BACK_SECONDS = 200
"""An operator that is frozen for a minute gives back places after its return; meanwhile, another one may wait for an outage."""
_CALM_GIVE_BACK_SECONDS = 40
"""The same for an operator that is not disturbed, some of whose requests fail or get no response."""
_OVERTAKING = timedelta(seconds=180)
"""Only what is created within this time can overtake what takes two limits: after a minute, that has its turn before all younger
ones; operators are disturbed for up to two minutes. How long it waits for older ones depends on the work."""
_SKEW = timedelta(seconds=1)
"""The clocks of two operators differ by at most this much."""


def work(*limits: dict[str, Any]) -> dict[str, Any]:
    activity = {"name": "work", "container": {"image": "i"}, "startToCloseTimeout": "5m"}
    steps = [{"name": "work", "activity": {"name": "work"}}, {"name": "more", "activity": {"name": "work"}}]
    return {"limits": list(limits), "activities": [activity], "steps": steps}


class LimitWatch:
    """Checks at every write that no more runs are open, or have pods, than their limits have room for."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.takes: dict[str, list[tuple[str, str]]] = {}
        """By name of a run, the limits that it takes, and the keys."""
        self.began: list[str] = []
        self._open: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        self._pods: defaultdict[str, set[str]] = defaultdict(set)
        world.server.observers.append(self._observe)

    def _observe(self, write: Write) -> None:
        after = write.after
        if write.key.plural == "pods":
            name = after["metadata"]["annotations"]["perdure.dev/run"]
            ended = write.type == "DELETED" or after["status"]["phase"] in {"Succeeded", "Failed"}
            (self._pods[name].discard if ended else self._pods[name].add)(write.key.name)
        elif write.key.plural == "workflowruns":
            name, status = write.key.name, after.get("status") or {}
            if status.get("state") and name not in self.began:
                self.began.append(name)
            is_open = bool(status.get("state")) and not status.get("completionTime") and write.type != "DELETED"
            for taken in self.takes.get(name, ()):
                (self._open[taken].add if is_open else self._open[taken].discard)(name)
        for name in {each for taken in self._open.values() for each in taken} | set(self._pods):
            for taken in self.takes.get(name, ()):
                self._check(taken, write)

    def _check(self, taken: tuple[str, str], write: Write) -> None:
        busy = self._open[taken] | {
            name for name, pods in self._pods.items() if pods and taken in self.takes.get(name, ())
        }
        if len(busy) > _CAPACITY[taken[0]]:
            self.world.checker.fail(f"{write.time:.3f} {write.actor}: {taken} is taken by {sorted(busy)}")


class TogetherWatch:
    """Checks at every write that what takes several limits together does not hold one for long while it waits for another one.

    An operator that was killed, frozen, or disconnected gives back places once it works again.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.calm_from = float("inf")
        """From when on no operator is disturbed."""
        self._held: defaultdict[str, set[str]] = defaultdict(set)
        """The names of the limits that an entry holds, by its run and event."""
        self._complete: set[str] = set()
        """The entries that held all of their limits at the same time."""
        self._partial: dict[str, float] = {}
        """When other entries took their first limit."""
        world.server.observers.append(self._observe)

    def _observe(self, write: Write) -> None:
        if write.key.plural == "workflowlimits":
            holders = {
                f"{each['runId']}/{each.get('eventId')}": each["together"]
                for each in (write.after.get("status") or {}).get("holders", ())
                if each.get("together")
            }
            for entry in {*holders, *self._held}:
                (self._held[entry].add if entry in holders else self._held[entry].discard)(write.key.name)
            self._complete |= {entry for entry, places in holders.items() if len(self._held[entry]) == places}
            partial = {entry for entry, held in self._held.items() if held} - self._complete
            self._partial = {entry: self._partial.get(entry, write.time) for entry in partial}
        for entry, since in self._partial.items():
            if write.time > min(since + _GIVE_BACK_SECONDS, max(since, self.calm_from) + _CALM_GIVE_BACK_SECONDS):
                self.world.checker.fail(
                    f"{write.time:.3f} {entry} holds {self._held[entry]} since {since:.3f}, not all"
                )


class PodWatch:
    """Checks at every write that no two pods run of which each uses the same limit; their input names what they use."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._pods: dict[str, set[str]] = {}
        world.server.observers.append(self._observe)

    def _observe(self, write: Write) -> None:
        if write.key.plural != "pods":
            return
        self._pods[write.key.name] = set(json.loads(write.after["metadata"]["annotations"]["perdure.dev/input"]))
        if write.type == "DELETED" or write.after["status"]["phase"] in {"Succeeded", "Failed"}:
            del self._pods[write.key.name]
        for limit in ("left", "right"):
            users = sorted(name for name, uses in self._pods.items() if limit in uses)
            if len(users) > 1:
                self.world.checker.fail(f"{write.time:.3f} {write.actor}: {limit} is used by {users}")


def user(limits: Sequence[str], taker: str = "run") -> dict[str, Any]:
    """A definition with one activity in a pod that uses limits, which its run, step, or activity takes."""
    uses: list[dict[str, Any]] = [{"name": each} for each in limits]
    activity = {"name": "work", "container": {"image": "i"}, "startToCloseTimeout": "10m"}
    step: dict[str, Any] = {"name": "work", "activity": {"name": "work", "input": list(limits)}}
    match taker:
        case "run":
            return {"limits": uses, "activities": [activity], "steps": [step]}
        case "step":
            return {"activities": [activity], "steps": [{**step, "limits": uses}]}
        case _:
            return {"activities": [{**activity, "limits": uses}], "steps": [step]}


async def together(world: World) -> None:
    """Runs, steps, and activities that take two limits together, each of which is always taken by others that need only one."""
    watch = TogetherWatch(world)
    PodWatch(world)
    random = world.random("together")
    world.script = lambda _pod: ContainerExit(after=random.uniform(15, 25))
    world.begin()
    for name in ("left", "right"):
        world.create("WorkflowLimit", name, {"capacity": 1})

    async def disturb() -> None:
        await world.trouble(60)
        await world.calm(0)
        watch.calm_from = world.loop.time()

    trouble = world.loop.create_task(disturb())
    for i in range(40):
        world.create("WorkflowRun", f"left{i:02}", {"inline": user(["left"], random.choice(["run", "activity"]))})
        await asyncio.sleep(random.uniform(0, 19))
        world.create("WorkflowRun", f"right{i:02}", {"inline": user(["right"], random.choice(["run", "activity"]))})
        if i in {1, 4, 10, 16, 20}:
            spec = {"inline": user(["left", "right"], random.choice(["run", "step", "activity"]))}
            world.create("WorkflowRun", f"both{i:02}", spec)
        await asyncio.sleep(random.uniform(0, 19))
    await trouble
    await world.calm(300)
    await world.rest()
    times = {name: _created_and_ended(run) for name, run in world.runs().items()}
    for name, (created, ended) in times.items():
        overtaken_by = [other for other, (later, end) in times.items() if later > created + _OVERTAKING and end < ended]
        if name.startswith("both") and overtaken_by:
            world.checker.fail(f"{name} ended {ended - created} after it was created, and after {overtaken_by}")
    check_free(world)


def _created_and_ended(run: Object) -> tuple[datetime, datetime]:
    created, ended = run["metadata"]["creationTimestamp"], run["status"]["completionTime"]
    return datetime.fromisoformat(created), datetime.fromisoformat(ended)


async def limits(world: World) -> None:
    """Runs that take a semaphore, a mutex for one of three keys, or both; some are terminated or deleted."""
    watch, random = LimitWatch(world), world.random("limits")
    world.script = lambda _pod: ContainerExit(after=random.uniform(0.5, 6))
    world.begin()
    _create_limits(world)
    names = []
    for i in range(24):
        await asyncio.sleep(random.uniform(0, 1.5))
        names.append(_start(world, watch, random, i))
    await _end_some(world, random, names)
    check_free(world)


def _create_limits(world: World) -> None:
    TogetherWatch(world)
    for name, capacity in _CAPACITY.items():
        world.create("WorkflowLimit", name, {"capacity": capacity})


async def _end_some(world: World, random: Random, names: list[str]) -> None:
    """Terminate, cancel, and delete some of the runs during trouble, and check that all others complete."""
    unlucky = random.sample(names, 9)
    for name in unlucky[:6]:
        request = {random.choice(["terminate", "terminate", "cancel"]): {}}
        world.loop.call_at(
            world.loop.time() + random.uniform(0, 60), lambda n=name, r=request: world.operate(f"end-{n}", n, **r)
        )
    for name in unlucky[6:]:
        world.checker.named_again.add(name)
        world.loop.call_at(world.loop.time() + random.uniform(0, 60), lambda n=name: world.delete("workflowruns", n))
    await world.trouble(60)
    await world.calm(300)
    await world.rest()
    for name in set(names) - set(unlucky):
        if world.run(name)["status"]["phase"] != "Completed":
            world.checker.fail(f"{name} is {world.run(name)['status']['phase']}")


def check_free(world: World) -> None:
    """Check that nothing holds a limit or waits for one."""
    for limit in world.server.of("workflowlimits"):
        status = limit["status"]
        if status["holders"] or status["waiters"]:
            name = limit["metadata"]["name"]
            world.checker.fail(f"in the end, {name} has {status['holders']} and {status['waiters']}")


def _start(world: World, watch: LimitWatch, random: Random, number: int) -> str:
    """Start a run that takes one or both limits; the mutex for one of three keys."""
    name, key = f"run{number:02}", random.choice("abc")
    takes = random.choice([["pool"], ["mutex"], ["mutex", "pool"]])
    watch.takes[name] = [(limit, key if limit == "mutex" else "") for limit in takes]
    limits = [{"name": limit, "key": "${input.key}" if limit == "mutex" else ""} for limit in takes]
    world.create("WorkflowRun", name, {"inline": work(*limits), "input": {"key": key}})
    return name


def deployment(limit: str) -> dict[str, Any]:
    """A definition whose newest run of a key wins. A cancelled run undoes its work in a pod."""
    activities = [{"name": each, "container": {"image": "i"}, "startToCloseTimeout": "5m"} for each in ("work", "undo")]
    return {
        "limits": [{"name": limit, "key": "${input}", "overflowPolicy": "CancelRunning"}],
        "activities": activities,
        "steps": [{"name": "work", "activity": {"name": "work"}}, {"name": "more", "activity": {"name": "work"}}],
        "blocks": [{"name": "undo", "steps": [{"name": "undo", "activity": {"name": "undo"}}]}],
        "onCancel": {"block": "undo"},
    }


class NewestWatch:
    """Checks that a run never has a pod after it waited for a limit with a newer run of its key, and finds such runs."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.replaced: set[str] = set()
        """The names of the runs."""
        self._began: set[str] = set()
        world.server.observers.append(self._observe)

    def _observe(self, write: Write) -> None:
        if write.key.plural == "workflowlimits":
            status = write.after.get("status") or {}
            newest: dict[str, str] = {}
            for each in (*status.get("holders", ()), *status.get("waiters", ())):
                newest[each["key"]] = max(each["created"], newest.get(each["key"], ""))
            older = {each["run"] for each in status.get("waiters", ()) if each["created"] < newest[each["key"]]}
            self.replaced |= older - self._began  # an operator whose watch lags may list a run that has ended
        elif write.key.plural == "workflowruns" and (write.after.get("status") or {}).get("state"):
            self._began.add(write.key.name)
        elif write.key.plural == "pods":
            name = write.after["metadata"]["annotations"]["perdure.dev/run"]
            if name in self.replaced:
                self.world.checker.fail(
                    f"{write.time:.3f} {write.actor}: {name} has a pod, but a newer run replaced it"
                )

    def check_replaced(self) -> None:
        """Check that the runs ended with nothing but their cancellation."""
        for name in sorted(self.replaced):
            types = [each["eventType"] for each in self.world.checker.history(self.world.run(name))]
            if types != ["WorkflowExecutionStarted", "WorkflowExecutionCancelRequested", "WorkflowExecutionCanceled"]:
                self.world.checker.fail(f"{name} was replaced while it waited, and its history is {types}")


async def newest_wins(world: World) -> None:
    """Runs of three keys of which the newest replaces those that wait, and has the one cancelled that holds the limit."""
    watch, random = NewestWatch(world), world.random("newest wins")
    limited = LimitWatch(world)
    world.script = lambda _pod: ContainerExit(after=random.uniform(0.5, 12))
    world.begin()
    world.create("WorkflowLimit", "mutex", {"capacity": 1})
    for i in range(24):
        await asyncio.sleep(
            random.uniform(1, 3)
        )  # a creation time has whole seconds: which one is newer must be certain
        name, key = f"run{i:02}", random.choice("abc")
        limited.takes[name] = [("mutex", key)]
        world.create("WorkflowRun", name, {"inline": deployment("mutex"), "input": key})
    await world.trouble(60)
    await world.calm(300)
    await world.rest()
    watch.check_replaced()
    for key in "abc":
        runs = [world.run(name) for name, taken in limited.takes.items() if taken == [("mutex", key)]]
        created = max((run["metadata"]["creationTimestamp"] for run in runs), default="")
        newest = [run["status"]["phase"] for run in runs if run["metadata"]["creationTimestamp"] == created]
        if newest not in ([], ["Completed"]):
            world.checker.fail(f"the newest run of {key} did not complete")
    check_free(world)


class ActivityWatch:
    """Checks at every write that no more activities have begun, and not ended with all their pods, than there is room for.

    An activity has begun with the pod of its first attempt. It has ended when its run does not have it as an open one.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.takes: dict[str, list[tuple[str, str]]] = {}
        """By type of activity, the limits that it takes, and the keys; `input` is the input of the activity."""
        self.began: list[str] = []
        """The inputs of the activities, in the order in which they began."""
        self._busy: dict[tuple[str, int], tuple[str, str]] = {}
        """The type and the input of activities that have begun, by the UID of the run and the event that scheduled them."""
        self._pods: defaultdict[tuple[str, int], set[str]] = defaultdict(set)
        self._open: defaultdict[str, set[int]] = defaultdict(set)
        self._starts: dict[tuple[str, int], datetime] = {}
        """When activities took the limit with a rate."""
        world.server.observers.append(self._observe)

    def _observe(self, write: Write) -> None:
        meta, status = write.after["metadata"], write.after.get("status") or {}
        if write.key.plural == "pods":
            notes = meta["annotations"]
            key = meta["labels"]["perdure.dev/run-id"], int(notes["perdure.dev/scheduled-event-id"])
            ended = write.type == "DELETED" or status["phase"] in {"Succeeded", "Failed"}
            (self._pods[key].discard if ended else self._pods[key].add)(write.key.name)
            if key not in self._busy and not ended:
                input_ = json.loads(notes["perdure.dev/input"])
                self._busy[key] = meta["labels"]["perdure.dev/activity"], input_
                self.began.append(input_)
        elif write.key.plural == "workflowruns":
            activities = {} if write.type == "DELETED" else (status.get("state") or {}).get("activities") or {}
            self._open[meta["uid"]] = {int(event) for event in activities}
        elif (write.key.plural, write.key.name) == ("workflowlimits", "rated"):
            self._check_rate(write)
        for key in [key for key in self._busy if not self._pods[key] and key[1] not in self._open[key[0]]]:
            del self._busy[key]
        self._check(write)

    def _check_rate(self, write: Write) -> None:
        for each in (write.after.get("status") or {}).get("holders") or ():
            self._starts[each["runId"], each["eventId"]] = datetime.fromisoformat(each["since"])
        times = sorted(self._starts.values())
        for first, last in zip(times, times[_RATE["count"] :], strict=False):
            if last - first < timedelta(seconds=10) - _SKEW:
                self.world.checker.fail(f"{write.time:.3f} {write.actor}: too many starts from {first} to {last}")

    def _check(self, write: Write) -> None:
        taken: defaultdict[tuple[str, str], list[tuple[str, int]]] = defaultdict(list)
        for activity, (kind, input_) in self._busy.items():
            for limit, key in self.takes.get(kind, ()):
                taken[limit, input_ if key == "input" else key].append(activity)
        for (limit, key), activities in taken.items():
            if len(activities) > _CAPACITY[limit]:
                self.world.checker.fail(f"{write.time:.3f} {write.actor}: {limit} {key} is taken by {activities}")


def limited(name: str, *limits: dict[str, Any], **more: Any) -> dict[str, Any]:
    """An activity that takes limits."""
    retry = {"exponential": {"initialInterval": "2s", "maximumAttempts": _ATTEMPTS}}
    activity = {"name": name, "container": {"image": "i"}, "startToCloseTimeout": "2m", "retryPolicy": retry}
    return {**activity, "limits": list(limits), **more}


async def activity_limits(world: World) -> None:
    """Runs whose activities take a semaphore, a mutex for one of three keys, both, or a rate; some fail and are retried."""
    watch, random = ActivityWatch(world), world.random("activity limits")
    watch.takes = {"one": [("pool", "")], "keyed": [("mutex", "input")], "both": [("mutex", "input"), ("pool", "")]}
    pool, mutex = {"name": "pool"}, {"name": "mutex", "key": "${input}"}
    activities = [limited("one", pool), limited("keyed", mutex), limited("both", pool, mutex)]
    activities.append(limited("rated", {"name": "rated"}))

    def script(pod: Any) -> ContainerExit:
        fails = random.random() < 0.15 and int(pod["metadata"]["annotations"]["perdure.dev/attempt"]) < _ATTEMPTS
        return ContainerExit(after=random.uniform(0.5, 6), code=int(fails))

    world.script = script
    world.begin()
    _create_limits(world)
    world.create("WorkflowLimit", "rated", {"capacity": 500, "rate": _RATE})
    names = []
    for i in range(16):
        await asyncio.sleep(random.uniform(0, 1.5))
        names.append(f"run{i:02}")
        chosen = [random.choice(["one", "keyed", "both", "rated"]) for _ in range(3)]
        steps = [
            {"name": f"s{k}", "needs": [], "activity": {"name": kind, "input": random.choice("abc")}}
            for k, kind in enumerate(chosen)
        ]
        steps[2]["needs"] = ["s0"]
        world.create("WorkflowRun", names[-1], {"inline": {"activities": activities, "steps": steps}})
    await _end_some(world, random, names)
    check_free(world)


class PodRates:
    """Checks at every write that no more pods of activities with a rate are created within its period."""

    def __init__(self, world: World, rates: dict[str, dict[str, Any]]) -> None:
        """`rates` are those of each type of activity."""
        self.world = world
        self.created: defaultdict[str, list[float]] = defaultdict(list)
        """When pods of each type were created."""
        self._rates = rates
        world.server.observers.append(self._observe)

    def _observe(self, write: Write) -> None:
        if (write.key.plural, write.type) != ("pods", "ADDED"):
            return
        activity = write.after["metadata"]["labels"]["perdure.dev/activity"]
        times, rate = self.created[activity], self._rates[activity]
        times.append(write.time)
        earlier = times[: -rate["count"]]
        shortest = parse_duration(rate["period"]) - _SKEW
        if earlier and write.time - earlier[-1] < shortest.total_seconds():
            self.world.checker.fail(
                f"{write.time:.3f} {write.actor}: {rate['count'] + 1} pods of {activity} since {earlier[-1]:.3f}"
            )


async def attempt_rates(world: World) -> None:
    """Activities that take limits whose rates count attempts; many fail and are retried, and some pods are lost."""
    rates = {"call": {"count": 3, "period": "10s"}, "both": {"count": 2, "period": "20s"}}
    watch, random = PodRates(world, rates), world.random("attempt rates")
    activities = [limited("call", {"name": "call"}), limited("both", {"name": "call-of-both"}, {"name": "both"})]

    def script(pod: Any) -> ContainerExit:
        fails = random.random() < 0.4 and int(pod["metadata"]["annotations"]["perdure.dev/attempt"]) < _ATTEMPTS
        return ContainerExit(after=random.uniform(0.5, 3), code=int(fails))

    world.script = script
    world.begin()
    for name, rate in {"call": rates["call"], "call-of-both": rates["call"], "both": rates["both"]}.items():
        world.create("WorkflowLimit", name, {"capacity": 500, "rate": {**rate, "counts": "Attempts"}})
    names = []
    for i in range(14):
        await asyncio.sleep(random.uniform(0, 1.5))
        names.append(f"run{i:02}")
        kinds = ["call", random.choice(["call", "call", "both"])]
        steps = [{"name": f"s{k}", "needs": [], "activity": {"name": kind}} for k, kind in enumerate(kinds)]
        world.create("WorkflowRun", names[-1], {"inline": {"activities": activities, "steps": steps}})
    await _end_some(world, random, names)
    check_free(world)
    if len(watch.created["call"]) < len(names) / 2:
        world.checker.fail(f"only {len(watch.created['call'])} pods were created")


class StepWatch:
    """Checks at every write that no more steps hold a limit, or have pods in their blocks, than there is room for.

    A step holds its limit from the commit that says so. It has ended when its run does not hold the limit any more.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.began: list[str] = []
        """The names of the runs in the order in which their steps began."""
        self._holds: dict[str, set[tuple[str, str, str]]] = {}
        """By name of the run, the limits and keys that its steps hold, with the event that asked for them."""
        self._pods: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        """By limit and key, the names of pods that have not ended; the input of an activity names both."""
        world.server.observers.append(self._observe)

    def _observe(self, write: Write) -> None:
        after, name = status_encoding.decode(write.after), write.key.name
        status = after.get("status") or {}
        if write.key.plural == "pods":
            limit, key = json.loads(after["metadata"]["annotations"]["perdure.dev/input"])
            ended = write.type == "DELETED" or status["phase"] in {"Succeeded", "Failed"}
            (self._pods[limit, key].discard if ended else self._pods[limit, key].add)(name)
            self._check(write)
        elif write.key.plural == "workflowruns":
            held = {} if write.type == "DELETED" else (status.get("state") or {}).get("holds") or {}
            if held and name not in self._holds:
                self.began.append(name)
            found = {(each["name"], each["key"], event) for event, hold in held.items() for each in hold["limits"]}
            self._holds[name] = found
            if not found:
                del self._holds[name]
            self._check(write)

    def _check(self, write: Write) -> None:
        taken: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
        for run, found in self._holds.items():
            for limit, key, event in found:
                taken[limit, key].append(f"{run}/{event}")
        for (limit, key), steps in taken.items():
            if len(steps) > _CAPACITY[limit]:
                self.world.checker.fail(f"{write.time:.3f} {write.actor}: {limit} {key} is held by {sorted(steps)}")
        for (limit, key), pods in self._pods.items():
            if len(pods) > _CAPACITY[limit]:
                self.world.checker.fail(f"{write.time:.3f} {write.actor}: {limit} {key} is used by {sorted(pods)}")


def limited_step(name: str, limit: str, key: str = "", **more: Any) -> dict[str, Any]:
    """A step that takes a limit for the two activities in its block, one after the other."""
    return {
        "name": name,
        "limits": [{"name": limit, "key": key}],
        "call": {"block": "two", "input": [limit, key]},
        **more,
    }


def with_blocks(*steps: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A definition with these steps, and the block that they call."""
    retry = {"exponential": {"initialInterval": "2s", "maximumAttempts": 2}}
    activity = {"name": "work", "container": {"image": "i"}, "startToCloseTimeout": "2m", "retryPolicy": retry}
    one, two = ({"name": name, "activity": {"name": "work", "input": "${params}"}} for name in ("one", "two"))
    rest = {"name": "rest", "steps": [{"name": "nap", "sleep": {"duration": "1s"}}]}
    return {
        "activities": [activity],
        "blocks": [{"name": "two", "steps": [one, two]}, rest],
        "steps": list(steps),
        **more,
    }


async def step_limits(world: World) -> None:
    """Runs whose steps take a semaphore, or a mutex for one of three keys; some fail, time out, are ended, or are reset."""
    StepWatch(world)
    random = world.random("step limits")
    world.script = lambda _pod: ContainerExit(after=random.uniform(0.5, 6), code=int(random.random() < 0.15))
    world.begin()
    _create_limits(world)
    names = []
    for i in range(16):
        await asyncio.sleep(random.uniform(0, 1.5))
        names.append(f"run{i:02}")
        caught = {"catch": [{"call": {"block": "rest"}}]}
        steps = [
            limited_step("first", *random.choice([("pool", ""), ("mutex", random.choice("abc"))]), needs=[], **caught),
            limited_step("second", "mutex", random.choice("abc"), needs=[], timeout="40s", **caught),
            limited_step("third", "pool", needs=["first"], **caught),
        ]
        world.create("WorkflowRun", names[-1], {"inline": with_blocks(*steps)})
    redone = random.sample(names, 4)
    for i, name in enumerate(redone):
        what = {"reset": {"to": "FirstWorkflowTask"}} if i % 2 else {"retry": {"from": ["third"]}}
        world.loop.call_at(
            world.loop.time() + random.uniform(5, 60), lambda n=name, w=what: world.operate(f"again-{n}", n, **w)
        )
    await _end_some(world, random, [name for name in names if name not in redone])
    check_free(world)


def _selected(workflow: str, random: Random) -> dict[str, Any]:
    """A definition with two steps that run at the same time; one may be a child, and the run may name a limit."""
    steps: list[dict[str, Any]] = [
        {"name": name, "needs": [], "activity": {"name": workflow, "input": workflow}} for name in ("one", "two")
    ]
    if random.random() < 0.3:
        steps[1] = {"name": "child", "needs": [], "childWorkflow": {"workflow": {"name": "leaf"}}}
    named = [{"name": "named"}] if random.random() < 0.4 else []
    return {"limits": named, "activities": [limited(workflow)], "steps": steps}


async def selecting_limits(world: World) -> None:
    """Limits of open runs, and of the running activities of each Workflow; another limit comes, changes, and goes."""
    runs, activities, random = LimitWatch(world), ActivityWatch(world), world.random("selecting limits")
    activities.takes = {name: [("mutex", name)] for name in ("a", "b", "leaf")}

    def script(pod: Any) -> ContainerExit:
        fails = random.random() < 0.15 and int(pod["metadata"]["annotations"]["perdure.dev/attempt"]) < _ATTEMPTS
        return ContainerExit(after=random.uniform(0.5, 4), code=int(fails))

    world.script = script
    world.begin()
    world.create("WorkflowLimit", "pool", {"capacity": _CAPACITY["pool"], "appliesTo": {}})
    world.create("WorkflowLimit", "mutex", {"appliesTo": {"takers": "Activities", "perWorkflow": True}})
    world.create("WorkflowLimit", "named", {"capacity": 2})
    leaf = {"name": "leaf", "activity": {"name": "leaf", "input": "leaf"}}
    world.create("Workflow", "leaf", {"activities": [limited("leaf")], "steps": [leaf]})
    for name in "ab":
        world.create("Workflow", name, _selected(name, random))
    created, changed, deleted = sorted(random.uniform(0, 60) for _ in range(3))
    late = {"takers": random.choice(["Runs", "Activities"])}

    def select_others(limit: Any) -> None:
        limit["spec"]["appliesTo"] = {**late, "workflows": ["b"]}

    begin = world.loop.time()
    spec = {"capacity": 1, "appliesTo": {**late, "workflows": ["a"]}}
    world.loop.call_at(begin + created, lambda: world.create("WorkflowLimit", "late", spec))
    world.loop.call_at(begin + changed, lambda: world.edit("workflowlimits", "late", select_others))
    world.loop.call_at(begin + deleted, lambda: world.delete("workflowlimits", "late"))
    names = []
    for i in range(20):
        await asyncio.sleep(random.uniform(0, 1.5))
        names.append(f"run{i:02}")
        runs.takes[names[-1]] = [("pool", "")]
        world.create("WorkflowRun", names[-1], {"workflow": {"name": random.choice(["a", "b", "leaf"])}})
    await _end_some(world, random, names)
    check_free(world)


def phases(world: World) -> dict[str, str]:
    """The phases of the runs, by name."""
    return {name: run["status"]["phase"] for name, run in world.runs().items()}


def succeeded(world: World, name: str) -> dict[str, Any]:
    """The condition `Succeeded` of a run."""
    (found,) = [each for each in world.run(name)["status"]["conditions"] if each["type"] == "Succeeded"]
    return found


def root_failure(world: World, name: str) -> dict[str, Any]:
    """The failure of a run, without those that it caused."""
    failure: dict[str, Any] = world.run(name)["status"]["failure"]
    while failure.get("cause"):
        failure = failure["cause"]
    return failure


async def restart(world: World) -> None:
    """Kill the only operator, and start another one after five seconds."""
    (victim,) = world.operators
    await victim.kill()
    world.operators.remove(victim)
    await asyncio.sleep(5)
    world.start()
