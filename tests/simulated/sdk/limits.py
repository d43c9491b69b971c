"""Workflows as code and activities of SDK workers that take WorkflowLimits, and a check at every write of what workers have."""

import json
from collections import defaultdict
from typing import Any, Final

from perdure.runtime import status_encoding
from perdure.simulation.cluster.store import Write
from simulated.scenarios.definitions import CHILD
from simulated.scenarios.limits import check_free
from simulated.sdk.decisions import QUEUE
from simulated.sdk.scenario import crowd, pods
from simulated.world import World

_LIMITS: Final[dict[str, dict[str, Any]]] = {
    "flows": {"capacity": 3, "appliesTo": {"types": ["Flow"]}},
    "workers": {"capacity": 2, "appliesTo": {"takers": "Activities", "taskQueues": [QUEUE]}},
    "work": {"capacity": 1, "appliesTo": {"takers": "Activities", "types": ["Work"], "taskQueues": [QUEUE]}},
}


class CodeWatch:
    """Checks at every write that workers have no more workflows and activities than there is room for."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._busy: dict[str, dict[str, set[str]]] = defaultdict(dict)
        """By limit and UID of the run, its activities that workers have, or the run."""
        world.server.observers.append(self._observe, "workflowruns")

    def _observe(self, write: Write) -> None:
        meta, status = write.after["metadata"], status_encoding.decode(write.after).get("status") or {}
        state, uid = status.get("state") or {}, meta["uid"]
        code = state.get("code") or {}
        is_open = bool(code) and not status.get("completionTime") and write.type != "DELETED"
        task, notes = code.get("task") or {}, meta.get("annotations") or {}
        copied = json.loads(notes.get("perdure.dev/reset", "{}")).get("lineage", [{}])[-1].get("eventId", 0)
        taken = is_open and bool(task.get("startedTime") or code.get("previousStartedEventId", 0) > copied)
        self._busy["flows"][uid] = {uid} if taken and "perdure.dev/parent" not in notes else set()
        running = {
            f"{uid}/{event}": each["activityType"]
            for event, each in (state.get("activities") or {}).items()
            if is_open and each.get("taskQueue") == QUEUE and each.get("startedTime")
        }
        self._busy["workers"][uid] = set(running)
        self._busy["work"][uid] = {each for each, kind in running.items() if kind == "Work"}
        for limit, by_run in self._busy.items():
            takers = set[str]().union(*by_run.values())
            if len(takers) > _LIMITS[limit]["capacity"]:
                self._world.checker.fail(f"{write.time:.3f} {write.actor}: {limit} is taken by {sorted(takers)}")


async def limited_code(world: World) -> None:
    """The workers and clients of the scenario `code`; limits select workflows, and one or two limits select each activity."""
    for name, spec in _LIMITS.items():
        world.create("WorkflowLimit", name, spec)
    async with crowd(world):
        CodeWatch(world)
        world.script = pods(world.random("script"))
        world.create("Workflow", "child", CHILD)
        world.begin()
        await world.trouble(90)
        await world.calm(300)
        await world.rest()
        check_free(world)
