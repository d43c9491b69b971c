"""Read the runs that existed when this member gained shards, before it admits a run of these shards.

Only the owner of a shard admits runs to their workflow IDs. Its watch may lag behind the previous owner, which may have created
or started a run that would keep another run from starting. A list that begins after the gain shows all of that.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable

from perdure.controller.directory import Directory, Standing
from perdure.controller.fleet.shards import SHARDS, Shards
from perdure.controller.informers.isolation import take_in
from perdure.kube import client as kube
from perdure.kube.decoding import Stored


class CatchUp:
    """Lists the runs of a namespace once after each gain of shards, before it admits the first run."""

    def __init__(
        self, client: kube.Client, directory: Directory, shards: Shards, take: Callable[[kube.Object], None]
    ) -> None:
        """Create it without reading.

        Args:
            client: Lists and reads the runs.
            directory: The known runs.
            shards: The shards of this member.
            take: Processes a run that was read.
        """
        self._client = client
        self._directory = directory
        self._shards = shards
        self._take = take
        self._owned: frozenset[int] = frozenset()
        self._gains = 0
        """How often this member has gained shards. A process without a fleet gains none: no one else admits runs."""
        self._read: dict[str, int] = {}
        """The last gain before the runs of each namespace were listed."""
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        shards.subscribe(self._reassigned)

    def _reassigned(self) -> None:
        before, self._owned = self._owned, frozenset(filter(self._shards.owns_shard, range(SHARDS)))
        self._gains += not self._owned <= before

    async def read(self, namespace: str) -> None:
        """Ensure that all runs of a namespace are known that existed when this member last gained shards.

        Raises:
            RequestError: The API server did not respond.
        """
        while self._read.get(namespace, 0) < self._gains:
            async with self._locks[namespace]:
                gains = self._gains
                if self._read.get(namespace, 0) < gains:
                    await self._list(namespace)
                    self._read[namespace] = gains

    async def _list(self, namespace: str) -> None:
        url = kube.path(kube.PERDURE, namespace, "workflowruns")
        async for page in self._client.lists.versions(url):
            for each in page:
                if self._may_have_started(each):
                    await self._read_run(url, each)
            await asyncio.sleep(0)

    def _may_have_started(self, stored: Stored) -> bool:
        """Whether a run may be open although it is not known, or only known to wait."""
        known = self._directory.get(stored.uid)
        return known is None or (known.standing is Standing.WAITING and known.version != stored.version)

    async def _read_run(self, url: str, stored: Stored) -> None:
        try:
            obj = await self._client.get(f"{url}/{stored.name}")
        except (kube.NotFoundError, kube.UnreadableError):
            return
        take_in(obj, self._take)
