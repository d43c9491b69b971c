"""Pods that a command creates, reads, and deletes again."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from perdure.client.errors import CliError
from perdure.kube import clock, paths

if TYPE_CHECKING:
    from perdure.client.requests import Object, Requests

_LONGEST: Final = timedelta(minutes=3)
"""How long a pod may take."""
_PAUSE: Final = 0.5
"""Seconds between two reads of a pod."""
_FINAL: Final = frozenset({"CreateContainerConfigError", "InvalidImageName"})
"""Reasons why a container waits until someone changes something."""


class OneTimePods:
    """Runs pods with the permissions of the user."""

    def __init__(self, requests: Requests) -> None:
        self._requests = requests

    async def output(self, body: Object) -> list[bytes]:
        """Create a pod with one container, wait until it has ended, and return the lines of its log. The pod is deleted.

        Raises:
            CliError: The pod cannot be created, does not start, or fails.
        """
        requests = self._requests
        url = paths.path(paths.CORE, requests.namespace, "pods")
        made: Object = await requests.ask(requests.client.create(url, body))
        name = made["metadata"]["name"]
        try:
            succeeded = await self._end(f"{url}/{name}", name)
            lines = [line async for line in requests.client.lines(f"{url}/{name}/log")]
        finally:
            with suppress(CliError):
                await requests.ask(requests.client.delete(f"{url}/{name}", uid=made["metadata"]["uid"]))
        if not succeeded:
            raise CliError(b" ".join(lines[-3:]).decode(errors="replace") or f"the pod `{name}` has failed")
        return lines

    async def _end(self, url: str, name: str) -> bool:
        """Wait until a pod has ended; return whether it succeeded."""
        end = clock.now() + _LONGEST
        while True:
            status = (await self._requests.ask(self._requests.client.get(url), name, "Pod")).get("status") or {}
            if status.get("phase") in {"Succeeded", "Failed"}:
                return bool(status["phase"] == "Succeeded")
            states = [each.get("state") or {} for each in status.get("containerStatuses") or ()]
            waiting: Object = next((each["waiting"] for each in states if "waiting" in each), {})
            if waiting.get("reason") in _FINAL or clock.now() > end:
                why = waiting.get("message") or waiting.get("reason") or "it has not ended after three minutes"
                raise CliError(f"the pod `{name}` cannot read the artifact: {why}")
            await asyncio.sleep(_PAUSE)
