"""The kopf handlers. They only pass on watch events and write nothing, so kopf patches nothing.

The settings of kopf: it only watches, and writes nothing.

The login of kopf: it reaches the API server through our feed and client.

The kinds that the operator watches, and the method that handles the events of each kind.
"""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol, cast

import kopf
from kopf._core.reactor.inventory import ResourceMemories, ResourceMemory

from perdure.api.common import GROUP, VERSION
from perdure.api.labels import RUN_ID_LABEL
from perdure.controller.manager import Manager
from perdure.controller.operations.operations import Operations
from perdure.handlers.feed import Feed
from perdure.kube.client import Object

# kopf accepts such an object, but does not export its class.


class NoMemories(ResourceMemories):
    """Keeps no memory of objects between events, which would take kilobytes for each finished run until it is deleted."""

    async def recall(
        self,
        raw_body: kopf.RawBody,
        *,
        memobase: Any = None,
        noticed_by_listing: bool = False,
        ephemeral: bool = False,  # noqa: ARG002
    ) -> ResourceMemory:
        """Return a memory for this event only."""
        return await super().recall(raw_body, memobase=memobase, noticed_by_listing=noticed_by_listing, ephemeral=True)


class ForeignTasks(frozenset[asyncio.Task[Any]]):
    """The tasks that kopf must not cancel at its end: all tasks that kopf has not named.

    kopf would cancel every task younger than itself. Tasks in which gRPC waits for calls must not be cancelled while its server
    runs: gRPC's core writes into their memory, even after it is freed.
    """

    def __contains__(self, task: object) -> bool:
        return True


class NoDiffBase(kopf.DiffBaseStorage):
    """Stores no last configuration, because no change handlers need one."""

    def build(self, *, body: kopf.Body, extra_fields: Any = None) -> kopf.BodyEssence:  # noqa: ARG002
        """Return an empty essence."""
        return kopf.BodyEssence()

    def fetch(self, *, body: kopf.Body) -> kopf.BodyEssence | None:  # noqa: ARG002
        """Nothing is remembered."""
        return None

    def store(self, *, body: kopf.Body, patch: kopf.Patch, essence: kopf.BodyEssence) -> None:
        """Nothing is stored."""


class NoProgress(kopf.ProgressStorage):
    """Stores no progress, because event handlers have none."""

    def fetch(self, *, key: str, body: kopf.Body) -> kopf.ProgressRecord | None:  # noqa: ARG002
        """Nothing is remembered."""
        return None

    def store(self, *, key: str, record: kopf.ProgressRecord, body: kopf.Body, patch: kopf.Patch) -> None:
        """Nothing is stored."""

    def purge(self, *, key: str, body: kopf.Body, patch: kopf.Patch) -> None:
        """Do nothing."""

    def touch(self, *, body: kopf.Body, patch: kopf.Patch, value: str | None) -> None:
        """Do nothing."""

    def clear(self, *, essence: kopf.BodyEssence) -> kopf.BodyEssence:
        """Return the essence unchanged."""
        return essence


def settings() -> kopf.OperatorSettings:
    """Settings for an operator that watches through kopf and writes with its own client."""
    chosen = kopf.OperatorSettings()
    chosen.persistence.diffbase_storage = NoDiffBase()
    chosen.persistence.progress_storage = NoProgress()
    chosen.posting.enabled = False
    chosen.peering.standalone = True
    chosen.scanning.disabled = True
    # End the worker task of an idle object early: kopf's default of 5 s costs memory with thousands of objects.
    chosen.queueing.idle_timeout = 0.2
    chosen.queueing.worker_limit = None
    # Select pods of runs on the server; the handler's own filter would only apply on the client.
    chosen.watching.label_selectors["pods"] = RUN_ID_LABEL
    # The feed lists page by page in place of a list by kopf (perdure.handlers.feed).
    chosen.watching.initial_streaming = True
    # A connection that is silent for longer than the interval of bookmarks is dead.
    chosen.watching.inactivity_timeout = 70.0
    chosen.watching.server_timeout = 240
    chosen.watching.connect_timeout = 5
    chosen.networking.request_timeout = 30
    chosen.networking.connect_timeout = 5
    # For requests that the feed passes through. After these retries, kopf gives up and the kubelet restarts the process.
    chosen.networking.error_backoffs = [0.2, 0.5, 1, 2, 5, 10, 20]
    # The process ends when its work is cancelled, so no timer must kill it later.
    chosen.process.ultimate_exiting_timeout = None
    return chosen


def register_login(registry: kopf.OperatorRegistry, server: str, feed: Feed) -> None:
    """Make kopf send its requests through `feed`, which has its own credentials.

    Args:
        registry: The registry of kopf's handlers.
        server: Address of the API server.
        feed: The replacement for an HTTP session.
    """

    @kopf.on.login(registry=registry)
    async def login(**_: Any) -> kopf.AiohttpSession:
        return kopf.AiohttpSession(server=server, aiohttp_session=cast("Any", feed))


class ObjectHandler(Protocol):
    """Handles an object that was listed, created, changed, or deleted, by recording it for later processing."""

    def __call__(self, obj: Object, *, deleted: bool) -> None:
        """Handle the object."""


@dataclass(frozen=True, slots=True)
class WatchRoute:
    """The events of one kind."""

    group: str
    version: str
    plural: str
    take: ObjectHandler
    label: str | None = None
    """A label that objects must have; None selects all objects."""


def routes(manager: Manager, operations: Operations) -> Iterator[WatchRoute]:
    """Yield the routes of runs, what they refer to, Webhooks, Schedules, the pods of runs, and Operations."""
    yield WatchRoute(GROUP, VERSION, "workflowruns", manager.on_run)
    yield WatchRoute(GROUP, VERSION, "workflows", manager.referenced.take_workflow)
    yield WatchRoute(GROUP, VERSION, "retrypolicies", manager.referenced.take_policy)
    yield WatchRoute(GROUP, VERSION, "workflowlimits", manager.referenced.take_limit)
    yield WatchRoute(GROUP, VERSION, "webhooks", manager.on_webhook)
    yield WatchRoute(GROUP, VERSION, "schedules", manager.on_schedule)
    yield WatchRoute("", "v1", "pods", manager.on_pod, label=RUN_ID_LABEL)
    yield WatchRoute(GROUP, VERSION, "operations", operations.on_operation)


_DELETED = "DELETED"


def register(registry: kopf.OperatorRegistry, manager: Manager, operations: Operations) -> None:
    """Register a handler for each kind that the operator watches."""
    for route in routes(manager, operations):
        _register_informer(registry, route)


def _register_informer(registry: kopf.OperatorRegistry, route: WatchRoute) -> None:
    labels = {route.label: kopf.PRESENT} if route.label else None

    @kopf.on.event(
        route.group, route.version, route.plural, id=f"{route.plural}_seen", labels=labels, registry=registry
    )
    async def seen(event: kopf.RawEvent, **_: Any) -> None:
        route.take(dict(event["object"]), deleted=event["type"] == _DELETED)
