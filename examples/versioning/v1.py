"""Version v1 of the workflow."""

from temporalio import workflow
from temporalio.common import VersioningBehavior


@workflow.defn(versioning_behavior=VersioningBehavior.PINNED)
class ParcelWorkflow:
    """Delivers a parcel. A parcel that was started with a version is delivered by it."""

    def __init__(self) -> None:
        self._arrived = False

    @workflow.run
    async def run(self, parcel: str) -> str:
        """Wait until the parcel arrives."""
        await workflow.wait_condition(lambda: self._arrived)
        return f"{parcel} delivered by v1"

    @workflow.signal
    def arrived(self) -> None:
        """The parcel has arrived."""
        self._arrived = True
