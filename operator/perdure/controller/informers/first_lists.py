"""The first lists: read all runs, RetryPolicies, WorkflowLimits, and Schedules before the first decision."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

import structlog

from perdure.controller.errors import isolate
from perdure.controller.namespaces import ServedNamespaces
from perdure.kube import client as kube

_RETRY_SECONDS: Final = 1.0


class FirstLists:
    """Lists each kind once, page by page; watches continue where the lists end."""

    def __init__(
        self, client: kube.Client, served: ServedNamespaces, updates: Mapping[str, Callable[[kube.Object], None]]
    ) -> None:
        """Create the lists without reading them.

        Args:
            client: Lists the objects.
            served: The served namespaces.
            updates: The function that processes the objects of each kind, by plural, in the order of reading.
        """
        self._client = client
        self._served = served
        self._updates = updates
        self._learned = asyncio.Event()
        self._versions: dict[tuple[str, str | None], str] = {}
        """The version of the list, by kind and namespace."""
        self._log = structlog.get_logger("perdure.learning")

    @property
    def complete(self) -> bool:
        """Whether all objects that existed at the start are known."""
        return self._learned.is_set()

    async def wait(self) -> None:
        """Wait until all objects that existed at the start are known."""
        await self._learned.wait()

    async def version(self, plural: str, namespace: str | None) -> str:
        """Return the version of the list of a kind once; afterwards, and for other kinds, return an empty string."""
        if plural in self._updates:
            await self.wait()
        return self._versions.pop((plural, namespace), "")

    async def read(self) -> None:
        """List all kinds, and retry failed requests."""
        while not self.complete:
            try:
                await self._read()
            except kube.RequestError as error:
                self._log.warning("Could not list the runs, retrying", error=repr(error))
                await asyncio.sleep(_RETRY_SECONDS)
            else:
                self._learned.set()

    async def _read(self) -> None:
        for namespace in self._served:
            for plural, update in self._updates.items():
                async for page in self._client.lists.pages(kube.path(kube.PERDURE, namespace, plural)):
                    self._versions[plural, namespace] = page.version
                    for _, obj in self._client.lists.objects(page):
                        isolate(obj, update)
                    await asyncio.sleep(0)
