"""Return the result of a run in one HTTP request, which waits until the run and the runs that continue it close."""

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import unquote

from aiohttp import web
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import HistoryEventFilterType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.workflowservice.v1 import GetWorkflowExecutionHistoryRequest

from perdure.api.times import parse_duration
from perdure.frontend.errors import invalid
from perdure.frontend.http import shorthand
from perdure.frontend.http.incoming import IncomingRequest, refuse_web_pages
from perdure.frontend.transport.rpc import Rpc

HISTORY: Final = ("temporal.api.workflowservice.v1.WorkflowService", "GetWorkflowExecutionHistory")
"""The RPC whose permission callers of this request need."""
_PATH: Final = re.compile(r"/perdure/v1/namespaces/(?P<namespace>[^/]+)/workflows/(?P<workflow_id>[^/]+)/result")
_LONGEST: Final = 600.0
"""The longest wait of one request, in seconds."""
_STATUSES: Final[Mapping[str, str]] = {
    "workflow_execution_completed_event_attributes": "COMPLETED",
    "workflow_execution_failed_event_attributes": "FAILED",
    "workflow_execution_canceled_event_attributes": "CANCELED",
    "workflow_execution_terminated_event_attributes": "TERMINATED",
    "workflow_execution_continued_as_new_event_attributes": "CONTINUED_AS_NEW",
    "workflow_execution_timed_out_event_attributes": "TIMED_OUT",
}
"""The response status by the attributes of the last event."""


class _HistoryCall(IncomingRequest):
    """A call for the history of a run, on behalf of the client that requests its result."""

    def __init__(self, request: web.BaseRequest, message: GetWorkflowExecutionHistoryRequest, seconds: float) -> None:
        super().__init__(request)
        self._message = message
        self.seconds_left: float | None = seconds

    async def decode(self, _: bytes) -> Any:
        """Return the message, which does not come from a body."""
        return self._message


class Results:
    """Answers requests for results."""

    def __init__(self, history: Rpc) -> None:
        """`history` is the RPC `HISTORY`."""
        self._history = history

    @staticmethod
    def serves(request: web.BaseRequest) -> bool:
        """Whether a request is for a result."""
        return request.method == "GET" and _PATH.fullmatch(request.rel_url.raw_path) is not None

    async def answer(self, request: web.BaseRequest) -> tuple[int, dict[str, Any]]:
        """Wait for the result.

        Returns:
            The HTTP status, and the response.

        Raises:
            RpcError: The result cannot be read.
        """
        refuse_web_pages(request)
        found = _PATH.fullmatch(request.rel_url.raw_path)
        assert found is not None, "it is served"
        message = GetWorkflowExecutionHistoryRequest(
            namespace=unquote(found["namespace"]),
            execution=WorkflowExecution(
                workflow_id=unquote(found["workflow_id"]), run_id=request.query.get("runId", "")
            ),
            history_event_filter_type=HistoryEventFilterType.HISTORY_EVENT_FILTER_TYPE_CLOSE_EVENT,
            wait_new_event=True,
        )
        now = asyncio.get_running_loop().time
        until = now() + _seconds(request.query.get("wait", "60s"))
        while True:
            response = await self._history.answer(_HistoryCall(request, message, max(until - now(), 0.1)))
            closed = _closed(response.history.events)
            if closed is None:
                if now() >= until or not response.next_page_token:
                    return 202, {"status": "WORKFLOW_EXECUTION_STATUS_RUNNING"}
                message.next_page_token = response.next_page_token
                continue
            event, attributes = closed
            following = getattr(event, attributes).new_execution_run_id if _continues(event, attributes) else ""
            if not following:
                return 200, _answer(event, attributes)
            message.execution.run_id, message.next_page_token = following, b""


def _seconds(text: str) -> float:
    try:
        seconds = parse_duration(text).total_seconds()
    except ValueError as error:
        raise invalid(f"wait: {error}") from None
    if not 0 <= seconds <= _LONGEST:
        raise invalid(f"wait: {text} is not between 0s and {_LONGEST:.0f}s")
    return seconds


def _closed(events: Sequence[HistoryEvent]) -> tuple[HistoryEvent, str] | None:
    """The event that closed a run, and the name of its attributes; None if the run is open."""
    if not events:
        return None
    attributes = str(events[-1].WhichOneof("attributes"))
    return (events[-1], attributes) if attributes in _STATUSES else None


def _continues(event: HistoryEvent, attributes: str) -> bool:
    return "new_execution_run_id" in getattr(event, attributes).DESCRIPTOR.fields_by_name


def _answer(event: HistoryEvent, attributes: str) -> dict[str, Any]:
    written = json.loads(shorthand.write(getattr(event, attributes), shorthand=True, pretty=False))
    found: dict[str, Any] = {"status": f"WORKFLOW_EXECUTION_STATUS_{_STATUSES[attributes]}"}
    if attributes == "workflow_execution_completed_event_attributes":
        values = written.get("result", [])
        values = values.get("payloads", []) if isinstance(values, dict) else values
        found["result"] = values[0] if values else None
    elif "failure" in written:
        found["failure"] = written["failure"]
    if written.get("reason"):
        found["reason"] = written["reason"]
    return found
