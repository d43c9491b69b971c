"""`perdure-frontend`: the process in the pod of a frontend of its own."""

import asyncio
import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass

import structlog
import uvloop

from perdure import __version__
from perdure.api.state_versions import NEWEST, OLDEST
from perdure.controller import state_versions
from perdure.controller.fleet.observer import ObservedFleet, ObserverSettings
from perdure.controller.namespaces import ServedNamespaces
from perdure.frontend.apart import server
from perdure.frontend.settings import Settings, listed, settings_of
from perdure.kube.access import Access, find_access
from perdure.kube.client import Client
from perdure.observe import health, json_logs, metrics


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontendOptions:
    """The options from the environment, which the chart sets. They have the names of those of the operator."""

    address: str
    """The address to listen on for Temporal SDKs, such as ``0.0.0.0:7233``."""
    observer: ObserverSettings
    served: ServedNamespaces
    settings: Settings
    port: int = 8080
    """Port of /livez, /readyz and /metrics."""
    linger: float = 0.0
    """How long the process remains after it has stopped serving, in seconds."""
    log_level: str = "info"

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> "FrontendOptions":
        """Read the options.

        Raises:
            ValueError: A value is missing or not valid.
        """
        for name in ("PERDURE_TEMPORAL_ADDRESS", "PERDURE_FLEET"):
            if not environment.get(name):
                raise ValueError(f"perdure-frontend requires {name}")
        return cls(
            address=environment["PERDURE_TEMPORAL_ADDRESS"],
            observer=ObserverSettings(
                fleet=environment["PERDURE_FLEET"], seconds=int(environment.get("PERDURE_LEASE_SECONDS") or 10)
            ),
            served=ServedNamespaces(
                listed(environment, "PERDURE_WATCH_NAMESPACES"), listed(environment, "PERDURE_EXCLUDE_NAMESPACES")
            ),
            settings=settings_of(environment),
            port=int(environment.get("PERDURE_HTTP_PORT") or 8080),
            linger=float(environment.get("PERDURE_LINGER_SECONDS") or 0),
            log_level=environment.get("PERDURE_LOG_LEVEL") or "info",
        )


async def run(options: FrontendOptions, access: Access, *, stop: asyncio.Event) -> None:
    """Run a frontend until `stop` is set.

    At the end, the process remains for a moment with closed ports, as an operator does, so that new connections are refused
    until the Service no longer points at this pod.

    Raises:
        RuntimeError: An address or the TLS certificate is not available.
        ValueError: A setting is missing.
    """
    log = structlog.get_logger("perdure")
    agent = f"perdure-frontend/{__version__}"
    state_versions.process.set(state_versions.StateVersions(NEWEST, OLDEST))  # it stores nothing
    async with Client.open(access, user_agent=agent, traces=[metrics.request_tracing()]) as client:
        fleet = ObservedFleet(client, options.observer)

        def not_ready() -> str | None:
            if stop.is_set():
                return "this frontend is shutting down"
            return None if fleet.is_known else "no operator is known"

        probes = health.serve(options.port, live=lambda: None, ready=not_ready, measure=lambda: None)
        work = [
            asyncio.create_task(fleet.run(), name="fleet"),
            asyncio.create_task(metrics.measure_event_loop(), name="event loop"),
        ]
        try:
            async with probes:
                async with server.serve(client, fleet, options.served, options.settings, options.address) as port:
                    log.info("Serving Temporal SDKs", version=__version__, server=access.server, port=port)
                    stopping = asyncio.create_task(stop.wait(), name="stop")
                    done, _ = await asyncio.wait({*work, stopping}, return_when=asyncio.FIRST_COMPLETED)
                    stopping.cancel()
                    for task in done - {stopping}:
                        task.result()  # it only ends with an error
                await asyncio.sleep(options.linger)
        finally:
            stop.set()
            for task in work:
                task.cancel()
            await asyncio.gather(*work, return_exceptions=True)
        log.info("Stopped")


async def _main(options: FrontendOptions, access: Access) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await run(options, access, stop=stop)


def main() -> None:
    """Entry point of `perdure-frontend`."""
    options = FrontendOptions.from_environment(os.environ)
    json_logs.configure(options.log_level)
    access = find_access(
        host=os.environ.get("KUBERNETES_SERVICE_HOST", ""), port=os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    )
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_main(options, access))
