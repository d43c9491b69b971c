"""A workflow in code, for the Web UI to show."""

from datetime import timedelta

from temporalio import activity, workflow

QUEUE = "orders"


@activity.defn(name="charge-card")
async def charge(order: str) -> str:
    """Charge the card."""
    return f"charged {order}"


@workflow.defn(name="Order")
class Order:
    """Charges a card."""

    @workflow.run
    async def run(self, order: str) -> str:
        """Process an order."""
        return await workflow.execute_activity(
            charge, order, start_to_close_timeout=timedelta(minutes=1), summary="Charge the card"
        )
