"""Register the task queues that workers of versions poll, several with one write."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from perdure.engine.versioning import DeploymentVersion
from perdure.frontend.deployments.rules import Deployments, WorkerDeployment, registered
from perdure.frontend.errors import RpcError
from perdure.frontend.matching.queues import Kind
from perdure.frontend.matching.rates import Throttle
from perdure.frontend.registry import NamespaceRegistry
from perdure.kube.clock import now

_BURST = 20
"""Number of undelayed writes per namespace; after that, one write per second."""
_MANY = 1_000
"""Maximum number of throttles before unused ones are dropped."""


@dataclass(frozen=True, slots=True)
class Registration:
    """A task queue that workers of a version poll."""

    version: DeploymentVersion
    kind: Kind
    queue: str


_Waiting = dict[Registration, asyncio.Future[None]]


class Registrations:
    """Registers task queues. Registrations that come while a namespace waits for its next write are combined in it."""

    def __init__(
        self,
        registry: NamespaceRegistry[WorkerDeployment],
        removable: Callable[[str], Callable[[DeploymentVersion], bool]],
    ) -> None:
        """Create registrations.

        Args:
            registry: The registry to write to.
            removable: Returns, by namespace, whether a version can be replaced by a new one.
        """
        self._registry = registry
        self._removable = removable
        self._waiting: dict[str, _Waiting] = {}
        self._writing: dict[str, asyncio.Task[None]] = {}
        self._throttles: dict[str, Throttle] = {}

    async def add(self, namespace: str, registration: Registration) -> None:
        """Register a task queue.

        Raises:
            RpcError: There are too many deployments, versions or task queues, or the API server does not respond.
        """
        self._with(self._registry.known(namespace), namespace, registration)  # may reject without a request
        waiting = self._waiting.setdefault(namespace, {})
        if registration not in waiting:
            waiting[registration] = asyncio.get_running_loop().create_future()
        registered_then = waiting[registration]
        if namespace not in self._writing:
            self._writing[namespace] = asyncio.get_running_loop().create_task(
                self._write_all(namespace), name="worker deployments"
            )
        await asyncio.shield(registered_then)

    async def _write_all(self, namespace: str) -> None:
        loop = asyncio.get_running_loop()
        try:
            while namespace in self._waiting:
                throttle = self._throttle(namespace)
                await asyncio.sleep(throttle.wait(loop.time()))
                throttle.count(loop.time())
                await self._write(namespace, self._waiting.pop(namespace))
        finally:
            del self._writing[namespace]
            for future in self._waiting.pop(namespace, {}).values():
                future.cancel()

    def _throttle(self, namespace: str) -> Throttle:
        if namespace not in self._throttles and len(self._throttles) >= _MANY:
            time = asyncio.get_running_loop().time()
            self._throttles = {name: each for name, each in self._throttles.items() if each.wait(time)}
        return self._throttles.setdefault(namespace, Throttle(per_second=1.0, at_once=_BURST))

    async def _write(self, namespace: str, waiting: _Waiting) -> None:
        refused: dict[Registration, RpcError] = {}

        def change(known: Deployments) -> Deployments:
            refused.clear()
            for each in waiting:
                try:
                    known = self._with(known, namespace, each)
                except RpcError as error:
                    refused[each] = error
            return known

        try:
            await self._registry.change(namespace, change)
        except RpcError as error:
            refused = dict.fromkeys(waiting, error)
        for each, future in waiting.items():
            if each in refused:
                future.set_exception(refused[each])
                future.exception()  # the poller may have disconnected
            else:
                future.set_result(None)

    def _with(self, known: Deployments, namespace: str, each: Registration) -> Deployments:
        return registered(known, each.version, each.kind, each.queue, now(), removable=self._removable(namespace))
