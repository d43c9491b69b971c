"""Workers that execute activities, with their failures."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any, Final

from temporalio.api.failure.v1 import Failure
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import (
    PollActivityTaskQueueRequest,
    PollActivityTaskQueueResponse,
    RecordActivityTaskHeartbeatRequest,
    RespondActivityTaskCanceledRequest,
    RespondActivityTaskCompletedRequest,
    RespondActivityTaskFailedRequest,
)

from perdure.frontend.errors import RpcError
from simulated.sdk.acknowledged import Acknowledged
from simulated.sdk.decisions import QUEUE, payloads
from simulated.sdk.eager import EagerTasks
from simulated.sdk.frontends import Caller
from simulated.sdk.slots import DeathError, run_slots
from simulated.sdk.wires import BrokenError

_POLL_SECONDS: Final = 70.0
_BEAT_SECONDS: Final = 1.5
_SLOTS: Final = 3


class ActivityWorker:
    """One process that executes activities, until it dies."""

    def __init__(
        self,
        name: str,
        caller: Caller,
        random: Random,
        acknowledged: Acknowledged,
        eager: EagerTasks,
        *,
        fail: Callable[[str], None],
    ) -> None:
        """`fail` records a violation."""
        self._name = name
        self._caller = caller
        self._random = random
        self._acknowledged = acknowledged
        self._eager = eager
        self._fail = fail
        self._done = 0

    async def run(self) -> None:
        """Poll and work, until it dies."""
        await run_slots([*(self._work() for _ in range(_SLOTS)), self._work_eagerly()], self._name, self._fail)

    async def _work(self) -> None:
        request = PollActivityTaskQueueRequest(
            namespace="default", task_queue=TaskQueue(name=QUEUE), identity=self._name
        )
        while True:
            try:
                task = await self._caller.call("PollActivityTaskQueue", request, _POLL_SECONDS)
                if task.task_token:
                    await self._process(task)
            except (BrokenError, RpcError):
                await asyncio.sleep(self._random.uniform(0.1, 2))

    async def _work_eagerly(self) -> None:
        while True:
            with suppress(BrokenError, RpcError):
                await self._process(await self._eager.activity.get())

    async def _process(self, task: PollActivityTaskQueueResponse) -> None:
        """Execute an attempt: it succeeds, fails, is cancelled, takes too long, or never ends."""
        random = self._random
        fate, seconds = random.random(), random.choice([0.0, random.uniform(0, 1), random.uniform(0, 6)])
        if fate < 0.03:
            await asyncio.sleep(seconds)
            raise DeathError
        if fate < 0.07:
            return
        if fate < 0.1:
            seconds = random.uniform(13, 20)
        is_cancelled = await self._beat(task, seconds)
        if is_cancelled and random.random() < 0.5:
            await self._report("Canceled", task, RespondActivityTaskCanceledRequest())
        elif fate > 0.85:
            failure = Failure(message="no")
            failure.application_failure_info.type = "Flaky"
            await self._report("Failed", task, RespondActivityTaskFailedRequest(failure=failure))
        else:
            await self._complete(task)
        if random.random() < 0.1:
            await self._complete(task)

    async def _beat(self, task: PollActivityTaskQueueResponse, seconds: float) -> bool:
        """Spend time, with heartbeats; whether the attempt should stop."""
        request = RecordActivityTaskHeartbeatRequest(
            namespace="default", task_token=task.task_token, identity=self._name, details=payloads("beat")
        )
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while (left := until - loop.time()) > 0:
            await asyncio.sleep(min(left, _BEAT_SECONDS))
            try:
                if (await self._caller.call("RecordActivityTaskHeartbeat", request)).cancel_requested:
                    return True
            except BrokenError:
                pass
            except RpcError:
                return False
        return False

    async def _complete(self, task: PollActivityTaskQueueResponse) -> None:
        self._done += 1
        result = f"{self._name} {self._done}"
        await self._report("Completed", task, RespondActivityTaskCompletedRequest(result=payloads(result)))
        self._acknowledged.returned(task.workflow_execution.run_id, task.activity_id, result)

    async def _report(self, end: str, task: PollActivityTaskQueueResponse, request: Any) -> None:
        """Report the end of an attempt.

        Raises:
            BrokenError, RpcError: It was not accepted, or the outcome is unknown.
        """
        request.namespace, request.task_token, request.identity = "default", task.task_token, self._name
        await self._caller.insist(f"RespondActivityTask{end}", request)
        self._acknowledged.reported(task.task_token)
