"""The frontend on an API server in memory, in virtual time. Tests call its handlers as gRPC does."""

from collections.abc import Awaitable, Callable, Iterable
from datetime import timedelta
from typing import Any

from temporalio.api.command.v1 import Command
from temporalio.api.common.v1 import WorkflowExecution, WorkflowType
from temporalio.api.enums.v1 import CommandType, EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.operatorservice import v1 as operatorservice
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice import v1 as workflowservice
from temporalio.api.workflowservice.v1 import (
    PollWorkflowTaskQueueResponse,
    RespondWorkflowTaskCompletedResponse,
    StartWorkflowExecutionResponse,
)

from perdure.frontend.settings import Settings
from perdure.frontend.transport.rpc import CallContext
from simulated.world import Setting, World, simulate

QUEUE = "orders"


class Served:
    """A client and a worker without an SDK. It fills in namespace, worker and task queue where a request has them."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.restart()

    def restart(self) -> None:
        """Start an operator with an empty frontend."""
        self.operator = self.world.start(Settings(authentication=False))
        self.frontend = self.operator.frontend
        self._handlers = self.frontend.handlers()

    async def call(
        self,
        rpc: str,
        metadata: tuple[tuple[str, str], ...] = (),
        *,
        principal: str = "",
        caller: CallContext | None = None,
        **fields: Any,
    ) -> Any:
        """Call an RPC, as an authenticated user if there is a `principal`, or as any `caller`."""
        service = workflowservice if hasattr(workflowservice, f"{rpc}Request") else operatorservice
        request = getattr(service, f"{rpc}Request")
        known = request.DESCRIPTOR.fields_by_name
        queue = fields.pop("queue", TaskQueue(name=QUEUE))
        said = {"namespace": "default", "identity": "worker", "task_queue": queue, **fields}
        named = {name: value for name, value in said.items() if name in known}
        caller = caller or CallContext(None, metadata, principal)
        return await self.operator.do(self._handlers[rpc](request(**named), caller))

    async def start(self, workflow_id: str = "w", **fields: Any) -> StartWorkflowExecutionResponse:
        """Start a workflow."""
        kind = WorkflowType(name="Order")
        started: StartWorkflowExecutionResponse = await self.call(
            "StartWorkflowExecution",
            **{"workflow_id": workflow_id, "workflow_type": kind, "request_id": workflow_id, **fields},
        )
        return started

    async def task(self) -> PollWorkflowTaskQueueResponse:
        """The next workflow task."""
        task: PollWorkflowTaskQueueResponse = await self.call("PollWorkflowTaskQueue")
        assert task.task_token, "no workflow task within the length of a poll"
        return task

    async def complete(
        self, task: PollWorkflowTaskQueueResponse, *commands: Command, **fields: Any
    ) -> RespondWorkflowTaskCompletedResponse:
        """Answer a workflow task."""
        answer: RespondWorkflowTaskCompletedResponse = await self.call(
            "RespondWorkflowTaskCompleted", task_token=task.task_token, commands=commands, **fields
        )
        return answer

    async def decide(self, *commands: Command, **fields: Any) -> RespondWorkflowTaskCompletedResponse:
        """Take the next workflow task and answer it."""
        return await self.complete(await self.task(), *commands, **fields)

    async def history(self, workflow_id: str = "w", run_id: str = "", **fields: Any) -> list[HistoryEvent]:
        """The history of a workflow."""
        execution = WorkflowExecution(workflow_id=workflow_id, run_id=run_id)
        return list((await self.call("GetWorkflowExecutionHistory", execution=execution, **fields)).history.events)


def served(test: Callable[[Served], Awaitable[None]]) -> Callable[[], None]:
    """Run a test in virtual time; also check the invariants of the simulation."""

    async def scenario(world: World) -> None:
        await test(Served(world))

    def run() -> None:
        result = simulate(scenario, Setting(seed=0, faults=0.0, kills=0))
        assert not result.violations, result.violations

    run.__name__, run.__doc__, run.__module__ = getattr(test, "__name__", "test"), test.__doc__, test.__module__
    return run


def names(events: Iterable[HistoryEvent]) -> list[str]:
    """The types of events, in CamelCase."""
    found = [EventType.Name(event.event_type).removeprefix("EVENT_TYPE_") for event in events]
    return ["".join(word.capitalize() for word in name.split("_")) for name in found]


def timer(name: str, length: timedelta) -> Command:
    """Start a timer."""
    command = Command(command_type=CommandType.COMMAND_TYPE_START_TIMER)
    command.start_timer_command_attributes.timer_id = name
    command.start_timer_command_attributes.start_to_fire_timeout.FromTimedelta(length)
    return command


def activity(name: str, **timeouts: timedelta) -> Command:
    """Schedule an activity."""
    command = Command(command_type=CommandType.COMMAND_TYPE_SCHEDULE_ACTIVITY_TASK)
    said = command.schedule_activity_task_command_attributes
    said.activity_id, said.activity_type.name, said.task_queue.name = name, "any", QUEUE
    for timeout, length in timeouts.items():
        getattr(said, timeout).FromTimedelta(length)
    return command


def complete_workflow() -> Command:
    """Complete the workflow."""
    command = Command(command_type=CommandType.COMMAND_TYPE_COMPLETE_WORKFLOW_EXECUTION)
    command.complete_workflow_execution_command_attributes.SetInParent()
    return command
