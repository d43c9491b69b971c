"""A client of the operator that records its requests to the API server."""

import time
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import orjson

from perdure.kube.access import Access
from perdure.kube.client import Client, Connection, Object


@dataclass(frozen=True, slots=True)
class CountedRequest:
    """One request that was answered."""

    moment: float
    """By `time.monotonic`."""
    verb: str
    """In small letters."""
    kind: str
    """In the plural, such as ``pods``."""
    size: int
    """Bytes of the body."""


@dataclass
class Tally:
    """All answered requests."""

    requests: list[CountedRequest] = field(default_factory=list)


TALLY = Tally()


class _CountingConnection(Connection):
    async def request(
        self,
        method: str,
        url: str,
        **options: Any,
    ) -> Object:
        answer = await super().request(method, url, **options)
        body = options.get("body")
        parts = url.split("?", maxsplit=1)[0].split("/")
        kind = parts[parts.index("namespaces") + 2] if "namespaces" in parts[:-2] else parts[-1]
        size = 0 if body is None else len(orjson.dumps(body))
        TALLY.requests.append(CountedRequest(time.monotonic(), method.lower(), kind, size))
        return answer


class CountingClient(Client):
    """The client of the operator, with a tally."""

    def __init__(self, access: Access, session: aiohttp.ClientSession) -> None:
        super().__init__(access, session)
        self.connection = _CountingConnection(access, session)
