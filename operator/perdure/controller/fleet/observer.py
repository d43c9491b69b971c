"""The members of a fleet as a process sees them that is none of them and owns no shards, such as a frontend of its own."""

import asyncio
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import structlog

from perdure.api.labels import FLEET_LABEL
from perdure.controller.fleet.membership import FleetView, MemberLease, read_lease
from perdure.controller.fleet.shards import ranked
from perdure.kube import client as kube
from perdure.kube.clock import monotonic
from perdure.kube.responses import decode
from perdure.observe import metrics

_LISTS: Final = 5
"""Lists per duration of a Lease, as many as members send."""
_PAUSE_SECONDS: Final = 0.2
"""The shortest time between two lists."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObserverSettings:
    """The fleet that a process observes."""

    fleet: str
    """The name of the release."""
    seconds: int = 10
    """The duration of the Leases of members."""


class ObservedFleet:
    """The live members of a fleet, by their Leases. While the API server cannot be reached, the last known ones."""

    def __init__(self, client: kube.Client, settings: ObserverSettings) -> None:
        """Create it without members. The Leases are in the namespace of this process."""
        self._client = client
        self._settings = settings
        self._url = kube.path(kube.COORDINATION, client.access.namespace, "leases")
        self._view = FleetView("", settings.seconds)
        self._members: frozenset[tuple[str, str]] = frozenset()
        self._known = asyncio.Event()
        self._outdated = asyncio.Event()
        self._subscribers: list[Callable[[], None]] = []
        self._log = structlog.get_logger("perdure.fleet")

    @property
    def others(self) -> Mapping[str, str]:
        """The addresses of the members, by name."""
        return self._view.others

    @property
    def others_over_grpc(self) -> Collection[str]:
        """The members that take calls over gRPC only: those of earlier versions, which know no frontends of their own."""
        return self._view.others_over_grpc

    def ranked(self, shard: int) -> list[str]:
        """The members, with the probable owner of a shard first, then the one that takes over if that is lost, and so on."""
        return ranked(shard, self._view.others)

    async def known(self) -> None:
        """Wait until the members are known."""
        await self._known.wait()

    @property
    def is_known(self) -> bool:
        """Whether the members are known, and there are any."""
        return self._known.is_set() and bool(self._members)

    def outdated(self) -> None:
        """List the Leases again soon, because a member was lost or owns other shards than expected."""
        self._outdated.set()

    def subscribe(self, changed: Callable[[], None]) -> None:
        """Call a function whenever there are other members."""
        self._subscribers.append(changed)

    async def run(self) -> None:
        """Observe the members until cancelled."""
        while True:
            began = monotonic()
            self._outdated.clear()
            try:
                await self._list()
            except (kube.RequestError, TimeoutError) as error:
                self._log.warning("Could not list the operators of the fleet, retrying", error=repr(error))
            pause = min(self._settings.seconds / _LISTS, max(self._view.next_change(monotonic()) - monotonic(), 0.0))
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._outdated.wait()
            await asyncio.sleep(max(began + _PAUSE_SECONDS - monotonic(), 0.0))

    async def _list(self) -> None:
        sent = monotonic()
        selector = f"{FLEET_LABEL}={self._settings.fleet}"
        async with asyncio.timeout(self._settings.seconds / _LISTS):
            # Not with `each`, because frontends may not serve their own namespace.
            pages = [page async for page in self._client.lists.pages(self._url, labelSelector=selector)]
        found: list[MemberLease] = [
            read_lease(decode(memoryview(raw)), self._settings.seconds) for page in pages for raw in page.items
        ]
        self._view.listed(found, sent, monotonic())
        members = frozenset(self._view.others.items())
        self._known.set()
        if members == self._members:
            return
        self._members = members
        metrics.FLEET_MEMBERS.set(len(members))
        self._log.info("The fleet has changed", members=sorted(name for name, _ in members))
        for changed in self._subscribers:
            changed()
