"""How kopf reaches the API server: through a feed of ours, by our own client."""

from typing import Any, cast

import kopf

from perdure.handlers.feed import Feed


def register(registry: kopf.OperatorRegistry, server: str, feed: Feed) -> None:
    """Have kopf send its requests through `feed`, which shows credentials of its own.

    Args:
        registry: Of kopf's handlers.
        server: Address of the API server.
        feed: Stands in for an HTTP session.
    """

    @kopf.on.login(registry=registry)
    async def login(**_: Any) -> kopf.AiohttpSession:
        return kopf.AiohttpSession(server=server, aiohttp_session=cast("Any", feed))
