"""The calls of a client that updates a workflow, and starts it before if need be."""

from random import Random

from temporalio.api.common.v1 import WorkflowType
from temporalio.api.enums.v1 import UpdateWorkflowExecutionLifecycleStage as Stage
from temporalio.api.enums.v1 import WorkflowIdConflictPolicy
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.update.v1 import WaitPolicy
from temporalio.api.workflowservice.v1 import (
    ExecuteMultiOperationRequest,
    PollWorkflowExecutionUpdateRequest,
    StartWorkflowExecutionRequest,
    UpdateWorkflowExecutionRequest,
    UpdateWorkflowExecutionResponse,
)

from simulated.sdk.acknowledged import Acknowledged
from simulated.sdk.decisions import QUEUE, payloads
from simulated.sdk.frontends import Caller

_ACCEPTED = WaitPolicy(lifecycle_stage=Stage.UPDATE_WORKFLOW_EXECUTION_LIFECYCLE_STAGE_ACCEPTED)
_COMPLETED = WaitPolicy(lifecycle_stage=Stage.UPDATE_WORKFLOW_EXECUTION_LIFECYCLE_STAGE_COMPLETED)


class UpdateCalls:
    """Sends updates to one workflow, and waits for their outcomes."""

    def __init__(self, workflow_id: str, caller: Caller, random: Random, acknowledged: Acknowledged) -> None:
        """Create it without updates.

        Args:
            workflow_id: The workflow.
            caller: Calls the operators.
            random: Decides what the workflow does with an update.
            acknowledged: Collects what the operators acknowledge.
        """
        self._workflow_id = workflow_id
        self._caller = caller
        self._random = random
        self._acknowledged = acknowledged
        self._made = 0

    async def update(self) -> None:
        """Send an update.

        Raises:
            BrokenError, RpcError: It was not accepted, or nobody knows.
        """
        await self._follow(await self._caller.insist("UpdateWorkflowExecution", self._request()))

    async def update_with_start(self) -> None:
        """Send an update, and start the workflow before unless it is open.

        Raises:
            BrokenError, RpcError: It was not accepted, or nobody knows.
        """
        update = self._request()
        start = StartWorkflowExecutionRequest(
            namespace="default",
            workflow_id=self._workflow_id,
            workflow_type=WorkflowType(name="Flow"),
            task_queue=TaskQueue(name=QUEUE),
            workflow_id_conflict_policy=WorkflowIdConflictPolicy.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
            request_id=update.request.meta.update_id,
            input=payloads({"left": 0}),
            identity="client",
        )
        request = ExecuteMultiOperationRequest(namespace="default")
        request.operations.add().start_workflow.CopyFrom(start)
        request.operations.add().update_workflow.CopyFrom(update)
        response = await self._caller.insist("ExecuteMultiOperation", request)
        started, updated = response.responses
        self._acknowledged.started(self._workflow_id, start.request_id, started.start_workflow.run_id)
        await self._follow(updated.update_workflow)

    def _request(self) -> UpdateWorkflowExecutionRequest:
        random = self._random
        self._made += 1
        request = UpdateWorkflowExecutionRequest(
            namespace="default", wait_policy=random.choice([_ACCEPTED, _COMPLETED])
        )
        request.workflow_execution.workflow_id = self._workflow_id
        request.request.meta.update_id = f"{self._workflow_id} update {self._made}"
        request.request.input.name = "change"
        how = random.choice(["now", "now", "later", "later", "fail", "never", "reject"])
        request.request.input.args.CopyFrom(payloads(how))
        return request

    async def _follow(self, response: UpdateWorkflowExecutionResponse) -> None:
        """Note the answer to an update, and poll for its outcome now and then."""
        ref = response.update_ref
        if response.stage >= _ACCEPTED.lifecycle_stage:
            self._acknowledged.updates.answered(ref, response.outcome if response.HasField("outcome") else None)
        if not response.HasField("outcome") and self._random.random() < 0.7:
            poll = PollWorkflowExecutionUpdateRequest(namespace="default", update_ref=ref, wait_policy=_COMPLETED)
            polled = await self._caller.insist("PollWorkflowExecutionUpdate", poll)
            if polled.HasField("outcome"):
                self._acknowledged.updates.answered(ref, polled.outcome)
