"""A manual worker: the test decides when it takes a task and when it responds, which an SDK's worker does immediately."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from temporalio.api.command.v1 import Command
from temporalio.api.common.v1 import Payload, Payloads, WorkflowExecution
from temporalio.api.enums.v1 import CommandType, QueryResultType, WorkflowTaskFailedCause
from temporalio.api.query.v1 import WorkflowQueryResult
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import (
    PollActivityTaskQueueRequest,
    PollActivityTaskQueueResponse,
    PollWorkflowTaskQueueRequest,
    PollWorkflowTaskQueueResponse,
    RespondActivityTaskCompletedRequest,
    RespondWorkflowTaskCompletedRequest,
    RespondWorkflowTaskFailedRequest,
    SignalWorkflowExecutionRequest,
)
from temporalio.client import WorkflowHandle

from support.sdk.client import Temporal, until

LONG = timedelta(minutes=10)


@dataclass
class ManualWorker:
    """The worker. It polls once for each task, so it takes no task that the test does not expect."""

    temporal: Temporal

    @property
    def _of(self) -> dict[str, Any]:
        return {"namespace": self.temporal.operator.namespace, "identity": "by hand"}

    @property
    def _queue(self) -> dict[str, Any]:
        return {**self._of, "task_queue": TaskQueue(name=self.temporal.task_queue)}

    async def task(self) -> PollWorkflowTaskQueueResponse:
        """The next workflow task."""
        service = self.temporal.client.workflow_service

        async def taken() -> Any:
            answer = await service.poll_workflow_task_queue(PollWorkflowTaskQueueRequest(**self._queue))
            return answer if answer.task_token else None

        task: PollWorkflowTaskQueueResponse = await until("a workflow task", taken)
        return task

    async def activity(self) -> PollActivityTaskQueueResponse:
        """The next attempt of an activity."""
        service = self.temporal.client.workflow_service

        async def taken() -> Any:
            answer = await service.poll_activity_task_queue(PollActivityTaskQueueRequest(**self._queue))
            return answer if answer.task_token else None

        attempt: PollActivityTaskQueueResponse = await until("an activity", taken)
        return attempt

    async def complete(self, task: PollWorkflowTaskQueueResponse, *commands: Command, prolong: bool = False) -> None:
        """Complete the task; each query of the task is answered with its type."""
        await self.temporal.client.workflow_service.respond_workflow_task_completed(
            RespondWorkflowTaskCompletedRequest(
                **self._of,
                task_token=task.task_token,
                commands=commands,
                force_create_new_workflow_task=prolong,
                query_results={name: _answer(query.query_type) for name, query in task.queries.items()},
            )
        )

    async def decide(self, *commands: Command, prolong: bool = False) -> PollWorkflowTaskQueueResponse:
        """Take the next task, complete it, and return it."""
        task = await self.task()
        await self.complete(task, *commands, prolong=prolong)
        return task

    async def fail(self, task: PollWorkflowTaskQueueResponse) -> None:
        """Fail the task, as for a bug in the workflow's code."""
        await self.temporal.client.workflow_service.respond_workflow_task_failed(
            RespondWorkflowTaskFailedRequest(
                **self._of,
                task_token=task.task_token,
                cause=WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_WORKFLOW_WORKER_UNHANDLED_FAILURE,
            )
        )

    async def done(self, attempt: PollActivityTaskQueueResponse) -> None:
        """Complete an activity."""
        await self.temporal.client.workflow_service.respond_activity_task_completed(
            RespondActivityTaskCompletedRequest(**self._of, task_token=attempt.task_token)
        )

    async def signal(self, handle: WorkflowHandle[Any, Any], name: str, request_id: str = "") -> None:
        """Signal without retries: the SDK's client retries while the operator is busy."""
        await self.temporal.client.workflow_service.signal_workflow_execution(
            SignalWorkflowExecutionRequest(
                **self._of,
                workflow_execution=WorkflowExecution(workflow_id=handle.id),
                signal_name=name,
                request_id=request_id,
            )
        )


def _answer(said: str) -> WorkflowQueryResult:
    return WorkflowQueryResult(
        result_type=QueryResultType.QUERY_RESULT_TYPE_ANSWERED, answer=Payloads(payloads=[Payload(data=said.encode())])
    )


def schedule(name: str, queue: str, **timeouts: timedelta) -> Command:
    """A command that schedules an activity."""
    command = Command(command_type=CommandType.COMMAND_TYPE_SCHEDULE_ACTIVITY_TASK)
    said = command.schedule_activity_task_command_attributes
    said.activity_id, said.activity_type.name, said.task_queue.name = name, "any", queue
    for timeout, length in timeouts.items():
        getattr(said, timeout).FromTimedelta(length)
    return command


def timer(name: str, length: timedelta) -> Command:
    """To start a timer."""
    command = Command(command_type=CommandType.COMMAND_TYPE_START_TIMER)
    said = command.start_timer_command_attributes
    said.timer_id = name
    said.start_to_fire_timeout.FromTimedelta(length)
    return command


def marker(name: str) -> Command:
    """To record a marker."""
    command = Command(command_type=CommandType.COMMAND_TYPE_RECORD_MARKER)
    command.record_marker_command_attributes.marker_name = name
    return command


def close() -> Command:
    """To complete the workflow."""
    command = Command(command_type=CommandType.COMMAND_TYPE_COMPLETE_WORKFLOW_EXECUTION)
    command.complete_workflow_execution_command_attributes.SetInParent()
    return command
