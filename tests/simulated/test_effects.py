"""What the operator's parts do to an API server that someone else writes to at the same moment."""

import asyncio
from collections.abc import Iterator
from datetime import datetime, timedelta
from random import Random
from typing import Any

import pytest

from perdure.controller.commit import Record
from perdure.controller.expiry import remove_expired
from perdure.kube import client as api
from perdure.kube import clock
from perdure.kube.access import Access
from simulated.apiserver import ApiServer, Key
from simulated.faults import Faults
from simulated.loop import START, VirtualLoop
from simulated.session import Session

KEY = Key("workflowruns", "default", "run")
URL = api.path(api.PERDURE, "default", "workflowruns", "run")


class Place:
    """A client of an API server in memory, and its virtual time."""

    def __init__(self) -> None:
        self.loop = VirtualLoop(Random(0))
        self.server = ApiServer(self.loop, Random(0))
        self.server.create("workflowruns", {"metadata": {"name": "run"}, "spec": {"workflow": {"name": "any"}}})
        self.requests: list[str] = []
        session = Session(self.loop, self.server, Faults(self.loop, Random(0), 0), "test", self._note)
        self.client = api.Client(Access(server=""), session)  # type: ignore[arg-type]

    def _note(self, line: str, _about: str) -> None:
        self.requests.append(line.split(maxsplit=1)[0])

    def edit(self) -> None:
        """Someone else writes to the run."""
        self.server.update(KEY, lambda obj: obj["spec"].update(ttlSecondsAfterFinished=10_000))

    def run(self, coroutine: Any) -> Any:
        """Run it to its end."""

        async def play() -> Any:
            clock.source.set(self.loop.now)
            return await coroutine

        return self.loop.run_until_complete(play())


@pytest.fixture
def place() -> Iterator[Place]:
    found = Place()
    yield found
    found.loop.close()


def test_a_run_that_is_given_more_time_at_the_last_moment_stays(place: Place) -> None:
    def over(run: api.Object) -> datetime:
        if run["spec"]["ttlSecondsAfterFinished"] == 86_400:
            place.edit()  # between the reading and the deletion
            return START
        return START + timedelta(hours=1)

    uid = place.server.get(KEY)["metadata"]["uid"]
    assert place.run(remove_expired(place.client, URL, uid, over)) == START + timedelta(hours=1)
    assert KEY in place.server.objects
    assert place.run(remove_expired(place.client, URL, uid, lambda _: START)) is None
    assert KEY not in place.server.objects


def test_a_state_that_was_confirmed_counts_for_half_a_second(place: Place) -> None:
    async def play() -> None:
        record = Record(place.client, await place.client.get(URL))
        await record.confirm()
        await record.confirm()
        assert place.requests == ["GET", "PATCH"]
        await record.confirm(afresh=True)
        await asyncio.sleep(0.6)
        await record.confirm()
        assert place.requests == ["GET", "PATCH", "PATCH", "PATCH"]
        place.edit()
        await record.confirm()
        with pytest.raises(api.ConflictError):
            await record.confirm(afresh=True)

    place.run(play())


def test_a_run_that_was_deleted_is_not_confirmed(place: Place) -> None:
    async def play() -> None:
        record = Record(place.client, await place.client.get(URL))
        place.server.delete(KEY)
        with pytest.raises(api.ConflictError):
            await record.confirm()

    place.run(play())
