"""Workers that decide workflows as an SDK does, with sticky queues, a cache, and failures."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from datetime import timedelta
from random import Random
from typing import Final

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import EventType, TaskQueueKind, WorkflowTaskFailedCause
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.taskqueue.v1 import StickyExecutionAttributes, TaskQueue
from temporalio.api.workflowservice.v1 import (
    GetWorkflowExecutionHistoryRequest,
    PollWorkflowTaskQueueRequest,
    PollWorkflowTaskQueueResponse,
    RespondWorkflowTaskCompletedRequest,
    RespondWorkflowTaskCompletedResponse,
    RespondWorkflowTaskFailedRequest,
)

from perdure.frontend.errors import RpcError
from simulated.sdk import decisions
from simulated.sdk.acknowledged import Acknowledged
from simulated.sdk.decisions import QUEUE
from simulated.sdk.eager import EagerTasks
from simulated.sdk.frontends import Caller
from simulated.sdk.replay import Decided, NondeterminismError, Replay
from simulated.sdk.slots import DeathError, run_slots
from simulated.sdk.wires import BrokenError

_POLL_SECONDS: Final = 70.0
_STICKY_SECONDS: Final = 5.0


class StaleError(Exception):
    """The history that a worker has read does not have its task, which has timed out in the meantime."""


@dataclass(frozen=True, slots=True)
class WorkerBehavior:
    """How a worker decides one task."""

    dies: bool
    fails: bool
    seconds: float
    """How long it takes."""
    forgets: bool
    """Whether it drops the workflow from its cache before."""
    twice: bool
    """Whether it sends its response twice at the same time."""
    contradicts: bool
    """Whether it sends another response afterwards."""

    @classmethod
    def draw(cls, random: Random) -> "WorkerBehavior":
        """The manners for the next task."""
        slow = random.choice([0.0, 0.0, 0.0, random.uniform(0, 1), random.uniform(0, 5), random.uniform(5, 16)])
        return cls(
            dies=random.random() < 0.03,
            fails=random.random() < 0.05,
            seconds=slow,
            forgets=random.random() < 0.1,
            twice=random.random() < 0.05,
            contradicts=random.random() < 0.05,
        )


class WorkflowWorker:
    """One process that decides workflows, until it dies."""

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
        self._receives_again = random.random() < 0.5
        """Whether it accepts events again after a task that has left no events."""
        self._fail = fail
        self._cache: dict[str, Replay] = {}
        """By run ID."""
        self._sticky = TaskQueue(name=f"{name}-sticky", kind=TaskQueueKind.TASK_QUEUE_KIND_STICKY, normal_name=QUEUE)
        self._queue = TaskQueue(name=QUEUE, kind=TaskQueueKind.TASK_QUEUE_KIND_NORMAL)

    async def run(self) -> None:
        """Poll and decide, until it dies."""
        queues = (self._queue, self._queue, self._sticky)
        await run_slots([*(self._poll(queue) for queue in queues), self._start_eagerly()], self._name, self._fail)

    async def _poll(self, queue: TaskQueue) -> None:
        request = PollWorkflowTaskQueueRequest(namespace="default", task_queue=queue, identity=self._name)
        while True:
            try:
                task = await self._caller.call("PollWorkflowTaskQueue", request, _POLL_SECONDS)
                await self._process_all(task)
            except (BrokenError, RpcError):
                await asyncio.sleep(self._random.uniform(0.1, 2))

    async def _start_eagerly(self) -> None:
        while True:
            with suppress(BrokenError, RpcError):
                await self._process_all(await self._eager.workflow.get())

    async def _process_all(self, task: PollWorkflowTaskQueueResponse | None) -> None:
        """Decide a task, and those that the responses to the decisions have."""
        while task is not None and task.task_token:
            task = await self._process(task)

    async def _process(self, task: PollWorkflowTaskQueueResponse) -> PollWorkflowTaskQueueResponse | None:
        """Decide a task; return the next one, if the response to the decision has one."""
        manners = WorkerBehavior.draw(self._random)
        if manners.dies:
            await asyncio.sleep(manners.seconds)
            raise DeathError
        if manners.forgets:
            self._cache.clear()
        run_id = task.workflow_execution.run_id
        replay = self._cache.pop(run_id, None) or Replay()
        try:
            events = await self._unseen_events(task, replay)
            if replay.last and events[0].event_id != replay.last + 1:
                replay = Replay()  # the task is not from the sticky queue: its history starts with the first event
            before = deepcopy(replay) if task.messages else Replay()
            replay.feed(events)
            await asyncio.sleep(manners.seconds)
            if manners.fails:
                await self._give_up(
                    task, WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_WORKFLOW_WORKER_UNHANDLED_FAILURE
                )
                return None
            made = replay.decide(task.messages)
        except StaleError:
            return None
        except NondeterminismError as error:
            self._fail(f"{self._name} cannot replay {task.workflow_execution.workflow_id} ({run_id}): {error}")
            await self._give_up(task, WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_NON_DETERMINISTIC_ERROR)
            return None
        response = await self._respond(task, made, manners)
        if not response.reset_history_event_id:
            self._cache[run_id] = replay
        elif before.last == response.reset_history_event_id:
            self._cache[run_id] = before
        for activity_task in response.activity_tasks:
            self._eager.activity.put_nowait(activity_task)
        return response.workflow_task if response.HasField("workflow_task") else None

    async def _unseen_events(self, task: PollWorkflowTaskQueueResponse, replay: Replay) -> list[HistoryEvent]:
        """The events of a task that the cache does not have."""
        events = list(task.history.events)
        is_cached = bool(replay.last) and bool(events) and events[0].event_id == replay.last + 1
        if task.next_page_token or not (is_cached or (events and events[0].event_id == 1)):
            events = (await self._history(task.workflow_execution))[: task.started_event_id]
            if not _is_task(events[-1:], task.started_event_id):
                raise StaleError
        if not _is_task(events[-1:], task.started_event_id):
            raise NondeterminismError(f"the history does not end with the start of the task, {task.started_event_id}")
        return events

    async def _history(self, execution: WorkflowExecution) -> list[HistoryEvent]:
        request = GetWorkflowExecutionHistoryRequest(namespace="default", execution=execution)
        events: list[HistoryEvent] = []
        while True:
            response = await self._caller.insist("GetWorkflowExecutionHistory", request)
            events += response.history.events
            if not response.next_page_token:
                return events
            request.next_page_token = response.next_page_token

    async def _give_up(self, task: PollWorkflowTaskQueueResponse, cause: WorkflowTaskFailedCause.ValueType) -> None:
        request = RespondWorkflowTaskFailedRequest(
            namespace="default", task_token=task.task_token, identity=self._name, cause=cause
        )
        await self._caller.insist("RespondWorkflowTaskFailed", request)

    async def _respond(
        self, task: PollWorkflowTaskQueueResponse, made: Decided, manners: WorkerBehavior
    ) -> RespondWorkflowTaskCompletedResponse:
        """Send a decision.

        Raises:
            BrokenError, RpcError: It was not accepted, or the outcome is unknown.
        """
        request = self._completion(task, made)
        sent = [self._send(task, request) for _ in range(1 + manners.twice)]
        responses = await asyncio.gather(*sent, return_exceptions=True)
        accepted = [each for each in responses if isinstance(each, RespondWorkflowTaskCompletedResponse)]
        for error in responses:
            if isinstance(error, BaseException) and not accepted:
                raise error
        if manners.contradicts:
            never = decisions.timer("never", timedelta(seconds=1))
            other = self._completion(task, Decided([never, *made.decisions], made.rejections))
            await asyncio.gather(self._send(task, other), return_exceptions=True)
        return accepted[0]

    async def _send(
        self, task: PollWorkflowTaskQueueResponse, request: RespondWorkflowTaskCompletedRequest
    ) -> RespondWorkflowTaskCompletedResponse:
        response: RespondWorkflowTaskCompletedResponse = await self._caller.insist(
            "RespondWorkflowTaskCompleted", request
        )
        if not response.reset_history_event_id:  # otherwise, the task leaves no events
            encoded = b"".join(
                each.SerializeToString(deterministic=True) for each in (*request.commands, *request.messages)
            )
            self._acknowledged.decided(task.workflow_execution.run_id, task.started_event_id, encoded)
        return response

    def _completion(self, task: PollWorkflowTaskQueueResponse, made: Decided) -> RespondWorkflowTaskCompletedRequest:
        sticky = StickyExecutionAttributes(worker_task_queue=self._sticky)
        sticky.schedule_to_start_timeout.FromTimedelta(timedelta(seconds=_STICKY_SECONDS))
        request = RespondWorkflowTaskCompletedRequest(
            namespace="default",
            task_token=task.task_token,
            identity=self._name,
            commands=[decision.command for decision in made.decisions],
            messages=[each.message for each in made.decisions if each.message is not None] + made.rejections,
            sticky_attributes=sticky,
            return_new_workflow_task=True,
        )
        request.capabilities.discard_speculative_workflow_task_with_events = self._receives_again
        for command in request.commands:
            if command.schedule_activity_task_command_attributes.task_queue.name == QUEUE:
                attributes = command.schedule_activity_task_command_attributes
                attributes.request_eager_execution = self._random.random() < 0.5
        return request


def _is_task(last: list[HistoryEvent], started_event_id: int) -> bool:
    """Whether the last event of a history starts a task."""
    return [(each.event_id, each.event_type) for each in last] == [
        (started_event_id, EventType.EVENT_TYPE_WORKFLOW_TASK_STARTED)
    ]
