"""Workflows as code, on Perdure: an order, a trip that is undone, a subscription, a file. `python app.py` is the worker."""

import asyncio
import os
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from temporalio import activity, workflow
from temporalio.client import (
    Client,
    Schedule,
    ScheduleActionStartWorkflow,
    ScheduleHandle,
    ScheduleOverlapPolicy,
    SchedulePolicy,
    ScheduleSpec,
)
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError, is_cancelled_exception
from temporalio.worker import Worker

TOKEN = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")
SHORT = timedelta(seconds=30)


@dataclass
class Order:
    """What somebody wants, and how they pay."""

    order_id: str
    amount: int
    card: str = "good"


@activity.defn
async def charge(order: Order) -> str:
    """Take the money; a stolen card is refused for good."""
    if order.card == "stolen":
        raise ApplicationError("the card was reported as stolen", type="CardStolen", non_retryable=True)
    if order.card == "slow" and activity.info().attempt == 1:
        raise ApplicationError("the bank does not answer", type="BankAway")
    return f"payment-{order.order_id}"


@activity.defn
async def ship(order: Order) -> str:
    """Send it off."""
    return f"parcel-{order.order_id}"


@activity.defn
async def book(what: str) -> str:
    """Book a part of a trip; there are no cars."""
    if what == "car":
        raise ApplicationError("no cars left", type="SoldOut", non_retryable=True)
    return f"{what}-booked"


@activity.defn
async def cancel(what: str) -> str:
    """Undo a booking; the hotel does not let us."""
    if what == "hotel":
        raise ApplicationError("too late to cancel the hotel", type="TooLate", non_retryable=True)
    return f"{what}-cancelled"


@activity.defn
async def bill(customer: str, period: int) -> str:
    """Charge for a month."""
    return f"{customer} paid for month {period}"


@activity.defn
async def count_lines(lines: int) -> int:
    """Work through a file; after a crash, go on where the last heartbeat was."""
    begun = activity.info().heartbeat_details
    at = begun[0] if begun else 0
    while at < lines:
        at += 1
        activity.heartbeat(at)
        if at == lines // 2 and activity.info().attempt == 1:
            raise ApplicationError("the machine went away", type="Lost")
    return at


@workflow.defn
class OrderWorkflow:
    """Charge and ship; say what was refused."""

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


@workflow.defn
class TripWorkflow:
    """A saga: what was booked is undone in reverse order; what cannot be undone is told."""

    @workflow.run
    async def run(self, parts: list[str]) -> list[str]:
        """Book every part, or none."""
        booked: list[str] = []
        log: list[str] = []
        try:
            for part in parts:
                log.append(await workflow.execute_activity(book, part, start_to_close_timeout=SHORT))
                booked.append(part)
        except ActivityError:
            for part in reversed(booked):
                try:
                    log.append(await workflow.execute_activity(cancel, part, start_to_close_timeout=SHORT))
                except ActivityError as error:
                    log.append(f"{part} stays booked: {error.cause}")
        return log


@workflow.defn
class SubscriptionWorkflow:
    """Bills once a period until it is cancelled, and says goodbye then."""

    def __init__(self) -> None:
        """Nothing was billed yet."""
        self.billed: list[str] = []

    @workflow.run
    async def run(self, customer: str, period_seconds: float) -> list[str]:
        """Go on until somebody cancels."""
        try:
            for period in range(1, 13):
                self.billed.append(
                    await workflow.execute_activity(bill, args=[customer, period], start_to_close_timeout=SHORT)
                )
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


@workflow.defn
class FileWorkflow:
    """Has a long activity done that heartbeats and goes on where it was interrupted."""

    @workflow.run
    async def run(self, lines: int) -> int:
        """Count the lines."""
        return await workflow.execute_activity(
            count_lines,
            lines,
            start_to_close_timeout=timedelta(minutes=5),
            heartbeat_timeout=timedelta(seconds=10),
            retry_policy=RetryPolicy(initial_interval=timedelta(milliseconds=200)),
        )


async def count_every_night(client: Client, task_queue: str = "orders") -> ScheduleHandle:
    """Have lines counted at two each night; `kubectl get schedules` shows it too."""
    action = ScheduleActionStartWorkflow(FileWorkflow.run, 100, id="nightly-count", task_queue=task_queue)
    spec = ScheduleSpec(cron_expressions=["0 2 * * *"], time_zone_name="Europe/Berlin")
    policy = SchedulePolicy(overlap=ScheduleOverlapPolicy.BUFFER_ONE, catchup_window=timedelta(hours=1))
    return await client.create_schedule("nightly-count", Schedule(action, spec=spec, policy=policy))


WORKFLOWS = [OrderWorkflow, TripWorkflow, SubscriptionWorkflow, FileWorkflow]
ACTIVITIES = [charge, ship, book, cancel, bill, count_lines]


def bearer() -> str | None:
    """The token of the pod, as it is now; None outside of a cluster."""
    return TOKEN.read_text() if TOKEN.exists() else None


async def main() -> None:
    """Work until stopped."""
    token = bearer()
    client = await Client.connect(
        os.environ.get("TEMPORAL_ADDRESS", "perdure-temporal.perdure-system:7233"),
        namespace=os.environ.get("TEMPORAL_NAMESPACE", "default"),
        api_key=token,
        tls=False,
    )
    async with Worker(client, task_queue="orders", workflows=WORKFLOWS, activities=ACTIVITIES):
        while True:  # the kubelet renews the token
            await asyncio.sleep(60)
            if token:
                client.api_key = bearer()


if __name__ == "__main__":
    asyncio.run(main())
