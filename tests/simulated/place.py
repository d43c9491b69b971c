"""A client of an API server in memory, which has one run, in virtual time."""

from random import Random
from typing import Any

from perdure.kube import client as kube
from perdure.kube import clock
from perdure.kube.access import Access
from perdure.simulation.cluster.store import ObjectKey
from simulated.loop import ShuffledLoop
from simulated.server import InterceptedServer
from support.faulty.faults import Faults
from support.faulty.network import FaultySession, Trace

KEY = ObjectKey("workflowruns", "default", "run")
URL = kube.path(kube.PERDURE, "default", "workflowruns", "run")


class Place:
    """A client of an API server in memory, and its virtual time."""

    def __init__(self) -> None:
        self.loop = ShuffledLoop(Random(0))
        self.server = InterceptedServer(self.loop, Random(0))
        self.server.create("workflowruns", {"metadata": {"name": "run"}, "spec": {"workflow": {"name": "any"}}})
        self.requests: list[str] = []
        self.noted: Trace = lambda _line, _about: None
        """Called after each request."""
        session = FaultySession(self.loop, self.server, Faults(self.loop, Random(0), 0), "test", self._note)
        self.client = kube.Client(Access(server=""), session)  # type: ignore[arg-type]

    def _note(self, line: str, about: str) -> None:
        self.requests.append(line.split(maxsplit=1)[0])
        self.noted(line, about)

    def edit(self) -> None:
        """Someone else writes to the run."""
        self.server.update(KEY, lambda obj: obj["spec"].update(ttlSecondsAfterFinished=10_000))

    def run(self, coroutine: Any) -> Any:
        """Run it to its end."""

        async def play() -> Any:
            clock.source.set(self.loop.now)
            return await coroutine

        return self.loop.run_until_complete(play())
