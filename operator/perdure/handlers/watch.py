"""The kopf handlers. They only pass on watch events and write nothing, so kopf patches nothing."""

from typing import Any

import kopf

from perdure.controller.manager import Manager
from perdure.controller.operations.operations import Operations
from perdure.handlers.watch_routes import WatchRoute, routes

_DELETED = "DELETED"


def register(registry: kopf.OperatorRegistry, manager: Manager, operations: Operations) -> None:
    """Register a handler for each kind that the operator watches."""
    for route in routes(manager, operations):
        _register(registry, route)


def _register(registry: kopf.OperatorRegistry, route: WatchRoute) -> None:
    labels = {route.label: kopf.PRESENT} if route.label else None

    @kopf.on.event(
        route.group, route.version, route.plural, id=f"{route.plural}_seen", labels=labels, registry=registry
    )
    async def seen(event: kopf.RawEvent, **_: Any) -> None:
        route.take(dict(event["object"]), deleted=event["type"] == _DELETED)
