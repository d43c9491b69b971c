"""The archive of finished runs as files in a bucket, without a database.

Each version of a run is an object of its own, which is never changed. All keys begin with `archive.v1`, which no namespace is
named, so that artifacts can be in the same bucket:

    <namespace>/<month>/runs/<name>/<run ID>/<time of closing>-<commit>-<version>.json.gz     a run
    <namespace>/<month>/ids/<hash of the workflow ID>/<name>/<run ID>                         empty; where a run with the ID is
    <namespace>/deleted/<name>/<run ID>                                                       empty; a deleted run

A file has two lines of JSON, each compressed by itself: what lists show of the run, and the WorkflowRun. If there are several
versions of a run, the last one counts.

A run that was deleted must not come back, although an operator may have read it before. So an operator writes first and looks
for deletions then, and a deletion is written down before the files are looked for: one of the two finds the other.
"""

import asyncio
import gzip
import hashlib
import re
import zlib
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any, Final, NamedTuple, Protocol

import orjson
import structlog

from perdure.api.names import is_name
from perdure.api.phases import RunKind, kind_of
from perdure.archive.records import RunRecord, record_of
from perdure.archive.rows import (
    ArchivedRun,
    ListedRun,
    MonthPage,
    RunRef,
    listed_object,
    restored,
)
from perdure.observe import metrics
from perdure.runtime.attempts import KubeObject

_ROOT: Final = "archive.v1"
_RUNS: Final = "runs"
_IDS: Final = "ids"
_DELETED: Final = "deleted"
_SUFFIX: Final = ".json.gz"
_FILE: Final = re.compile(
    r".+/(?P<name>[^/]+)/(?P<run>[^/]+)/(?P<closed>\d{8}T\d{6}Z)-(?P<commit>\d{1,19})-(?P<version>[^/]+)\.json\.gz",
    re.ASCII,
)
_MONTH: Final = re.compile(r"\d{4}-\d{2}", re.ASCII)
_AT_ONCE: Final = 16
"""Number of concurrent requests of all writes, and of those that read for one call."""
_DELETED_AT_ONCE: Final = 1_000
_HEAD_BYTES: Final = 4_096
"""The beginning of a file that is read for a list. The first line is rarely longer."""
_REMEMBERED: Final = timedelta(days=1)
"""For how long a deleted run is not stored again. An operator stores a run within minutes of reading it."""


class Found(NamedTuple):
    """An object in a list."""

    key: str
    modified: datetime


class Bucket(Protocol):
    """Objects by key. A list shows what was written before it began.

    Each method raises ArchiveUnavailableError if the bucket cannot be used now.
    """

    async def put(self, key: str, content: bytes) -> None:
        """Write an object, in place of one with the same key."""
        ...

    async def get(self, key: str, length: int | None = None) -> bytes | None:
        """Read an object, or its first bytes; None if it does not exist."""
        ...

    def each(self, folder: str, after: str = "") -> AsyncIterator[Found]:
        """List the objects of a folder and of its folders, by key, after one."""
        ...

    async def folders(self, folder: str) -> list[str]:
        """List the names of the folders in a folder."""
        ...

    async def delete(self, keys: Sequence[str]) -> None:
        """Delete objects that may exist."""
        ...


class File(NamedTuple):
    """A version of a run."""

    key: str
    name: str
    run_id: str
    closed: str
    commit: int
    version: str

    @property
    def order(self) -> tuple[str, int, int, str]:
        """Greater for later versions, and for runs that closed later."""
        return self.closed, self.commit, len(self.version), self.version

    @classmethod
    def of(cls, key: str) -> "File | None":
        """What a key says; None if it is not that of a run, such as a copy that someone has put there."""
        found = _FILE.fullmatch(key)
        if found is None:
            return None
        return cls(key, found["name"], found["run"], found["closed"], int(found["commit"]), found["version"])


def _month(closed: str | datetime) -> str:
    return (closed if isinstance(closed, str) else f"{closed:%Y-%m}")[:7]


def _key_of_id(workflow_id: str) -> str:
    return hashlib.sha256(workflow_id.encode(errors="surrogatepass")).hexdigest()[:32]


class BucketArchive:
    """Stores finished runs in a bucket."""

    def __init__(self, bucket: Bucket, retention: timedelta) -> None:
        """`retention`: how long runs are kept after their end; zero: for ever."""
        self._bucket = bucket
        self._retention = retention
        self._writing = asyncio.Semaphore(_AT_ONCE)
        self._log = structlog.get_logger("perdure.archive")

    # Writes

    async def store(self, runs: Sequence[ArchivedRun]) -> None:
        """Store runs; see `Archive`."""
        with metrics.ARCHIVE_REQUESTS.labels("store").time():
            await self._all(self._put(run) for run in runs)
            for namespace in sorted({run.record.namespace for run in runs}):
                gone = await self._deleted(namespace)
                for run in runs:
                    if run.record.namespace == namespace and run.record.run_id in gone:
                        await self._delete_files(namespace, run.name, run.record.run_id)

    async def _put(self, run: ArchivedRun) -> None:
        record = run.record
        folder = f"{_ROOT}/{record.namespace}/{_month(run.closed)}"
        async with self._writing:
            if record.workflow_id != run.name:
                place = f"{folder}/{_IDS}/{_key_of_id(record.workflow_id)}/{run.name}/{record.run_id}"
                await self._bucket.put(place, b"")
            name = f"{run.closed:%Y%m%dT%H%M%SZ}-{run.commit}-{record.version}{_SUFFIX}"
            await self._bucket.put(f"{folder}/{_RUNS}/{run.name}/{record.run_id}/{name}", _content(run))

    @staticmethod
    async def _all(work: Iterable[Any]) -> None:
        """Do several things concurrently, and end only when all have ended."""
        for result in await asyncio.gather(*work, return_exceptions=True):
            if isinstance(result, BaseException):
                raise result

    async def delete(self, run: RunRef) -> None:
        """Delete a run; see `Archive`."""
        with metrics.ARCHIVE_REQUESTS.labels("delete").time():
            await self._bucket.put(f"{_ROOT}/{run.namespace}/{_DELETED}/{run.name}/{run.run_id}", b"")
            await self._delete_files(run.namespace, run.name, run.run_id)

    async def _delete_files(self, namespace: str, name: str, run_id: str) -> None:
        for month in await self._months(namespace):
            await self._delete_folder(f"{_ROOT}/{namespace}/{month}/{_RUNS}/{name}/{run_id}")

    async def _delete_folder(self, folder: str) -> None:
        keys: list[str] = []
        async for found in self._bucket.each(folder):
            keys.append(found.key)
            if len(keys) == _DELETED_AT_ONCE:
                await self._bucket.delete(keys)
                keys = []
        await self._bucket.delete(keys)

    async def _deleted(self, namespace: str) -> set[str]:
        """The IDs of the runs that were deleted recently."""
        return {found.key.rpartition("/")[2] async for found in self._bucket.each(f"{_ROOT}/{namespace}/{_DELETED}")}

    async def maintain(self, time: datetime) -> None:
        """Delete the months whose runs have been kept long enough, and forget deletions; see `Archive`."""
        with metrics.ARCHIVE_REQUESTS.labels("maintain").time():
            for namespace in await self._bucket.folders(_ROOT):
                await self._forget_deletions(namespace, time - _REMEMBERED)
                if self._retention:
                    await self._drop_months(namespace, before=_month(time - self._retention))

    async def _forget_deletions(self, namespace: str, before: datetime) -> None:
        old = [
            found.key async for found in self._bucket.each(f"{_ROOT}/{namespace}/{_DELETED}") if found.modified < before
        ]
        for key in old:
            # An operator that was killed may have written the run without looking for its deletion.
            await self._delete_files(namespace, *key.split("/")[-2:])
        await self._bucket.delete(old)

    async def _drop_months(self, namespace: str, before: str) -> None:
        for month in await self._months(namespace):
            if month < before:
                await self._delete_folder(f"{_ROOT}/{namespace}/{month}")
                self._log.info("Deleted a month of the archive", namespace=namespace, month=month)

    async def versions(self, runs: Collection[RunRef]) -> dict[str, str]:
        """Return the stored versions of runs; see `Archive`."""
        found: dict[str, str] = {}

        async def look(run: RunRef) -> None:
            folder = f"{_ROOT}/{run.namespace}/{_month(run.closed)}/{_RUNS}/{run.name}/{run.run_id}"
            async with self._writing:
                files = await self._files(folder)
            if files:
                found[run.run_id] = last_of(files).version

        with metrics.ARCHIVE_REQUESTS.labels("versions").time():
            await self._all(map(look, runs))
            if not runs:  # it is only asked whether it can be used
                await self._bucket.folders(_ROOT)
        return found

    # Reads

    async def _months(self, namespace: str) -> list[str]:
        """The months that have runs, the newest first."""
        found = await self._bucket.folders(f"{_ROOT}/{namespace}")
        return sorted(filter(_MONTH.fullmatch, found), reverse=True)

    async def find(self, namespace: str, kind: RunKind, workflow_id: str, run_id: str) -> KubeObject | None:
        """Return a run; see `Archive`. It needs the workflow ID."""
        with metrics.ARCHIVE_REQUESTS.labels("get").time():
            gone = await self._deleted(namespace)
            for month in await self._months(namespace):
                folder = f"{_ROOT}/{namespace}/{month}"
                places = {
                    found.key.split("/")[-2]
                    async for found in self._bucket.each(f"{folder}/{_IDS}/{_key_of_id(workflow_id)}")
                }
                files = [
                    file
                    for name in sorted(places | {workflow_id} if is_name(workflow_id) else places)
                    for file in await self._files(f"{folder}/{_RUNS}/{name}")
                    if file.run_id not in gone and run_id in {"", file.run_id}
                ]
                for file in sorted(files, key=lambda each: each.order, reverse=True):
                    run = await self._read(file)
                    if run is not None and kind_of(run["spec"]) is kind and _has_id(run, workflow_id):
                        return run
        return None

    async def named(self, namespace: str, name: str) -> KubeObject | None:
        """Return the newest run of a name; see `Archive`."""
        if not is_name(name):
            return None
        with metrics.ARCHIVE_REQUESTS.labels("get").time():
            gone = await self._deleted(namespace)
            for month in await self._months(namespace):
                found = await self._files(f"{_ROOT}/{namespace}/{month}/{_RUNS}/{name}")
                if files := [file for file in found if file.run_id not in gone]:
                    return await self._read(last_of(files))
        return None

    async def _files(self, folder: str) -> list[File]:
        return [file async for found in self._bucket.each(folder) if (file := File.of(found.key)) is not None]

    async def _read(self, file: File) -> KubeObject | None:
        content = await self._bucket.get(file.key)
        return None if content is None else await asyncio.to_thread(run_in, content)

    async def month_page(
        self, namespace: str, month: str, selects: Callable[[RunRecord], bool], *, token: str, limit: int
    ) -> MonthPage:
        """Return workflows that closed in a month; see `MonthlyArchive`."""
        with metrics.ARCHIVE_REQUESTS.labels("list").time():
            month = month or next(iter(await self._months(namespace)), "")
            if not month:
                return MonthPage("", [], "")
            files, following = await self._page_of_files(f"{_ROOT}/{namespace}/{month}/{_RUNS}", token, limit)
            gone = await self._deleted(namespace)
            reading = asyncio.Semaphore(_AT_ONCE)

            async def outline(file: File) -> KubeObject | None:
                async with reading:
                    return await self._outline(file)

            outlines = await asyncio.gather(*(outline(file) for file in files if file.run_id not in gone))
        shown = [
            each
            for each in outlines
            if each is not None and kind_of(each["spec"]) is RunKind.WORKFLOW and selects(record_of(each, RunRecord))
        ]
        return MonthPage(month, shown, following)

    async def _page_of_files(self, folder: str, token: str, limit: int) -> tuple[list[File], str]:
        """The last versions of the runs after a token, and the token after them."""
        found: list[File] = []
        runs: set[str] = set()
        following = ""
        async for each in self._bucket.each(folder, after=f"{folder}/{token}" if token else ""):
            file = File.of(each.key)
            if file is None:
                continue
            if len(runs) == limit and file.run_id not in runs:
                following = found[-1].key.removeprefix(f"{folder}/")
                break
            runs.add(file.run_id)
            found.append(file)
        return [last_of(list(files)) for _, files in groupby(found, key=lambda each: each.run_id)], following

    async def _outline(self, file: File) -> KubeObject | None:
        """What lists show of a run."""
        head = await self._bucket.get(file.key, _HEAD_BYTES)
        if head is None:
            return None
        first, is_whole = _first_line(head)
        if not is_whole:
            content = await self._bucket.get(file.key)
            if content is None:
                return None
            first, _ = _first_line(content)
        outline: KubeObject = orjson.loads(first)
        return outline


def last_of(files: Iterable[File]) -> File:
    """The file that counts."""
    return max(files, key=lambda each: each.order)


def _content(run: ArchivedRun) -> bytes:
    outline = orjson.dumps(listed_object(ListedRun(run.record, run.name, run.failure)))
    return gzip.compress(outline + b"\n", mtime=0) + run.content


def _first_line(content: bytes) -> tuple[bytes, bool]:
    """The first line of a file, and whether it is complete."""
    one = zlib.decompressobj(zlib.MAX_WBITS | 16)
    line = one.decompress(content)
    return line, one.eof


def run_in(content: bytes) -> KubeObject:
    """The WorkflowRun in a file."""
    one = zlib.decompressobj(zlib.MAX_WBITS | 16)
    one.decompress(content)
    return restored(one.unused_data)


def _has_id(run: KubeObject, workflow_id: str) -> bool:
    return str(run["spec"].get("workflowId") or run["metadata"]["name"]) == workflow_id
