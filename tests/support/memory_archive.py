"""An archive in memory that can be unavailable and reject runs, in place of a database."""

import asyncio
from collections.abc import Collection, Sequence
from datetime import datetime

from perdure.api.phases import RunKind
from perdure.archive.rows import ArchivedRun, ArchiveRejectedError, ArchiveUnavailableError, RunRef, restored
from perdure.runtime.attempts import KubeObject


class MemoryArchive:
    """Stores runs by run ID."""

    def __init__(self) -> None:
        self.rows: dict[str, ArchivedRun] = {}
        self.batches: list[list[str]] = []
        """The names of the runs in each batch that was given to it."""
        self.is_down = False
        self.answers = asyncio.Event()
        """While it is not set, questions for versions wait."""
        self.answers.set()
        self.asked: list[str] = []
        """The names of the runs whose versions were asked for."""
        self.largest_batch: int | None = None
        """The most runs that it takes at a time; None: any number."""
        self.rejects: set[str] = set()
        """Names of runs."""

    def _check(self) -> None:
        if self.is_down:
            raise ArchiveUnavailableError("the archive cannot be reached: it is down")

    async def store(self, runs: Sequence[ArchivedRun]) -> None:
        self._check()
        if self.largest_batch is not None and len(runs) > self.largest_batch:
            raise ArchiveUnavailableError("the archive did not answer within 10 seconds")
        self.batches.append([run.name for run in runs])
        if self.rejects & {run.name for run in runs}:
            raise ArchiveRejectedError("a value is not valid")
        for run in runs:
            known = self.rows.get(run.record.run_id)
            if known is None or known.commit <= run.commit:
                self.rows[run.record.run_id] = run

    async def versions(self, runs: Collection[RunRef]) -> dict[str, str]:
        self._check()
        self.asked += [run.name for run in runs]
        await self.answers.wait()
        return {run.run_id: self.rows[run.run_id].record.version for run in runs if run.run_id in self.rows}

    async def find(self, namespace: str, kind: RunKind, workflow_id: str, run_id: str) -> KubeObject | None:
        self._check()
        del namespace, kind, workflow_id
        row = self.rows.get(run_id)
        return restored(row.content) if row is not None else None

    async def maintain(self, time: datetime) -> None:
        self._check()
        del time
