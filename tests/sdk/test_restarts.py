"""The operator is killed repeatedly while workers run: nothing is lost, and nothing is executed twice."""

import asyncio
import functools
import os
import random
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from temporalio.api.workflowservice.v1 import SignalWorkflowExecutionRequest
from temporalio.client import WorkflowHandle
from temporalio.service import RPCError, RPCStatusCode

from support.cluster.process import LONGER
from support.sdk import flows
from support.sdk.client import Temporal
from support.sdk.server import Operator

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600 * LONGER)]

KILLS, RUNS = 4 * LONGER, 6
SEED = int(os.environ.get("PERDURE_SEED", "0")) or random.SystemRandom().randrange(1, 10**6)


async def insist(asked: Callable[[], Awaitable[Any]]) -> Any:
    """Retry until the operator responds: a restart can take longer than the SDK's own retries."""
    while True:
        try:
            return await asked()
        except RPCError as error:
            away = {RPCStatusCode.UNAVAILABLE, RPCStatusCode.DEADLINE_EXCEEDED, RPCStatusCode.CANCELLED}
            if error.status not in away and "transport error" not in str(error):
                raise
            await asyncio.sleep(0.2)


async def put(temporal: Temporal, box: WorkflowHandle[Any, Any], item: str) -> None:
    """Signal with the same request id, however often."""
    request = SignalWorkflowExecutionRequest(
        namespace=temporal.operator.namespace, signal_name="put", request_id=f"put-{item}", identity="test"
    )
    request.workflow_execution.workflow_id = box.id
    request.input.payloads.add(metadata={"encoding": b"json/plain"}, data=f'"{item}"'.encode())
    await insist(lambda: temporal.client.workflow_service.signal_workflow_execution(request))


async def test_every_workflow_completes_when_the_operator_is_killed(operator: Operator) -> None:
    chance = random.Random(SEED)
    print(f"seed {SEED}")
    client = await operator.connect()
    temporal = Temporal(client, operator, f"queue-{uuid.uuid4().hex[:8]}")
    async with temporal.worker():
        chains = [await temporal.start(flows.Chain.run, 8) for _ in range(RUNS)]
        boxes = [await temporal.start(flows.Box.run) for _ in range(RUNS)]
        results = asyncio.gather(*[insist(chain.result) for chain in chains])
        sent = 0
        for number in range(KILLS):
            await asyncio.sleep(chance.uniform(0.2, 2.0))
            signals = [put(temporal, box, str(number)) for box in boxes]
            waiting = asyncio.gather(*signals)
            await asyncio.sleep(chance.uniform(0, 0.1))
            await asyncio.to_thread(operator.restart)
            await waiting
            sent += 1
        assert await results == [8] * RUNS
        for box in boxes:
            await insist(functools.partial(box.signal, flows.Box.close))
            assert await insist(box.result) == [str(number) for number in range(sent)]
        for handle in (*chains, *boxes):
            names = await temporal.names(handle)
            assert names[-1] == "WorkflowExecutionCompleted"
            assert names.count("ActivityTaskScheduled") == names.count("ActivityTaskCompleted")
