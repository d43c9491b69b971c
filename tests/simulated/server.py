"""An API server whose requests a scenario can observe, precede with a change of its own, or refuse."""

from collections.abc import Callable
from random import Random

from perdure.simulation.cluster.apiserver import ApiServer, Request, Response
from perdure.simulation.cluster.loop import ClusterLoop

Interceptor = Callable[[Request], Response | None]
"""Gets a request before the server processes it. A response is sent instead of the server's."""


class InterceptedServer(ApiServer):
    """An API server that passes each request to interceptors first."""

    def __init__(self, loop: ClusterLoop, random: Random, *, largest_page: int = 500) -> None:
        super().__init__(loop, random, largest_page=largest_page)
        self.interceptors: list[Interceptor] = []

    def handle(self, request: Request) -> Response:
        """Answer one request."""
        for intercept in self.interceptors:
            response = intercept(request)
            if response is not None:
                return response
        return super().handle(request)
