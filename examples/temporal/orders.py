"""An order: paid and shipped, or refused with its reason."""

from dataclasses import dataclass
from datetime import timedelta

from temporalio import activity, workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError

SHORT = timedelta(seconds=30)


@dataclass
class Order:
    """The items of an order, and the payment method."""

    order_id: str
    amount: int
    card: str = "good"


@activity.defn
async def charge(order: Order) -> str:
    """Charge the card; a stolen card is declined permanently."""
    if order.card == "stolen":
        raise ApplicationError("the card was reported as stolen", type="CardStolen", non_retryable=True)
    if order.card == "slow" and activity.info().attempt == 1:
        raise ApplicationError("the bank does not answer", type="BankAway")
    return f"payment-{order.order_id}"


@activity.defn
async def ship(order: Order) -> str:
    """Ship the order."""
    return f"parcel-{order.order_id}"


@workflow.defn
class OrderWorkflow:
    """Charges and ships; reports what was refused."""

    @workflow.run
    async def run(self, order: Order) -> str:
        """Process one order."""
        retry = RetryPolicy(initial_interval=timedelta(milliseconds=200), maximum_attempts=3)
        try:
            payment = await workflow.execute_activity(charge, order, start_to_close_timeout=SHORT, retry_policy=retry)
        except ActivityError as error:
            cause = error.cause
            raise ApplicationError(f"order refused: {cause}", type=getattr(cause, "type", "Refused")) from error
        parcel = await workflow.execute_activity(ship, order, start_to_close_timeout=SHORT, retry_policy=retry)
        return f"{payment}, {parcel}"
