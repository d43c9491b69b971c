"""What operators tell each other about tasks: each message once, and no more than the other one needs."""

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import (
    PollWorkflowTaskQueueRequest,
    PollWorkflowTaskQueueResponse,
    RespondWorkflowTaskFailedRequest,
)
from temporalio.client import Client

from perdure.controller.fleet.shards import owners
from perdure.frontend.matching.queues import Kind, OfferBatch, QueueName, queue_shard
from perdure.frontend.peers.calls import OFFER, PLACE, TAKE
from perdure.frontend.peers.client import PeerClient, pack, unpack
from support.fleet import ServedFleet, in_memory_fleet

_TASK_TIMEOUT = timedelta(minutes=5)
"""Longer than the test: no task starts again because of it."""


@pytest.fixture(scope="module")
def served() -> Iterator[ServedFleet]:
    with in_memory_fleet(2) as fleet:
        yield fleet


def named(served: ServedFleet, number: int) -> tuple[str, str, str, str]:
    """Two operators, a task queue that the second one owns, and a workflow ID that the first one owns."""
    run_at, queue_at = served.fleet.members
    by_shard, names = owners(served.fleet.members), [f"{number}-{each}" for each in range(100)]
    queue = next(name for name in names if by_shard[queue_shard(served.namespace, name)] == queue_at)
    return run_at, queue_at, queue, next(name for name in names if served.fleet.owner_of(name) == run_at)


async def poll(client: Client, queue: str) -> PollWorkflowTaskQueueResponse:
    request = PollWorkflowTaskQueueRequest(namespace=client.namespace, task_queue=TaskQueue(name=queue), identity="me")
    return await client.workflow_service.poll_workflow_task_queue(request, timeout=timedelta(seconds=60))


async def test_an_offer_that_was_taken_is_not_withdrawn(served: ServedFleet, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[tuple[str, list[int]]] = []
    call = PeerClient.call

    async def counted(self: PeerClient, member: str, path: str, request: Any, **options: Any) -> Any:
        if path in {OFFER, PLACE, TAKE}:
            batch = unpack(pack(request), OfferBatch).offers if path != TAKE else {}
            sent.append((path, [len(offers) for offers in batch.values()]))
        return await call(self, member, path, request, **options)

    _, queue_at, queue, workflow_id = named(served, 1)
    client = await served.connect(queue_at)
    await client.start_workflow("Any", id=f"{workflow_id}-before", task_queue=queue, task_timeout=_TASK_TIMEOUT)
    await poll(client, queue)  # from here on, the routing of tasks to versions is known
    await asyncio.sleep(0.3)
    monkeypatch.setattr(PeerClient, "call", counted)
    await client.start_workflow("Any", id=workflow_id, task_queue=queue, task_timeout=_TASK_TIMEOUT)
    task = await poll(client, queue)
    assert task.workflow_execution.workflow_id == workflow_id
    await asyncio.sleep(0.3)  # what would follow is sent soon
    offered = [counts for path, counts in sent if path != TAKE and counts]
    assert offered == [[1]], "the offer, and no withdrawal"
    assert sum(path == TAKE for path, _ in sent) == 1
    queues = served.fleet.members[queue_at].frontend.queues
    assert queues.statistics(QueueName(served.namespace, Kind.WORKFLOW, queue)).waiting == 0

    failed = RespondWorkflowTaskFailedRequest(namespace=served.namespace, task_token=task.task_token)
    await client.workflow_service.respond_workflow_task_failed(failed)
    again = await poll(client, queue)
    assert again.attempt == 2, "the next offer of the run gets there, too"


async def test_an_offer_that_waits_is_withdrawn_when_the_run_ends(served: ServedFleet) -> None:
    _, queue_at, queue, workflow_id = named(served, 2)
    client = await served.connect()
    handle = await client.start_workflow("Any", id=workflow_id, task_queue=queue)
    queues, name = (
        served.fleet.members[queue_at].frontend.queues,
        QueueName(served.namespace, Kind.WORKFLOW, queue),
    )
    await asyncio.wrap_future(served.do(served.fleet.until(lambda: queues.statistics(name).waiting == 1)))
    await handle.terminate()
    await asyncio.wrap_future(served.do(served.fleet.until(lambda: queues.statistics(name).waiting == 0)))


async def test_an_operator_knows_soon_which_queues_of_another_one_are_polled(served: ServedFleet) -> None:
    run_at, queue_at, queue, _ = named(served, 3)
    polled = asyncio.create_task(poll(await served.connect(queue_at), queue))
    matching = served.fleet.members[run_at].frontend.matching
    name = QueueName(served.namespace, Kind.WORKFLOW, queue)
    await asyncio.wrap_future(served.do(served.fleet.until(lambda: matching.alive(name), seconds=5)))
    polled.cancel()
