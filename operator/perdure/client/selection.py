"""Selects runs by phase, label, search attribute, age, and name."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from perdure.api.json_values import mapping
from perdure.api.labels import API_VERSION
from perdure.api.phases import CLOSED, Phase, listed_phase
from perdure.api.search_attributes import search_attributes_of, text_of
from perdure.client.errors import NotFoundError
from perdure.kube.paths import escaped
from perdure.lazy import lazily

with lazily():
    from perdure.archive import records
    from perdure.client import frontend as client_frontend

if TYPE_CHECKING:
    from collections.abc import Iterable

    from perdure.client.cluster import Cluster
    from perdure.client.requests import Object
    from perdure.kube.responses import TableRow

_MAX_SINGLE_READS: Final = 100
"""Maximum number of runs that are read one by one; more are read with all others."""
_TYPE: Final = {"apiVersion": API_VERSION, "kind": "WorkflowRun"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The selection of runs; None or empty fields select everything."""

    phases: frozenset[str] = frozenset()
    workflow: str | None = None
    """Their Workflow, or the workflow type of code."""
    selector: str | None = None
    attributes: tuple[tuple[str, str], ...] = ()
    since: timedelta | None = None
    """Runs that were created within this time."""
    older: timedelta | None = None
    """Runs that were created longer ago."""
    prefix: str = ""
    """The beginning of their names."""
    revision: str | None = None
    """Name of the WorkflowRevision that they execute."""

    @property
    def includes_closed(self) -> bool:
        """Whether it can select closed runs."""
        return not self.phases or not self.phases.isdisjoint(CLOSED)

    @property
    def filters(self) -> bool:
        """Whether it selects by more than the phase."""
        return (
            bool(self.workflow or self.selector or self.attributes or self.prefix or self.revision)
            or self.since is not None
            or self.older is not None
        )

    async def read(self, cluster: Cluster, now: datetime, *, everywhere: bool = False) -> list[Object]:
        """Read the selected runs.

        Args:
            cluster: The cluster.
            now: The time.
            everywhere: Whether to read the runs of all namespaces.

        Raises:
            ClientError: The runs cannot be read.
        """
        found = await cluster.list("workflowruns", everywhere=everywhere, **self._selectors())
        return [run for run in found if self.matches(run, now)]

    async def read_metadata(self, cluster: Cluster, now: datetime, *, everywhere: bool = False) -> list[Object]:
        """Read the phase and the metadata of the selected runs. Arguments and exceptions are those of `read`."""
        if self.attributes:  # their current values are in the status
            return await self.read(cluster, now, everywhere=everywhere)
        rows = await cluster.rows("workflowruns", everywhere=everywhere, metadata=True, **self._selectors())
        return [run for run in map(_brief, rows) if self.matches(run, now)]

    async def read_newest(
        self, cluster: Cluster, now: datetime, limit: int, *, everywhere: bool = False
    ) -> list[Object]:
        """Read the newest of the selected runs, newest first. Arguments and exceptions are those of `read`."""
        if limit > _MAX_SINGLE_READS or self.attributes:
            return newest(await self.read(cluster, now, everywhere=everywhere), limit)
        first = newest(await self.read_metadata(cluster, now, everywhere=everywhere), limit)
        found = await asyncio.gather(*(_reread(cluster, run) for run in first))
        return [run for run in found if run is not None and self.matches(run, now)]

    async def count(self, cluster: Cluster, now: datetime, *, everywhere: bool = False) -> Counter[str]:
        """Count the selected runs by phase. Arguments and exceptions are those of `read`."""
        if self.attributes:
            return Counter(phase_of(run) for run in await self.read(cluster, now, everywhere=everywhere))
        rows = await cluster.rows("workflowruns", everywhere=everywhere, metadata=True, **self._selectors())
        return Counter(phase_of(run) for run in map(_brief, rows) if self.matches(run, now))

    def _selectors(self) -> dict[str, str]:
        """Return the selectors for the API server. They can match a run that no operator has seen: it has no phase yet."""
        query = {"labelSelector": self.selector} if self.selector else {}
        if self.phases:
            others = [f"status.phase!={phase}" for phase in Phase if phase not in self.phases]
            one = len(self.phases) == 1 and "Pending" not in self.phases
            query["fieldSelector"] = f"status.phase={next(iter(self.phases))}" if one else ",".join(others)
        if self.revision is not None:
            of_revision = f"status.revision.name={escaped(self.revision)}"
            query["fieldSelector"] = ",".join(filter(None, (query.get("fieldSelector"), of_revision)))
        return query

    def archive_query(self, now: datetime, query: str | None) -> str | None:
        """Return the filter of Temporal clients for closed runs of this phase, Workflow, and age; None if no run can match.

        Args:
            now: The time.
            query: A further filter.
        """
        conditions = [] if query is None else [f"({query})"]
        if self.phases:
            closed = sorted(phase for phase in self.phases if Phase(phase).is_closed)
            if not closed:
                return None
            named = ", ".join(f"'{records.status_named(phase)}'" for phase in closed)
            conditions.append(f"ExecutionStatus IN ({named})")
        if self.workflow is not None:
            conditions.append(f"WorkflowType = {client_frontend.quoted(self.workflow)}")
        if self.since is not None:
            conditions.append(f"StartTime >= '{(now - self.since).isoformat()}'")
        if self.older is not None:
            conditions.append(f"StartTime <= '{(now - self.older).isoformat()}'")
        return " AND ".join(conditions)

    def matches(self, run: Object, now: datetime) -> bool:
        """Return whether a run has a selected phase, the search attributes, the age, and the prefix."""
        if self.phases and phase_of(run) not in self.phases:
            return False
        if self.workflow is not None and self.workflow != _workflow_of(run):
            return False
        if self.revision is not None and self.revision != _revision_of(run):
            return False
        if self.since is not None and created(run) < now - self.since:
            return False
        if self.older is not None and created(run) > now - self.older:
            return False
        meta = run["metadata"]
        if self.prefix and not meta["name"].startswith(self.prefix):
            return False
        found = search_attributes_of(run)
        return all(name in found and _has(found[name], value) for name, value in self.attributes)


def phase_of(run: Object) -> str:
    """Return the phase of a run; Pending if no operator has processed it, Deleting if its deletion has ended it."""
    return listed_phase(run["metadata"], str((run.get("status") or {}).get("phase") or ""))


def created(run: Object) -> datetime:
    """Return when a run was created."""
    time = run["metadata"].get("creationTimestamp")
    return datetime.fromisoformat(time) if time else datetime.max.replace(tzinfo=UTC)


def _brief(row: TableRow) -> Object:
    """Return the part of a run that a row of the table has."""
    workflow = {"workflow": {"name": row.cells["Workflow"]}} if row.cells.get("Workflow") else {}
    revision = {"revision": {"name": row.cells["Revision"]}} if row.cells.get("Revision") else {}
    return {**_TYPE, "metadata": row.metadata, "spec": workflow, "status": {"phase": row.cells["Phase"], **revision}}


def _workflow_of(run: Object) -> str | None:
    reference = mapping(mapping(run.get("spec")).get("workflow"))
    return reference.get("name") or reference.get("type")


def _revision_of(run: Object) -> str | None:
    name = mapping(mapping(run.get("status")).get("revision")).get("name")
    return None if name is None else str(name)


async def _reread(cluster: Cluster, run: Object) -> Object | None:
    """Read a whole run; None if it no longer exists."""
    try:
        return await cluster.within(run["metadata"]["namespace"]).runs.get(run["metadata"]["name"])
    except NotFoundError:
        return None


def newest(runs: Iterable[Object], limit: int | None) -> list[Object]:
    """Return the newest runs, newest first: `limit` of them, or all for None."""
    by_name = sorted(runs, key=lambda run: (run["metadata"]["namespace"], run["metadata"]["name"]))
    return sorted(by_name, key=created, reverse=True)[:limit]


def _has(found: Any, value: str) -> bool:
    """Return whether a search attribute has a value, or a list of values contains it."""
    return value in map(text_of, found) if isinstance(found, list) else text_of(found) == value
