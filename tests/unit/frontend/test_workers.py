"""Descriptions of workers and task queues."""

import asyncio
from contextlib import closing
from datetime import UTC, datetime, timedelta

import pytest
from temporalio.api.enums.v1 import WorkerStatus
from temporalio.api.worker.v1 import WorkerHeartbeat

from perdure.frontend.errors import RpcError, denied, unauthenticated
from perdure.frontend.matching.polls import FORGOTTEN_AFTER, Pollers
from perdure.frontend.matching.queues import Kind, Offer, QueueName, TaskQueues
from perdure.frontend.messages.histories import MAX_BYTES
from perdure.frontend.messages.tokens import page_of
from perdure.frontend.messages.values import UnfitError
from perdure.frontend.workers import KnownWorkers, field_of, listed
from perdure.simulation.cluster.loop import VirtualLoop
from support.clock import stopped_clock

T0 = datetime(2026, 1, 1, tzinfo=UTC)
QUEUE = QueueName("default", Kind.WORKFLOW, "orders")


async def allowed() -> None:
    """The permission check of a poll before it returns a task: always allowed."""


def beat(key: str, identity: str = "", **fields: object) -> WorkerHeartbeat:
    made = WorkerHeartbeat(worker_instance_key=key, worker_identity=identity or key, task_queue="orders", **fields)  # type: ignore[arg-type]
    made.host_info.host_name = "node"
    return made


def test_a_worker_is_listed_until_its_heartbeats_stop_for_minutes() -> None:
    with stopped_clock() as clock:
        workers = KnownWorkers(TaskQueues())
        workers.record("default", [beat("a"), beat("b")])
        workers.record("default", [beat("a", status=WorkerStatus.WORKER_STATUS_SHUTTING_DOWN)])
        assert [each.worker_instance_key for each in workers.all("default")] == ["a", "b"]
        assert not workers.all("other")
        assert workers.get("other", "a") is None
        found = workers.get("default", "a")
        assert found is not None
        assert field_of(found, "Status") == "ShuttingDown"
        assert listed(found).host_name == "node"
        workers.record("default", [beat("a", status=WorkerStatus.WORKER_STATUS_SHUTDOWN)])
        assert [each.worker_instance_key for each in workers.all("default")] == ["b"]

        clock.forward(FORGOTTEN_AFTER + timedelta(seconds=1))
        assert not workers.all("default")
        workers.record("default", [beat("c")])
        assert [each.worker_instance_key for each in workers.all("default")] == ["c"]


def test_only_the_most_recent_workers_are_kept() -> None:
    workers = KnownWorkers(TaskQueues(), max_workers=3)
    workers.record("default", [beat(key) for key in "abc"])
    workers.record("default", [beat("a"), beat("d"), beat("")])
    assert [each.worker_instance_key for each in workers.all("default")] == ["a", "c", "d"]


async def test_a_worker_without_heartbeats_is_listed_by_its_polls() -> None:
    queues = TaskQueues()
    workers = KnownWorkers(queues)
    assert await queues.poll(QUEUE, "silent", 0.01, allowed) is None
    assert await queues.poll(QUEUE, "telling", 0.01, allowed) is None
    workers.record("default", [beat("key", "telling")])
    assert [(each.worker_identity, each.task_queue) for each in workers.all("default")] == [
        ("silent", "orders"),
        ("telling", "orders"),
    ]
    assert workers.get("default", "") is None


async def test_a_queue_reports_backlog_and_rates() -> None:
    with stopped_clock() as clock:
        queues = TaskQueues()
        for number in range(60):
            queues.settle(str(number), {Offer("run", number): QUEUE})
        assert await queues.poll(QUEUE, "worker", 1, allowed) == Offer("run", 0)
        clock.at(10)
        found = queues.statistics(QUEUE)
        assert (found.waiting, found.age) == (59, timedelta(seconds=10))
        assert 1 < found.added < 2  # 60 in the last half minute, of which some time has passed
        assert 0.01 < found.dispatched < 0.04
        clock.at(3_600)
        assert queues.statistics(QUEUE).added == pytest.approx(0)
        assert queues.statistics(QueueName("default", Kind.ACTIVITY, "orders")).waiting == 0


@pytest.mark.parametrize("turns", range(4))
def test_an_offer_at_the_end_of_a_poll_is_not_lost(turns: int) -> None:
    """It comes in the turn of the event loop in which the time of the poll is over, or in one of the next."""
    queues = TaskQueues()

    async def offer_at_the_end() -> Offer | None:
        polling = asyncio.create_task(queues.poll(QUEUE, "worker", 10, allowed))
        await asyncio.sleep(10)
        for _ in range(turns):
            await asyncio.sleep(0)
        queues.settle("1", {Offer("run", 1): QUEUE})
        return await polling

    with closing(VirtualLoop(T0)) as loop:
        assert loop.run_until_complete(offer_at_the_end()) == Offer("run", 1) or queues.statistics(QUEUE).waiting == 1


async def test_an_offer_of_a_cancelled_poll_goes_to_the_next_one() -> None:
    queues = TaskQueues()
    polling = asyncio.create_task(queues.poll(QUEUE, "worker", 10, allowed))
    await asyncio.sleep(0)
    queues.settle("1", {Offer("run", 1): QUEUE})
    polling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await polling
    assert await queues.poll(QUEUE, "other", 0.01, allowed) == Offer("run", 1)


async def test_a_poller_whose_permission_is_revoked_gets_no_task() -> None:
    async def refused() -> None:
        raise unauthenticated("the token is no longer valid")

    queues = TaskQueues()
    polling = asyncio.create_task(queues.poll(QUEUE, "worker", 10, refused))
    await asyncio.sleep(0)
    queues.settle("1", {Offer("run", 1): QUEUE})
    with pytest.raises(RpcError, match="no longer valid"):
        await polling
    assert await queues.poll(QUEUE, "other", 0.01, allowed) == Offer("run", 1)


async def test_a_poll_without_an_offer_ends_with_the_refusal_of_its_poller() -> None:
    async def refused() -> None:
        raise denied("revoked")

    queues = TaskQueues()
    with pytest.raises(RpcError, match="revoked"):
        await queues.poll(QUEUE, "worker", 0.01, refused)
    queues.settle("1", {Offer("run", 1): QUEUE})
    assert await queues.poll(QUEUE, "other", 0.01, allowed) == Offer("run", 1)


async def test_queues_and_pollers_of_a_namespace_are_limited() -> None:
    with stopped_clock() as clock:
        queues = TaskQueues(max_polled=3, pollers=lambda: Pollers(max_pollers=2))
        for number in range(3):
            await queues.poll(QUEUE, f"worker-{number}", 0, allowed)
            await queues.poll(QueueName("default", Kind.ACTIVITY, f"queue-{min(number, 1)}"), "worker", 0, allowed)
        await queues.poll(QUEUE, "worker-1", 0, allowed)
        assert list(queues.pollers(QUEUE)) == ["worker-2", "worker-1"]
        other = QueueName("default", Kind.WORKFLOW, "one-too-many")
        with pytest.raises(RpcError, match="too many task queues"):
            await queues.poll(other, "worker", 0, allowed)
        await queues.poll(QueueName("another", Kind.WORKFLOW, "orders"), "worker", 0, allowed)
        clock.forward(FORGOTTEN_AFTER)
        await queues.poll(other, "worker", 0, allowed)


async def test_unused_queues_are_removed() -> None:
    with stopped_clock() as clock:
        queues = TaskQueues()
        sticky = [QueueName("default", Kind.WORKFLOW, f"sticky-{number}") for number in range(999)]
        for name in sticky:
            await queues.poll(name, "worker", 0, allowed)
        queues.settle("1", {Offer("run", 1): QUEUE})
        clock.forward(FORGOTTEN_AFTER)
        queues.settle("2", {Offer("run", 2): QueueName("default", Kind.ACTIVITY, "orders")})
        assert queues.versions(QUEUE) == [QUEUE]
        assert not [name for name in sticky if queues.versions(name)]


def test_worker_heartbeats_are_limited_in_size_each_and_in_total() -> None:
    workers = KnownWorkers(TaskQueues(), max_bytes=25_000)
    with pytest.raises(UnfitError, match="Worker heartbeat size exceeds limit"):
        workers.record("default", [beat("large", sdk_name="x" * 17_000)])
    broken = beat("broken")
    broken.start_time.seconds = 2**60
    with pytest.raises(UnfitError, match="start_time"):
        workers.record("default", [broken])
    workers.record("default", [beat(key, sdk_name="x" * 10_000) for key in "abc"])
    workers.record("default", [beat("b", sdk_name="x" * 10_000)])
    assert [each.worker_instance_key for each in workers.all("default")] == ["b", "c"]


def test_a_page_is_limited_by_the_size_of_a_response() -> None:
    sizes = [MAX_BYTES // 2, MAX_BYTES // 2, 1, 2 * MAX_BYTES, 1]
    pages, token = [], b"0"
    while token:
        page, token = page_of(sizes, token, 10, 10, lambda size: size)
        pages.append(list(page))
    assert pages == [sizes[:2], sizes[2:3], sizes[3:4], sizes[4:]]


async def test_only_a_cancelled_last_poll_makes_a_queue_deserted() -> None:
    moved: list[Offer] = []
    queues = TaskQueues(moved.append)
    assert await queues.poll(QUEUE, "worker", 0.01, allowed) is None
    assert queues.alive(QUEUE)
    polls = [asyncio.create_task(queues.poll(QUEUE, "worker", 60, allowed)) for _ in range(2)]
    await asyncio.sleep(0.01)
    polls[0].cancel()
    await asyncio.wait({polls[0]})
    assert queues.alive(QUEUE), "another poll waits"
    queues.settle("run", {Offer("run"): QUEUE})
    polls[1].cancel()
    await asyncio.wait({polls[1]})
    assert not queues.alive(QUEUE)
    assert moved == [Offer("run")], "what the poll was given is for someone else"


async def test_identities_of_pollers_are_limited_in_memory() -> None:
    queues, other = TaskQueues(pollers=lambda: Pollers(max_bytes=20_000)), QueueName("another", Kind.WORKFLOW, "orders")
    names = [QueueName("default", Kind.WORKFLOW, f"queue-{number}") for number in range(3)]
    await queues.poll(other, "worker", 0, allowed)
    for number in range(30):
        await queues.poll(names[number % 3], "\N{GRINNING FACE}" * 980 + str(number), 0, allowed)
    kept = sorted(int(identity.lstrip("\N{GRINNING FACE}")) for name in names for identity in queues.pollers(name))
    assert kept == [26, 27, 28, 29], "4 KB each"
    assert list(queues.pollers(other)) == ["worker"]


async def test_old_pollers_are_removed_when_others_poll() -> None:
    with stopped_clock() as clock:
        queues, other = TaskQueues(), QueueName("default", Kind.ACTIVITY, "others")
        await queues.poll(QUEUE, "worker", 0, allowed)
        clock.forward(FORGOTTEN_AFTER)
        await queues.poll(other, "worker", 0, allowed)
        clock.forward(-FORGOTTEN_AFTER)
        assert queues.pollers(QUEUE) == {}
        assert list(queues.pollers(other)) == ["worker"]
