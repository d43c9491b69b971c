"""Worker deployments whose workers the operator runs: what is known of them, and changes of their routing.

The changes are those of the RPCs, with the same rules, from a client named `perdure`.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Final

import grpc
from temporalio.api.deployment.v1 import WorkerDeploymentVersion
from temporalio.api.workflowservice import v1 as api

from perdure.api.reasons import ConditionReason
from perdure.controller.errors import RefusedError
from perdure.engine.versioning import DeploymentVersion
from perdure.frontend.deployments import rules
from perdure.frontend.deployments.rpcs import WorkerDeploymentRpcs
from perdure.frontend.deployments.rules import WorkerDeployment
from perdure.frontend.deployments.versions import Versions
from perdure.frontend.errors import RpcError
from perdure.frontend.matching.queues import Kind, Matching, QueueName
from perdure.frontend.registry import NamespaceRegistry
from perdure.frontend.transport.rpc import CallContext
from perdure.kube import client as kube
from perdure.runtime.workers.plan import Facts, Load, Route, Version

if TYPE_CHECKING:
    from collections.abc import Iterator

IDENTITY: Final = "perdure"
"""The identity of the operator as a client that changes the routing."""
_CALL: Final = CallContext(seconds_left=None)
_REFUSALS: Final = frozenset(
    {
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.NOT_FOUND,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
    }
)


async def _nobody(namespace: str) -> None:
    """Announce nothing: there is no other member."""
    del namespace


class ManagedDeployments:
    """The worker deployments, for the controller that runs workers (`WorkerRouting`)."""

    def __init__(
        self,
        deployments: NamespaceRegistry[WorkerDeployment],
        versions: Versions,
        matching: Matching,
        rpcs: WorkerDeploymentRpcs,
        pinned: Callable[[str], Mapping[DeploymentVersion, int]],
    ) -> None:
        """Create it.

        Args:
            deployments: The worker deployments.
            versions: Which versions poll.
            matching: The tasks.
            rpcs: Changes the routing.
            pinned: Returns how many open runs of a namespace are pinned to each version, at all members.
        """
        self._deployments = deployments
        self._versions = versions
        self._matching = matching
        self._rpcs = rpcs
        self._pinned = pinned
        self.announce: Callable[[str], Awaitable[None]] = _nobody
        """Lets the other members of a fleet read the worker deployments of a namespace again."""

    async def facts(self, namespace: str, name: str, target: str, queues: Sequence[str], now: datetime) -> Facts:
        """Return what is known of a worker deployment; see `WorkerRouting`."""
        found = (await self._deployments.read(namespace)).get(name)
        if found is None:
            return Facts(versions={})
        routed = {found.current, found.ramping}
        old = found.versions.keys() - routed - {target}
        pinned = self._pinned(namespace) if old or target in found.versions.keys() - routed else {}
        return Facts(
            versions={
                build: self._version(namespace, name, build, each, target, queues, pinned, now)
                for build, each in found.versions.items()
            },
            current=found.current,
            ramping=found.ramping,
            percentage=found.percentage,
            ramped=found.percentage_changed_time or found.ramping_changed_time,
        )

    def _version(
        self,
        namespace: str,
        name: str,
        build: str,
        found: rules.Version,
        target: str,
        queues: Sequence[str],
        pinned: Mapping[DeploymentVersion, int],
        now: datetime,
    ) -> Version:
        version = DeploymentVersion(deployment_name=name, build_id=build)
        open_runs = pinned.get(version, 0)
        polled = {queue for each in found.task_queues.values() for queue in each}
        load = Load()
        for kind, names in found.task_queues.items():
            for queue in names:
                load += self._matching.load(QueueName(namespace, Kind(kind), queue, str(version)))
        return replace(
            Version.unseen(build, now),
            known=bool(polled),
            registered=polled.issuperset(queues) if build == target else bool(polled),
            polled=self._versions.has_pollers(namespace, version),
            deactivated=found.last_deactivation_time is not None,
            drained=rules.drainage(found, pinned=bool(open_runs), time=now) == "Drained",
            open_runs=open_runs,
            load=load,
        )

    async def route(self, namespace: str, name: str, route: Route) -> None:
        """Change the current or the ramping version; see `WorkerRouting`."""
        with _refusals():
            if route.percentage is None:
                await self._rpcs.set_worker_deployment_current_version(
                    api.SetWorkerDeploymentCurrentVersionRequest(
                        namespace=namespace, deployment_name=name, build_id=route.build_id, identity=IDENTITY
                    ),
                    _CALL,
                )
            else:
                await self._rpcs.set_worker_deployment_ramping_version(
                    api.SetWorkerDeploymentRampingVersionRequest(
                        namespace=namespace,
                        deployment_name=name,
                        build_id=route.build_id,
                        percentage=route.percentage,
                        identity=IDENTITY,
                    ),
                    _CALL,
                )
        await self.announce(namespace)

    async def forget(self, namespace: str, name: str, build_id: str) -> None:
        """Remove a version; see `WorkerRouting`."""
        version = WorkerDeploymentVersion(deployment_name=name, build_id=build_id)
        with _refusals():
            await self._rpcs.delete_worker_deployment_version(
                api.DeleteWorkerDeploymentVersionRequest(
                    namespace=namespace, deployment_version=version, identity=IDENTITY
                ),
                _CALL,
            )
        await self.announce(namespace)


@contextmanager
def _refusals() -> "Iterator[None]":
    """Convert the errors of RPCs to those of the controller."""
    try:
        yield
    except RpcError as error:
        if error.code in _REFUSALS:
            raise RefusedError(ConditionReason.ROUTING_REFUSED, error.message) from error
        raise kube.NoResponseError(error.message) from error
