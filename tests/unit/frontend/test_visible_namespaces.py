"""A list of namespaces shows a caller those that it may describe, after few reviews."""

import asyncio
from typing import Any

import pytest

from perdure.frontend.errors import RpcError
from perdure.frontend.transport.guard import Guard, User, VisibleNamespaces
from perdure.kube import client as kube
from support.callers import ApiServer
from support.clock import stopped_clock

NAMES = [f"team-{number:03}" for number in range(100)]


class Reviews(ApiServer):
    """Allows each user to read runs in some namespaces; empty: in all."""

    def __init__(self, **granted: set[str]) -> None:
        super().__init__()
        self.granted = granted
        self.lists = False
        """Whether everyone may list namespaces in the whole cluster."""
        self.pending = self.concurrent = 0

    async def create(self, url: str, body: dict[str, Any]) -> dict[str, Any]:
        await super().create(url, body)
        self.pending += 1
        self.concurrent = max(self.concurrent, self.pending)
        await asyncio.sleep(0)
        self.pending -= 1
        asked = body["spec"]["resourceAttributes"]
        if (asked["verb"], asked["resource"]) == ("get", "workflowruns"):
            return {"status": {"allowed": asked["namespace"] in self.granted.get(body["spec"]["user"], ())}}
        return {"status": {"allowed": self.lists}}

    def views(self) -> VisibleNamespaces:
        return VisibleNamespaces(Guard(self, ""))  # type: ignore[arg-type] # stands in for the client


def user(name: str) -> User:
    return User(name, "", ())


async def test_a_user_sees_the_namespaces_that_it_may_describe() -> None:
    reviews = Reviews(ada={"team-003", "team-001"}, bob={"team-002"})
    views = reviews.views()
    assert await views.among(user("ada"), NAMES) == ["team-001", "team-003"]
    assert await views.among(user("bob"), NAMES) == ["team-002"]
    assert await views.among(user("eve"), NAMES) == []


@pytest.mark.parametrize(("lists", "count"), [(True, 1), (False, 2)])
async def test_permissions_for_the_whole_cluster_show_all_namespaces_after_two_reviews(lists: bool, count: int) -> None:
    reviews = Reviews(ada={""})
    reviews.lists = lists
    assert await reviews.views().among(user("ada"), NAMES) == NAMES
    assert len(reviews.asked) == count


async def test_concurrent_lists_of_a_user_share_reviews_and_a_few_run_in_parallel() -> None:
    reviews = Reviews(ada={"team-001"}, bob={"team-002"})
    views = reviews.views()
    found = await asyncio.gather(*(views.among(user(name), NAMES) for name in ("ada", "bob") * 5))
    assert found == [["team-001"], ["team-002"]] * 5
    assert len(reviews.asked) == 2 * (2 + len(NAMES))
    assert reviews.concurrent == 4


async def test_a_caller_that_disconnects_does_not_end_the_review_of_others() -> None:
    reviews = Reviews(ada={"team-001"})
    views = reviews.views()
    first = asyncio.create_task(views.among(user("ada"), NAMES))
    await asyncio.sleep(0)
    second = asyncio.create_task(views.among(user("ada"), NAMES))
    await asyncio.sleep(0)
    first.cancel()
    assert await second == ["team-001"]


async def test_the_namespaces_of_a_user_are_cached_for_as_long_as_a_permission() -> None:
    with stopped_clock() as clock:
        reviews = Reviews(ada={"team-001"})
        views = reviews.views()
        for second, want in ((0, ["team-001"]), (29, ["team-001"]), (31, [])):
            clock.at(second)
            assert await views.among(user("ada"), NAMES) == want
            reviews.granted["ada"] = set()
        assert await views.among(user("ada"), ["team-001"]) == []


async def test_the_users_of_a_tenant_share_a_limit_of_lists() -> None:
    views = Reviews().views()
    for number in range(20):
        assert await views.among(user(f"system:serviceaccount:shop:{number}"), NAMES[:1]) == []
    with pytest.raises(RpcError, match="too many lists of namespaces"):
        await views.among(user("system:serviceaccount:shop:20"), NAMES[:1])
    assert await views.among(user("system:serviceaccount:orders:a"), NAMES[:1]) == []


async def test_a_failed_review_is_reported_and_not_cached() -> None:
    class Failing(Reviews):
        failing = True

        async def create(self, url: str, body: dict[str, Any]) -> dict[str, Any]:
            if self.failing:
                raise kube.NoResponseError("no response")
            return await super().create(url, body)

    reviews = Failing(ada={"team-001"})
    views = reviews.views()
    with pytest.raises(RpcError, match="API server could not review"):
        await views.among(user("ada"), NAMES)
    reviews.failing = False
    assert await views.among(user("ada"), NAMES) == ["team-001"]
