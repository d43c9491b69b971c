"""`perdure-operator`: the process in the operator's pod."""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import kopf
import structlog

from perdure import __version__
from perdure.controller.deadletters import DeadLetters
from perdure.controller.definitions import Definitions
from perdure.controller.identity import ActivityIdentity
from perdure.controller.manager import Manager
from perdure.controller.operations import Operations
from perdure.controller.pods import Pods
from perdure.controller.policies import Policies
from perdure.controller.served import ServedNamespaces
from perdure.controller.tools import Tools
from perdure.controller.undecoded import Undecoded
from perdure.controller.workers import Workers
from perdure.handlers import login, watch
from perdure.handlers.feed import Feed
from perdure.handlers.settings import NoMemories, settings
from perdure.handlers.temporal import Temporal
from perdure.kube.access import Access, find_access
from perdure.kube.client import Client
from perdure.kube.events import Recorder
from perdure.observe import health, logs, memory
from perdure.runtime.attempts import PodSettings
from perdure.runtime.retention import MIB, Limits

_DEEPEST = 60_000
"""Python's recursion limit for this process. The API server takes values that nest 10,000 levels deep. With this limit Python
3.11 decodes them, and their owner is told what is wrong; what still cannot be decoded is skipped (`perdure.kube.decoding`)."""
_SWITCH_SECONDS = 0.001
"""How long a thread that compiles may keep the interpreter from the event loop. With Python's 5 ms, and two threads that
compile, one in a hundred turns of the loop took 98 ms; with 1 ms, 5 ms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the environment says; the chart sets it."""

    namespaces: tuple[str, ...] = ()
    """Namespaces to watch; none: the whole cluster."""
    excluded: tuple[str, ...] = ()
    """Namespaces to leave to another operator; ``*`` stands for any characters."""
    port: int = 8080
    """Port of /livez, /readyz and /metrics."""
    log_level: str = "info"
    workers: int = 32
    """How many runs and schedules are worked on at a time; one namespace has half of them at most."""
    activity_identity: str = "perdure-activity"
    """Name of the ServiceAccount of activities with a Lease, and of the ClusterRole and RoleBinding that give it its rights."""
    sidecar_image: str = "localhost/perdure:0.1.0"
    """Image of the sidecars of activities that name none: the operator's own."""
    pod_ttl: timedelta = timedelta(minutes=5)
    """How long the pods of attempts that have succeeded are kept, for their logs; zero: not at all."""
    instance: str = "perdure"
    """Name of this pod, for Events."""
    finished: Limits = field(default_factory=Limits)
    """How much each namespace may keep of runs that have finished."""
    temporal_address: str = ""
    """Where Temporal SDKs are served, such as ``0.0.0.0:7233``; empty: they are not."""

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> "Options":
        """Read the options.

        Raises:
            ValueError: PERDURE_HTTP_PORT, PERDURE_WORKERS, PERDURE_POD_TTL_SECONDS, PERDURE_FINISHED_RUNS or
                PERDURE_FINISHED_MIB is not a number.
        """
        return cls(
            namespaces=_listed(environment.get("PERDURE_WATCH_NAMESPACES", "")),
            excluded=_listed(environment.get("PERDURE_EXCLUDE_NAMESPACES", "")),
            port=int(environment.get("PERDURE_HTTP_PORT") or 8080),
            log_level=environment.get("PERDURE_LOG_LEVEL") or "info",
            workers=int(environment.get("PERDURE_WORKERS") or 32),
            activity_identity=environment.get("PERDURE_ACTIVITY_SERVICE_ACCOUNT") or "perdure-activity",
            sidecar_image=environment.get("PERDURE_SIDECAR_IMAGE") or "localhost/perdure:0.1.0",
            pod_ttl=timedelta(seconds=int(environment.get("PERDURE_POD_TTL_SECONDS") or 300)),
            instance=environment.get("POD_NAME") or socket.gethostname(),
            finished=Limits(
                runs=int(environment.get("PERDURE_FINISHED_RUNS") or Limits.runs),
                size=int(environment.get("PERDURE_FINISHED_MIB") or Limits.size // MIB) * MIB,
            ),
            temporal_address=environment.get("PERDURE_TEMPORAL_ADDRESS", ""),
        )


def _listed(text: str) -> tuple[str, ...]:
    return tuple(filter(None, map(str.strip, text.split(","))))


def assemble(client: Client, options: Options, workers: Workers) -> tuple[Manager, Operations]:
    """Build what does the work from its parts.

    Args:
        client: Speaks to the API server.
        options: What the environment says.
        workers: Who serves workers that poll task queues.

    Returns:
        The runs and schedules, and the Operations; neither works yet.
    """
    recorder = Recorder(client, instance=options.instance)
    client.skipped = Undecoded(recorder).report
    settings = PodSettings(
        service_account=options.activity_identity, sidecar_image=options.sidecar_image, pod_ttl=options.pod_ttl
    )
    tools = Tools(
        client=client,
        pods=Pods(client, ActivityIdentity(client, options.activity_identity), settings),
        definitions=Definitions(client),
        policies=Policies(client, recorder),
        letters=DeadLetters(client, recorder),
        recorder=recorder,
        workers=workers,
    )
    served = ServedNamespaces(options.namespaces, options.excluded)
    client.serves = served.__contains__
    manager = Manager(tools, served, workers=options.workers, kept=options.finished)
    operations = Operations(tools, manager.runs, manager.schedules, manager.first_lists, served)
    return manager, operations


async def operate(options: Options, access: Access, *, stop: asyncio.Event) -> None:
    """Run the operator until `stop` is set, or until it cannot go on.

    Raises:
        Exception: the watches have given up, or the work has; the process is to be started anew.
    """
    log = structlog.get_logger("perdure")
    agent = f"perdure-operator/{__version__}"
    async with (
        Client.open(access, user_agent=agent) as client,
        # A watch holds its connection: watches must not wait for each other, or for anything else.
        Client.open(access, user_agent=agent, connections=0) as watching,
    ):
        temporal = Temporal(options.temporal_address, os.environ)
        manager, operations = assemble(client, options, temporal.workers())
        watching.skipped, watching.serves = client.skipped, client.serves
        feed = Feed(watching, manager)
        registry = kopf.OperatorRegistry()
        login.register(registry, access.server, feed)
        watch.register(registry, manager, operations)
        ready = asyncio.Event()

        @kopf.on.cleanup(registry=registry)
        async def stopping(**_: Any) -> None:
            stop.set()  # a signal goes to kopf; its own wait for this flag would keep it for its last five seconds

        def trouble() -> str | None:
            return manager.trouble() or operations.trouble()

        def not_ready() -> str | None:
            if not (ready.is_set() and manager.first_lists.complete):
                return "the watches have not begun"
            return feed.trouble()

        async with health.serve(options.port, live=trouble, ready=not_ready), temporal.serve(manager):
            # The work begins before kopf does, with the tasks it is made of: at its end, kopf waits for, and cancels, every
            # task younger than itself.
            work = [asyncio.create_task(each.run(), name="work") for each in (manager, operations)]
            watches = asyncio.create_task(
                kopf.operator(
                    registry=registry,
                    settings=settings(),
                    memories=NoMemories(),
                    clusterwide=not options.namespaces,
                    namespaces=options.namespaces,
                    standalone=True,
                    ready_flag=ready,
                    stop_flag=stop,
                ),
                name="watches",
            )
            log.info("Started", version=__version__, server=access.server, namespaces=options.namespaces or "all")
            memory.settle()
            try:
                done, _ = await asyncio.wait({*work, watches}, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
            finally:
                for task in (*work, watches):
                    task.cancel()
                await asyncio.gather(*work, watches, return_exceptions=True)
            log.info("Stopped")


async def _main(options: Options, access: Access) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await operate(options, access, stop=stop)


def main() -> None:
    """Entry point of `perdure-operator`."""
    sys.setrecursionlimit(_DEEPEST)
    sys.setswitchinterval(_SWITCH_SECONDS)
    options = Options.from_environment(os.environ)
    logs.configure(options.log_level)
    access = find_access(
        host=os.environ.get("KUBERNETES_SERVICE_HOST", ""), port=os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    )
    asyncio.run(_main(options, access))
