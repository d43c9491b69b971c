"""RPCs that list and count workflows, standalone activities, and standalone Nexus operations."""

import asyncio
import functools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec
from temporalio.api.enums.v1 import WorkflowExecutionStatus
from temporalio.api.workflowservice.v1 import (
    CountActivityExecutionsRequest,
    CountActivityExecutionsResponse,
    CountNexusOperationExecutionsRequest,
    CountNexusOperationExecutionsResponse,
    CountWorkflowExecutionsRequest,
    CountWorkflowExecutionsResponse,
    ListActivityExecutionsRequest,
    ListActivityExecutionsResponse,
    ListClosedWorkflowExecutionsRequest,
    ListClosedWorkflowExecutionsResponse,
    ListNexusOperationExecutionsRequest,
    ListNexusOperationExecutionsResponse,
    ListOpenWorkflowExecutionsRequest,
    ListOpenWorkflowExecutionsResponse,
    ListWorkflowExecutionsRequest,
    ListWorkflowExecutionsResponse,
    ScanWorkflowExecutionsRequest,
    ScanWorkflowExecutionsResponse,
)

from perdure.api.phases import RunKind
from perdure.api.search_attributes import SYSTEM
from perdure.archive.filters import InvalidQueryError, time_of
from perdure.archive.records import RunRecord, record_of
from perdure.archive.rows import (
    OUTLINED,
    ArchiveRejectedError,
    ArchiveUnavailableError,
    ListedRun,
    Position,
    SearchableArchive,
    may_be_closed,
    merged,
)
from perdure.controller.directory import Directory
from perdure.frontend.errors import invalid, unavailable
from perdure.frontend.messages import payloads as data
from perdure.frontend.messages.tokens import page_length, page_size, position_in, token_at
from perdure.frontend.messages.values import UnfitError, from_enum, timestamp, to_enum
from perdure.frontend.runs.gateway import RunGateway
from perdure.frontend.transport.rpc import CallContext
from perdure.frontend.visibility.index import BUILT_IN, OF_KIND, Visibility, VisibilityRecord, is_known
from perdure.frontend.visibility.query_language import (
    Convert,
    Filter,
    nanoseconds,
    parse,
    quoted,
)
from perdure.frontend.visibility.search_attributes import SearchAttributeRegistry
from perdure.kube import client as kube

PAGE = 1_000
_NOT_CLOSED = {
    WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_UNSPECIFIED,
    WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_RUNNING,
}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LIGHT = 2_048
_AT_ONCE = 8
"""Number of runs that are read concurrently."""
_Listed = TypeVar(
    "_Listed",
    ListWorkflowExecutionsResponse,
    ScanWorkflowExecutionsResponse,
    ListOpenWorkflowExecutionsResponse,
    ListClosedWorkflowExecutionsResponse,
)
_Counted = TypeVar(
    "_Counted",
    CountWorkflowExecutionsResponse,
    CountActivityExecutionsResponse,
    CountNexusOperationExecutionsResponse,
)


class Listing:
    """Lists and counts runs."""

    def __init__(
        self,
        client: kube.Client,
        directory: Directory,
        runs: RunGateway,
        visibility: Visibility,
        search_attributes: SearchAttributeRegistry,
        archive: SearchableArchive | None = None,
    ) -> None:
        self._archive = archive
        self._client = client
        self._directory = directory
        self._runs = runs
        self._visibility = visibility
        self._search_attributes = search_attributes

    async def _page(
        self, namespace: str, text: str, token: bytes, size: int, kind: RunKind = RunKind.WORKFLOW
    ) -> tuple[Sequence[VisibilityRecord], bytes]:
        after, size = position_in(token), page_size(size, PAGE)
        found, query = await self.find(namespace, text, kind)
        if query.group_by:
            raise invalid("invalid query: 'group by' clause is only supported for counting")
        first = [position for position in found if after is None or position < after][: size + 1]
        archived = await self._archived_page(namespace, query, kind, after, size + 1)
        known = {run_id: record for run_id in archived if (record := self._visibility.get(namespace, run_id))}
        more = [(record.start_time, run_id) for run_id, record in archived.items() if run_id not in known]
        candidates = merged(first, more, size + 1)

        def weight(position: Position) -> int:
            """The size of a run in a list, in bytes. Only its search attributes and its memo can be large."""
            record = self._visibility.get(namespace, position[1]) or archived.get(position[1])
            if record is None:
                return 0
            return record.left_out + (record.info().ByteSize() if record.memo else _LIGHT)

        page = candidates[: page_length(candidates[:size], weight)]
        read = {record.run_id: record for record in await self._records(namespace, [run_id for _, run_id in page])}
        shown = (read.get(run_id) or archived.get(run_id) for _, run_id in page)
        return [record for record in shown if record], token_at(page[-1]) if len(candidates) > len(page) else b""

    async def _archived_page(
        self, namespace: str, query: Filter, kind: RunKind, after: Position | None, limit: int
    ) -> dict[str, VisibilityRecord]:
        """The archived runs after a position, by run ID; also those that are still in the cluster."""
        if self._archive is None or not may_be_closed(query.condition):
            return {}
        with archive_errors():
            found = await self._archive.page(namespace, kind, query.condition, after=after, limit=limit)
        return {record.run_id: VisibilityRecord(**msgspec.structs.asdict(record)) for record, *_ in found}

    async def archived_page(self, namespace: str, text: str, token: bytes, size: int) -> tuple[list[ListedRun], bytes]:
        """List the archived workflows that match a filter and are not in the cluster, the newest first.

        Args:
            namespace: The namespace.
            text: The filter.
            token: The token of the page before; empty for the first page.
            size: The maximum number of runs. There can be fewer, also if there is another page.

        Returns:
            The runs, and the token of the next page; empty if there is none.

        Raises:
            RpcError: The filter or the token is not valid, or the archive cannot be used.
        """
        assert self._archive is not None, "the caller has checked it"
        after, size = position_in(token), page_size(size, PAGE)
        try:
            query = await self._parsed(namespace, text, RunKind.WORKFLOW)
        except InvalidQueryError as error:
            raise invalid(f"invalid query: {error}") from error
        if query.group_by:
            raise invalid("invalid query: 'group by' clause is only supported for counting")
        if not may_be_closed(query.condition):
            return [], b""
        with archive_errors():
            found = await self._archive.page(namespace, RunKind.WORKFLOW, query.condition, after=after, limit=size + 1)
        page = found[:size]
        following = b""
        if len(found) > size:
            following = token_at((page[-1].record.start_time, page[-1].record.run_id))
        return [each for each in page if self._directory.get(each.record.run_id) is None], following

    async def outline_filter(self, namespace: str, text: str) -> Callable[[RunRecord], bool]:
        """Parse a filter of runs of which only the outlines are known.

        Returns:
            Whether a run matches. A run that is in the cluster does not.

        Raises:
            RpcError: The filter is not valid, or uses a field that is not part of outlines.
        """
        try:
            query = await self._parsed(namespace, text, RunKind.WORKFLOW)
        except InvalidQueryError as error:
            raise invalid(f"invalid query: {error}") from error
        if query.group_by:
            raise invalid("invalid query: 'group by' clause is only supported for counting")
        if other := sorted((query.names & SYSTEM.keys()) - OUTLINED):
            known = ", ".join(sorted(OUTLINED))
            raise invalid(f"the archive consists of files, which cannot be listed by {other[0]}, only by {known}")
        return lambda record: self._directory.get(record.run_id) is None and query.test(record.field)

    async def list_workflow_executions(
        self, request: ListWorkflowExecutionsRequest, call: CallContext
    ) -> ListWorkflowExecutionsResponse:
        """List the workflows that match a filter, the newest first."""
        return await self._listed(ListWorkflowExecutionsResponse, request, request.query, request.page_size)

    async def scan_workflow_executions(
        self, request: ScanWorkflowExecutionsRequest, call: CallContext
    ) -> ScanWorkflowExecutionsResponse:
        """List the workflows that match a filter, the newest first."""
        return await self._listed(ScanWorkflowExecutionsResponse, request, request.query, request.page_size)

    async def list_open_workflow_executions(
        self, request: ListOpenWorkflowExecutionsRequest, call: CallContext
    ) -> ListOpenWorkflowExecutionsResponse:
        """List the open workflows that match a filter of the older kind, the newest first."""
        query = " AND ".join(("ExecutionStatus = 'Running'", *_conditions(request)))
        return await self._listed(ListOpenWorkflowExecutionsResponse, request, query, request.maximum_page_size)

    async def list_closed_workflow_executions(
        self, request: ListClosedWorkflowExecutionsRequest, call: CallContext
    ) -> ListClosedWorkflowExecutionsResponse:
        """List the closed workflows that match a filter of the older kind, the newest first."""
        status = "ExecutionStatus != 'Running'"
        if request.HasField("status_filter"):
            if request.status_filter.status in _NOT_CLOSED:
                raise invalid("status_filter.status: must be that of a closed workflow")
            status = f"ExecutionStatus = {quoted(from_enum(WorkflowExecutionStatus, request.status_filter.status))}"
        query = " AND ".join((status, *_conditions(request)))
        return await self._listed(ListClosedWorkflowExecutionsResponse, request, query, request.maximum_page_size)

    async def _listed(self, response: type[_Listed], request: Any, query: str, size: int) -> _Listed:
        page, token = await self._page(request.namespace, query, request.next_page_token, size)
        return response(executions=[r.info() for r in page], next_page_token=token)

    async def list_activity_executions(
        self, request: ListActivityExecutionsRequest, call: CallContext
    ) -> ListActivityExecutionsResponse:
        """List the standalone activities that match a filter, the newest first."""
        page, token = await self._page(
            request.namespace, request.query, request.next_page_token, request.page_size, RunKind.ACTIVITY
        )
        return ListActivityExecutionsResponse(executions=[r.activity_info() for r in page], next_page_token=token)

    async def list_nexus_operation_executions(
        self, request: ListNexusOperationExecutionsRequest, call: CallContext
    ) -> ListNexusOperationExecutionsResponse:
        """List the standalone Nexus operations that match a filter, the newest first."""
        page, token = await self._page(
            request.namespace, request.query, request.next_page_token, request.page_size, RunKind.NEXUS_OPERATION
        )
        return ListNexusOperationExecutionsResponse(
            operations=[r.operation_info() for r in page], next_page_token=token
        )

    async def count_workflow_executions(
        self, request: CountWorkflowExecutionsRequest, call: CallContext
    ) -> CountWorkflowExecutionsResponse:
        """Count the workflows that match a filter."""
        return await self._counted(CountWorkflowExecutionsResponse, request, RunKind.WORKFLOW)

    async def count_activity_executions(
        self, request: CountActivityExecutionsRequest, call: CallContext
    ) -> CountActivityExecutionsResponse:
        """Count the standalone activities that match a filter."""
        return await self._counted(CountActivityExecutionsResponse, request, RunKind.ACTIVITY)

    async def count_nexus_operation_executions(
        self, request: CountNexusOperationExecutionsRequest, call: CallContext
    ) -> CountNexusOperationExecutionsResponse:
        """Count the standalone Nexus operations that match a filter."""
        return await self._counted(CountNexusOperationExecutionsResponse, request, RunKind.NEXUS_OPERATION)

    async def _counted(self, response: type[_Counted], request: Any, kind: RunKind) -> _Counted:
        """Count the runs that match a filter, also by status if the filter groups by status.

        Temporal sorts the statuses of workflows by their numbers, those of standalone runs by their names.
        """
        namespace = request.namespace
        in_cluster = self._visibility.run_ids(namespace)
        found, query = await self.find(namespace, request.query, kind)
        run_ids = [run_id for _, run_id in found] if query.group_by else ()
        groups = Counter([each.status async for each in self._visibility.records(namespace, run_ids, query.budget)])
        archived: dict[str, int] = {}
        if self._archive is not None and may_be_closed(query.condition):
            with archive_errors():
                archived = await self._archive.count(namespace, kind, query.condition, without=in_cluster)
        if query.group_by:
            groups.update(archived)
        number = functools.partial(to_enum, WorkflowExecutionStatus)
        made = response(count=len(found) + sum(archived.values()))
        for status in sorted(groups, key=None if kind.standalone else number):
            made.groups.add(count=groups[status], group_values=[data.attribute(status)])
        return made

    async def find(self, namespace: str, text: str, kind: RunKind = RunKind.WORKFLOW) -> tuple[list[Position], Filter]:
        """Return the positions of the runs in the cluster that match a filter, the newest first, and the parsed filter.

        Args:
            namespace: The namespace.
            text: The filter.
            kind: The kind of runs.

        Raises:
            RpcError: The filter is not valid, or search attributes that are not in memory could not be read.
        """
        try:
            query = await self._parsed(namespace, text, kind)
            found, unread = await self._visibility.find(namespace, query, kind)
            if unread:
                known = [
                    (r.start_time, r.run_id)
                    async for r in self._visibility.records(namespace, [run_id for _, run_id in found], query.budget)
                ]
                for at in range(0, len(unread), _AT_ONCE):
                    read = await self._records(namespace, unread[at : at + _AT_ONCE])
                    for record in read:
                        if record.finds and query.test(record.field):
                            known.append((record.start_time, record.run_id))
                        await query.budget.yield_turn()
                found = sorted(known, reverse=True)
        except InvalidQueryError as error:
            raise invalid(f"invalid query: {error}") from error
        return found, query

    async def _parsed(self, namespace: str, text: str, kind: RunKind) -> Filter:
        """Parse a filter. Search attributes that only archived runs have are looked up when a filter uses them.

        Raises:
            InvalidQueryError: The filter is not valid.
            RpcError: The types of search attributes could not be read.
        """
        types = await self._search_attributes.filter_types(namespace) | OF_KIND[kind]
        names = parse(text).names
        if self._archive is not None and not all(is_known(name, types) for name in names):
            with archive_errors():
                types = await self._archive.attribute_types(namespace) | types
        for name in sorted(names):
            _check(name, types)
        return parse(text, converter(types, kind), lists_of(types))

    async def _records(self, namespace: str, run_ids: Sequence[str]) -> list[VisibilityRecord]:
        """Return the records of runs in the order of `run_ids`, without deleted runs."""
        at_once = asyncio.Semaphore(_AT_ONCE)

        async def complete(run_id: str) -> VisibilityRecord | None:
            record = self._visibility.get(namespace, run_id)
            if record is None or not record.left_out:
                return record
            entry = self._directory.get(run_id)
            if entry is None:
                return None
            url = kube.path(kube.PERDURE, namespace, "workflowruns", entry.name)
            try:
                async with at_once:
                    obj = await self._client.get(url)
            except kube.NotFoundError:
                return None
            except kube.UnreadableError:
                return record
            except kube.RequestError as error:
                raise unavailable(str(error)) from error
            return record_of(obj, VisibilityRecord) if obj["metadata"]["uid"] == run_id else None

        return [record for record in await asyncio.gather(*map(complete, run_ids)) if record is not None]


@contextmanager
def archive_errors() -> Iterator[None]:
    """Convert the errors of the archive for clients."""
    try:
        yield
    except ArchiveUnavailableError as error:
        raise unavailable(f"{error}; add `ExecutionStatus = 'Running'` to the query to list open runs only") from error
    except ArchiveRejectedError as error:
        raise invalid(f"invalid query: {error}") from error


def _conditions(request: ListOpenWorkflowExecutionsRequest | ListClosedWorkflowExecutionsRequest) -> Iterator[str]:
    """Convert older filters to parts of a query (Temporal: service/frontend/workflow_handler.go)."""
    try:
        earliest, latest = (timestamp(request.start_time_filter, field) for field in ("earliest_time", "latest_time"))
    except UnfitError as error:
        raise invalid(str(error)) from error
    if latest is not None and (earliest or _EPOCH) > latest:
        raise invalid("EarliestTime in StartTimeFilter should not be larger than LatestTime.")
    if earliest is not None:
        yield f"StartTime >= {quoted(earliest.isoformat())}"
    if latest is not None:
        yield f"StartTime <= {quoted(latest.isoformat())}"
    if request.HasField("execution_filter"):
        yield f"WorkflowId = {quoted(request.execution_filter.workflow_id)}"
        if request.execution_filter.run_id:
            yield f"RunId = {quoted(request.execution_filter.run_id)}"
    if request.HasField("type_filter"):
        yield f"WorkflowType = {quoted(request.type_filter.name)}"


def converter(types: Mapping[str, str], kind: RunKind = RunKind.WORKFLOW) -> Convert:
    """Build the function that checks the values of a filter, as on Temporal's server (visibility/store/query/converter.go).

    Args:
        types: The types of search attributes other than the built-in ones.
        kind: The kind of runs; the status of a standalone run can be any text.
    """

    def convert(name: str, value: Any) -> Any:
        if name == "ExecutionStatus" and not kind.standalone:
            return _status(value)
        if name == "ExecutionDuration" and isinstance(value, str):
            found = nanoseconds(value)
            if found is None:
                raise InvalidQueryError(
                    f"invalid value for ExecutionDuration: {value!r} is not a duration such as '1h30m'"
                )
            return found
        named = BUILT_IN.get(name) or types.get(name, "")
        if named not in _COMPARED_WITH:
            return value  # the name is rejected later, or its type is not one of Temporal's
        if named == "Datetime" and isinstance(value, (int, str)) and not isinstance(value, bool):
            return time_of(value)
        if not isinstance(value, _COMPARED_WITH[named]) or isinstance(value, bool) != (named == "Bool"):
            raise InvalidQueryError(f"invalid value for search attribute {name} of type {named}: {value!r}")
        return value

    return convert


def lists_of(types: Mapping[str, str]) -> set[str]:
    """The search attributes that filters compare as lists or texts."""
    return {name for name, kind in {**types, **BUILT_IN}.items() if kind in {"KeywordList", "Text"}}


_COMPARED_WITH: dict[str, tuple[type, ...]] = {
    "Int": (int, float),
    "Double": (int, float),
    "Bool": (bool,),
    "Datetime": (),
    "Keyword": (str,),
    "KeywordList": (str,),
    "Text": (str,),
}


def _status(value: Any) -> str:
    names = {from_enum(WorkflowExecutionStatus, number): number for number in WorkflowExecutionStatus.values()}
    for name, number in names.items():
        if value in (name, WorkflowExecutionStatus.Name(number)) or (value == number and not isinstance(value, bool)):
            return name
    valid = ", ".join(name for name in names if name != "Unspecified")
    raise InvalidQueryError(f"invalid value for ExecutionStatus: {value!r}; it can be {valid}")


def _check(name: str, types: dict[str, str]) -> None:
    if not is_known(name, types):
        raise InvalidQueryError(f"{name} is not a valid search attribute")
