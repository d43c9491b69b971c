"""Flows for tests of the client, whose worker imports this module again for each run."""

from collections import defaultdict
from dataclasses import dataclass

from temporalio import workflow

import perdure.flow as pf

desk = pf.Environment("desk")


@dataclass
class Bill:
    customer: str
    amount: int


class UnpaidError(Exception):
    """A customer does not pay."""


customers: defaultdict[str, list[int]] = defaultdict(list)
"""What was charged, by customer."""


@desk.activity(retries=0)
def charge(bill: Bill) -> int:
    customers[bill.customer].append(bill.amount)
    if bill.amount < 0:
        raise UnpaidError(f"{bill.customer} gets no money")
    return bill.amount


@desk.flow
async def billing(customer: str, amounts: list[int]) -> Bill:
    """Charge amounts, once someone has approved them; the query `paid` returns the sum so far."""
    paid: list[int] = []
    workflow.set_query_handler("paid", lambda: sum(paid))

    async def add(amount: int) -> int:
        amounts.append(amount)
        return len(amounts)

    workflow.set_update_handler("add", add)
    limit = await pf.signal("approve", int)
    for amount in amounts:
        charged = await charge(bill=Bill(customer, min(amount, limit)))
        paid.append(charged)
    return Bill(customer, sum(paid))


@desk.flow
async def due() -> str:
    """Return the time at which the Schedule was due."""
    return str(pf.scheduled_time())
