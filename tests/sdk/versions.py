"""Workflows of two versions of a worker: each returns the version that completed it."""

from temporalio import workflow
from temporalio.common import VersioningBehavior


@workflow.defn(name="Pinned", versioning_behavior=VersioningBehavior.PINNED)
class PinnedOne:
    def __init__(self) -> None:
        self.done = False

    @workflow.run
    async def run(self) -> str:
        await workflow.wait_condition(lambda: self.done)
        return "one"

    @workflow.signal
    def finish(self) -> None:
        self.done = True


@workflow.defn(name="Pinned", versioning_behavior=VersioningBehavior.PINNED)
class PinnedTwo(PinnedOne):
    @workflow.run
    async def run(self) -> str:
        await super().run()
        return "two"

    @workflow.signal
    def finish(self) -> None:
        self.done = True


@workflow.defn(name="Upgrading", versioning_behavior=VersioningBehavior.AUTO_UPGRADE)
class UpgradingOne(PinnedOne):
    @workflow.run
    async def run(self) -> str:
        return await super().run()

    @workflow.signal
    def finish(self) -> None:
        self.done = True


@workflow.defn(name="Upgrading", versioning_behavior=VersioningBehavior.AUTO_UPGRADE)
class UpgradingTwo(PinnedOne):
    @workflow.run
    async def run(self) -> str:
        await super().run()
        return "two"

    @workflow.signal
    def finish(self) -> None:
        self.done = True


BUILDS: dict[str, list[type]] = {"1": [PinnedOne, UpgradingOne], "2": [PinnedTwo, UpgradingTwo]}
