"""An archive that fails: it is down for a while, refuses requests, loses answers, and takes writes after their sender has gone.

What is stored follows the rules of the table in PostgreSQL: a row for each run ID and time of closing, which only a later version
replaces.
"""

import asyncio
from collections.abc import Callable, Collection, Sequence
from contextvars import Context
from datetime import datetime
from random import Random

from perdure.archive.rows import ArchivedRun, ArchiveUnavailableError
from perdure.simulation.cluster.loop import ClusterLoop

_DOWN = "the archive cannot be reached: it is down"
_ANSWER_SECONDS = 20.0
"""How long a caller waits for an answer that was lost."""


class SimulatedArchive:
    """The database that all operators share."""

    def __init__(self, loop: ClusterLoop, random: Random, rate: float) -> None:
        """`rate`: the share of requests that fail, half of them after they have had their effect."""
        self.rows: dict[tuple[str, datetime], ArchivedRun] = {}
        self.outages: list[tuple[float, float]] = []
        """When it does not respond, in seconds: begin and end."""
        self._loop = loop
        self._random = random
        self._rate = rate

    # Calls of operators

    async def store(self, runs: Sequence[ArchivedRun]) -> None:
        """Store runs, all or none."""
        await self._perform(lambda: self._store(runs))

    async def versions(self, run_ids: Collection[str]) -> dict[str, str]:
        """Return the stored versions."""
        found: dict[str, str] = {}
        wanted = set(run_ids)
        await self._perform(
            lambda: found.update({k[0]: row.record.version for k, row in self.rows.items() if k[0] in wanted})
        )
        return found

    async def maintain(self, time: datetime) -> None:
        """Do nothing but respond."""
        del time
        await self._perform(lambda: None)

    def _store(self, runs: Sequence[ArchivedRun]) -> None:
        for run in runs:
            key = run.record.run_id, run.closed
            known = self.rows.get(key)
            if known is None or _order(known) < _order(run):
                self.rows[key] = run

    async def _perform(self, apply: Callable[[], object]) -> None:
        delay = self._random.choice([0.01, 0.05, 1, 5]) * self._random.random()
        if any(begin <= self._loop.time() < end for begin, end in self.outages):
            await asyncio.sleep(delay)
            raise ArchiveUnavailableError(_DOWN)
        fate = self._random.random() / self._rate if self._rate else 2.0
        if fate < 0.5:
            await asyncio.sleep(delay)
            raise ArchiveUnavailableError("the archive cannot be reached: the request is lost")
        # In no process: it takes effect even if its sender is killed in the meantime.
        done = self._loop.create_future()

        def effect() -> None:
            apply()
            if not done.done():
                done.set_result(None)

        self._loop.call_later(delay, effect, context=Context())
        if fate < 1:
            late = self._random.choice([0, _ANSWER_SECONDS]) if delay > 1 else _ANSWER_SECONDS
            await asyncio.sleep(late)
            raise ArchiveUnavailableError("the archive cannot be reached: the answer is lost")
        await asyncio.shield(done)

    # For checks

    def of(self, run_id: str) -> list[ArchivedRun]:
        """The rows of a run."""
        return [row for key, row in self.rows.items() if key[0] == run_id]


def _order(run: ArchivedRun) -> tuple[int, int]:
    return run.commit, int(run.record.version)
