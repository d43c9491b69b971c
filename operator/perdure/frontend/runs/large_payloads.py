"""Read large payloads, which are stored separately from runs, for messages to clients and workers."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from temporalio.api.history.v1 import HistoryEvent

from perdure.controller.payloads.store import LostBlobError
from perdure.engine import events as ev
from perdure.frontend.errors import damaged
from perdure.frontend.messages.histories import Historian
from perdure.frontend.messages.payloads import KnownBlobs, use_blobs
from perdure.frontend.messages.values import UNLIMITED
from perdure.frontend.runs.gateway import RunGateway
from perdure.frontend.transport.door import MessageMemory

_Message = TypeVar("_Message")
_MEMORY = 128 * 1024 * 1024
"""Maximum size of large payloads that are read concurrently, in bytes; one namespace gets at most half of it."""


class LargePayloads:
    """Reads the large payloads of messages."""

    def __init__(self, runs: RunGateway) -> None:
        self._runs = runs
        self._memory = MessageMemory(_MEMORY, each=_MEMORY // 2)

    async def build(self, namespace: str, make: Callable[[], _Message], limit: int = UNLIMITED) -> _Message:
        """Build a message from a run's state or events, with the large payloads that it needs.

        Args:
            namespace: Namespace of the run.
            make: Builds the message. It is called again once the payloads were read.
            limit: The total size limit of large payloads in bytes; payloads beyond it stay empty.

        Raises:
            RpcError: A payload does not exist.
            RequestError: The Kubernetes API request failed.
        """
        known = KnownBlobs(limit=limit)
        while True:
            known.missing.clear()
            with use_blobs(known):
                made = make()
            if not known.missing:
                return made
            async with self._memory.hold(namespace, min(known.missing_bytes, _MEMORY // 2)):
                for name, reference in known.missing.items():
                    try:
                        known.contents[name] = await self._runs.blobs.load(namespace, reference)
                    except LostBlobError as error:
                        raise damaged(str(error)) from error

    async def page(self, namespace: str, events: Sequence[ev.AnyEvent], *, by_step: bool = False) -> list[HistoryEvent]:
        """Convert the first events, up to the size limit of a response, to Temporal's events.

        See `Historian` for `by_step`.
        """
        return await self.build(namespace, lambda: self.historian(namespace, by_step=by_step).page(events))

    def historian(self, namespace: str, *, by_step: bool = False) -> Historian:
        """Build a Historian for a namespace."""
        return Historian(namespace, partial(self._runs.run_id_of, namespace), by_step=by_step)
