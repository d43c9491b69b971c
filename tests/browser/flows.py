"""Workflows in code, for the Web UI to show."""

from datetime import timedelta

from temporalio import activity, workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ApplicationError

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


@activity.defn(name="call-bank")
async def call_bank() -> None:
    """Fail: the bank does not answer."""
    raise ApplicationError("the bank does not answer", type="BankDown")


@workflow.defn(name="Approval")
class Approval:
    """Waits for a decision; meanwhile, a call to the bank fails again and again."""

    def __init__(self) -> None:
        self._decision = ""
        self._note = "nothing yet"

    @workflow.run
    async def run(self, document: str) -> str:
        """Process a document."""
        workflow.set_current_details(f"**{document}** waits for a decision")
        patient = RetryPolicy(initial_interval=timedelta(hours=1))
        workflow.start_activity(call_bank, start_to_close_timeout=timedelta(minutes=1), retry_policy=patient)
        await workflow.wait_condition(lambda: bool(self._decision))
        return self._decision

    @workflow.signal
    def decide(self, decision: str) -> None:
        """Decide."""
        self._decision = decision

    @workflow.query
    def note(self) -> str:
        """Return the note."""
        return self._note

    @workflow.update
    async def write(self, note: str) -> str:
        """Replace the note."""
        self._note = note
        return f"wrote {note}"


@workflow.defn(name="Parent")
class Parent:
    """Starts a child that waits."""

    @workflow.run
    async def run(self, child: str) -> str:
        """Wait for the child."""
        return str(await workflow.execute_child_workflow(Approval.run, "a contract", id=child))
