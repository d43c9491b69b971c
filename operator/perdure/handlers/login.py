"""The login of kopf: it reaches the API server through our feed and client."""

from typing import Any, cast

import kopf

from perdure.handlers.feed import Feed


def register(registry: kopf.OperatorRegistry, server: str, feed: Feed) -> None:
    """Make kopf send its requests through `feed`, which has its own credentials.

    Args:
        registry: The registry of kopf's handlers.
        server: Address of the API server.
        feed: The replacement for an HTTP session.
    """

    @kopf.on.login(registry=registry)
    async def login(**_: Any) -> kopf.AiohttpSession:
        return kopf.AiohttpSession(server=server, aiohttp_session=cast("Any", feed))
