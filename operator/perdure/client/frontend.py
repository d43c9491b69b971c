"""Calls of the HTTP API of the Temporal frontend, for one namespace."""

from __future__ import annotations

import time
import uuid
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from perdure.client.errors import ClientError, ExitCode, ForbiddenError, NotFoundError, UnreachableError
from perdure.kube import errors

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from perdure.client.requests import Object
    from perdure.kube.light import LightClient

_COMPLETED = "UPDATE_WORKFLOW_EXECUTION_LIFECYCLE_STAGE_COMPLETED"
_PAGE = 1_000
"""Maximum number of archived runs in a response."""


class RequestRefusedError(ClientError):
    """The workflow or the frontend rejected the request."""

    status = ExitCode.NO


class LateError(ClientError):
    """The request timed out."""

    status = ExitCode.TIMEOUT


class NoArchiveError(ClientError):
    """The installation has no archive."""


class ExecutionRef(NamedTuple):
    """The identity of a run on Temporal."""

    workflow_id: str
    run_id: str = ""
    """The run ID. Empty: the open run with the workflow ID, or the run that closed last."""


class ArchivedRuns(NamedTuple):
    """Runs that are only in the archive."""

    found: list[Object]
    """The newest first, if no month is set."""
    more: bool
    """Whether there may be more."""
    month: str
    """The month in which they closed, if the archive is only listed by month; otherwise empty."""


class FrontendApi:
    """The frontend, for one namespace."""

    def __init__(self, client: LightClient, namespace: str, timeout: float) -> None:
        """`timeout`: maximum wait for a response, in seconds."""
        self._client = client
        self._namespace = namespace
        self._timeout = timeout

    async def query(self, run: ExecutionRef, name: str, arguments: Sequence[Any] = ()) -> Any:
        """Query a run.

        Returns:
            The result, as JSON.

        Raises:
            ClientError: The call was rejected, or timed out.
        """
        body = {"execution": {"runId": run.run_id}, "query": {"queryArgs": list(arguments)}}
        answer = await self._post(f"{self._path(run)}/query/{quote(name, safe='')}", body)
        return _single(answer.get("queryResult"))

    async def update(self, run: ExecutionRef, name: str, arguments: Sequence[Any], update_id: str | None) -> Any:
        """Update a run, and wait for the result.

        Args:
            run: The run.
            name: Name of the update.
            arguments: The arguments of the update.
            update_id: The ID for deduplication of updates; None for a new ID.

        Returns:
            The result, as JSON.

        Raises:
            ClientError: The call was rejected, or timed out.
        """
        meta = {"updateId": update_id or uuid.uuid4().hex, "identity": "perdure"}
        body = {
            "workflowExecution": {"runId": run.run_id},
            "request": {"meta": meta, "input": {"args": list(arguments)}},
            "waitPolicy": {"lifecycleStage": _COMPLETED},
        }
        deadline = time.monotonic() + self._timeout
        try:
            while time.monotonic() < deadline:
                answer = await self._post(f"{self._path(run)}/update/{quote(name, safe='')}", body)
                outcome = answer.get("outcome") or {}
                if "failure" in outcome:
                    raise RequestRefusedError(f"the update failed: {outcome['failure'].get('message') or 'no message'}")
                if outcome or answer.get("stage") == _COMPLETED:
                    return _single(outcome.get("success"))
        except LateError:
            pass
        raise LateError(
            f"the update has no result after {self._timeout:g}s; check that a worker is running, and run this again with "
            f"--update-id {meta['updateId']}, which sends it at most once"
        )

    def _path(self, run: ExecutionRef) -> str:
        return self.path("workflows", run.workflow_id)

    def path(self, *segments: str) -> str:
        """The path of a resource in the namespace."""
        return "/".join(
            ("/api/v1/namespaces", quote(self._namespace, safe=""), *(quote(each, safe="") for each in segments))
        )

    async def get(self, *segments: str, **query: str) -> dict[str, Any]:
        """Read a resource in the namespace.

        Raises:
            ClientError: The call was rejected, or timed out.
        """
        return await self._answered(self._client.get(self.path(*segments), **query))

    async def each(self, items: str, *segments: str, **query: str) -> list[dict[str, Any]]:
        """Read all pages of a list in the namespace.

        Args:
            items: The field of the response that has the items.
            segments: The path of the list.
            query: The parameters.

        Raises:
            ClientError: The call was rejected, or timed out.
        """
        found: list[dict[str, Any]] = []
        token: dict[str, str] = {}
        while True:
            page = await self.get(*segments, **query, **token)
            found += page.get(items) or ()
            if not page.get("nextPageToken"):
                return found
            token = {"nextPageToken": page["nextPageToken"]}

    async def post(self, *segments: str, body: Any) -> dict[str, Any]:
        """Send a request about a resource in the namespace.

        Raises:
            ClientError: The call was rejected, or timed out.
        """
        return await self._post(self.path(*segments), body)

    async def delete(self, *segments: str, **query: str) -> dict[str, Any]:
        """Delete a resource in the namespace.

        Raises:
            ClientError: The call was rejected, or timed out.
        """
        return await self._answered(self._client.remove(self.path(*segments), **query))

    # The archive

    async def archived_run(self, name: str | None, workflow_id: str | None) -> Object:
        """Read the newest run of a name or a workflow ID from the archive, with its whole history.

        Raises:
            NoArchiveError: The installation has no archive.
            NotFoundError: The archive has no such run.
            ClientError: The archive cannot be read.
        """
        query = {"name": name} if name is not None else {"workflowId": workflow_id or ""}
        return await self._archive("archived-run", **query)

    async def archived_runs(self, query: str, limit: int, month: str = "") -> ArchivedRuns:
        """List workflows that are only in the archive: their metadata, and outlines of spec and status.

        Args:
            query: A filter of Temporal clients; empty for all.
            limit: The maximum number of runs.
            month: The month in which they closed, such as `2026-11`; empty for all, or the newest one.

        Raises:
            NoArchiveError: The installation has no archive.
            ClientError: The filter is not valid, or the archive cannot be read.
        """
        found: list[Object] = []
        token = listed = ""
        while True:
            size = min(limit - len(found), _PAGE)
            page = await self._archive(
                "archived-runs", query=query, month=month or listed, pageSize=str(size), nextPageToken=token
            )
            found += page["items"]
            token, listed = page["nextPageToken"], page.get("month") or ""
            if not token or len(found) >= limit:
                return ArchivedRuns(found, more=bool(token), month=listed)

    async def _archive(self, resource: str, **query: str) -> dict[str, Any]:
        path = f"/perdure/v1/namespaces/{quote(self._namespace, safe='')}/{resource}"
        try:
            return await self._answered(self._client.get(path, **query))
        except RequestRefusedError as error:
            if isinstance(error.__cause__, errors.ApiError) and error.__cause__.status == HTTPStatus.NOT_IMPLEMENTED:
                raise NoArchiveError(str(error)) from error
            raise

    async def _post(self, path: str, body: Any) -> dict[str, Any]:
        return await self._answered(self._client.create(path, body))

    async def _answered(self, call: Awaitable[dict[str, Any]]) -> dict[str, Any]:
        begin = time.monotonic()
        try:
            return await call
        except errors.ApiError as error:
            raise _explained(error) from error
        except errors.NoResponseError as error:
            if time.monotonic() - begin >= self._timeout:
                raise LateError(f"the frontend did not answer within {self._timeout:g}s") from error
            raise UnreachableError(
                f"the frontend at {self._client.access.server} does not respond ({error}); check "
                "that it serves the HTTP API (`temporal.httpApi.enabled` in the chart), or set --address"
            ) from error


def _explained(error: errors.ApiError) -> ClientError:
    match error.status:
        case 401:
            return ClientError(f"the frontend does not accept your token ({error.message}); use --service-account NAME")
        case 403:
            return ForbiddenError(f"{error.message}; ask your administrator for the role `edit` in the namespace")
        case 404:
            return NotFoundError(f"{error.message}; `perdure list` shows the runs, and -n chooses the namespace")
        case 504:
            return LateError(f"{error.message}; check that a worker is running, or use a longer --timeout")
        case 429 | 500 | 502 | 503:
            return UnreachableError(f"the frontend is not available ({error.message}); try again later")
        case _:
            return RequestRefusedError(error.message)


def quoted(value: str) -> str:
    """Return a text as a literal in a filter of Temporal clients."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _single(values: Any) -> Any:
    """Return the value of a list with one value, as from most handlers; None for an empty list."""
    if not isinstance(values, list):
        return values
    return values[0] if len(values) == 1 else values or None
