"""The frontend for Temporal SDKs, which is imported only if it is enabled."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import structlog

from perdure.controller.manager import Manager
from perdure.controller.workers import NoWorkers, Workers

if TYPE_CHECKING:
    from perdure.frontend.core import Frontend


class Temporal:
    """The frontend, if it is enabled."""

    def __init__(self, address: str, environment: Mapping[str, str]) -> None:
        """The frontend is served at `address`; if it is empty, there is none. `environment` has the other settings."""
        self._address = address
        self._linger = float(environment.get("PERDURE_LINGER_SECONDS") or 0)
        self._environment = environment
        self._frontend: Frontend | None = None

    def workers(self, manager: Manager) -> Workers:
        """Create the server for workers.

        Raises:
            ValueError: A setting is not valid.
        """
        if not self._address:
            return NoWorkers()
        from perdure.frontend import core, settings  # noqa: PLC0415 (saves 50 MB without a frontend)

        self._frontend = core.Frontend(manager, settings.settings_of(self._environment))
        return self._frontend

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[None]:
        """Serve SDKs within the block.

        At its end, the ports are closed for some more seconds, so that new connections are refused. Until the Service no longer
        points at this pod, SDKs connect to it again. If the pod had vanished, nothing would answer them for two minutes.
        """
        if self._frontend is None:
            yield
            return
        from perdure.frontend.server import serve  # noqa: PLC0415

        async with serve(self._frontend, self._address) as port:
            structlog.get_logger("perdure").info("Serving Temporal SDKs", port=port)
            yield
        await asyncio.sleep(self._linger)
