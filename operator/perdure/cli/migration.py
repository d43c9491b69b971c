"""Moves what can be moved from a Temporal server: search attributes, schedules, and workflows that can start over.

It reads the server by gRPC, as an SDK does, and writes through the HTTP API of the frontend. Each move has an order in which a
crash leaves something that a second run completes, and never two schedules or workflows that run together for long.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import click
from google.protobuf.json_format import MessageToDict
from temporalio.api.enums.v1 import IndexedValueType, WorkflowIdConflictPolicy, WorkflowIdReusePolicy
from temporalio.api.operatorservice.v1 import ListSearchAttributesRequest
from temporalio.api.workflowservice.v1 import (
    CreateScheduleRequest,
    DescribeScheduleRequest,
    GetWorkflowExecutionHistoryRequest,
    ListNamespacesRequest,
    ListSchedulesRequest,
    ListWorkflowExecutionsRequest,
    PatchScheduleRequest,
    StartWorkflowExecutionRequest,
    TerminateWorkflowExecutionRequest,
)
from temporalio.service import RPCError

from perdure.api.search_attributes import PREDEFINED, SYSTEM
from perdure.client.errors import NotFoundError
from perdure.client.frontend import RequestRefusedError
from perdure.client.search_attributes import change_types, read_types

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from temporalio.api.workflow.v1 import WorkflowExecutionInfo
    from temporalio.client import Client

    from perdure.client.cluster import Cluster
    from perdure.client.frontend import FrontendApi

_IDENTITY: Final = "perdure migrate"
_PAGE: Final = 1000

_START_DELAY: Final = timedelta(minutes=1)
"""Delay before a restarted workflow begins: the old one ends in the meantime."""

_MOVED: Final = "moved to Perdure"
"""The note of a schedule on the Temporal server that was moved, and the reason of a terminated workflow."""

_COPY: Final = "moved from a Temporal server; unpause it when the other one is paused"
"""The note of a schedule that is paused here, and runs on the Temporal server."""


class Migration:
    """The move of one namespace. Each method prints a line for each thing that it moves, or cannot move."""

    def __init__(self, source: Client, cluster: Cluster, here: FrontendApi, *, take_over: bool, dry_run: bool) -> None:
        """Prepare the move; nothing is read yet.

        Args:
            source: The Temporal server, with the namespace to move.
            cluster: The cluster, with the namespace that gets it.
            here: The frontend of that namespace.
            take_over: Whether to pause schedules and terminate workflows on the Temporal server.
            dry_run: Whether to change nothing.
        """
        self._source = source
        self._cluster = cluster
        self._here = here
        self._take_over = take_over
        self._dry_run = dry_run
        self.complete = True
        """Whether everything was moved so far."""

    def _report(self, subject: str, outcome: str) -> None:
        click.echo(f"{subject}: {outcome}")

    def _refuse(self, subject: str, reason: str) -> None:
        self.complete = False
        click.echo(f"{subject}: not moved: {reason}", err=True)

    async def list_namespaces(self) -> None:
        """List the namespaces of the server, which the user creates with kubectl."""
        try:
            found = await self._source.workflow_service.list_namespaces(ListNamespacesRequest(page_size=_PAGE))
        except RPCError as error:
            self._report("namespaces", f"the Temporal server does not list them ({error.message})")
            return
        for each in found.namespaces:
            name = each.namespace_info.name
            if name != "temporal-system":
                self._report(f"namespace {name}", "create it with kubectl, and choose it with --namespace")

    async def move_search_attributes(self) -> None:
        """Register the custom search attributes of the server.

        Raises:
            CliError: The registry cannot be read or written.
            RPCError: The server does not answer.
        """
        request = ListSearchAttributesRequest(namespace=self._source.namespace)
        listed = await self._source.operator_service.list_search_attributes(request)
        there = {
            name: _type_name(kind)
            for name, kind in sorted(listed.custom_attributes.items())
            if name not in SYSTEM and name not in PREDEFINED
        }
        if self._dry_run:
            before = await read_types(self._cluster)
        else:
            before = await change_types(self._cluster, lambda registered: {**there, **registered})
        for name, kind in there.items():
            subject, registered = f"search attribute {name}", before.get(name)
            if registered not in (None, kind):
                self._refuse(subject, f"its type is {registered} here, and {kind} on the Temporal server")
            elif self._dry_run:
                self._report(subject, f"{kind} (dry run)")
            else:
                self._report(subject, f"{kind}, registered{' already' if registered else ''}")

    # Schedules

    async def move_schedules(self) -> None:
        """Create the schedules of the server, paused; with `take_over`, in their state there, where they are paused.

        Raises:
            CliError: The frontend does not answer.
            RPCError: The server does not answer.
        """
        async for schedule_id in self._schedule_ids():
            await self._move_schedule(schedule_id)

    async def _schedule_ids(self) -> AsyncIterator[str]:
        request = ListSchedulesRequest(namespace=self._source.namespace, maximum_page_size=_PAGE)
        while True:
            page = await self._source.workflow_service.list_schedules(request)
            for each in page.schedules:
                yield each.schedule_id
            if not page.next_page_token:
                return
            request.next_page_token = page.next_page_token

    async def _move_schedule(self, schedule_id: str) -> None:
        subject = f"schedule {schedule_id}"
        request = DescribeScheduleRequest(namespace=self._source.namespace, schedule_id=schedule_id)
        there = await self._source.workflow_service.describe_schedule(request)
        state = there.schedule.state
        was_moved = state.paused and state.notes == _MOVED
        runs_there = not state.paused
        if self._dry_run:
            self._report(subject, f"{'running' if runs_there else state.notes if was_moved else 'paused'} (dry run)")
            return
        here = await self._state_here(schedule_id)
        existed = here is not None
        if here is None:
            create = CreateScheduleRequest(schedule=there.schedule, identity=_IDENTITY, request_id=schedule_id)
            create.memo.CopyFrom(there.memo)
            create.search_attributes.CopyFrom(there.search_attributes)
            if runs_there:
                create.schedule.state.paused, create.schedule.state.notes = True, _COPY
            here = {"paused": True, "notes": create.schedule.state.notes}
            try:
                await self._here.post("schedules", schedule_id, body=MessageToDict(create))
            except RequestRefusedError as error:
                self._refuse(subject, str(error))
                return
        waits_here = bool(here.get("paused")) and here.get("notes") == _COPY
        if waits_here and self._take_over:
            await self._pause_there(schedule_id)
            body = {"patch": {"unpause": "moved from a Temporal server"}, "identity": _IDENTITY}
            await self._here.post("schedules", schedule_id, "patch", body=body)
            self._report(subject, "taken over; paused on the Temporal server")
        elif runs_there and not waits_here:
            self._refuse(subject, "another schedule with this name exists here, and this one runs on the server")
        else:
            self._report(subject, "exists here already" if existed else "created, paused")

    async def _state_here(self, schedule_id: str) -> dict[str, Any] | None:
        """Return the state of a schedule here; None if it does not exist."""
        try:
            found = await self._here.get("schedules", schedule_id)
        except NotFoundError:
            return None
        return dict(found["schedule"].get("state") or {})

    async def _pause_there(self, schedule_id: str) -> None:
        request = PatchScheduleRequest(namespace=self._source.namespace, schedule_id=schedule_id, identity=_IDENTITY)
        request.patch.pause = _MOVED
        await self._source.workflow_service.patch_schedule(request)

    # Workflows

    async def restart_workflows(self, workflow_type: str) -> None:
        """Start the open workflows of a type here, and terminate them on the server.

        Raises:
            CliError: The frontend does not answer.
            RPCError: The server does not answer.
        """
        quoted = workflow_type.replace("'", "''")
        request = ListWorkflowExecutionsRequest(
            namespace=self._source.namespace,
            page_size=_PAGE,
            query=f"ExecutionStatus = 'Running' AND WorkflowType = '{quoted}'",
        )
        found: list[WorkflowExecutionInfo] = []
        while True:
            page = await self._source.workflow_service.list_workflow_executions(request)
            found += page.executions
            if not page.next_page_token:
                break
            request.next_page_token = page.next_page_token
        for each in found:  # all pages first: the terminated ones would change the later pages
            await self._restart(each)

    async def _restart(self, info: WorkflowExecutionInfo) -> None:
        workflow_id, run_id = info.execution.workflow_id, info.execution.run_id
        subject = f"workflow {workflow_id}"
        if info.parent_execution.workflow_id:
            self._refuse(subject, f"it is a child of {info.parent_execution.workflow_id}, which starts it")
            return
        start = await self._start_request(info)
        if self._dry_run:
            self._report(subject, f"{info.type.name}, from the input of run {run_id} (dry run)")
            return
        try:
            started = await self._here.post("workflows", workflow_id, body=MessageToDict(start))
        except RequestRefusedError as error:
            self._refuse(subject, str(error))
            return
        terminate = TerminateWorkflowExecutionRequest(
            namespace=self._source.namespace,
            workflow_execution=info.execution,
            reason=_MOVED,
            identity=_IDENTITY,
        )
        try:
            await self._source.workflow_service.terminate_workflow_execution(terminate)
        except RPCError as error:
            body = {
                "workflowExecution": {"runId": started["runId"]},
                "reason": "it could not be terminated on the Temporal server",
                "identity": _IDENTITY,
            }
            await self._here.post("workflows", workflow_id, "terminate", body=body)
            self._refuse(subject, f"it could not be terminated on the Temporal server: {error.message}")
            return
        begins = "at its next time" if start.cron_schedule else f"within {_START_DELAY.total_seconds():g}s"
        self._report(subject, f"starts here {begins} as run {started['runId']}")

    async def _start_request(self, info: WorkflowExecutionInfo) -> StartWorkflowExecutionRequest:
        """Return a start with the input of the current run, which in a chain is the last one.

        The run ID is the ID of the request, so that a second run of the command gets the run that the first has started.
        """
        request = GetWorkflowExecutionHistoryRequest(
            namespace=self._source.namespace, execution=info.execution, maximum_page_size=1
        )
        history = (await self._source.workflow_service.get_workflow_execution_history(request)).history
        began = history.events[0].workflow_execution_started_event_attributes
        start = StartWorkflowExecutionRequest(
            workflow_type=began.workflow_type,
            input=began.input,
            workflow_execution_timeout=began.workflow_execution_timeout,
            workflow_run_timeout=began.workflow_run_timeout,
            workflow_task_timeout=began.workflow_task_timeout,
            identity=_IDENTITY,
            request_id=info.execution.run_id,
            workflow_id_reuse_policy=WorkflowIdReusePolicy.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE,
            workflow_id_conflict_policy=WorkflowIdConflictPolicy.WORKFLOW_ID_CONFLICT_POLICY_FAIL,
            cron_schedule=began.cron_schedule,
            memo=info.memo,
            header=began.header,
            user_metadata=history.events[0].user_metadata,
        )
        start.task_queue.name = began.task_queue.name
        if began.HasField("retry_policy"):
            start.retry_policy.CopyFrom(began.retry_policy)
        if began.HasField("priority"):
            start.priority.CopyFrom(began.priority)
        for name, value in info.search_attributes.indexed_fields.items():
            if name not in SYSTEM and name not in PREDEFINED:
                start.search_attributes.indexed_fields[name].CopyFrom(value)
        if not began.cron_schedule:  # a run of a cron schedule waits for its time anyway
            start.workflow_start_delay.FromTimedelta(_START_DELAY)
        return start


def _type_name(kind: IndexedValueType.ValueType) -> str:
    """Return the name of a type: `KeywordList` for ``INDEXED_VALUE_TYPE_KEYWORD_LIST``."""
    words = IndexedValueType.Name(kind).removeprefix("INDEXED_VALUE_TYPE_").split("_")
    return "".join(word.capitalize() for word in words)
