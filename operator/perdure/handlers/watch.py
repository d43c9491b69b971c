"""Watch through kopf: its login, its settings, and one handler for each kind.

kopf only watches: the handlers pass watch events on and write nothing, so kopf patches nothing. It reaches the API server through
our feed and client.
"""

import asyncio
from collections.abc import Iterable
from typing import Any, cast

import kopf

# kopf accepts such an object, but does not export its class.
from kopf._core.reactor.inventory import ResourceMemories, ResourceMemory

from perdure.api.labels import RUN_ID_LABEL
from perdure.controller.informers import Informer
from perdure.handlers.feed import Feed


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


def register(registry: kopf.OperatorRegistry, informers: Iterable[Informer]) -> None:
    """Register a handler for each kind that the operator watches."""
    for informer in informers:
        _register(registry, informer)


def _register(registry: kopf.OperatorRegistry, informer: Informer) -> None:
    labels = {informer.label: kopf.PRESENT} if informer.label else None

    @kopf.on.event(
        informer.group,
        informer.version,
        informer.plural,
        id=f"{informer.plural}_seen",
        labels=labels,
        registry=registry,
    )
    async def on_event(event: kopf.RawEvent, **_: Any) -> None:
        informer.on_event(dict(event["object"]), deleted=event["type"] == "DELETED")
