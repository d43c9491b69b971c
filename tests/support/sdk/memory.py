"""The real operator over an API server in memory, in this process: SDKs see no difference, and no process is started."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from temporalio.client import Client

from support.operator import in_memory


@dataclass(frozen=True)
class InMemory:
    """One operator, and the namespace that it serves."""

    address: str
    """Where SDKs connect to."""
    namespace: str

    async def connect(self, **options: Any) -> Client:
        """Connect a client."""
        return await Client.connect(self.address, **{"namespace": self.namespace, **options})


@contextmanager
def serving_in_memory() -> Iterator[InMemory]:
    """An operator that stops at the end of the block."""
    with in_memory(namespace="orders") as server:
        yield InMemory(server.address, server.namespace)
