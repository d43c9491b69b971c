"""The worker of the namespace `orders`: its workflow calls the operations. `python caller.py` works until it is stopped."""

import asyncio
from datetime import timedelta

from temporalio import workflow
from temporalio.client import Client
from temporalio.exceptions import ApplicationError, NexusOperationError
from temporalio.worker import Worker

from billing import ENDPOINT, Billing, Purchase
from connection import work

TASK_QUEUE = "purchases"


@workflow.defn
class PurchaseWorkflow:
    """Asks for the price, and charges it; reports what was refused."""

    @workflow.run
    async def run(self, purchase: Purchase) -> str:
        """Process one purchase."""
        billing = workflow.create_nexus_client(service=Billing, endpoint=ENDPOINT)
        longest = timedelta(minutes=10)  # also if no worker of the other namespace answers
        price = await billing.execute_operation(Billing.quote, purchase, schedule_to_close_timeout=longest)
        try:
            receipt = await billing.execute_operation(Billing.charge, purchase, schedule_to_close_timeout=longest)
        except NexusOperationError as error:
            raise ApplicationError(f"purchase refused: {error.cause}", type="Refused") from error
        return f"{receipt}: {price}"


def worker(client: Client) -> Worker:
    """A worker for PurchaseWorkflow."""
    return Worker(client, task_queue=TASK_QUEUE, workflows=[PurchaseWorkflow])


if __name__ == "__main__":
    asyncio.run(work(worker))
