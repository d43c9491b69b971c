"""Workflows of the tests with Temporal's SDK that start children."""

from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ChildWorkflowError, FailureError

from support.sdk.flows import Box, Rounds


@workflow.defn
class Parent:
    @workflow.run
    async def run(self, policy: int, child_id: str, ending: str) -> str:
        child = await workflow.start_child_workflow(
            Box.run, id=child_id, parent_close_policy=workflow.ParentClosePolicy(policy)
        )
        if ending == "continue":
            workflow.continue_as_new(args=[policy, child_id + "-next", "return"])
        if ending == "result":
            await child.signal(Box.put, "from parent")
            await child.signal(Box.close)
            return ",".join(await child)
        return child.id


@workflow.defn
class StartsTwice:
    @workflow.run
    async def run(self, other: str) -> str:
        try:
            await workflow.start_child_workflow(Box.run, id=other)
        except FailureError as error:
            return type(error).__name__
        return "started"


@workflow.defn
class CancelsChild:
    """Starts a child that continues as new, and cancels it on a signal."""

    def __init__(self) -> None:
        self.cancels = False

    @workflow.run
    async def run(self, child_id: str) -> str:
        child = await workflow.start_child_workflow(Rounds.run, args=[1, []], id=child_id)
        await child.signal(Rounds.put, "first")
        await workflow.wait_condition(lambda: self.cancels)
        child.cancel()
        try:
            await child
        except FailureError as error:
            return type(error.cause).__name__
        return "completed"

    @workflow.signal
    def cancel_child(self) -> None:
        self.cancels = True


@workflow.defn
class Nests:
    """Starts itself as its child until the limit; returns the depth and the failure."""

    @workflow.run
    async def run(self, depth: int) -> list[Any]:
        try:
            below: list[Any] = await workflow.execute_child_workflow(Nests.run, depth + 1)
        except ChildWorkflowError as error:
            return [depth, getattr(error.cause, "type", None)]
        return below


@workflow.defn
class Orchestrates:
    """Runs an activity of a Workflow in a pod, and starts a Workflow as a child."""

    @workflow.run
    async def run(self, name: str) -> list[Any]:
        in_pod = await workflow.execute_activity(
            "work", name, task_queue="pods/tool", start_to_close_timeout=timedelta(minutes=2)
        )
        child: Any = await workflow.execute_child_workflow(
            "tool", {"name": name}, id=f"{workflow.info().workflow_id}-child", task_queue="workflows"
        )
        return [in_pod, child]
