"""A status computed from its object is written once, even if others write meanwhile."""

from collections.abc import AsyncIterator

import pytest

from perdure.controller.reconcile.record import write_status
from perdure.kube.access import Access
from perdure.kube.client import Client
from unit.controller.stored import Json, Store, serving

URL = "/apis/perdure.dev/v1alpha1/namespaces/shop/deadletters/charge"


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    async with serving() as found:
        yield found


@pytest.fixture
async def client(store: Store) -> AsyncIterator[Client]:
    async with Client.open(Access(server=store.address), user_agent="test") as found:
        yield found


async def length(obj: Json) -> Json:
    return {"length": len(obj["spec"]["text"])}


async def test_an_unchanged_status_is_not_written(store: Store, client: Client) -> None:
    store.put("deadletters", "charge", spec={"text": "four"})
    first = await write_status(client, URL, length)
    second = await write_status(client, URL, length)
    assert store.writes == 1
    assert first == second == store.objects["deadletters/charge"]


async def test_the_status_is_recomputed_after_a_conflict(store: Store, client: Client) -> None:
    known = store.put("deadletters", "charge", spec={"text": "four"})
    texts = list[str]()

    async def compute(obj: Json) -> Json:
        texts.append(obj["spec"]["text"])
        if len(texts) < 3:
            store.put("deadletters", "charge", spec={"text": "four" * len(texts) + "."})
        return await length(obj)

    written = await write_status(client, URL, compute, known)
    assert texts == ["four", "four.", "fourfour."]
    assert (store.conflicts, store.writes) == (2, 1)
    assert written is not None
    assert written["status"] == {"length": 9}
    assert written == store.objects["deadletters/charge"]


async def test_the_status_of_a_deleted_object_is_not_written(store: Store, client: Client) -> None:
    assert await write_status(client, URL, length) is None
    known = store.put("deadletters", "charge", spec={"text": "four"})
    store.objects.clear()
    assert await write_status(client, URL, length, known) is None
    assert store.writes == 0


async def test_an_object_that_needs_no_status_keeps_its_own(store: Store, client: Client) -> None:
    store.put("deadletters", "charge", spec={"text": "four"}, status={"length": 7})

    async def nothing(_obj: Json) -> None:
        return None

    found = await write_status(client, URL, nothing)
    assert found == store.objects["deadletters/charge"]
    assert store.writes == 0
