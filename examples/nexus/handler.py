"""The worker of the namespace `bills`: it handles the operations. `python handler.py` works until it is stopped."""

import asyncio
from datetime import timedelta

import nexusrpc.handler
from temporalio import nexus, workflow
from temporalio.client import Client
from temporalio.exceptions import ApplicationError
from temporalio.worker import Worker

from billing import Billing, Purchase
from connection import work

TASK_QUEUE = "bills"
"""The one that endpoint.yaml names."""


@workflow.defn
class ChargeWorkflow:
    """Charges the card. The caller's workflow waits for its end."""

    @workflow.run
    async def run(self, purchase: Purchase) -> str:
        """Process one purchase."""
        if purchase.customer == "broke":
            raise ApplicationError("no money", type="CardDeclined", non_retryable=True)
        await workflow.sleep(timedelta(seconds=2))  # the bank is slow
        return f"receipt-{purchase.order_id}"


@nexusrpc.handler.service_handler(service=Billing)
class BillingHandler:
    """Handles the operations of Billing."""

    @nexusrpc.handler.sync_operation
    async def quote(self, _context: nexusrpc.handler.StartOperationContext, purchase: Purchase) -> int:
        """Answer immediately: a call has nine seconds."""
        return round(purchase.amount * 1.2)

    @nexus.workflow_run_operation
    async def charge(self, context: nexus.WorkflowRunOperationContext, purchase: Purchase) -> nexus.WorkflowHandle[str]:
        """Start a workflow. A call that is repeated has the same request ID, so it starts no second one."""
        return await context.start_workflow(ChargeWorkflow.run, purchase, id=f"charge-{purchase.order_id}")


def worker(client: Client) -> Worker:
    """A worker that polls the endpoint's task queue for calls and for the workflow tasks of ChargeWorkflow."""
    return Worker(client, task_queue=TASK_QUEUE, workflows=[ChargeWorkflow], nexus_service_handlers=[BillingHandler()])


if __name__ == "__main__":
    asyncio.run(work(worker))
