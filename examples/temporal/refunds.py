"""A standalone activity: one unit of work with retries and no workflow around it."""

from datetime import timedelta

from temporalio import activity
from temporalio.client import Client
from temporalio.common import ActivityIDConflictPolicy, RetryPolicy
from temporalio.exceptions import ApplicationError


@activity.defn
async def refund(order_id: str) -> str:
    """Refund an order; the bank is busy at first."""
    if activity.info().attempt == 1:
        raise ApplicationError("the bank is busy", type="Busy")
    return f"refund-{order_id}"


async def refund_order(client: Client, order_id: str, task_queue: str = "orders") -> str:
    """Refund an order. While that runs, a second call waits for the same refund."""
    return await client.execute_activity(
        refund,
        order_id,
        id=f"refund-{order_id}",
        task_queue=task_queue,
        start_to_close_timeout=timedelta(minutes=1),
        retry_policy=RetryPolicy(initial_interval=timedelta(milliseconds=200), maximum_attempts=5),
        id_conflict_policy=ActivityIDConflictPolicy.USE_EXISTING,
    )
