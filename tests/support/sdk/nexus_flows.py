"""Workflows of the tests of Nexus with Temporal's SDK. Light, because the SDK's sandbox imports it for every workflow."""

from temporalio import workflow
from temporalio.exceptions import ApplicationError

BILLING = "billing"
"""A Nexus service."""


@workflow.defn
class Charge:
    """Handles a Nexus operation: pays in a second run, or not at all."""

    @workflow.run
    async def run(self, name: str) -> str:
        if name == "broke":
            raise ApplicationError("no money", type="Broke")
        if name == "slow":
            await workflow.wait_condition(lambda: False)
        if workflow.info().continued_run_id is None:
            workflow.continue_as_new(name)
        return f"{name} has paid, in 2 runs"


@workflow.defn
class CallsBilling:
    """Calls a Nexus operation in another namespace."""

    def __init__(self) -> None:
        self.begun = False

    @workflow.run
    async def run(self, endpoint: str, operation: str, name: str) -> str:
        client = workflow.create_nexus_client(service=BILLING, endpoint=endpoint)
        handle = await client.start_operation(operation, name, output_type=str)
        self.begun = True
        return await handle

    @workflow.update
    async def started(self) -> None:
        """Wait until the operation has started."""
        await workflow.wait_condition(lambda: self.begun)
