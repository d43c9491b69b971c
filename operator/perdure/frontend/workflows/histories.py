"""RPCs that return histories."""

from typing import Any

from msgspec.structs import replace
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import EventType, HistoryEventFilterType, TimeoutType
from temporalio.api.history.v1 import History, HistoryEvent
from temporalio.api.workflowservice.v1 import (
    GetWorkflowExecutionHistoryRequest,
    GetWorkflowExecutionHistoryResponse,
    GetWorkflowExecutionHistoryReverseRequest,
    GetWorkflowExecutionHistoryReverseResponse,
)

from perdure.controller.directory import Directory, Entry
from perdure.controller.dispatch.runs import WorkflowRuns
from perdure.engine import events as ev
from perdure.frontend.errors import RpcError, unavailable
from perdure.frontend.matching.polls import LONGEST_CLIENT_POLL
from perdure.frontend.messages.tokens import PageToken, pack, page_size, unpack
from perdure.frontend.runs.gateway import LargePayloads, RunGateway, View
from perdure.frontend.transport.rpc import CallContext
from perdure.frontend.workflows.tasks import virtual_events

PAGE = 1_000
_SUCCESSOR_SECONDS = 5.0
"""How long a request waits for the next run of a workflow, in seconds; then clients retry."""
_CLOSE_ONLY = HistoryEventFilterType.HISTORY_EVENT_FILTER_TYPE_CLOSE_EVENT
_FOLLOWS_NEXT_RUN = "follows-next-run-id"
_READERS = ("temporal-cli", "temporal-ui")
"""Clients that show histories to users: Temporal's server returns them no unwritten events."""


class Histories:
    """Returns histories, page by page."""

    def __init__(
        self, directory: Directory, open_runs: WorkflowRuns, runs: RunGateway, payloads: LargePayloads
    ) -> None:
        self._directory = directory
        self._open_runs = open_runs
        self._runs = runs
        self._payloads = payloads

    async def get_workflow_execution_history(
        self, request: GetWorkflowExecutionHistoryRequest, call: CallContext
    ) -> GetWorkflowExecutionHistoryResponse:
        """Return a page of a history. With `wait_new_event`, wait for a new event; the page is empty if there is none in time."""
        first = 1
        execution = request.execution
        if request.next_page_token:
            token: PageToken = unpack(request.next_page_token, PageToken, request.namespace)
            first = token.from_event_id
            execution = WorkflowExecution(workflow_id=token.workflow_id, run_id=token.run_id)
        try:
            return await self._of_cluster(request, call, execution, first)
        except RpcError as error:
            view = await self._runs.archived(request.namespace, execution, error)
        if request.history_event_filter_type == _CLOSE_ONLY:
            return GetWorkflowExecutionHistoryResponse(history=History(events=[await self._closing(view, call)]))
        events = list(await self._runs.history(view, first))
        wanted = events[: page_size(request.maximum_page_size, PAGE)]
        page = await self._payloads.page(request.namespace, wanted, by_step=view.by_step, payloads=view.payloads)
        return GetWorkflowExecutionHistoryResponse(
            history=History(events=page),
            next_page_token=self._token(view.entry, first + len(page)) if len(events) > len(page) else b"",
        )

    async def _of_cluster(
        self, request: GetWorkflowExecutionHistoryRequest, call: CallContext, execution: WorkflowExecution, first: int
    ) -> GetWorkflowExecutionHistoryResponse:
        """Return a page of the history of a run in the cluster.

        Raises:
            RpcError: The run was not found, or the API server does not respond.
        """
        entry = await self._runs.reach(request.namespace, execution, call.within(LONGEST_CLIENT_POLL))
        if request.history_event_filter_type == _CLOSE_ONLY:
            return await self._end(entry, request, call)
        run = self._open_runs.get(entry.uid)
        if request.wait_new_event:
            await self._wait_for(entry, first, call)
        view = await self._runs.view(entry, run)
        with_virtual = not request.wait_new_event and call.header("client-name") not in _READERS
        events = await self._events(view, first, with_virtual=with_virtual)
        wanted = events[: page_size(request.maximum_page_size, PAGE)]
        await self._wait_for_successor(view, wanted)
        page = await self._payloads.page(entry.namespace, wanted, by_step=view.by_step)
        closed = view.state is not None and view.state.closed
        more = len(events) > len(page) or (request.wait_new_event and not closed)
        return GetWorkflowExecutionHistoryResponse(
            history=History(events=page),
            next_page_token=self._token(entry, first + len(page)) if more else b"",
        )

    async def _events(self, view: View, first: int, *, with_virtual: bool) -> list[ev.AnyEvent]:
        events = list(await self._runs.history(view, first))
        if with_virtual and view.state is not None:
            events += [event for event in _unattributed(virtual_events(view.state)) if event.event_id >= first]
        return events

    async def _wait_for(self, entry: Entry, event_id: int, call: CallContext) -> None:
        """Wait until an event exists or the run has closed."""

        def exists() -> bool:
            state = self._runs.state(entry.uid)
            return self._runs.is_closed(entry.uid) or (state is not None and state.next_event_id > event_id)

        await self._runs.changes.wait_until(entry.uid, exists, call.within(LONGEST_CLIENT_POLL))

    async def _end(
        self, entry: Entry, request: GetWorkflowExecutionHistoryRequest, call: CallContext
    ) -> GetWorkflowExecutionHistoryResponse:
        """Return the closing event; for an open run, return an empty page and the token for the next request."""
        run = self._open_runs.get(entry.uid)
        if request.wait_new_event:
            await self._runs.changes.wait_until(
                entry.uid, lambda: self._runs.is_closed(entry.uid), call.within(LONGEST_CLIENT_POLL)
            )
        view = await self._runs.view(entry, run)
        if view.state is None or not view.state.closed:
            last: list[ev.AnyEvent] = []
            if not request.wait_new_event and view.state is not None:
                last = [await self._runs.last(view)]
            token = self._token(entry, 1) if request.wait_new_event else b""
            history = History(events=await self._payloads.page(entry.namespace, last, by_step=view.by_step))
            return GetWorkflowExecutionHistoryResponse(history=history, next_page_token=token)
        await self._wait_for_successor(view, [await self._runs.last(view)])
        return GetWorkflowExecutionHistoryResponse(history=History(events=[await self._closing(view, call)]))

    async def _closing(self, view: View, call: CallContext) -> HistoryEvent:
        """The closing event of a run, as the client understands it."""
        last = [await self._runs.last(view)]
        closing = (await self._payloads.page(view.entry.namespace, last, payloads=view.payloads))[0]
        if _FOLLOWS_NEXT_RUN in call.header("supported-features").split(","):
            return closing
        return as_continued(closing)

    async def _wait_for_successor(self, view: View, events: list[ev.AnyEvent]) -> None:
        """Wait until the ID of the next run is known, because the run is created after the commit with its name.

        Raises:
            RpcError: The run is not created in time. Clients retry; with an event without the ID, they would stop following.
        """
        following = getattr(events[-1], "new_workflow_run", "") if events else ""
        if not following:
            return
        entry = view.entry

        def known() -> bool:
            return self._directory.named(entry.namespace, following) is not None

        is_there = await self._runs.changes.wait_until(entry.uid, known, _SUCCESSOR_SECONDS)
        if not is_there and view.state is not None and view.state.start_successor:
            raise unavailable(f"the workflow continues in the run `{following}`, which does not exist yet")

    def _token(self, entry: Entry, event_id: int) -> bytes:
        return pack(
            PageToken(
                namespace=entry.namespace, run_id=entry.uid, workflow_id=entry.workflow_id, from_event_id=event_id
            )
        )

    async def get_workflow_execution_history_reverse(
        self, request: GetWorkflowExecutionHistoryReverseRequest, call: CallContext
    ) -> GetWorkflowExecutionHistoryReverseResponse:
        """Return a page of a history, starting at its end."""
        execution, last = request.execution, None
        if request.next_page_token:
            token: PageToken = unpack(request.next_page_token, PageToken, request.namespace)
            execution = WorkflowExecution(workflow_id=token.workflow_id, run_id=token.run_id)
            last = token.from_event_id
        try:
            entry = await self._runs.reach(request.namespace, execution, call.within(LONGEST_CLIENT_POLL))
            view = await self._runs.view(entry)
        except RpcError as error:
            view = await self._runs.archived(request.namespace, execution, error)
            entry = view.entry
        events = [event for event in reversed(await self._runs.history(view)) if last is None or event.event_id <= last]
        wanted = events[: page_size(request.maximum_page_size, PAGE)]
        page = await self._payloads.page(entry.namespace, wanted, by_step=view.by_step, payloads=view.payloads)
        rest = events[len(page) :]
        return GetWorkflowExecutionHistoryReverseResponse(
            history=History(events=page),
            next_page_token=self._token(entry, rest[0].event_id) if rest else b"",
        )


def _unattributed(events: list[ev.AnyEvent]) -> list[ev.AnyEvent]:
    """Remove the worker from the unwritten events of a task, because histories do not show it for further attempts."""
    if not any(isinstance(event, ev.WorkflowTaskScheduled) for event in events):
        return events
    return [replace(event, identity="") if isinstance(event, ev.WorkflowTaskStarted) else event for event in events]


def as_continued(event: HistoryEvent) -> HistoryEvent:
    """Convert the end of a run for clients that only follow continue-as-new and not retries, such as the Java SDK.

    This follows Temporal's server (service/history/api/get_history_util.go: FixFollowEvents).
    """
    name = event.WhichOneof("attributes") or ""
    ended: Any = getattr(event, name)
    if name not in _ENDS_THAT_NAME_A_RUN or not ended.new_execution_run_id:
        return event
    made = HistoryEvent(
        event_id=event.event_id,
        event_time=event.event_time,
        event_type=EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW,
        version=event.version,
        task_id=event.task_id,
    )
    continued = made.workflow_execution_continued_as_new_event_attributes
    continued.new_execution_run_id = ended.new_execution_run_id
    if name == "workflow_execution_completed_event_attributes":
        if ended.HasField("result"):
            continued.last_completion_result.CopyFrom(ended.result)
    elif name == "workflow_execution_failed_event_attributes":
        continued.failure.CopyFrom(ended.failure)
    else:
        continued.failure.message = "workflow timeout"
        continued.failure.timeout_failure_info.timeout_type = TimeoutType.TIMEOUT_TYPE_START_TO_CLOSE
    return made


_ENDS_THAT_NAME_A_RUN = (
    "workflow_execution_completed_event_attributes",
    "workflow_execution_failed_event_attributes",
    "workflow_execution_timed_out_event_attributes",
)
