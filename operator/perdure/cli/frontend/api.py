"""Calls Temporal's HTTP API for commands."""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from perdure.client.errors import CliError, ExitCode, ForbiddenError, GoneError, UnreachableError
from perdure.kube import errors

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perdure.kube.light import LightClient

_COMPLETED = "UPDATE_WORKFLOW_EXECUTION_LIFECYCLE_STAGE_COMPLETED"


class RequestRefusedError(CliError):
    """The workflow or the frontend rejected the request."""

    status = ExitCode.NO


class LateError(CliError):
    """The request timed out."""

    status = ExitCode.TIMEOUT


class ExecutionRef(NamedTuple):
    """The identity of a run on Temporal."""

    workflow_id: str
    run_id: str = ""
    """The run ID. Empty: the open run with the workflow ID, or the run that closed last."""


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
            CliError: The call was rejected, or timed out.
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
            CliError: The call was rejected, or timed out.
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
        namespace, workflow_id = quote(self._namespace, safe=""), quote(run.workflow_id, safe="")
        return f"/api/v1/namespaces/{namespace}/workflows/{workflow_id}"

    async def _post(self, path: str, body: Any) -> dict[str, Any]:
        begin = time.monotonic()
        try:
            return await self._client.create(path, body)
        except errors.ApiError as error:
            raise _explained(error) from error
        except errors.NoResponseError as error:
            if time.monotonic() - begin >= self._timeout:
                raise LateError(f"the frontend did not answer within {self._timeout:g}s") from error
            raise UnreachableError(
                f"the frontend at {self._client.access.server} does not respond ({error}); check "
                "that it serves the HTTP API (`temporal.httpApi.enabled` in the chart), or set --address"
            ) from error


def _explained(error: errors.ApiError) -> CliError:
    match error.status:
        case 401:
            return CliError(f"the frontend does not accept your token ({error.message}); use --service-account NAME")
        case 403:
            return ForbiddenError(f"{error.message}; ask your administrator for the role `edit` in the namespace")
        case 404:
            return GoneError(f"{error.message}; `perdure list` shows the runs, and -n chooses the namespace")
        case 504:
            return LateError(f"{error.message}; check that a worker is running, or use a longer --timeout")
        case 429 | 500 | 502 | 503:
            return UnreachableError(f"the frontend is not available ({error.message}); try again later")
        case _:
            return RequestRefusedError(error.message)


def _single(values: Any) -> Any:
    """Return the value of a list with one value, as from most handlers; None for an empty list."""
    if not isinstance(values, list):
        return values
    return values[0] if len(values) == 1 else values or None
