"""Callers, handlers, and endpoints of Nexus operations between two namespaces."""

import asyncio
from datetime import timedelta
from typing import Any

from temporalio.api.command.v1 import Command
from temporalio.api.common.v1 import Callback, Payload, WorkflowType
from temporalio.api.enums.v1 import CommandType
from temporalio.api.nexus.v1 import Endpoint, EndpointSpec, EndpointTarget, Response, StartOperationResponse
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import PollNexusTaskQueueResponse

from perdure.frontend.nexus.endpoints import CALLERS_HEADER
from rpc.served import Served, names

BILLS, HANDLERS = "bills", TaskQueue(name="handlers")
FIVE = Payload(metadata={"encoding": b"json/plain"}, data=b"5")


def spec(name: str = "billing", namespace: str = BILLS) -> EndpointSpec:
    worker = EndpointTarget.Worker(namespace=namespace, task_queue=HANDLERS.name)
    return EndpointSpec(name=name, target=EndpointTarget(worker=worker))


async def endpoint(here: Served, callers: str = "default", **fields: Any) -> Endpoint:
    """Create an endpoint for workers of another namespace."""
    made = await here.call("CreateNexusEndpoint", ((CALLERS_HEADER, callers),), spec=spec(**fields))
    found: Endpoint = made.endpoint
    return found


def schedule(name: str = "billing", header: dict[str, str] | None = None, **timeouts: timedelta) -> Command:
    command = Command(command_type=CommandType.COMMAND_TYPE_SCHEDULE_NEXUS_OPERATION)
    said = command.schedule_nexus_operation_command_attributes
    said.endpoint, said.service, said.operation = name, "invoices", "charge"
    said.input.CopyFrom(FIVE)
    said.nexus_header.update(header or {})
    for timeout, length in timeouts.items():
        getattr(said, timeout).FromTimedelta(length)
    return command


def cancel(scheduled_event_id: int) -> Command:
    command = Command(command_type=CommandType.COMMAND_TYPE_REQUEST_CANCEL_NEXUS_OPERATION)
    command.request_cancel_nexus_operation_command_attributes.scheduled_event_id = scheduled_event_id
    return command


async def handle(here: Served, namespace: str = BILLS) -> PollNexusTaskQueueResponse:
    """The next call, as a worker of the handler's namespace gets it."""
    polled = await here.call("PollNexusTaskQueue", namespace=namespace, queue=HANDLERS)
    task: PollNexusTaskQueueResponse = polled
    return task


async def answer(here: Served, task: PollNexusTaskQueueResponse, **said: Any) -> None:
    response = Response(start_operation=StartOperationResponse(**said))
    await here.call("RespondNexusTaskCompleted", namespace=BILLS, task_token=task.task_token, response=response)


async def start_for(here: Served, task: PollNexusTaskQueueResponse, workflow_id: str = "charge", **fields: Any) -> Any:
    """Start the workflow of an operation, as SDKs do it, and answer the call."""
    said = task.request.start_operation
    nexus = Callback.Nexus(url=said.callback, header={**said.callback_header, "Nexus-Operation-Token": workflow_id})
    started = await here.call(
        "StartWorkflowExecution",
        **{
            "namespace": BILLS,
            "workflow_id": workflow_id,
            "workflow_type": WorkflowType(name="Charge"),
            "request_id": said.request_id,
            "completion_callbacks": [Callback(nexus=nexus)],
            **fields,
        },
    )
    await answer(here, task, async_success=StartOperationResponse.Async(operation_token=workflow_id))
    return started


async def charge(here: Served, *commands: Command) -> None:
    """Decide the workflow that handles the operation."""
    task = await here.call("PollWorkflowTaskQueue", namespace=BILLS)
    await here.call("RespondWorkflowTaskCompleted", namespace=BILLS, task_token=task.task_token, commands=commands)


async def caller(here: Served, **timeouts: timedelta) -> PollNexusTaskQueueResponse:
    """A workflow that has scheduled an operation, and the call of its handler."""
    await endpoint(here)
    await here.start()
    await here.decide(schedule(**timeouts))
    return await handle(here)


async def replace(here: Served) -> None:
    """Kill the operator and start another one."""
    here.world.operators.remove(here.operator)
    await here.operator.kill()
    here.restart()
    await here.operator.do(here.operator.manager.first_lists.wait())


async def until(here: Served, event: str, workflow_id: str = "w", *, count: int = 1) -> list[str]:
    """The names of the events of a workflow, once `count` of them have this one."""
    async with asyncio.timeout(600):
        while (found := names(await here.history(workflow_id))).count(event) < count:  # noqa: ASYNC110 (as a client asks)
            await asyncio.sleep(0.1)
    return found
