"""Which state version an operator writes when others come and go, also while it reads and writes the upgrade record."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta
from random import Random

import aiohttp
import pytest

from perdure.controller.fleet.shards import AllShards
from perdure.controller.namespaces import ServedNamespaces
from perdure.controller.state_versions import StateVersions
from perdure.controller.upgrades import Upgrades, UpgradeSettings
from perdure.kube import client as kube
from perdure.kube import clock
from perdure.kube.access import Access
from perdure.kube.events import Recorder
from perdure.runtime.upgrades import UpgradeRecord
from perdure.simulation.cluster.apiserver import ApiServer, Request, Response
from perdure.simulation.cluster.loop import VirtualLoop
from perdure.simulation.cluster.process import Session
from perdure.simulation.cluster.store import ObjectKey

NOW = datetime(2027, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
WAITING = UpgradeRecord(writes=2, follows=3, until=NOW + DAY, release="0.2.0")
RECORD = ObjectKey("configmaps", "default", "record")


class Others(AllShards):
    """The shards of a member of a fleet, whose other members come and go."""

    def __init__(self) -> None:
        self.others_read: dict[str, int] = {"other": 3}  # type: ignore[misc] # what is final without a fleet
        self._subscribers: list[Callable[[], None]] = []

    def subscribe(self, changed: Callable[[], None]) -> None:
        self._subscribers.append(changed)

    def join(self, name: str, reads: int) -> None:
        self.others_read[name] = reads
        self._publish()

    def leave(self, name: str) -> None:
        del self.others_read[name]
        self._publish()

    def _publish(self) -> None:
        for changed in self._subscribers:
            changed()


class Connections(Session):
    """The connections of the operator. While it writes the record, something else happens: before the write, or after it."""

    before: Callable[[], object] = staticmethod(lambda: None)
    after: Callable[[], object] = staticmethod(lambda: None)

    def arrive(self, request: Request) -> Response:
        if request.method == "GET" or "configmaps" not in request.url:
            return super().arrive(request)
        self.before()
        response = super().arrive(request)
        self.after()
        return response


class Stage:
    """An operator that reads state versions up to 3, in a fleet with one other, and its upgrade record."""

    def __init__(self, loop: VirtualLoop, record: UpgradeRecord | None) -> None:
        self.server = ApiServer(loop, Random(0))
        if record is not None:
            self.server.create("configmaps", record.config_map("record"))
        self.connections = Connections(self.server, "operator")
        client = kube.Client(Access(server=""), self.connections)  # type: ignore[arg-type] # stands in for aiohttp's
        self.shards, self.versions = Others(), StateVersions(3, 1, "0.2.0")
        settings = UpgradeSettings(record="record", hold_back=DAY)
        recorder = Recorder(client, instance="test")
        served = ServedNamespaces((), ())
        self.upgrades = Upgrades(client, self.shards, recorder, served, self.versions, settings)

    @property
    def record(self) -> UpgradeRecord:
        return UpgradeRecord.read(self.server.get(RECORD))

    def edit(self, record: UpgradeRecord) -> None:
        """Write the record as another operator does."""
        self.server.update(RECORD, lambda obj: obj.update(data=record.config_map("record")["data"]))

    async def look(self, after: timedelta = timedelta(0)) -> int:
        """The version that the operator writes after a look."""
        await asyncio.sleep(after.total_seconds())
        with suppress(kube.RequestError):
            await self.upgrades.look()
        return self.versions.writes

    def come_and_go(self) -> None:
        self.shards.join("older", 2)
        self.shards.leave("older")


def fail() -> None:
    """Lose a request or its response."""
    raise aiohttp.ServerDisconnectedError


def play(scenario: Callable[[Stage], Awaitable[None]], record: UpgradeRecord | None = WAITING) -> None:
    with closing(VirtualLoop(NOW)) as loop:

        async def run() -> None:
            clock.source.set(loop.now)
            await scenario(Stage(loop, record))

        loop.run_until_complete(run())


def test_an_older_operator_lowers_the_version_before_the_next_look() -> None:
    async def scenario(stage: Stage) -> None:
        assert await stage.look() == 3
        stage.shards.join("older", 2)
        assert stage.versions.writes == 2
        stage.shards.leave("older")
        assert stage.versions.writes == 2

    play(scenario, UpgradeRecord(writes=3))


def test_an_older_operator_that_is_gone_before_the_next_look_begins_the_hold_back_again() -> None:
    async def scenario(stage: Stage) -> None:
        assert await stage.look() == 2
        stage.come_and_go()
        assert await stage.look(DAY) == 2
        assert stage.record == UpgradeRecord(writes=2, release="0.2.0")
        assert await stage.look() == 2
        assert stage.record == UpgradeRecord(writes=2, follows=3, until=NOW + 2 * DAY, release="0.2.0")
        assert await stage.look(DAY) == 3

    play(scenario)


@pytest.mark.parametrize("moment", ["before", "after"])
def test_an_older_operator_that_comes_during_the_last_write_of_an_upgrade_lowers_the_version(moment: str) -> None:
    async def scenario(stage: Stage) -> None:
        setattr(stage.connections, moment, lambda: stage.shards.join("older", 2))
        assert await stage.look(DAY) == 2
        assert stage.record.writes == 3
        assert await stage.look() == 2
        assert stage.record.writes == 2

    play(scenario)


@pytest.mark.parametrize("moment", ["before", "after"])
def test_an_older_operator_that_comes_and_goes_during_the_last_write_begins_the_hold_back_again(moment: str) -> None:
    async def scenario(stage: Stage) -> None:
        setattr(stage.connections, moment, stage.come_and_go)
        assert await stage.look(DAY) == 2
        setattr(stage.connections, moment, lambda: None)
        assert await stage.look() == 2
        assert await stage.look() == 2
        assert stage.record == UpgradeRecord(writes=2, follows=3, until=NOW + 2 * DAY, release="0.2.0")

    play(scenario)


def test_another_operator_that_comes_during_a_write_does_not_raise_the_version_before_it_is_recorded() -> None:
    async def scenario(stage: Stage) -> None:
        assert await stage.look() == 3
        stage.come_and_go()
        written: list[int] = []

        def join() -> None:
            stage.shards.join("new", 3)
            written.append(stage.versions.writes)

        stage.connections.before = join
        assert await stage.look() == 2
        assert written == [2]
        assert stage.record.writes == 2

    play(scenario, UpgradeRecord(writes=3))


def test_an_operator_that_loses_the_last_write_of_an_upgrade_follows_the_record() -> None:
    async def scenario(stage: Stage) -> None:
        stage.connections.before = lambda: stage.edit(UpgradeRecord(writes=2, release="0.2.0"))
        assert await stage.look(DAY) == 2
        stage.connections.before = lambda: None
        assert await stage.look() == 2
        assert stage.record.until == NOW + 2 * DAY

    play(scenario)


def test_an_operator_that_loses_the_creation_of_the_record_follows_it() -> None:
    async def scenario(stage: Stage) -> None:
        record = UpgradeRecord(writes=1).config_map("record")
        stage.connections.before = lambda: stage.server.create("configmaps", record)
        assert await stage.look() == 1

    play(scenario, None)


@pytest.mark.parametrize("lost", ["a conflict", "a broken connection", "a lost response"])
def test_an_older_operator_is_counted_until_it_is_recorded(lost: str) -> None:
    async def scenario(stage: Stage) -> None:
        def disturb() -> None:
            if lost == "a conflict":
                stage.edit(UpgradeRecord(writes=2, follows=3, until=NOW + DAY, release="0.2.1"))
            else:
                fail()

        assert await stage.look() == 2
        stage.come_and_go()
        setattr(stage.connections, "after" if lost == "a lost response" else "before", disturb)
        assert await stage.look() == 2
        stage.connections.before = stage.connections.after = lambda: None
        assert await stage.look(DAY) == 2
        assert stage.record.follows is None
        assert await stage.look() == 2
        assert stage.record.until == NOW + 2 * DAY

    play(scenario)


def test_while_the_record_cannot_be_written_the_operator_writes_what_it_allows() -> None:
    async def scenario(stage: Stage) -> None:
        stage.connections.before = fail
        assert await stage.look(DAY) == 2
        stage.connections.before = lambda: None
        assert await stage.look() == 3

    play(scenario)


def test_a_record_that_was_deleted_allows_only_the_first_version_until_it_is_written_again() -> None:
    async def scenario(stage: Stage) -> None:
        stage.server.create("workflowruns", {"metadata": {"name": "run"}})
        assert await stage.look() == 3
        stage.server.delete(RECORD)
        stage.connections.before = fail
        assert await stage.look() == 1
        stage.connections.before = lambda: None
        assert await stage.look() == 1
        assert stage.record == UpgradeRecord(writes=1, follows=3, until=NOW + DAY, release="0.2.0")

    play(scenario, UpgradeRecord(writes=3))


def test_the_hold_back_is_measured_by_the_clock_of_the_api_server() -> None:
    async def scenario(stage: Stage) -> None:
        assert await stage.look() == 2
        clock.source.set(lambda: NOW + 2 * DAY)
        assert await stage.look() == 2
        assert stage.record == WAITING

    play(scenario)
