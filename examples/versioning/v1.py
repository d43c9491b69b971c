"""Version v1 of the workflows."""

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


@workflow.defn(versioning_behavior=VersioningBehavior.AUTO_UPGRADE)
class DepotWorkflow:
    """Counts the parcels of a depot, for months: it moves to each new version, whose code must replay its history."""

    def __init__(self) -> None:
        self._parcels: list[str] = []
        self._closed = False

    @workflow.run
    async def run(self, depot: str) -> str:
        """Wait until the depot closes."""
        await workflow.wait_condition(lambda: self._closed)
        return f"{depot} closed by v1: {len(self._parcels)} parcels"

    @workflow.signal
    def store(self, parcel: str) -> None:
        """Store a parcel."""
        self._parcels.append(parcel)

    @workflow.signal
    def close(self) -> None:
        """Close the depot."""
        self._closed = True
