"""The archive of finished runs: what it stores of a run, and the interface of what stores it. Pure.

A run in the archive is one row of a table, or one file: the fields that lists show and filters compare, and the whole
WorkflowRun, compressed, with its history put together from its HistorySegments. A run is replaced only by a later version of the
same run, so storing a run twice changes nothing.
"""

import base64
import gzip
import json
import zlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Protocol, runtime_checkable

import orjson

from perdure.api.json_values import mapping, text
from perdure.api.labels import API_VERSION, ARCHIVED_ANNOTATION
from perdure.api.phases import RunKind
from perdure.api.search_attributes import attribute_field
from perdure.archive.filters import Among, And, Condition, Missing, Or
from perdure.archive.records import RunRecord, phase_named, record_of
from perdure.engine.state import WORKFLOWS_QUEUE
from perdure.runtime.attempts import KubeObject
from perdure.runtime.commits import Commit

Json = dict[str, Any]

MIB: Final = 1024 * 1024
EPOCH: Final = datetime.fromisoformat("1970-01-01T00:00:00+00:00")
_LEVEL: Final = 6
"""Of gzip: higher ones take several times as long and save a few percent."""
_EITHER_FORM: Final = zlib.MAX_WBITS | 32
"""Decompress gzip, and zlib, in which rows were first written."""
_FAILURE: Final = 1_000
"""Characters of the message of a failure that have a column; the object has all of it."""
PAYLOADS: Final = "archivedPayloads"
"""Field of an archived WorkflowRun with its large payloads, by name, in base64."""
OMITTED: Final = "historyOmittedBytes"
"""Field of an archived `status.history` whose events were too large to be archived: their size in bytes."""


EMPTY: Final[Mapping[str, bytes]] = MappingProxyType({})


class OnUnavailable(StrEnum):
    """What to do about runs that are not archived, once a namespace has more finished runs than it may have."""

    KEEP = "Keep"
    """They stay, and the namespace exceeds its limit."""
    DELETE = "Delete"
    """The oldest are deleted."""


class ArchiveUnavailableError(Exception):
    """The archive cannot be used now, or a query took too long. The message says which, and what to do."""


class ArchiveRejectedError(Exception):
    """The archive does not accept one of the runs that it was given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveSettings:
    """The settings of the archive."""

    on_unavailable: OnUnavailable = OnUnavailable.KEEP
    history_bytes: int = 32 * MIB
    """Size limit of the JSON of a history, and that of the large payloads of a run; larger ones are not archived."""
    retention: timedelta = timedelta(0)
    """How long the archive keeps a run after its end; zero: for ever."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedRun:
    """A run as it is stored."""

    record: RunRecord
    name: str
    commit: int
    """The number of the commit that wrote its status; 0 if that is not known."""
    failure: str
    """The beginning of the message of its failure."""
    content: bytes
    """The WorkflowRun as JSON, compressed by gzip."""

    @property
    def closed(self) -> datetime:
        """When it closed."""
        assert self.record.close_time is not None
        return self.record.close_time


class ListedRun(NamedTuple):
    """A run as lists of the archive show it."""

    record: RunRecord
    name: str
    failure: str
    """The beginning of the message of its failure."""


class RunRef(NamedTuple):
    """A run that was given to the archive, or will be."""

    namespace: str
    name: str
    workflow_id: str
    run_id: str
    closed: str
    """When it closed, RFC 3339."""


class MonthPage(NamedTuple):
    """A page of the runs that closed in a month."""

    month: str
    """Such as `2026-11`; empty if there is none."""
    runs: list[KubeObject]
    """What lists show of each, as `listed_object` does."""
    token: str
    """Where the next page begins; empty if there is none."""


Position = tuple[datetime, str]
"""The place of a run in a list: its start time and its run ID. Later runs come first."""


class ArchiveStore(Protocol):
    """Where finished runs are stored. Each method raises ArchiveUnavailableError if the archive cannot be used now."""

    async def store(self, runs: Sequence[ArchivedRun]) -> None:
        """Store runs, all or none. A run that is stored in the same version, or in a later one, is not changed.

        Raises:
            ArchiveRejectedError: One of them cannot be stored.
        """
        ...

    async def versions(self, runs: Collection[RunRef]) -> dict[str, str]:
        """Return the stored resourceVersions of those runs that are stored, by run ID."""
        ...

    async def maintain(self, time: datetime) -> None:
        """Prepare for the runs that close next, and delete those that have been kept long enough."""
        ...


class Archive(ArchiveStore, Protocol):
    """Where finished runs are stored and read. Each method raises ArchiveUnavailableError, as in `ArchiveStore`."""

    async def find(self, namespace: str, kind: RunKind, workflow_id: str, run_id: str) -> KubeObject | None:
        """Return a WorkflowRun with its whole history, by its run ID or as the newest of a workflow ID; None if there is none.

        Args:
            namespace: The namespace.
            kind: The kind of the run.
            workflow_id: Its workflow ID; empty for any.
            run_id: Its run ID; empty for the newest run.
        """
        ...

    async def named(self, namespace: str, name: str) -> KubeObject | None:
        """Return the newest WorkflowRun of a name with its whole history; None if there is none."""
        ...

    async def delete(self, run: RunRef) -> None:
        """Delete a run, if it is stored. It is not stored again, also by an operator that has read it before."""
        ...


@runtime_checkable
class SearchableArchive(Archive, Protocol):
    """An archive whose runs are listed and counted with those in the cluster."""

    async def page(
        self, namespace: str, kind: RunKind, condition: Condition, *, after: Position | None, limit: int
    ) -> list[ListedRun]:
        """Return runs of a namespace, the newest first.

        Args:
            namespace: The namespace.
            kind: The kind of runs.
            condition: The condition that they meet.
            after: The last position of the page before; None for the first page.
            limit: The maximum number of runs.
        """
        ...

    async def count(
        self, namespace: str, kind: RunKind, condition: Condition, *, without: Collection[str]
    ) -> dict[str, int]:
        """Count the runs of a namespace that meet a condition, by status. Large numbers are estimates.

        Args:
            namespace: The namespace.
            kind: The kind of runs.
            condition: The condition that they meet.
            without: Run IDs that are not counted.
        """
        ...

    async def attribute_types(self, namespace: str) -> dict[str, str]:
        """Return the types of the search attributes that runs of a namespace have, by name."""
        ...


@runtime_checkable
class MonthlyArchive(Archive, Protocol):
    """An archive whose runs are only listed by the month in which they closed."""

    async def month_page(
        self, namespace: str, month: str, selects: Callable[[RunRecord], bool], *, token: str, limit: int
    ) -> MonthPage:
        """Return workflows that closed in a month, by name.

        Args:
            namespace: The namespace.
            month: Such as `2026-11`; empty for the newest one that has runs.
            selects: Whether a run is listed. Only the fields `OUTLINED` of the record are set.
            token: That of the page before; empty for the first page.
            limit: The maximum number of runs that are looked at.
        """
        ...


def archived(
    run: KubeObject, events: Sequence[Json], settings: ArchiveSettings, payloads: Mapping[str, bytes] = EMPTY
) -> ArchivedRun:
    """Build the row of a closed run.

    Args:
        run: The WorkflowRun, with the values of its status.
        events: Its whole history.
        settings: The size limit.
        payloads: The large payloads that the run and its history refer to, by name.
    """
    status = run.get("status") or {}
    record, commit = record_of(run, RunRecord), Commit.of(status)
    document = _joined(run, events)
    content = _dumped(document)
    if len(content) > settings.history_bytes:
        content = _dumped(_without_events(document, len(content)))
    elif payloads:
        content = _dumped(
            {**document, PAYLOADS: {name: base64.b64encode(each).decode() for name, each in payloads.items()}}
        )
    return ArchivedRun(
        record=record,
        name=run["metadata"]["name"],
        commit=commit.number if commit is not None else 0,
        failure=text(mapping(status.get("failure")).get("message"))[:_FAILURE],
        content=gzip.compress(content, _LEVEL, mtime=0),
    )


def _joined(run: KubeObject, events: Sequence[Json]) -> KubeObject:
    """A run whose status has its whole history, as if it had no HistorySegments."""
    meta = {key: value for key, value in run["metadata"].items() if key != "managedFields"}
    status = run.get("status") or {}
    history = {key: value for key, value in (status.get("history") or {}).items() if key != "lastSegmentHash"}
    return {
        **run,
        "metadata": meta,
        "status": {**status, "history": {**history, "events": list(events), "segments": 0}},
    }


def _without_events(run: KubeObject, size: int) -> KubeObject:
    history = {**run["status"]["history"], "events": [], OMITTED: size}
    return {**run, "status": {**run["status"], "history": history}}


def payloads_of(run: KubeObject) -> dict[str, bytes]:
    """The large payloads that were archived with a run, by name."""
    return {name: base64.b64decode(each) for name, each in mapping(run.get(PAYLOADS)).items()}


def omitted_bytes(run: KubeObject) -> int:
    """The size of the history that was not archived with a run, in bytes; 0 if the run has its history."""
    return int(mapping(mapping(run.get("status")).get("history")).get(OMITTED) or 0)


def restored(content: bytes) -> KubeObject:
    """Return the WorkflowRun of a row."""
    found: KubeObject = _loaded(zlib.decompress(content, _EITHER_FORM))
    return found


def readable(run: KubeObject) -> bytes:
    """Return an archived WorkflowRun as JSON for readers of objects: marked as archived, and without its large payloads."""
    meta = run["metadata"]
    annotations = {**(meta.get("annotations") or {}), ARCHIVED_ANNOTATION: "true"}
    rest = {key: each for key, each in run.items() if key != PAYLOADS}
    return _dumped({**rest, "metadata": {**meta, "annotations": annotations}})


OUTLINED: Final = frozenset(
    {"WorkflowId", "WorkflowType", "RunId", "ExecutionStatus", "StartTime", "CloseTime", "ExecutionDuration"}
)
"""The fields of a record that `listed_object` shows, besides search attributes."""


def listed_object(run: ListedRun) -> KubeObject:
    """Return what a list shows of an archived run as a WorkflowRun: its metadata, and the outlines of spec and status."""
    record = run.record
    field = "workflow" if record.kind is RunKind.WORKFLOW else record.kind.value
    kind = "name" if record.task_queue == WORKFLOWS_QUEUE else "type"
    return {
        "apiVersion": API_VERSION,
        "kind": "WorkflowRun",
        "metadata": {
            "name": run.name,
            "namespace": record.namespace,
            "uid": record.run_id,
            "resourceVersion": record.version,
            "creationTimestamp": _time(record.start_time),
            "annotations": {ARCHIVED_ANNOTATION: "true"},
        },
        "spec": {
            "workflowId": record.workflow_id,
            field: {kind: record.workflow_type},
            "searchAttributes": record.search_attributes,
        },
        "status": {
            "phase": phase_named(record.status),
            "startTime": _time(record.start_time),
            "completionTime": None if record.close_time is None else _time(record.close_time),
            **({"failure": {"message": run.failure}} if run.failure else {}),
        },
    }


def _time(time: datetime) -> str:
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _dumped(value: Any) -> bytes:
    try:
        return orjson.dumps(value)
    except TypeError:  # nested too deeply, or a number of more than 64 bits
        return json.dumps(value, separators=(",", ":")).encode()


def _loaded(content: bytes) -> Any:
    try:
        return orjson.loads(content)
    except orjson.JSONDecodeError:
        return json.loads(content)


def filterable(attributes: Mapping[str, Any]) -> Json:
    """Return the values of search attributes as filters compare them: times are microseconds since 1970."""
    found = {}
    for name in attributes:
        value = attribute_field(attributes, name)
        if isinstance(value, datetime):
            value = microseconds(value)
        if value is not None:
            found[name] = value
    return found


def microseconds(time: datetime) -> int:
    """The microseconds between 1970 and a time."""
    return (time - EPOCH) // timedelta(microseconds=1)


def may_be_closed(condition: Condition) -> bool:
    """Whether a closed run can meet a condition, so that the archive must be asked."""
    match condition:
        case And():
            return all(map(may_be_closed, condition.conditions))
        case Or():
            return any(map(may_be_closed, condition.conditions))
        case Among(name="ExecutionStatus", negated=False):
            return any(each != "Running" for each in condition.wanted)
        case Missing(name="CloseTime", negated=False):
            return False
        case _:
            return True


def merged(one: Iterable[Position], other: Iterable[Position], limit: int) -> list[Position]:
    """The first positions of two lists together, each once."""
    return sorted({*one, *other}, reverse=True)[:limit]
