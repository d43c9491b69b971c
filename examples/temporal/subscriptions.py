"""A subscription: a year of months, unless the customer leaves."""

import asyncio
from datetime import timedelta

from temporalio import activity, workflow
from temporalio.exceptions import is_cancelled_exception


@activity.defn
async def bill(customer: str, period: int) -> str:
    """Charge for a month."""
    return f"{customer} paid for month {period}"


@workflow.defn
class SubscriptionWorkflow:
    """Bills once a period until it is cancelled, and says goodbye then."""

    def __init__(self) -> None:
        """Nothing was billed yet."""
        self.billed: list[str] = []

    @workflow.run
    async def run(self, customer: str, period_seconds: float) -> list[str]:
        """Run until the subscription is cancelled."""
        try:
            for period in range(1, 13):
                paid = await workflow.execute_activity(
                    bill, args=[customer, period], start_to_close_timeout=timedelta(seconds=30)
                )
                self.billed.append(paid)
                await asyncio.sleep(period_seconds)
        except BaseException as error:
            if not is_cancelled_exception(error):
                raise
            self.billed.append("goodbye")
        return self.billed

    @workflow.query
    def so_far(self) -> list[str]:
        """What was billed."""
        return self.billed
