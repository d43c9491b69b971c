"""`perdure-operator`: the process in the operator's pod. It imports the frontend for Temporal SDKs only if that is enabled."""

import asyncio
import gc
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import kopf
import structlog
import uvloop

# kopf does not export it.
from kopf._core.engines.peering import Identity

from perdure import __version__
from perdure.controller.manager import Manager
from perdure.handlers import watch
from perdure.handlers.assembly import OperatorOptions, assemble
from perdure.kube.access import Access, find_access
from perdure.kube.client import Client
from perdure.lazy import lazily
from perdure.observe import health, json_logs, metrics

with lazily():  # 30 MB each, for the frontend and the archive
    from perdure.frontend import core, server, settings
    from perdure.postgres import archive as postgres

if TYPE_CHECKING:
    from perdure.archive.rows import Archive
    from perdure.frontend.core import Frontend


class Temporal:
    """The frontend, if it is enabled."""

    def __init__(self, manager: Manager, address: str, environment: Mapping[str, str]) -> None:
        """Create the frontend of a manager.

        Args:
            manager: The manager, which is complete and does not run yet.
            address: The address to serve it at. If it is empty, frontends of their own serve SDKs, or nothing does.
            environment: The other settings.

        Raises:
            ValueError: A setting is not valid.
        """
        self._address = address
        self._linger = float(environment.get("PERDURE_LINGER_SECONDS") or 0)
        self._frontend: Frontend | None = None
        if address or environment.get("PERDURE_FRONTEND_USER"):
            self._frontend = core.Frontend(manager, settings.settings_of(environment))
            manager.attach(self._frontend)

    def measure(self) -> None:
        """Set the metrics of the task queues that this process owns."""
        if self._frontend is not None:
            metrics.show_task_queues(self._frontend.queues.totals())

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[None]:
        """Serve SDKs within the block.

        At its end, the ports are closed for some more seconds, so that new connections are refused. Until the Service no longer
        points at this pod, SDKs connect to it again. If the pod had vanished, nothing would answer them for two minutes.
        """
        if self._frontend is None:
            yield
            return
        async with server.serve(self._frontend, self._address) as port:
            log = structlog.get_logger("perdure")
            if port:
                log.info("Serving Temporal SDKs", port=port)
            else:
                log.info("Serving frontends, which serve Temporal SDKs")
            yield
        await asyncio.sleep(self._linger)


RECURSION_LIMIT = 60_000
"""Python's recursion limit for this process. The API server accepts values that nest 10,000 levels deep. With this limit,
Python 3.11 decodes them; from 3.12, decoders have a fixed limit of just under 10,000 levels. The status of the object reports
the error. Objects that cannot be decoded are skipped (`perdure.kube.responses`)."""
_SWITCH_SECONDS = 0.001
"""How long a compiling thread may keep the interpreter from the event loop. With Python's default of 5 ms and two compiling
threads, one in a hundred turns of the loop took 98 ms; with 1 ms, it took 5 ms."""


async def operate(options: OperatorOptions, access: Access, *, stop: asyncio.Event) -> None:
    """Run the operator until `stop` is set, or until it cannot continue.

    Raises:
        Exception: The watches or the work failed, and the process must be restarted.
    """
    log = structlog.get_logger("perdure")
    agent = f"perdure-operator/{__version__}"
    async with (
        Client.open(access, user_agent=agent, traces=[metrics.request_tracing()]) as client,
        # Each watch holds a connection, so an unlimited pool keeps watches from waiting for each other.
        Client.open(access, user_agent=agent, connections=0) as watch_client,
        _archive(options, os.environ) as archive,
    ):
        manager, operations = assemble(client, options, archive)
        temporal = Temporal(manager, options.temporal_address, os.environ)
        watch_client.lists.skipped, watch_client.lists.serves = client.lists.skipped, client.lists.serves
        feed = watch.Feed(watch_client, manager)
        registry = kopf.OperatorRegistry()
        watch.register_login(registry, access.server, feed)
        watch.register(registry, (*manager.informers.values(), operations.informer))
        ready = asyncio.Event()

        @kopf.on.cleanup(registry=registry)
        async def on_cleanup(**_: Any) -> None:
            stop.set()  # kopf gets the signal; its own wait for this flag would delay the shutdown by five seconds

        async def hand_over() -> None:
            await stop.wait()
            await manager.shards.leave(manager.drain, operations.drain)

        def trouble() -> str | None:
            return manager.trouble() or operations.informer.trouble()

        def not_ready() -> str | None:
            if stop.is_set():
                return "this operator is shutting down"
            if not (ready.is_set() and manager.first_lists.complete):
                return "the watches have not started"
            if not manager.shards.active:
                return "the Lease of this operator was not renewed in time, or was renewed only recently"
            return feed.trouble()

        def measure() -> None:
            manager.measure()
            temporal.measure()

        async with health.serve(options.port, live=trouble, ready=not_ready, measure=measure), temporal.serve():
            work = [asyncio.create_task(each.run(), name="work") for each in (manager, operations)]
            work.append(asyncio.create_task(metrics.measure_event_loop(), name="event loop"))
            handover = asyncio.create_task(hand_over(), name="handing over")
            watches = asyncio.create_task(_watch(registry, options, ready, stop), name="watches")
            log.info("Started", version=__version__, server=access.server, namespaces=options.namespaces or "all")
            tune_garbage_collector()
            try:
                done, _ = await asyncio.wait({*work, watches}, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
            finally:
                stop.set()
                await handover
                for task in (*work, watches):
                    task.cancel()
                await asyncio.gather(*work, watches, return_exceptions=True)
            log.info("Stopped")


@asynccontextmanager
async def _archive(options: OperatorOptions, environment: Mapping[str, str]) -> AsyncIterator["Archive | None"]:
    """The archive within the block, if one is configured."""
    if environment.get("PERDURE_STORE_BUCKET"):
        from perdure.bucket.archive import BucketArchive  # noqa: PLC0415 (as below)
        from perdure.bucket.objects import S3Bucket  # noqa: PLC0415

        yield BucketArchive(S3Bucket(environment), options.archiving.retention)
        return
    address = environment.get("PERDURE_ARCHIVE_URL", "")
    if not address:
        yield None
        return
    connection = postgres.Connection(conninfo=address, size=int(environment.get("PERDURE_ARCHIVE_CONNECTIONS") or 8))
    async with postgres.PostgresArchive(connection, options.archiving.retention).run() as archive:
        yield archive


async def _watch(
    registry: kopf.OperatorRegistry, options: OperatorOptions, ready: asyncio.Event, stop: asyncio.Event
) -> None:
    """Have kopf watch, until `stop` is set. At its end, kopf ends its own tasks only."""
    tasks = await kopf.spawn_tasks(
        registry=registry,
        settings=watch.settings(),
        memories=watch.NoMemories(),
        clusterwide=not options.namespaces,
        namespaces=options.namespaces,
        standalone=True,
        # By default, kopf looks up the name of its user: one that the platform has chosen has none.
        identity=Identity(options.instance),
        ready_flag=ready,
        stop_flag=stop,
    )
    await kopf.run_tasks(tasks, ignored=watch.ForeignTasks())


def tune_garbage_collector() -> None:
    """Exclude all current objects from collection, and look for cycles less often: decisions create many objects, but few cycles.

    Call it once everything is loaded.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)


async def _main(options: OperatorOptions, access: Access) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await operate(options, access, stop=stop)


def main() -> None:
    """Entry point of `perdure-operator`. With uvloop, it needs a tenth less CPU time for each run than with Python's loop."""
    sys.setrecursionlimit(RECURSION_LIMIT)
    sys.setswitchinterval(_SWITCH_SECONDS)
    options = OperatorOptions.from_environment(os.environ)
    json_logs.configure(options.log_level)
    access = find_access(
        host=os.environ.get("KUBERNETES_SERVICE_HOST", ""), port=os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    )
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_main(options, access))
