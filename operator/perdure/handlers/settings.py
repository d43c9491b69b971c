"""How kopf is set: to watch, and to write nothing."""

import asyncio
from typing import Any

import kopf

# kopf takes such an object, and does not export its class.
from kopf._core.reactor.inventory import ResourceMemories, ResourceMemory

from perdure.api.labels import RUN_ID_LABEL


class NoMemories(ResourceMemories):
    """Remembers nothing of an object between two events: that would take kilobytes for each finished run, until it is deleted."""

    async def recall(
        self,
        raw_body: kopf.RawBody,
        *,
        memobase: Any = None,
        noticed_by_listing: bool = False,
        ephemeral: bool = False,  # noqa: ARG002
    ) -> ResourceMemory:
        """Remember for this event only."""
        return await super().recall(raw_body, memobase=memobase, noticed_by_listing=noticed_by_listing, ephemeral=True)


class ForeignTasks(frozenset[asyncio.Task[Any]]):
    """The tasks that kopf must not cancel at its end: all that it has not named itself.

    kopf would cancel every task younger than itself. Those in which gRPC waits for calls must not be cancelled while its server
    runs: gRPC's core writes into what they hold, even after that is freed.
    """

    def __contains__(self, task: object) -> bool:
        return True


class NoDiffBase(kopf.DiffBaseStorage):
    """Remembers no last configuration: there are no change handlers that would want one."""

    def build(self, *, body: kopf.Body, extra_fields: Any = None) -> kopf.BodyEssence:  # noqa: ARG002
        """Nothing is essential."""
        return kopf.BodyEssence()

    def fetch(self, *, body: kopf.Body) -> kopf.BodyEssence | None:  # noqa: ARG002
        """Nothing is remembered."""
        return None

    def store(self, *, body: kopf.Body, patch: kopf.Patch, essence: kopf.BodyEssence) -> None:
        """Nothing is stored."""


class NoProgress(kopf.ProgressStorage):
    """Remembers no progress: event handlers have none."""

    def fetch(self, *, key: str, body: kopf.Body) -> kopf.ProgressRecord | None:  # noqa: ARG002
        """Nothing is remembered."""
        return None

    def store(self, *, key: str, record: kopf.ProgressRecord, body: kopf.Body, patch: kopf.Patch) -> None:
        """Nothing is stored."""

    def purge(self, *, key: str, body: kopf.Body, patch: kopf.Patch) -> None:
        """Nothing is there to purge."""

    def touch(self, *, body: kopf.Body, patch: kopf.Patch, value: str | None) -> None:
        """Nothing is touched."""

    def clear(self, *, essence: kopf.BodyEssence) -> kopf.BodyEssence:
        """Nothing is there to clear."""
        return essence


def settings() -> kopf.OperatorSettings:
    """Settings for an operator that watches through kopf and writes by itself."""
    chosen = kopf.OperatorSettings()
    chosen.persistence.diffbase_storage = NoDiffBase()
    chosen.persistence.progress_storage = NoProgress()
    chosen.posting.enabled = False
    chosen.peering.standalone = True
    chosen.scanning.disabled = True
    # A worker task per recently active object is let go soon; 5 s, kopf's default, costs memory by the thousand.
    chosen.queueing.idle_timeout = 0.2
    chosen.queueing.worker_limit = None
    # Only pods of runs cross the wire; a filter on the handler alone would be applied on our side.
    chosen.watching.label_selectors["pods"] = RUN_ID_LABEL
    # The feed lists page by page in place of a list by kopf (perdure.handlers.feed).
    chosen.watching.initial_streaming = True
    # A connection that is silent for longer than bookmarks come is dead.
    chosen.watching.inactivity_timeout = 70.0
    chosen.watching.server_timeout = 240
    chosen.watching.connect_timeout = 5
    chosen.networking.request_timeout = 30
    chosen.networking.connect_timeout = 5
    # For what the feed passes through. After these, kopf gives up and the process ends; the kubelet starts a new one.
    chosen.networking.error_backoffs = [0.2, 0.5, 1, 2, 5, 10, 20]
    # The process stops by itself when its work is cancelled; no timer shall kill it later.
    chosen.process.ultimate_exiting_timeout = None
    return chosen
