"""A slow kubelet."""

import json
from collections.abc import Callable
from dataclasses import replace
from graphlib import TopologicalSorter
from random import Random

from perdure.api import labels
from perdure.simulation.cluster.apiserver import ApiServer
from perdure.simulation.cluster.kubelet import ContainerExit, Kubelet, Script
from perdure.simulation.cluster.loop import ClusterLoop
from perdure.simulation.cluster.store import Object, ObjectKey

_HANDLES_SIGTERM = 0.3
"""The share of pods that exit with 0 when they are stopped."""
_SIGKILL = 137
"""Exit code of a container that was killed after the grace period of its pod."""

Stops = Callable[[Object], float | None]
"""How long a deleted pod takes to stop, in seconds; None: not long, because its program handles SIGTERM."""


class SlowKubelet(Kubelet):
    """Runs every pod; the seed decides how long one takes to start and to stop, and how it handles SIGTERM."""

    def __init__(
        self, loop: ClusterLoop, random: Random, stops: Random, server: ApiServer, script: Script, stubborn: Stops
    ) -> None:
        super().__init__(loop, server, script)
        self._random = random
        self._stops = stops
        self._stubborn = stubborn

    def start_seconds(self, pod: Object) -> float:  # noqa: ARG002 - all take about as long
        return self._random.uniform(0.5, 2)

    def stop_seconds(self, pod: Object) -> float:
        soon, late = self._random.uniform(0.05, 1), self._stubborn(pod)
        return soon if late is None else late

    def stopped(self, pod: Object) -> ContainerExit:
        """By SIGTERM, or SIGKILL after the grace period. Some programs handle SIGTERM, and exit with 0."""
        ending = super().stopped(pod)
        if self._stubborn(pod) is not None:
            return replace(ending, code=_SIGKILL)
        return replace(ending, code=0) if self._stops.random() < _HANDLES_SIGTERM else ending

    def ended(self, key: ObjectKey, uid: str, ending: ContainerExit) -> None:
        """End the pod. Several containers of an activity end one after the other, unless one fails: then the others follow."""
        pod = self.live(key, uid)
        needs = json.loads(
            (pod or {"metadata": {}})["metadata"].get("annotations", {}).get(labels.NEEDS_ANNOTATION, "{}")
        )
        self._end_next(key, uid, ending, list(TopologicalSorter(needs).static_order()))

    def _end_next(self, key: ObjectKey, uid: str, ending: ContainerExit, names: list[str]) -> None:
        if self.live(key, uid) is None:
            return
        if len(names) <= 1:
            self.finish(key, uid, ending.code, ending.message)
            return
        first, *rest = names
        end = {"exitCode": ending.code, "reason": "Error" if ending.code else "Completed", "message": ""}

        def end_one(obj: Object) -> None:
            end.update(startedAt=obj["status"]["startTime"], finishedAt=self.stamp())
            (state,) = [each for each in obj["status"]["containerStatuses"] if each["name"] == first]
            state["state"] = {"terminated": end}

        self._server.update(key, end_one, actor="kubelet")
        self._loop.call_later(2, self._end_next, key, uid, ending, rest[-1:] if ending.code else rest)
