"""Move the operators of a release to a new state version: not while an older operator is left, and only after a hold-back.

First the operators are replaced, then the form of what they store changes. Until the end of the hold-back, `helm rollback` leaves
nothing behind that the older operators cannot read. A single operator does the same by itself.
"""

import asyncio
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

import structlog

from perdure.api.reasons import EventReason
from perdure.api.state_versions import OLDEST
from perdure.controller.fleet.shards import Shards
from perdure.controller.namespaces import ServedNamespaces
from perdure.controller.state_versions import StateVersions
from perdure.kube import client as kube
from perdure.kube import clock
from perdure.kube.events import Recorder
from perdure.observe import metrics
from perdure.runtime.upgrades import UpgradeRecord, advance, later

_LOOK_SECONDS: Final = 10.0
"""Pause between two looks at the record and at the other operators."""
_FIRST_LOOK_SECONDS: Final = 0.5
"""The same until this operator works, so that a new installation is noticed before its first run."""
_STORED: Final = ("workflowruns", "schedules")
"""The kinds without whose objects there is nothing that another version could have stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpgradeSettings:
    """The settings of the chart for upgrades."""

    record: str
    """Name of the ConfigMap with the record."""
    hold_back: timedelta
    """How long all operators must read a state version before they write it."""


class Upgrades:
    """Keeps the state version that this process writes in agreement with the other operators."""

    def __init__(
        self,
        client: kube.Client,
        shards: Shards,
        recorder: Recorder,
        served: ServedNamespaces,
        versions: StateVersions,
        settings: UpgradeSettings,
    ) -> None:
        """Create it without looking. The record is in the namespace of the operator.

        Args:
            client: Reads and writes the record.
            shards: Knows the other operators.
            recorder: Records an Event when the version changes.
            served: The served namespaces.
            versions: The state versions of this process, which writes the oldest one until the record was read.
            settings: The settings.
        """
        self._client = client
        self._shards = shards
        self._recorder = recorder
        self._served = served
        self._versions = versions
        self._settings = settings
        self._url = kube.path(kube.CORE, client.access.namespace, "configmaps")
        self._recorded = versions.writes
        """The version that the last known record allows."""
        self._lowest_seen = versions.reads
        """The lowest version that an operator reads which was seen since the last recorded look; it may be gone by now."""
        self._lowest_since = versions.reads
        """The same since the current look has counted: the record does not cover it."""
        self._trouble = ""
        self._has_read = False
        """Whether the record was read: it names the latest release for reports of what this one cannot read."""
        self._log = structlog.get_logger("perdure.upgrades")
        metrics.STATE_VERSION.labels("read").set(versions.reads)
        self._follow()
        shards.subscribe(self._lower)

    async def run(self) -> None:
        """Look at the record and at the other operators, until cancelled."""
        while True:
            try:
                await self.look()
                self._trouble = ""
            except kube.RequestError as error:
                if repr(error) != self._trouble:  # such as a missing permission, which does not end by itself
                    self._trouble = repr(error)
                    self._log.warning("Could not read or write the upgrade record, retrying", error=self._trouble)
            await asyncio.sleep(_LOOK_SECONDS if self._shards.active else _FIRST_LOOK_SECONDS)

    async def look(self) -> None:
        """Update the record, and write the version in it from now on."""
        if self._has_read and not self._shards.active:
            return
        try:
            found = await self._client.get(f"{self._url}/{self._settings.record}")
        except kube.NotFoundError:
            found = None
        now = self._client.server_time() or clock.now()  # the clocks of several operators differ
        self._has_read = True
        before = None if found is None else UpgradeRecord.read(found)
        self._versions.latest = later(self._versions.release, before.release if before is not None else "")
        if not self._shards.active:
            return  # the other operators are not known
        self._recorded = OLDEST if before is None else before.writes
        self._follow()
        is_new = before is None and await self._is_new()
        self._lower()
        counted, self._lowest_since = self._lowest_seen, self._lowest_now()
        after = advance(before, [counted], self._settings.hold_back, now, release=self._versions.release, is_new=is_new)
        if after == before or await self._write(found, before, after):
            self._recorded, self._lowest_seen = after.writes, self._lowest_since
            self._follow()

    def _lower(self) -> None:
        """Write nothing that another operator cannot read, as soon as that one is known: the next look may be seconds away."""
        lowest = self._lowest_now()
        self._lowest_seen, self._lowest_since = min(self._lowest_seen, lowest), min(self._lowest_since, lowest)
        self._follow()

    def _lowest_now(self) -> int:
        """The lowest of the versions that the live operators read."""
        return min([self._versions.reads, *self._shards.others_read.values()])

    def _follow(self) -> None:
        """Write what the record allows and all operators can read that may not have been counted in it."""
        self._versions.writes = min(self._recorded, self._lowest_seen)
        metrics.STATE_VERSION.labels("written").set(self._versions.writes)

    async def _is_new(self) -> bool:
        """Whether nothing is stored yet."""
        for namespace in self._served:
            for plural in _STORED:
                async for _ in self._client.lists.each_metadata(kube.path(kube.PERDURE, namespace, plural)):
                    return False
        return True

    async def _write(self, found: kube.Object | None, before: UpgradeRecord | None, record: UpgradeRecord) -> bool:
        """Write the record; False if another operator has written it since, which the next look then follows."""
        body = record.config_map(self._settings.record, found)
        try:
            if found is None:
                stored = await self._client.create(self._url, body)
            else:
                stored = await self._client.replace(f"{self._url}/{self._settings.record}", body)
        except (kube.ConflictError, kube.AlreadyExistsError):
            return False
        if before is None or replace(before, release="") != replace(record, release=""):
            self._report(stored, record)
        return True

    def _report(self, stored: kube.Object, record: UpgradeRecord) -> None:
        note = f"The operators write state version {record.writes}"
        if record.follows is not None and record.until is not None:
            note += f", and version {record.follows} from {record.until:%Y-%m-%d %H:%M:%S} UTC on"
        about = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": stored["metadata"]}
        self._recorder.record(about, kind="Normal", reason=EventReason.STATE_VERSION, note=note, action="Upgrade")
        self._log.info("The state version has changed", writes=record.writes, next=record.follows, until=record.until)
