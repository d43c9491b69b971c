"""Find runs that exist although no watch of this operator has shown them yet."""

import asyncio
from typing import Final

from perdure.controller.manager import Manager
from perdure.frontend.errors import unavailable
from perdure.frontend.matching.rates import Throttle
from perdure.kube import client as kube
from perdure.kube.paths import escaped

_LOOKUPS_PER_SECOND: Final = 20.0
"""The most lookups per second in a namespace, so that requests for nonexistent runs do not burden the API server."""
_ALL_AT_ONCE: Final = "0"
"""The `limit` of a list without pages, which the API server serves from its cache, and not from etcd."""


class UnseenRuns:
    """Reads runs that were created a moment ago, such as those of a Schedule that another operator owns."""

    def __init__(self, manager: Manager) -> None:
        self._manager = manager
        self._throttles: dict[str, Throttle] = {}
        """By namespace."""

    async def look(self, namespace: str, workflow_id: str) -> bool:
        """Read the unknown runs of a workflow ID, and return whether there are any.

        Nothing is read without a workflow ID, or if there were too many lookups in the namespace.

        Raises:
            RpcError: The API server does not respond.
        """
        if not workflow_id or not self._admits(namespace):
            return False
        try:
            return await self._look(namespace, workflow_id)
        except kube.RequestError as error:
            raise unavailable(str(error)) from error

    def _admits(self, namespace: str) -> bool:
        throttle = self._throttles.setdefault(namespace, Throttle(_LOOKUPS_PER_SECOND))
        time = asyncio.get_running_loop().time()
        if throttle.wait(time):
            return False
        throttle.count(time)
        return True

    async def _look(self, namespace: str, workflow_id: str) -> bool:
        url, directory, found = kube.path(kube.PERDURE, namespace, "workflowruns"), self._manager.directory, False
        for field in ("spec.workflowId", "metadata.name"):  # a run without a workflow ID has its name as the ID
            selector = f"{field}={escaped(workflow_id)}"
            async for page in self._manager.client.lists.versions(url, fieldSelector=selector, limit=_ALL_AT_ONCE):
                for each in page:
                    if directory.get(each.uid) is None:
                        found = await self._take(url, each.name) or found
        return found

    async def _take(self, url: str, name: str) -> bool:
        try:
            obj = await self._manager.client.get(f"{url}/{name}")
        except kube.NotFoundError:
            return False
        self._manager.runs.made(obj)
        return True
