"""Perdure's frontend and operator over an API server in memory, in real time, on a loopback port."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from random import Random
from threading import Thread

from perdure.archive.rows import Archive
from perdure.frontend.server import serve
from perdure.frontend.settings import Settings
from perdure.kube.client import Object
from perdure.runtime.retention import Limits
from perdure.simulation.cluster.apiserver import ApiServer
from perdure.simulation.cluster.kubelet import Kubelet, Script
from perdure.simulation.cluster.loop import ClusterLoop
from perdure.simulation.cluster.process import task_factory
from perdure.simulation.cluster.resources import kinds
from support.faulty.faults import Faults
from support.faulty.operators import FaultyOperator
from support.temporal import Server
from support.threads import join

NAMESPACE = "default"
OPEN = Settings(authentication=False)


@dataclass(frozen=True)
class Deployment:
    """What the API server has at first, and how the operator is configured."""

    namespaces: tuple[str, ...]
    config_maps: Sequence[Object]
    """In the operator's namespace."""
    address: str
    settings: Settings
    objects: Sequence[Object]
    """Of Perdure's kinds."""
    pods: Script | None
    """How pods end; None: they never start."""
    archive: Callable[[], AbstractAsyncContextManager[Archive | None]]
    """Opens the archive of the operator."""
    limits: Limits
    restored: ApiServer | None
    """The API server of an earlier operator, whose objects exist; None: of none."""
    cluster: Future[ApiServer] = field(default_factory=Future)


@contextmanager
def in_memory(
    *others: str,
    namespace: str = NAMESPACE,
    config_maps: Sequence[Object] = (),
    address: str = "127.0.0.1:0",
    settings: Settings = OPEN,
    objects: Sequence[Object] = (),
    pods: Script | None = None,
    archive: Callable[[], AbstractAsyncContextManager[Archive | None]] = nullcontext,
    limits: Limits = Limits(),  # noqa: B008 (immutable)
    restored: ApiServer | None = None,
) -> Iterator[Server]:
    """An operator that serves one namespace, and `others`; gone at the end of the block. Its own has some ConfigMaps.

    `objects` of Perdure's kinds exist from the start, and pods end as `pods` says. `archive` opens its
    archive, and `limits` are those of its finished runs. With `restored`, the API server of an operator that is gone, the cluster
    has everything that this had, with its UIDs and its status.
    """
    port: Future[int] = Future()
    crashes: list[str] = []
    loop = ClusterLoop()
    loop.set_task_factory(task_factory)
    stop = asyncio.Event()
    deployment = Deployment(
        (namespace, *others), config_maps, address, settings, objects, pods, archive, limits, restored
    )
    thread = Thread(target=_run, args=(loop, port, stop, crashes, deployment), daemon=True)
    thread.start()
    try:
        host = address.rpartition(":")[0]
        served = Server(f"{host}:{port.result()}", namespace, http_address=settings.http_address)
        served.cluster = deployment.cluster.result()
        yield served
    finally:
        if port.exception() is None:
            loop.call_soon_threadsafe(stop.set)
        join(thread, loop)
    assert not crashes, crashes


def _run(loop: ClusterLoop, port: Future[int], stop: asyncio.Event, crashes: list[str], deployment: Deployment) -> None:
    asyncio.set_event_loop(loop)  # gRPC uses the loop of its thread
    try:
        loop.run_until_complete(_operate(loop, port, stop, crashes, deployment))
    except Exception as error:
        if port.done():
            raise
        port.set_exception(error)
    finally:
        loop.close()


async def _operate(
    loop: ClusterLoop, port: Future[int], stop: asyncio.Event, crashes: list[str], deployment: Deployment
) -> None:
    kubernetes = ApiServer(loop, Random(0))
    deployment.cluster.set_result(kubernetes)
    if deployment.restored is None:
        for name in deployment.namespaces:
            kubernetes.create("namespaces", {"metadata": {"name": name}}, namespace="None")
    else:
        kubernetes.version = deployment.restored.version
        for key, obj in deployment.restored.objects.items():
            kubernetes.objects.put(key, obj)
    for each in deployment.config_maps:
        kubernetes.create("configmaps", each, namespace=deployment.namespaces[0])
    for each in deployment.objects:
        plural = next(name for name, found in kinds().items() if found.kind == each["kind"])
        kubernetes.create(plural, each, namespace=deployment.namespaces[0])
    if deployment.pods is not None:
        Kubelet(loop, kubernetes, deployment.pods)
    async with deployment.archive() as archive:
        await _serve(loop, port, stop, crashes, deployment, kubernetes, archive)


async def _serve(
    loop: ClusterLoop,
    port: Future[int],
    stop: asyncio.Event,
    crashes: list[str],
    deployment: Deployment,
    kubernetes: ApiServer,
    archive: Archive | None,
) -> None:
    operator = FaultyOperator(
        "perdure",
        loop,
        Random(1),
        kubernetes,
        Faults(loop, Random(2), rate=0, delay=0.002),  # as long as an API server takes for a write, about 3 ms
        lag=0.005,
        skew=0.0,
        limits=deployment.limits,
        archive=archive,
        trace=None,
        crashed=crashes.append,
        frontend=deployment.settings,
        namespaces=deployment.namespaces,
    )

    async def served() -> None:
        async with serve(operator.frontend, deployment.address) as number:
            port.set_result(number)
            await stop.wait()

    await operator.do(served())
    await operator.kill()
