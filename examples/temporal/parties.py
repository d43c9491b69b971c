"""Children, and what happens to them when their parent closes: the three parent close policies."""

import asyncio

from temporalio import workflow
from temporalio.workflow import ParentClosePolicy

POLICIES = (ParentClosePolicy.ABANDON, ParentClosePolicy.TERMINATE, ParentClosePolicy.REQUEST_CANCEL)


@workflow.defn
class GuestWorkflow:
    """Stays until it gets a signal to leave, or is cancelled."""

    def __init__(self) -> None:
        """Nobody has said anything."""
        self.dismissed = False

    @workflow.run
    async def run(self) -> str:
        """Stay."""
        try:
            await workflow.wait_condition(lambda: self.dismissed)
        except asyncio.CancelledError:
            return "left with the host"
        return "left when told to"

    @workflow.signal
    def leave(self) -> None:
        """Ask the guest to leave."""
        self.dismissed = True


@workflow.defn
class PartyWorkflow:
    """Has a guest of each kind, and closes: one stays, one is thrown out, one is asked to leave."""

    @workflow.run
    async def run(self) -> list[str]:
        """Start the guests; returns their workflow IDs."""
        name = workflow.info().workflow_id
        guests = [
            await workflow.start_child_workflow(
                GuestWorkflow.run, id=f"{name}-{policy.name.lower()}", parent_close_policy=policy
            )
            for policy in POLICIES
        ]
        return [guest.id for guest in guests]
