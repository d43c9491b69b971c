"""The clients and workers of Temporal in the story of recorded forms: what they begin, and how they finish it later.

The workflow `order` is in the middle of an activity, a timer, a child, and an update when the objects are recorded. The worker
has no cache: it decides by the whole history that each task brings.
"""

import asyncio
from datetime import timedelta
from typing import Any, Final

from temporalio.api.common.v1 import Memo, WorkflowExecution, WorkflowType
from temporalio.api.deployment.v1 import WorkerDeploymentOptions
from temporalio.api.enums.v1 import EventType, ParentClosePolicy, WorkerVersioningMode
from temporalio.api.enums.v1 import UpdateWorkflowExecutionLifecycleStage as Stage
from temporalio.api.failure.v1 import ApplicationFailureInfo, Failure
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.update.v1 import Input, Meta, Request, WaitPolicy
from temporalio.api.workflowservice import v1 as workflowservice
from temporalio.api.workflowservice.v1 import PollWorkflowTaskQueueResponse

from perdure.frontend.core import Frontend
from perdure.frontend.transport.rpc import CallContext
from perdure.simulation.cluster.process import Operator
from simulated.sdk import decisions, updates
from simulated.sdk.decisions import Decision, payloads
from simulated.sdk.updates import Update

QUEUE: Final = "recorded"
WORKERS: Final = "greeters"
"""The WorkerDeployment, and the task queue of its workers."""
_CHILD: Final = "order-child"
_LARGE: Final = "x" * 20_000
"""An input that is stored in a Payload."""
_ACTIVITY_ENDED: Final = EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED
_CHILD_ENDED: Final = EventType.EVENT_TYPE_CHILD_WORKFLOW_EXECUTION_COMPLETED
_UPDATE_ENDED: Final = EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_COMPLETED


class Clients:
    """A client and a worker of one operator."""

    def __init__(self, operator: Operator, frontend: Frontend) -> None:
        self._operator = operator
        self._handlers = frontend.handlers()

    async def begin(self) -> None:
        """Begin everything, and stop in the middle."""
        start = {"workflow_type": WorkflowType(name="Order"), "input": payloads(_LARGE), "request_id": "first"}
        memo = Memo(fields={"note": payloads("for later").payloads[0]})
        failure = Failure(message="last time", application_failure_info=ApplicationFailureInfo(type="Before"))
        await self._call("StartWorkflowExecution", workflow_id="order", memo=memo, continued_failure=failure, **start)
        task = await self._task()
        charge = decisions.activity("charge", "Charge", QUEUE, timedelta(hours=3))
        charge.command.schedule_activity_task_command_attributes.start_to_close_timeout.FromTimedelta(
            timedelta(hours=3)
        )
        abandon = ParentClosePolicy.PARENT_CLOSE_POLICY_ABANDON
        child = decisions.child(_CHILD, "Order", QUEUE, {}, abandon)
        await self._decide(task, charge, decisions.timer("later", timedelta(days=1)), child)
        held = await self._call("PollActivityTaskQueue")
        await self._call("RecordActivityTaskHeartbeat", task_token=held.task_token, details=payloads("half"))
        for name in ("at once", "in a while"):
            sent = asyncio.ensure_future(self._update(name))
            task = await self._task("order")
            (update,) = map(Update.sent, task.messages)
            now = [updates.succeed(name, "done")] if name == "at once" else []
            await self._decide(task, updates.accept(update), *now)
            await sent
        await self._call(
            "SignalWorkflowExecution", workflow_execution=WorkflowExecution(workflow_id="order"), signal_name="news"
        )
        await self._poll_with_a_version()

    async def finish(self) -> None:
        """Complete the activity, the child, the update, and the workflow."""
        await self._call(
            "RespondActivityTaskCompletedById", workflow_id="order", activity_id="charge", result=payloads(1)
        )
        while True:
            task = await self._task()
            if task.workflow_execution.workflow_id == _CHILD:
                await self._decide(task, decisions.complete("child done"))
                continue
            recorded = {event.event_type for event in task.history.events}
            ended = [event for event in task.history.events if event.event_type == _UPDATE_ENDED]
            made = [updates.succeed("in a while", "done")] if len(ended) == 1 else []
            if {_ACTIVITY_ENDED, _CHILD_ENDED} <= recorded:
                await self._decide(task, *made, decisions.complete("order done"))
                return
            await self._decide(task, *made)

    async def _update(self, name: str) -> None:
        await self._call(
            "UpdateWorkflowExecution",
            workflow_execution=WorkflowExecution(workflow_id="order"),
            wait_policy=WaitPolicy(lifecycle_stage=Stage.UPDATE_WORKFLOW_EXECUTION_LIFECYCLE_STAGE_ACCEPTED),
            request=Request(meta=Meta(update_id=name), input=Input(name="change", args=payloads("later"))),
        )

    async def _poll_with_a_version(self) -> None:
        """Poll as the worker of a WorkerDeployment does, so that its version becomes current."""
        mode = WorkerVersioningMode.WORKER_VERSIONING_MODE_VERSIONED
        options = WorkerDeploymentOptions(deployment_name=WORKERS, build_id="v1", worker_versioning_mode=mode)
        for rpc in ("PollWorkflowTaskQueue", "PollActivityTaskQueue"):
            polling = asyncio.ensure_future(
                self._call(rpc, task_queue=TaskQueue(name=WORKERS), deployment_options=options)
            )
            await asyncio.sleep(1)
            polling.cancel()
            await asyncio.gather(polling, return_exceptions=True)

    async def _task(self, workflow_id: str = "") -> PollWorkflowTaskQueueResponse:
        """The next workflow task, or the next one of a workflow; the tasks of its child time out, and come again."""
        while True:
            task: PollWorkflowTaskQueueResponse = await self._call("PollWorkflowTaskQueue")
            if task.task_token and workflow_id in {"", task.workflow_execution.workflow_id}:
                return task

    async def _decide(self, task: PollWorkflowTaskQueueResponse, *made: Decision) -> None:
        await self._call(
            "RespondWorkflowTaskCompleted",
            task_token=task.task_token,
            commands=[each.command for each in made],
            messages=[each.message for each in made if each.message is not None],
        )

    async def _call(self, rpc: str, **fields: Any) -> Any:
        request = getattr(workflowservice, f"{rpc}Request")
        said = {"namespace": "default", "identity": "worker", "task_queue": TaskQueue(name=QUEUE), **fields}
        known = {name: value for name, value in said.items() if name in request.DESCRIPTOR.fields_by_name}
        return await self._operator.do(self._handlers[rpc](request(**known), CallContext(None)))
