"""A slow kubelet."""

from random import Random

from perdure.simulation.cluster.apiserver import ApiServer
from perdure.simulation.cluster.kubelet import Kubelet, Script
from perdure.simulation.cluster.loop import ClusterLoop
from perdure.simulation.cluster.storage import Object


class SlowKubelet(Kubelet):
    """Runs every pod; the seed decides how long one takes to start and to stop."""

    def __init__(self, loop: ClusterLoop, random: Random, server: ApiServer, script: Script) -> None:
        super().__init__(loop, server, script)
        self._random = random

    def start_seconds(self, pod: Object) -> float:  # noqa: ARG002 - all take about as long
        return self._random.uniform(0.5, 2)

    def stop_seconds(self, pod: Object) -> float:  # noqa: ARG002 - as above
        return self._random.uniform(0.05, 1)
