"""The resync of Operations: every minute, list the pending ones and compare them with the watch."""

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

import structlog

from perdure.controller.informers import periodic
from perdure.controller.informers.isolation import take_in
from perdure.controller.namespaces import ServedNamespaces
from perdure.controller.operations.pending_operations import PENDING
from perdure.kube import client as kube
from perdure.kube.clock import now
from perdure.observe import metrics

_RETRY_SECONDS: Final = 1.0
_STALE_AFTER: Final = 3
"""The number of consecutive resyncs with missed Operations after which the watch counts as stale."""


class OperationResync:
    """Finds pending Operations that the watch has missed because of gaps or a hanging connection."""

    def __init__(self, client: kube.Client, served: ServedNamespaces, take: Callable[[kube.Object], None]) -> None:
        """Create a resync; `take` processes each pending Operation."""
        self._client = client
        self._served = served
        self._take = take
        self._seen: set[str] = set()
        self._missed = 0
        self._log = structlog.get_logger("perdure.operations")

    def observe(self, obj: kube.Object, *, deleted: bool) -> None:
        """Note that the watch has shown an Operation."""
        self._missed = 0
        if deleted:
            self._seen.discard(obj["metadata"]["uid"])
        else:
            self._seen.add(obj["metadata"]["uid"])

    async def run(self) -> None:
        """Resync until cancelled."""
        await periodic.repeat(self.resync)

    async def retry(self) -> None:
        """Resync once, as soon as the Kubernetes API responds."""
        while not await self.resync():  # noqa: ASYNC110 - the Kubernetes API has no event for this
            await asyncio.sleep(_RETRY_SECONDS)

    async def resync(self) -> bool:
        """List and process all pending Operations, even if the watch has shown them; return whether all were listed."""
        try:
            await self._list()
        except kube.RequestError as error:
            self._log.warning("Could not resync Operations, retrying", error=repr(error))
            return False
        return True

    async def _list(self) -> None:
        missed = 0
        for namespace in self._served:
            url = kube.path(kube.PERDURE, namespace, "operations")
            async for obj in self._client.lists.each(url, fieldSelector=PENDING):
                created = datetime.fromisoformat(obj["metadata"]["creationTimestamp"])
                unseen = obj["metadata"]["uid"] not in self._seen
                missed += unseen and created < now() - timedelta(seconds=periodic.RESYNC_SECONDS)
                take_in(obj, self._take)
        if missed:
            self._missed += 1
            metrics.WATCH_LAG.inc(missed)
            self._log.warning("The watch missed Operations", objects=missed)

    def trouble(self) -> str | None:
        """Why the watch counts as stale; None if it works."""
        if self._missed < _STALE_AFTER:
            return None
        return f"the watch on operations is stale: {self._missed} resyncs found changes but no events arrived"
