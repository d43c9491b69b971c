"""Failed reconciliations, and the time of the next one."""

from collections.abc import AsyncIterator, Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from perdure.controller.reconcile.reconciler import Reconciler
from perdure.controller.reconcile.record import Record
from perdure.kube import client as kube
from perdure.kube.client import Client
from perdure.kube.clock import now
from support.managers import client_without_server

CONFLICT = kube.ConflictError(409, "Conflict", "someone has written")
FULL = kube.TooLargeError(413, "RequestEntityTooLarge", "3 MiB")
LATER = now() + timedelta(hours=1)


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with client_without_server() as found:
        yield found


class Thing:
    """A kind whose reconciliations end as the test defines, with the recorded calls."""

    def __init__(self, client: Client, ends: Callable[[], Any]) -> None:
        meta = {"namespace": "shop", "name": "thing", "uid": "1", "resourceVersion": "7"}
        self.record = Record(client, {"metadata": meta})
        self.reconciler = Reconciler(self, self.record)
        self.ends = ends
        self.called: list[str] = []

    async def reconcile(self, time: datetime) -> datetime | None:
        assert abs(time - now()) < timedelta(minutes=1)
        self.called.append("pass")
        found: datetime | None = self.ends()
        return found

    async def finalize(self) -> None:
        self.called.append("wind up")

    async def read_again(self) -> None:
        self.called.append("read again")

    def full(self, error: kube.TooLargeError) -> None:
        self.called.append(f"full: {error.message}")

    async def broken(self, error: Exception) -> None:
        self.called.append(f"broken: {error}")


def failing(error: Exception) -> Callable[[], Any]:
    def ends() -> Any:
        raise error

    return ends


async def test_a_reconciliation_returns_the_time_of_the_next_one(client: Client) -> None:
    thing = Thing(client, lambda: LATER)
    assert await thing.reconciler.advance() == LATER
    assert thing.called == ["pass"]


async def test_an_observed_change_is_read_before_the_reconciliation(client: Client) -> None:
    thing = Thing(client, lambda: None)
    assert thing.record.update({"metadata": {"resourceVersion": "9"}})
    await thing.reconciler.advance()
    assert thing.called == ["read again", "pass"]


async def test_conflicts_are_retried_immediately_and_then_with_backoff(client: Client) -> None:
    thing = Thing(client, failing(CONFLICT))
    pauses = []
    for _ in range(12):
        before = now()
        wake = await thing.reconciler.advance()
        assert wake is not None
        pauses.append(wake - before)
    assert thing.called == ["pass", "read again"] * 12
    assert pauses[0] < timedelta(seconds=1)
    assert timedelta(seconds=5) < pauses[10] < timedelta(seconds=6), "the pause is bounded"
    thing.ends = lambda: LATER
    assert await thing.reconciler.advance() == LATER
    thing.ends = failing(CONFLICT)
    before, wake = now(), await thing.reconciler.advance()
    assert wake is not None
    assert wake - before < timedelta(seconds=1)


async def test_an_object_without_room_for_its_status_is_not_retried(client: Client) -> None:
    thing = Thing(client, failing(FULL))
    assert await thing.reconciler.advance() is None
    assert thing.called == ["pass", "full: 3 MiB"]


@pytest.mark.parametrize("error", [kube.ApiError(500, "InternalError", "no"), kube.NoResponseError("reset")])
async def test_errors_of_the_api_server_are_not_reported_on_the_object(client: Client, error: Exception) -> None:
    thing = Thing(client, failing(error))
    with pytest.raises(type(error)):
        await thing.reconciler.advance()
    assert thing.called == ["pass"]


@pytest.mark.parametrize("error", [ValueError("no such day"), kube.InvalidError(422, "Invalid", "no such day")])
async def test_an_object_that_cannot_be_processed_is_reported(client: Client, error: Exception) -> None:
    thing = Thing(client, failing(error))
    with pytest.raises(type(error)):
        await thing.reconciler.advance()
    assert thing.called[0] == "pass"
    assert "no such day" in thing.called[1]


async def test_a_deleted_object_is_finalized_and_not_reconciled(client: Client) -> None:
    thing = Thing(client, lambda: LATER)
    thing.record.deleted = True
    assert await thing.reconciler.advance() is None
    assert thing.called == ["wind up"]


async def test_an_object_found_deleted_during_a_reconciliation_is_finalized(client: Client) -> None:
    thing = Thing(client, lambda: LATER)

    def ends() -> datetime:
        thing.record.deleted = True
        return LATER

    thing.ends = ends
    wake = await thing.reconciler.advance()
    assert wake is not None
    assert wake < LATER
    await thing.reconciler.advance()
    assert thing.called == ["pass", "wind up"]
