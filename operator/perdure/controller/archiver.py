"""Gives finished runs to the archive, and says which of them it has.

A run is noted when it closes, and again with each later change of its object. After a restart, and when this process gains
shards, all finished runs are noted: the archive says which of them it has, and only the others are read. A batch takes runs of
each namespace in turn, so one with many runs does not delay those of others. Nothing waits for the archive but the removal of
finished runs: while it is unavailable, runs stay in the cluster.

A run that cannot be read, or be turned into a row, waits by itself: those of its batch are archived without it. If the archive
fails, the next batches are smaller, because the reason may be their size.

    a run closes ──▶ noted ──▶ batch: read, put its history together, compress ──▶ Archive.store ──▶ may be removed
"""

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

import structlog

from perdure.api.json_values import mapping, mappings
from perdure.api.labels import API_VERSION, PARENT_RUN_ID_LABEL
from perdure.api.reasons import EventReason
from perdure.archive.rows import (
    MIB,
    ArchivedRun,
    ArchiveRejectedError,
    ArchiveSettings,
    ArchiveStore,
    ArchiveUnavailableError,
    OnUnavailable,
    archived,
)
from perdure.controller.directory import Directory, Entry, Standing
from perdure.controller.fleet.shards import Shards
from perdure.controller.payloads import Blobs, LostBlobError, NewerBlobError
from perdure.controller.reconcile.newer_states import NewerStateError
from perdure.controller.recorded_state import distrust
from perdure.controller.runs.store import past_of
from perdure.controller.workflows.revisions import with_definition
from perdure.engine.payloads import references
from perdure.kube import client as kube
from perdure.kube.clock import now
from perdure.kube.events import Recorder
from perdure.observe import metrics

_GATHER_SECONDS: Final = 0.5
"""How long a batch waits for more runs, and so the usual delay of an archived run."""
_BATCH_RUNS: Final = 200
_BATCH_BYTES: Final = 32 * MIB
"""Size of the runs of a batch in the cluster, which are in memory while it is written."""
_FIRST_RUN_RETRY: Final = timedelta(seconds=5)
"""How long a run waits that could not be read; twice as long after each further time, up to the maximum."""
_MAX_RUN_RETRY: Final = timedelta(minutes=10)
_REPORT_AGAIN: Final = timedelta(minutes=10)
_AT_ONCE: Final = 16
"""Number of runs that are read concurrently."""
_FIRST_RETRY_SECONDS: Final = 1.0
_MAX_RETRY_SECONDS: Final = 30.0
_UNAVAILABLE_AFTER: Final = timedelta(seconds=30)
"""How long the archive must have failed until it counts as unavailable: a restart of the database takes less."""
_CHECK_SECONDS: Final = 30.0
"""How often the archive is used at least, so that an outage is noticed before a run closes."""
_MAINTENANCE: Final = timedelta(hours=1)
_LOOK: Final = 1_000
"""Finished runs that are looked at before others have their turn."""


def _may_have_children(run: kube.Object) -> bool:
    """Whether a run has started children, as far as its status shows."""
    history = mapping(mapping(run.get("status")).get("history"))
    return bool(history.get("segments")) or any(
        event.get("eventType") == "StartChildWorkflowExecutionInitiated" for event in mappings(history.get("events"))
    )


class _Retry(NamedTuple):
    """When a run that could not be read is read again."""

    at: datetime
    pause: timedelta
    """The time before that."""


class Archiver:
    """Archives the finished runs of this process."""

    def __init__(
        self,
        archive: ArchiveStore,
        settings: ArchiveSettings,
        *,
        client: kube.Client,
        blobs: Blobs,
        directory: Directory,
        shards: Shards,
        recorder: Recorder,
        operator: kube.Object | None = None,
        batch: int = _BATCH_RUNS,
    ) -> None:
        """Create it without runs.

        Args:
            archive: Stores the runs.
            settings: What is stored, and for how long.
            client: Reads the runs.
            blobs: Reads their large payloads.
            directory: The entries of all runs.
            shards: The shards of this process, whose runs it archives.
            recorder: Records Events about runs that cannot be archived, and about the archive.
            operator: The pod of this process, which Events about the archive are about; None: it is in no pod.
            batch: The maximum number of runs of a batch.
        """
        self.archive = archive
        self._settings = settings
        self._client = client
        self._blobs = blobs
        self._directory = directory
        self._shards = shards
        self._recorder = recorder
        self._operator = operator
        self._waiting: dict[str, dict[str, None]] = {}
        """The UIDs of the runs that are not archived yet, by namespace; the first namespace has the next turn."""
        self._stored: dict[str, str] = {}
        """The archived versions of finished runs that are in the cluster, by UID."""
        self._rejected: dict[str, str] = {}
        """The versions that the archive does not accept, by UID."""
        self._unread: dict[str, _Retry] = {}
        """The runs that could not be read, by UID."""
        self._batch_limit = self._next_limit = batch
        """The maximum number of runs of a batch, and of the next one."""
        self._reported: datetime | None = None
        """When the last Event about the archive was recorded."""
        self._any = asyncio.Event()
        self._is_asking = False
        """Whether the archive was asked by `learn`, and has not answered."""
        self._look = False
        """Whether to look at all runs again."""
        self.failing_since: datetime | None = None
        """When the archive failed first since it was last used; None if it works."""
        self._maintained: datetime | None = None
        self._log = structlog.get_logger("perdure.archive")
        metrics.ARCHIVE_ENABLED.set(1)

    # What is archived

    def update(self, uid: str) -> None:
        """Note that a run was created, changed, or deleted, after the directory was updated."""
        entry = self._directory.get(uid)
        if entry is None:
            self._forget(uid)
        elif self._is_missing(entry):
            self._waiting.setdefault(entry.namespace, {})[uid] = None
            self._any.set()
            self._show()

    def _forget(self, uid: str) -> None:
        self._stored.pop(uid, None)
        self._rejected.pop(uid, None)
        self._unread.pop(uid, None)

    def _is_missing(self, entry: Entry) -> bool:
        """Whether this process must archive a run."""
        return (
            entry.standing is Standing.CLOSED
            and not entry.refused
            and self._stored.get(entry.uid) != entry.version
            and self._rejected.get(entry.uid) != entry.version
            and self._shards.holds(entry.namespace, entry.workflow_id)
            and not self._is_too_old(entry.closed)
        )

    def _is_too_old(self, closed: str) -> bool:
        """Whether the archive would delete a run immediately."""
        kept = self._settings.retention
        return bool(kept) and closed < (now() - kept).isoformat()

    def reassign(self) -> None:
        """Look at all runs again, because the shards of this process have changed."""
        self._look = True
        self._any.set()

    async def _look_at_all(self) -> None:
        """Note all finished runs of this process that are not known to be archived."""
        for number, uid in enumerate(list(self._directory.uids()), start=1):
            self.update(uid)
            if number % _LOOK == 0:
                await asyncio.sleep(0)

    @property
    def is_unavailable(self) -> bool:
        """Whether the archive has failed for some time."""
        return self.failing_since is not None and now() - self.failing_since >= _UNAVAILABLE_AFTER

    def gives_up(self, run: kube.Object) -> bool:
        """Whether a finished run that is not archived may be deleted now, if its namespace has too many."""
        if self._rejected.get(run["metadata"]["uid"]) == run["metadata"]["resourceVersion"]:
            return True
        return self.is_unavailable and self._settings.on_unavailable is OnUnavailable.DELETE

    async def has(self, run: kube.Object) -> bool:
        """Whether a finished run is archived as it was read, and so are the runs that are deleted with it: its children.

        If it is not, it will be soon. Also true for a run that is not archived at all: it never started because its workflow ID
        was in use, or it ended longer ago than the archive keeps runs.

        Raises:
            RequestError: The children could not be listed.
        """
        return await self._has_one(run["metadata"]) and (
            not _may_have_children(run) or await self._has_children_of(run["metadata"])
        )

    async def _has_children_of(self, parent: kube.Object) -> bool:
        """Whether the children that the garbage collector deletes with a run are archived, and theirs."""
        url = kube.path(kube.PERDURE, parent["namespace"], "workflowruns")
        found = [
            each["metadata"]
            async for each in self._client.lists.each_metadata(
                url, labelSelector=f"{PARENT_RUN_ID_LABEL}={parent['uid']}"
            )
        ]
        for child in found:
            if any(owner["uid"] == parent["uid"] for owner in child.get("ownerReferences") or ()) and not (
                await self._has_one(child) and await self._has_children_of(child)
            ):
                return False
        return True

    async def _has_one(self, meta: kube.Object) -> bool:
        uid, version = meta["uid"], meta["resourceVersion"]
        entry = self._directory.get(uid)
        if entry is not None and (entry.refused or self._is_too_old(entry.closed)):
            return True
        if entry is not None and self._stored.get(uid) != version:
            await self.learn([entry])
        if self._stored.get(uid) == version:
            return True
        self.update(uid)
        return False

    async def learn(self, entries: Iterable[Entry]) -> None:
        """Ask the archive which versions it has of runs that other members archive. If it does not answer, nothing is learned.

        Callers ask one at a time, and not while the archive fails: an answer may take seconds, in which they reconcile no runs.
        """
        unknown = [each.ref for each in entries if each.uid not in self._stored and not self._is_missing(each)]
        if not unknown or self._is_asking or self.failing_since is not None:
            return
        self._is_asking = True
        try:
            with suppress(ArchiveUnavailableError, ArchiveRejectedError):
                self._stored |= await self.archive.versions(unknown)
        finally:
            self._is_asking = False

    # Work

    async def run(self) -> None:
        """Archive runs until cancelled."""
        pause = _FIRST_RETRY_SECONDS
        while True:
            try:
                await self._maintain()
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._any.wait(), _CHECK_SECONDS)
                await asyncio.sleep(_GATHER_SECONDS)
                await self._archive_all()
            except (ArchiveUnavailableError, kube.RequestError) as error:
                self._fail(error)
                await asyncio.sleep(pause)
                pause = min(2 * pause, _MAX_RETRY_SECONDS)
            else:
                pause = _FIRST_RETRY_SECONDS

    def _fail(self, error: Exception) -> None:
        if isinstance(error, ArchiveUnavailableError):
            self.failing_since = self.failing_since or now()
            self._next_limit = max(self._next_limit // 2, 1)
            metrics.ARCHIVE_UP.set(0)
            if self.is_unavailable and (self._reported is None or now() >= self._reported + _REPORT_AGAIN):
                self._reported = now()
                since = f"{self.failing_since:%Y-%m-%d %H:%M:%S} UTC"
                self._report(
                    "Warning",
                    EventReason.ARCHIVE_UNAVAILABLE,
                    f"The archive has been unavailable since {since}, and finished runs stay in the cluster: {error}",
                )
        self._log.warning("Could not archive finished runs, retrying", error=str(error))

    async def _maintain(self) -> None:
        """Let one member of a fleet maintain the archive."""
        if self._maintained is not None and now() < self._maintained + _MAINTENANCE:
            return
        if self._shards.owns("", "archive"):
            await self.archive.maintain(now())
            self._succeed()
        self._maintained = now()

    def _succeed(self) -> None:
        if self._reported is not None:
            self._reported = None
            self._report("Normal", EventReason.ARCHIVE_AVAILABLE, "The archive is available again")
        self.failing_since = None
        self._next_limit = min(2 * self._next_limit, self._batch_limit)
        metrics.ARCHIVE_UP.set(1)

    def _report(self, kind: str, reason: EventReason, note: str) -> None:
        """Record an Event about the archive, which `kubectl describe` shows with the pod of this process."""
        if self._operator is not None:
            self._recorder.record(self._operator, kind=kind, reason=reason, note=note, action="Archive")

    async def _archive_all(self) -> None:
        """Archive the runs that wait, batch by batch. A failed batch waits again."""
        self._any.clear()
        if self._look:
            self._look = False
            await self._look_at_all()
        for uid in [uid for uid, retry in self._unread.items() if retry.at <= now()]:
            self.update(uid)
        if not self._waiting:
            await self.archive.versions(())
            self._succeed()
        while batch := self._next_batch():
            try:
                await self._archive(batch)
            except BaseException:
                for entry in batch:
                    self._waiting.setdefault(entry.namespace, {})[entry.uid] = None
                self._any.set()
                raise
            finally:
                self._show()
            self._succeed()

    def _next_batch(self) -> list[Entry]:
        """Take the runs of the next batch, one of each namespace in turn."""
        batch: list[Entry] = []
        size = 0
        while self._waiting and len(batch) < self._next_limit and size < _BATCH_BYTES:
            namespace, uids = next(iter(self._waiting.items()))
            uid = next(iter(uids))
            del uids[uid], self._waiting[namespace]
            if uids:
                self._waiting[namespace] = uids
            entry = self._directory.get(uid)
            if entry is not None and self._is_missing(entry):
                batch.append(entry)
                size += entry.size
        return batch

    def _show(self) -> None:
        metrics.ARCHIVE_WAITING.set(sum(map(len, self._waiting.values())))

    async def _archive(self, batch: list[Entry]) -> None:
        """Archive a batch.

        Raises:
            ArchiveUnavailableError: The archive cannot be used now.
            RequestError: The API server did not respond.
        """
        self._stored |= await self.archive.versions([entry.ref for entry in batch])
        rows = await self._rows([entry for entry in batch if self._stored.get(entry.uid) != entry.version])
        await self._store(rows)

    async def _rows(self, batch: Iterable[Entry]) -> list[ArchivedRun]:
        """Read runs, and build their rows.

        A run that was deleted, or whose status is not to be trusted, has none. One that cannot be read now waits, and one that
        cannot be turned into a row is rejected.

        Raises:
            RequestError: None of several runs can be read: the API server does not respond.
        """
        at_once = asyncio.Semaphore(_AT_ONCE)
        failed: dict[str, kube.RequestError] = {}

        async def row(entry: Entry) -> ArchivedRun | None:
            async with at_once:
                try:
                    return await self._row(entry)
                except kube.RequestError as error:
                    failed[entry.uid] = error
                except Exception as error:  # noqa: BLE001 (whatever is wrong with one run, the others are archived)
                    self._reject(entry.namespace, entry.name, entry.uid, entry.version, f"it cannot be read: {error!r}")
                return None

        batch = list(batch)
        rows = [each for each in await asyncio.gather(*map(row, batch)) if each is not None]
        if len(failed) == len(batch) > 1:
            raise next(iter(failed.values()))
        for entry in batch:
            if (error := failed.get(entry.uid)) is not None:
                self._wait_for(entry, error)
            else:
                self._unread.pop(entry.uid, None)
        return rows

    def _wait_for(self, entry: Entry, error: kube.RequestError) -> None:
        """Try a run again later."""
        before = self._unread.get(entry.uid)
        pause = _FIRST_RUN_RETRY if before is None else min(2 * before.pause, _MAX_RUN_RETRY)
        self._unread[entry.uid] = _Retry(now() + pause, pause)
        self._log.warning(
            "Could not read a finished run to archive it, retrying",
            namespace=entry.namespace,
            run=entry.name,
            error=str(error),
        )

    async def _row(self, entry: Entry) -> ArchivedRun | None:
        try:
            run = await self._client.get(kube.path(kube.PERDURE, entry.namespace, "workflowruns", entry.name))
        except (kube.NotFoundError, kube.UnreadableError):
            return None
        if run["metadata"]["uid"] != entry.uid or distrust(run):
            return None
        try:
            past = await past_of(self._client, run)
            run = await with_definition(self._client, run)
        except NewerStateError:
            return None  # an operator that can read it archives it
        payloads = await self._payloads(entry.namespace, [run, past.events])
        return await asyncio.to_thread(archived, run, past.events, self._settings, payloads)

    async def _payloads(self, namespace: str, value: Any) -> dict[str, bytes]:
        """Read the large payloads that a value refers to. Without those that were deleted, and those beyond the size limit."""
        found: dict[str, bytes] = {}
        size = 0
        for name, reference in {each["name"]: each for each in references(value)}.items():
            size += reference["sizeBytes"]
            if size > self._settings.history_bytes:
                break
            with suppress(LostBlobError, NewerBlobError):
                found[name] = await self._blobs.load(namespace, reference)
        return found

    async def _store(self, rows: list[ArchivedRun]) -> None:
        """Store rows. If the archive rejects one, the others are stored without it."""
        if not rows:
            return
        try:
            await self.archive.store(rows)
        except ArchiveRejectedError as error:
            if len(rows) == 1:
                record = rows[0].record
                self._reject(record.namespace, rows[0].name, record.run_id, record.version, str(error))
                return
            half = len(rows) // 2
            await self._store(rows[:half])
            await self._store(rows[half:])
            return
        for each in rows:
            if self._directory.get(each.record.run_id) is not None:
                self._stored[each.record.run_id] = each.record.version
            metrics.ARCHIVED_RUNS.labels(each.record.namespace, "Archived").inc()

    def _reject(self, namespace: str, name: str, uid: str, version: str, why: str) -> None:
        self._rejected[uid] = version
        metrics.ARCHIVED_RUNS.labels(namespace, "Rejected").inc()
        self._log.error("A run cannot be archived", namespace=namespace, run=name, error=why)
        self._recorder.record(
            {
                "apiVersion": API_VERSION,
                "kind": "WorkflowRun",
                "metadata": {"namespace": namespace, "name": name, "uid": uid},
            },
            kind="Warning",
            reason=EventReason.NOT_ARCHIVED,
            note=f"This run cannot be archived, so it stays until its namespace has too many finished runs: {why}",
            action="Archive",
        )
