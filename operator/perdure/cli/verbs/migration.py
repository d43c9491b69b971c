"""`migrate`: what can be moved from a running Temporal server, by its gRPC API."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from click.exceptions import Exit

from perdure.api.search_attributes import PREDEFINED, SYSTEM
from perdure.cli.attributes import change_types
from perdure.cli.command import option, verb
from perdure.cli.connection import connect
from perdure.cli.frontend import RequestRefusedError
from perdure.cli.routes import RouteOptions, routed
from perdure.cli.terminal import program_of
from perdure.client.errors import CliError, ExitCode, NotFoundError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from temporalio.api.workflow.v1 import WorkflowExecutionInfo
    from temporalio.client import Client

    from perdure.cli.frontend import FrontendApi

_IDENTITY: Final = "perdure migrate"
_HELD: Final = timedelta(minutes=1)
"""How long a moved workflow waits before it starts here, so that the old one has ended."""
_PAUSED: Final = "moved from a Temporal server; unpause it when the other one is paused"


@dataclass(slots=True)
class _Report:
    """What was moved, printed line by line."""

    failed: bool = False

    def add(self, what: str, outcome: str) -> None:
        """Print an outcome."""
        click.echo(f"{what}: {outcome}")

    def refuse(self, what: str, why: str) -> None:
        """Print why something is not moved."""
        self.failed = True
        click.echo(f"{what}: not moved: {why}", err=True)


@verb()
@option("--from", "source", metavar="HOST:PORT", required=True, help="gRPC address of the Temporal server")
@option("--from-namespace", metavar="NAME", default="default", help="Namespace of the Temporal server")
@option(
    "--from-api-key-file", metavar="FILE", type=click.Path(exists=True, dir_okay=False), help="File with an API key"
)
@option("--from-ca-file", metavar="FILE", type=click.Path(exists=True, dir_okay=False), help="CA certificates, for TLS")
@option("--from-cert-file", metavar="FILE", type=click.Path(exists=True, dir_okay=False), help="Client certificate")
@option("--from-key-file", metavar="FILE", type=click.Path(exists=True, dir_okay=False), help="Key of the certificate")
@option("--from-tls", is_flag=True, help="Use TLS with the CA certificates of this machine")
@option(
    "--workflow-type", "types", metavar="TYPE", multiple=True, help="Also start open workflows of this type here again"
)
@option("--take-over", is_flag=True, help="Pause the schedules and terminate the workflows on the Temporal server")
@option("--dry-run", is_flag=True, help="Print what would be moved, and change nothing")
@routed
def migrate(
    context: click.Context,
    route: RouteOptions,
    *,
    source: str,
    from_namespace: str,
    from_api_key_file: str | None,
    from_ca_file: str | None,
    from_cert_file: str | None,
    from_key_file: str | None,
    from_tls: bool,
    types: tuple[str, ...],
    take_over: bool,
    dry_run: bool,
) -> None:
    """Move what can be moved from a running Temporal server.

    Registers its search attributes, and creates its schedules: paused, or with
    --take-over, which pauses them on the Temporal server, as they were. Prints the
    namespaces of the server, which kubectl creates.

    With --workflow-type and --take-over, starts open workflows of this type here
    again, from the input of their current run, and terminates them there. Their
    progress since then is lost: allow only types whose code can start over.

    You can run it again: what exists here already is left as it is.

    Exit status: 0 moved, 1 something was not moved, 2 error, 124 timeout.

    \b
    Examples:
      {program} migrate --from old:7233 --from-namespace shop --dry-run
      {program} migrate --from old:7233 --from-namespace shop
      {program} migrate --from old:7233 --workflow-type Poll --take-over
    """
    if types and not (take_over or dry_run):
        raise click.BadParameter("requires --take-over: the workflows would run twice", param_hint="--workflow-type")

    async def run() -> bool:
        from temporalio.client import Client
        from temporalio.service import TLSConfig

        tls: TLSConfig | bool = from_tls
        if from_ca_file or from_cert_file:
            tls = TLSConfig(
                server_root_ca_cert=_content(from_ca_file),
                client_cert=_content(from_cert_file),
                client_private_key=_content(from_key_file),
            )
        key = _content(from_api_key_file)
        try:
            client = await Client.connect(
                source, namespace=from_namespace, tls=tls, api_key=key.decode().strip() if key else None
            )
        except RuntimeError as error:
            raise CliError(f"the Temporal server at {source} cannot be reached: {error}") from error
        program = program_of(context)
        async with (
            connect(context=route.cluster, namespace=route.namespace, program=program) as cluster,
            route.reach(cluster) as api,
        ):
            move = _Move(client, api, cluster.namespace, take_over=take_over, dry_run=dry_run)
            await move.namespaces()
            types_there = await move.attributes()
            before = await change_types(cluster, lambda here: here if dry_run else {**types_there, **here})
            move.compare(types_there, before)
            await move.schedules()
            for each in types:
                await move.workflows(each)
            return move.report.failed

    if asyncio.run(run()):
        raise Exit(ExitCode.NO)


def _content(file: str | None) -> bytes | None:
    return Path(file).read_bytes() if file else None


@dataclass(frozen=True, slots=True)
class _Move:
    """Moves the contents of one namespace."""

    source: Client
    here: FrontendApi
    namespace: str
    take_over: bool = field(kw_only=True)
    dry_run: bool = field(kw_only=True)
    report: _Report = field(default_factory=_Report)

    async def namespaces(self) -> None:
        """Print the namespaces of the server."""
        from temporalio.api.workflowservice.v1 import ListNamespacesRequest
        from temporalio.service import RPCError

        try:
            found = await self.source.workflow_service.list_namespaces(ListNamespacesRequest(page_size=1000))
        except RPCError as error:
            self.report.add("namespaces", f"cannot be listed ({error.message})")
            return
        for each in found.namespaces:
            name = each.namespace_info.name
            if name != "temporal-system":
                self.report.add(f"namespace {name}", "create it with kubectl, and choose it with --namespace")

    async def attributes(self) -> dict[str, str]:
        """The types of the search attributes of the server, by name."""
        from temporalio.api.enums.v1 import IndexedValueType
        from temporalio.api.operatorservice.v1 import ListSearchAttributesRequest

        request = ListSearchAttributesRequest(namespace=self.source.namespace)
        found = await self.source.operator_service.list_search_attributes(request)
        return {
            name: _type_of(IndexedValueType.Name(kind))
            for name, kind in sorted(found.custom_attributes.items())
            if name not in SYSTEM and name not in PREDEFINED
        }

    def compare(self, there: dict[str, str], here: dict[str, str]) -> None:
        """Report the search attributes of the server, and those that have another type here."""
        for name, kind in there.items():
            what, before = f"search attribute {name}", here.get(name, kind)
            if before != kind:
                self.report.refuse(what, f"its type is {before} here and {kind} there")
            elif self.dry_run:
                self.report.add(what, f"{kind} (dry run)")
            else:
                self.report.add(what, f"{kind}, registered{' already' if name in here else ''}")

    # Schedules

    async def schedules(self) -> None:
        """Create the schedules of the server."""
        async for schedule_id in self._schedule_ids():
            await self._schedule(schedule_id)

    async def _schedule_ids(self) -> AsyncIterator[str]:
        from temporalio.api.workflowservice.v1 import ListSchedulesRequest

        request = ListSchedulesRequest(namespace=self.source.namespace, maximum_page_size=1000)
        while True:
            found = await self.source.workflow_service.list_schedules(request)
            for each in found.schedules:
                yield each.schedule_id
            if not found.next_page_token:
                return
            request.next_page_token = found.next_page_token

    async def _schedule(self, schedule_id: str) -> None:
        from temporalio.api.workflowservice.v1 import CreateScheduleRequest, DescribeScheduleRequest

        what = f"schedule {schedule_id}"
        request = DescribeScheduleRequest(namespace=self.source.namespace, schedule_id=schedule_id)
        found = await self.source.workflow_service.describe_schedule(request)
        was_paused = found.schedule.state.paused
        create = CreateScheduleRequest(schedule=found.schedule, identity=_IDENTITY, request_id=schedule_id)
        create.memo.CopyFrom(found.memo)
        create.search_attributes.CopyFrom(found.search_attributes)
        if not was_paused:
            create.schedule.state.paused, create.schedule.state.notes = True, _PAUSED
        if self.dry_run:
            self.report.add(what, f"{'paused' if was_paused else 'running'} (dry run)")
            return
        try:
            await self.here.post("schedules", schedule_id, body=_json(create))
        except RequestRefusedError as error:
            if not (self.take_over and await self._is_waiting_copy(schedule_id)):
                self.report.refuse(what, str(error))
                return
        if was_paused or not self.take_over:
            self.report.add(what, "created, paused")
            return
        await self._pause(schedule_id)
        patch = {"patch": {"unpause": "moved from a Temporal server"}, "identity": _IDENTITY}
        await self.here.post("schedules", schedule_id, "patch", body=patch)
        self.report.add(what, "taken over; paused on the Temporal server")

    async def _is_waiting_copy(self, schedule_id: str) -> bool:
        """Whether a schedule exists here as an earlier call has created it."""
        try:
            found = await self.here.get("schedules", schedule_id)
        except NotFoundError:
            return False
        state = found["schedule"].get("state") or {}
        return bool(state.get("paused")) and state.get("notes") == _PAUSED

    async def _pause(self, schedule_id: str) -> None:
        from temporalio.api.workflowservice.v1 import PatchScheduleRequest

        request = PatchScheduleRequest(namespace=self.source.namespace, schedule_id=schedule_id, identity=_IDENTITY)
        request.patch.pause = "moved to Perdure"
        await self.source.workflow_service.patch_schedule(request)

    # Workflows

    async def workflows(self, workflow_type: str) -> None:
        """Start the open workflows of a type again, and terminate the old ones."""
        from temporalio.api.workflowservice.v1 import ListWorkflowExecutionsRequest

        quoted = workflow_type.replace("'", "''")
        query = f"ExecutionStatus = 'Running' AND WorkflowType = '{quoted}'"
        request = ListWorkflowExecutionsRequest(namespace=self.source.namespace, page_size=1000, query=query)
        open_: list[WorkflowExecutionInfo] = []
        while True:
            found = await self.source.workflow_service.list_workflow_executions(request)
            open_ += found.executions
            if not found.next_page_token:
                break
            request.next_page_token = found.next_page_token
        for each in open_:
            await self._workflow(each)

    async def _workflow(self, info: WorkflowExecutionInfo) -> None:
        from temporalio.api.workflowservice.v1 import TerminateWorkflowExecutionRequest
        from temporalio.service import RPCError

        what = f"workflow {info.execution.workflow_id}"
        if info.HasField("parent_execution") and info.parent_execution.workflow_id:
            self.report.refuse(what, f"it is a child of {info.parent_execution.workflow_id}, which starts it")
            return
        start = await self._start(info)
        if self.dry_run:
            self.report.add(what, f"{info.type.name}, from the input of run {info.execution.run_id} (dry run)")
            return
        try:
            started = await self.here.post("workflows", info.execution.workflow_id, body=_json(start))
        except RequestRefusedError as error:
            self.report.refuse(what, str(error))
            return
        terminate = TerminateWorkflowExecutionRequest(
            namespace=self.source.namespace,
            workflow_execution=info.execution,
            reason="moved to Perdure",
            identity=_IDENTITY,
        )
        try:
            await self.source.workflow_service.terminate_workflow_execution(terminate)
        except RPCError as error:
            gone = {"reason": "the old one could not be terminated", "identity": _IDENTITY}
            run = {"workflowExecution": {"runId": started["runId"]}}
            await self.here.post("workflows", info.execution.workflow_id, "terminate", body={**gone, **run})
            self.report.refuse(what, f"it could not be terminated on the Temporal server: {error.message}")
            return
        self.report.add(what, f"starts here within {_HELD.total_seconds():g}s as run {started['runId']}")

    async def _start(self, info: WorkflowExecutionInfo) -> Any:
        """The start of a workflow from the input of its current run, which is the last input of a chain."""
        from temporalio.api.enums.v1 import WorkflowIdConflictPolicy, WorkflowIdReusePolicy
        from temporalio.api.workflowservice.v1 import GetWorkflowExecutionHistoryRequest, StartWorkflowExecutionRequest

        request = GetWorkflowExecutionHistoryRequest(
            namespace=self.source.namespace, execution=info.execution, maximum_page_size=1
        )
        history = (await self.source.workflow_service.get_workflow_execution_history(request)).history
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
            start.workflow_start_delay.FromTimedelta(_HELD)
        return start


def _type_of(name: str) -> str:
    """The type of a search attribute by its name in the API: ``INDEXED_VALUE_TYPE_KEYWORD_LIST`` is `KeywordList`."""
    return "".join(part.capitalize() for part in name.removeprefix("INDEXED_VALUE_TYPE_").split("_"))


def _json(message: Any) -> dict[str, Any]:
    """A message in the JSON of the HTTP API."""
    from google.protobuf.json_format import MessageToDict

    written: dict[str, Any] = MessageToDict(message)
    return written
