"""A circuit breaker as code: while a bank is down, no calls are sent to it; payouts that failed become dead letters."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta

from temporalio import activity, workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError

from deadletters import Letter, set_aside

SHORT = timedelta(seconds=30)
ONCE = RetryPolicy(maximum_attempts=1)


@dataclass
class Payout:
    """An amount and its recipient."""

    payout_id: str
    bank: str
    amount: int


@activity.defn
async def transfer(payout: Payout) -> str:
    """Send the money; one of the banks is down."""
    if payout.bank == "down":
        raise ApplicationError("the bank does not answer", type="BankAway")
    return f"paid {payout.amount}"


class CircuitOpenError(Exception):
    """Nothing was tried."""


class CircuitBreaker:
    """Once `limit` calls in a row have failed, blocks calls for `pause`; then lets one through, whose result decides."""

    def __init__(self, limit: int, pause: float) -> None:
        self.limit = limit
        self.pause = pause
        self.failures = 0
        self.state = "closed"
        self.timer: asyncio.Task[None] | None = None

    async def call(self, work: Callable[[], Awaitable[str]]) -> str:
        """Do the work, or reject it immediately."""
        if self.state not in {"closed", "half-open"}:
            raise CircuitOpenError("the circuit is open")
        if self.state == "half-open":
            self.state = "trying"
        try:
            result = await work()
        except ActivityError:
            self.failed()
            raise
        self.state, self.failures = "closed", 0
        return result

    def failed(self) -> None:
        """Open the circuit if too many calls failed, and half-open it after a while."""
        self.failures += 1
        if self.state == "trying" or (self.state == "closed" and self.failures >= self.limit):
            self.state = "open"
            self.timer = asyncio.create_task(self.recover())

    async def recover(self) -> None:
        """Let one through after the pause: a timer of the workflow, which survives crashes."""
        await asyncio.sleep(self.pause)
        self.state = "half-open"


@workflow.defn
class PayoutsWorkflow:
    """Makes the requested payouts while it is open; all payouts share its circuit breaker."""

    @workflow.init
    def __init__(self, limit: int, pause: float) -> None:
        """The circuit is closed."""
        self.circuit = CircuitBreaker(limit, pause)
        self.closing = False
        self.paid = 0

    @workflow.run
    async def run(self, limit: int, pause: float) -> int:  # noqa: ARG002 (the circuit has them)
        """Run until it is closed, and return the amount that was paid."""
        await workflow.wait_condition(lambda: self.closing and workflow.all_handlers_finished())
        return self.paid

    @workflow.update
    async def pay(self, payout: Payout) -> str:
        """Pay, or create a dead letter; the result says which."""
        try:
            done = await self.circuit.call(
                lambda: workflow.execute_activity(transfer, payout, start_to_close_timeout=SHORT, retry_policy=ONCE)
            )
        except (ActivityError, CircuitOpenError) as error:
            reason = str(error.cause if isinstance(error, ActivityError) else error)
            letter = Letter(payout.payout_id, "transfer", payout, reason)
            await workflow.execute_activity(set_aside, letter, start_to_close_timeout=SHORT)
            return f"set aside: {reason}"
        self.paid += payout.amount
        return done

    @workflow.query
    def state(self) -> str:
        """The state of the circuit."""
        return self.circuit.state

    @workflow.signal
    def close(self) -> None:
        """Accept no more payouts."""
        self.closing = True
