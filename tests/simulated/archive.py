"""Archives that fail: they are down for a while, refuse requests, lose answers, and take writes after their sender has gone.

There are two forms. `SimulatedTable` follows the rules of the table in PostgreSQL: a row for each run ID and time of closing,
which only a later version replaces. `SimulatedFiles` is the archive in a bucket, over objects in memory.
"""

import asyncio
from collections.abc import Callable, Collection, Sequence
from contextvars import Context
from datetime import datetime, timedelta
from random import Random
from typing import NamedTuple, TypeVar

from perdure.archive.rows import ArchivedRun, ArchiveUnavailableError, RunRef, restored
from perdure.bucket.archive import BucketArchive, File, last_of, run_in
from perdure.simulation.cluster.loop import ClusterLoop
from perdure.simulation.cluster.store import Object
from support.memory_bucket import MemoryBucket

_T = TypeVar("_T")
_DOWN = "the archive cannot be reached: it is down"
_ANSWER_SECONDS = 20.0
"""How long a caller waits for an answer that was lost."""


class StoredRun(NamedTuple):
    """What readers of the archive see of a run."""

    version: str
    run: Object


class Faults:
    """What goes wrong with requests."""

    def __init__(self, loop: ClusterLoop, random: Random, rate: float) -> None:
        """`rate`: the share of requests that fail, half of them after they have had their effect."""
        self.outages: list[tuple[float, float]] = []
        """When nothing responds, in seconds: begin and end."""
        self.loop = loop
        self._random = random
        self._rate = rate

    async def perform(self, apply: Callable[[], _T]) -> _T:
        """Have a request take effect, or not, and return its result, or fail."""
        delay = self._random.choice([0.01, 0.05, 1, 5]) * self._random.random()
        if any(begin <= self.loop.time() < end for begin, end in self.outages):
            await asyncio.sleep(delay)
            raise ArchiveUnavailableError(_DOWN)
        fate = self._random.random() / self._rate if self._rate else 2.0
        if fate < 0.5:
            await asyncio.sleep(delay)
            raise ArchiveUnavailableError("the archive cannot be reached: the request is lost")
        # In no process: it takes effect even if its sender is killed in the meantime.
        done = self.loop.create_future()

        def effect() -> None:
            result = apply()
            if not done.done():
                done.set_result(result)

        self.loop.call_later(delay, effect, context=Context())
        if fate < 1:
            late = self._random.choice([0, _ANSWER_SECONDS]) if delay > 1 else _ANSWER_SECONDS
            await asyncio.sleep(late)
            raise ArchiveUnavailableError("the archive cannot be reached: the answer is lost")
        found: _T = await asyncio.shield(done)
        return found


class SimulatedTable:
    """The database that all operators share."""

    def __init__(self, faults: Faults) -> None:
        self.rows: dict[tuple[str, datetime], ArchivedRun] = {}
        self._faults = faults

    # Calls of operators

    async def store(self, runs: Sequence[ArchivedRun]) -> None:
        """Store runs, all or none."""
        await self._faults.perform(lambda: self._store(runs))

    async def versions(self, runs: Collection[RunRef]) -> dict[str, str]:
        """Return the stored versions."""
        wanted = {run.run_id for run in runs}
        return await self._faults.perform(
            lambda: {key[0]: row.record.version for key, row in self.rows.items() if key[0] in wanted}
        )

    async def maintain(self, time: datetime) -> None:
        """Do nothing but respond."""
        del time
        await self._faults.perform(lambda: None)

    def _store(self, runs: Sequence[ArchivedRun]) -> None:
        for run in runs:
            key = run.record.run_id, run.closed
            known = self.rows.get(key)
            if known is None or _order(known) < _order(run):
                self.rows[key] = run

    # For checks

    def of(self, run_id: str) -> list[StoredRun]:
        """The rows of a run."""
        rows = [row for key, row in self.rows.items() if key[0] == run_id]
        return [StoredRun(row.record.version, restored(row.content)) for row in rows]


def _order(run: ArchivedRun) -> tuple[int, int]:
    return run.commit, int(run.record.version)


class SimulatedFiles(BucketArchive):
    """The bucket that all operators share."""

    def __init__(self, faults: Faults) -> None:
        self._objects = _FaultyBucket(faults)
        super().__init__(self._objects, timedelta(0))

    def of(self, run_id: str) -> list[StoredRun]:
        """The file of a run that counts."""
        files = [File.of(key) for key in self._objects.objects if f"/{run_id}/" in key]
        if not files:
            return []
        run = run_in(self._objects.objects[last_of(files).key])
        return [StoredRun(run["metadata"]["resourceVersion"], run)]


class _FaultyBucket(MemoryBucket):
    """Objects whose requests fail."""

    def __init__(self, faults: Faults) -> None:
        super().__init__()
        self._faults = faults

    async def perform(self, apply: Callable[[], _T]) -> _T:
        return await self._faults.perform(apply)


SimulatedArchive = SimulatedTable | SimulatedFiles
