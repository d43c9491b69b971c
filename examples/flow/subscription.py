"""A subscription as a flow: free at first, then charged each month until the customer leaves or a card fails for too long.

A run lasts for years, and continues as new once a year, so that its history stays short.

perdure deploy examples/flow/subscription.py --image localhost/perdure:dev --mount
perdure start --type subscription --task-queue subscriptions --input '{"customer": "ada"}' --name ada
perdure signal ada --name plan --input '"team"'
perdure signal ada --name leave
"""

from dataclasses import asdict, dataclass
from enum import StrEnum

from temporalio import workflow

import perdure.flow as pf

shop = pf.Environment("subscriptions", cpu="10m", memory="64Mi")
MONTHS_OF_A_RUN = 12


class Plan(StrEnum):
    """What a customer has."""

    SOLO = "solo"
    TEAM = "team"


PRICES = {Plan.SOLO: 9, Plan.TEAM: 29}


@dataclass
class Account:
    """What is known after each month."""

    months: int = 0
    paid: int = 0
    plan: Plan = Plan.SOLO


@shop.activity(timeout="1m", retry=pf.Retry(initial="1h", maximum="1d", attempts=7, not_for=("CardStolen",)))
def charge(customer: str, month: int, amount: int) -> str:
    """Charge a card. The number of the month makes a repeated attempt the same charge."""
    return f"{customer}-{month}: {amount}"


@shop.activity(timeout="1m")
def say(customer: str, text: str) -> None:
    """Write to the customer."""
    print(f"to {customer}: {text}")


@shop.flow
async def subscription(
    customer: str, account: Account | None = None, trial: str = "14d", month: str = "30d"
) -> Account:
    """Charge a customer each month, and return what was paid in the end."""
    if account is None:
        await say(customer, text="welcome")
        account = Account()
        if await leaves(account, trial):
            return account
    for _ in range(MONTHS_OF_A_RUN):
        try:
            await charge(customer, account.months + 1, PRICES[account.plan])
        except pf.ActivityError as error:
            await say(customer, text=f"we cannot charge your card: {error.cause}")
            return account
        account.months, account.paid = account.months + 1, account.paid + PRICES[account.plan]
        if await leaves(account, month):
            await say(customer, text="goodbye")
            return account
    # The next run begins here. This call ends the flow, and does not return.
    return workflow.continue_as_new({"customer": customer, "account": asdict(account), "trial": trial, "month": month})


async def leaves(account: Account, time: str) -> bool:
    """Wait for a time, follow changes of the plan, and return whether the customer has left."""

    async def wait() -> bool:
        await pf.sleep(time)
        return False

    async def leave() -> bool:
        await pf.signal("leave")
        return True

    async def follow() -> bool:
        while True:
            account.plan = await pf.signal("plan", Plan)

    return await pf.race(leave(), wait(), follow())
