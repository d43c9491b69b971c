"""The WorkflowRuns of the archive as objects, for readers of objects: the command line and the console."""

import asyncio
import base64
import binascii
import re
from calendar import monthrange
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

import orjson

from perdure.api.phases import RunKind
from perdure.archive.rows import (
    Archive,
    ArchiveRejectedError,
    ArchiveUnavailableError,
    MonthlyArchive,
    SearchableArchive,
    listed_object,
    omitted_bytes,
    readable,
)
from perdure.controller.reconcile.newer_states import NewerStateError, message_for
from perdure.controller.recorded_state import DamagedStateError, stored_state
from perdure.frontend.errors import invalid, not_found, precondition, unavailable, unimplemented
from perdure.frontend.messages.tokens import page_size
from perdure.frontend.transport.rpc import CallContext
from perdure.frontend.visibility.lists import PAGE, Listing, archive_errors
from perdure.runtime.attempts import KubeObject

_MONTH: Final = re.compile(r"[1-9]\d{3}-(?:0[1-9]|1[0-2])", re.ASCII)
_TOKEN: Final = re.compile(r"[a-z0-9.-]+/[A-Za-z0-9-]+/[A-Za-z0-9.-]+")
_MAX_BYTES: Final = 64 * 1024 * 1024
"""The largest run that is sent, in bytes of JSON."""


@dataclass(frozen=True, slots=True)
class GetArchivedRunRequest:
    """A call for a run of the archive."""

    namespace: str
    name: str
    """The name of the object; empty: the newest run of the workflow ID."""
    workflow_id: str


@dataclass(frozen=True, slots=True)
class ListArchivedRunsRequest:
    """A call for the runs that are only in the archive."""

    namespace: str
    query: str
    """A filter, as in ListWorkflowExecutions."""
    month: str
    """The month in which they closed, such as `2026-11`; empty: all, or the newest one if the archive is listed by month."""
    page_size: int
    page_token: str


class ArchivedRuns:
    """Reads runs from the archive. Each response is JSON."""

    def __init__(self, listing: Listing, archive: Archive | None) -> None:
        """`archive`: None without an archive."""
        self._listing = listing
        self._archive = archive

    async def get(self, request: GetArchivedRunRequest, call: CallContext) -> bytes:
        """Return the newest archived WorkflowRun with a name or a workflow ID, with its whole history.

        Raises:
            RpcError: The archive does not have the run, or cannot be used, or only a newer version can read the run.
        """
        del call
        archive, namespace = self._required(), request.namespace
        if bool(request.name) == bool(request.workflow_id):
            raise invalid("set either `name` or `workflowId`")
        try:
            if request.name:
                found = await archive.named(namespace, request.name)
            else:
                found = await archive.find(namespace, RunKind.WORKFLOW, request.workflow_id, "")
        except ArchiveUnavailableError as error:
            raise unavailable(str(error)) from error
        except ArchiveRejectedError:
            found = None
        if found is None:
            named = f"`{request.name}`" if request.name else f"with workflow ID `{request.workflow_id}`"
            raise not_found(f"the archive has no WorkflowRun {named}")
        if size := omitted_bytes(found):
            raise precondition(
                f"the history of this run has {size:,} bytes: too large for the archive, which has only its summary"
            )
        try:
            content = await asyncio.to_thread(_content, found)
        except NewerStateError as error:
            raise unavailable(message_for(str(error))) from error
        if len(content) > _MAX_BYTES:
            raise precondition(
                f"this run has {len(content):,} bytes of JSON, too many for a response; read it with the Temporal CLI"
            )
        return content

    async def list(self, request: ListArchivedRunsRequest, call: CallContext) -> bytes:
        """Return a page of the workflows that are only in the archive, the newest first: their metadata and outlines.

        Raises:
            RpcError: The filter is not valid, or the archive cannot be used.
        """
        del call
        archive = self._required()
        if request.month and not _MONTH.fullmatch(request.month):
            raise invalid(f"month: {request.month!r} is not a month, such as `2026-11`")
        match archive:
            case SearchableArchive():
                return await self._of_time(request)
            case MonthlyArchive():
                return await self._of_month(archive, request)
        raise unimplemented("this archive cannot be listed")

    async def _of_time(self, request: ListArchivedRunsRequest) -> bytes:
        """A page of an archive that is listed by time."""
        query = " AND ".join(filter(None, (request.query and f"({request.query})", _within(request.month))))
        try:
            token = base64.urlsafe_b64decode(request.page_token)
        except (binascii.Error, ValueError) as error:
            raise invalid(f"nextPageToken: {error}") from None
        page, following = await self._listing.archived_page(request.namespace, query, token, request.page_size)
        return _page(list(map(listed_object, page)), base64.urlsafe_b64encode(following).decode(), "")

    async def _of_month(self, archive: MonthlyArchive, request: ListArchivedRunsRequest) -> bytes:
        """A page of an archive that is listed by month."""
        if request.page_token and not _TOKEN.fullmatch(request.page_token):
            raise invalid("nextPageToken: it is not that of a page before")
        selects = await self._listing.outline_filter(request.namespace, request.query)
        with archive_errors():
            page = await archive.month_page(
                request.namespace,
                request.month,
                selects,
                token=request.page_token,
                limit=page_size(request.page_size, PAGE),
            )
        return _page(page.runs, page.token, page.month)

    def _required(self) -> Archive:
        if self._archive is None:
            raise unimplemented("this installation has no archive; `archive.enabled` in the chart enables it")
        return self._archive


def _content(run: KubeObject) -> bytes:
    """An archived run as JSON.

    Raises:
        NewerStateError: A newer version wrote the run, and this one cannot read all of it.
    """
    with suppress(DamagedStateError):  # what is left of it is shown
        stored_state(run)
    return readable(run)


def _page(items: list[KubeObject], token: str, month: str) -> bytes:
    return orjson.dumps({"items": items, "nextPageToken": token, "month": month})


def _within(month: str) -> str:
    """The filter of the runs that closed in a month."""
    if not month:
        return ""
    begin = datetime.strptime(month, "%Y-%m").replace(tzinfo=UTC)
    last = begin.replace(day=monthrange(begin.year, begin.month)[1]) + timedelta(days=1, microseconds=-1)
    return f"CloseTime BETWEEN '{begin.isoformat()}' AND '{last.isoformat()}'"
