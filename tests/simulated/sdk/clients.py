"""Clients that start, signal, update, cancel, terminate and reset workflows, and repeat requests as SDKs do."""

import asyncio
from random import Random
from typing import Any

from temporalio.api.common.v1 import WorkflowExecution, WorkflowType
from temporalio.api.enums.v1 import EventType, WorkflowIdConflictPolicy
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import (
    GetWorkflowExecutionHistoryRequest,
    RequestCancelWorkflowExecutionRequest,
    ResetWorkflowExecutionRequest,
    SignalWithStartWorkflowExecutionRequest,
    SignalWorkflowExecutionRequest,
    StartWorkflowExecutionRequest,
    TerminateWorkflowExecutionRequest,
)

from perdure.frontend.errors import RpcError
from simulated.sdk.acknowledged import Acknowledged
from simulated.sdk.decisions import QUEUE, payloads
from simulated.sdk.eager import EagerTasks
from simulated.sdk.frontends import Caller
from simulated.sdk.update_calls import UpdateCalls
from simulated.sdk.wires import BrokenError


class Client:
    """One client, which follows one workflow."""

    def __init__(
        self, workflow_id: str, caller: Caller, random: Random, acknowledged: Acknowledged, eager: EagerTasks
    ) -> None:
        """Create a client that has done nothing yet.

        Args:
            workflow_id: The workflow.
            caller: Sends requests to the operators.
            random: Determines what the client does.
            acknowledged: Collects what the operators acknowledge.
            eager: Executes workflow tasks that arrive with start responses.
        """
        self._workflow_id = workflow_id
        self._caller = caller
        self._random = random
        self._acknowledged = acknowledged
        self._eager = eager
        self._signals = 0
        self._updates = UpdateCalls(workflow_id, caller, random, acknowledged)

    async def run(self) -> None:
        """Start the workflow, and send requests to it for a minute or two."""
        random = self._random
        await asyncio.sleep(random.uniform(0, 20))
        await self._start("first")
        acts: list[Any] = [self._signal] * random.randint(3, 9)
        acts += [self._updates.update] * random.randint(0, 4)
        acts += random.choice([[], [self._start_again], [self._signal_with_start], [self._updates.update_with_start]])
        acts += random.choice([[], [], [self._cancel], [self._terminate], [self._reset], [self._reset]])
        random.shuffle(acts)
        for act in acts:
            await asyncio.sleep(random.expovariate(1 / 4))
            try:
                await act()
            except (BrokenError, RpcError):
                continue

    async def _start(self, request_id: str) -> None:
        request = StartWorkflowExecutionRequest(
            namespace="default",
            workflow_id=self._workflow_id,
            workflow_type=WorkflowType(name="Flow"),
            task_queue=TaskQueue(name=QUEUE),
            request_id=request_id,
            input=payloads({"left": 1}),
            identity="client",
            request_eager_execution=self._random.random() < 0.5,
        )
        response = await self._caller.insist("StartWorkflowExecution", request, 180.0)
        self._acknowledged.started(self._workflow_id, request_id, response.run_id)
        if response.HasField("eager_workflow_task"):
            self._eager.workflow.put_nowait(response.eager_workflow_task)

    async def _start_again(self) -> None:
        """Repeat the start, like a client that has not received the response."""
        await self._start("first")

    def _value(self) -> str:
        self._signals += 1
        return f"{self._workflow_id} from client {self._signals}"

    async def _signal(self) -> None:
        value = self._value()
        request = SignalWorkflowExecutionRequest(
            namespace="default",
            workflow_execution=WorkflowExecution(workflow_id=self._workflow_id),
            signal_name="news",
            request_id=value,
            input=payloads(value),
        )
        await self._caller.insist("SignalWorkflowExecution", request)
        self._acknowledged.signalled(self._workflow_id, value)

    async def _signal_with_start(self) -> None:
        value = self._value()
        request = SignalWithStartWorkflowExecutionRequest(
            namespace="default",
            workflow_id=self._workflow_id,
            workflow_type=WorkflowType(name="Flow"),
            task_queue=TaskQueue(name=QUEUE),
            workflow_id_conflict_policy=WorkflowIdConflictPolicy.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
            signal_name="news",
            request_id=value,
            signal_input=payloads(value),
            input=payloads({"left": 0}),
        )
        await self._caller.insist("SignalWithStartWorkflowExecution", request)
        self._acknowledged.signalled(self._workflow_id, value)

    async def _cancel(self) -> None:
        request = RequestCancelWorkflowExecutionRequest(namespace="default", request_id="cancel")
        request.workflow_execution.workflow_id = self._workflow_id
        await self._caller.insist("RequestCancelWorkflowExecution", request)

    async def _terminate(self) -> None:
        request = TerminateWorkflowExecutionRequest(namespace="default", reason="enough")
        request.workflow_execution.workflow_id = self._workflow_id
        await self._caller.insist("TerminateWorkflowExecution", request)

    async def _reset(self) -> None:
        """Reset the newest run to one of its workflow tasks."""
        self._acknowledged.resets.add(self._workflow_id)
        asked = GetWorkflowExecutionHistoryRequest(namespace="default")
        asked.execution.workflow_id = self._workflow_id
        history = (await self._caller.insist("GetWorkflowExecutionHistory", asked)).history
        ends = [
            event.event_id
            for event in history.events
            if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED
        ]
        if not ends:
            return
        request = ResetWorkflowExecutionRequest(
            namespace="default",
            workflow_execution=WorkflowExecution(workflow_id=self._workflow_id),
            workflow_task_finish_event_id=self._random.choice(ends),
            request_id="reset",
            reason="again",
        )
        await self._caller.insist("ResetWorkflowExecution", request)
