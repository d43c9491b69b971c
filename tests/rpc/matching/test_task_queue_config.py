"""Rate limits of task queues that clients set."""

from datetime import timedelta
from typing import Any

import pytest
from temporalio.api.enums.v1 import RateLimitSource, TaskQueueType
from temporalio.api.taskqueue.v1 import RateLimit
from temporalio.api.workflowservice.v1 import UpdateTaskQueueConfigRequest

from perdure.frontend.errors import RpcError
from perdure.frontend.matching.dispatch import TASK_QUEUES
from perdure.frontend.messages.values import UnfitError
from perdure.kube import client as kube
from rpc.served import QUEUE, Served, activity, served

ACTIVITY = TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY
URL = kube.path(kube.CORE, "default", "configmaps", TASK_QUEUES.config_map)


async def set_rate(here: Served, rate: float | None) -> None:
    update = UpdateTaskQueueConfigRequest.RateLimitUpdate(
        rate_limit=None if rate is None else RateLimit(requests_per_second=rate)
    )
    await here.call("UpdateTaskQueueConfig", task_queue=QUEUE, task_queue_type=ACTIVITY, update_queue_rate_limit=update)


async def described(here: Served) -> Any:
    return await here.call("DescribeTaskQueue", task_queue_type=ACTIVITY, report_config=True)


async def two_activities(here: Served) -> None:
    await here.start()
    minute = timedelta(minutes=1)
    await here.decide(*[activity(name, start_to_close_timeout=10 * minute) for name in ("a", "b")])


@served
async def test_a_rate_limit_survives_an_operator_restart_and_can_be_removed(here: Served) -> None:
    await set_rate(here, 0)
    await two_activities(here)
    here.restart()
    assert not (await here.call("PollActivityTaskQueue")).task_token
    found = await described(here)
    assert found.config.queue_rate_limit.rate_limit.requests_per_second == 0
    assert found.effective_rate_limit.rate_limit_source == RateLimitSource.RATE_LIMIT_SOURCE_API
    await set_rate(here, None)
    assert (await here.call("PollActivityTaskQueue")).task_token
    found = await described(here)
    assert not found.config.queue_rate_limit.HasField("rate_limit")
    assert not found.HasField("effective_rate_limit")


@served
async def test_an_edited_rate_limit_applies_within_a_minute(here: Served) -> None:
    await set_rate(here, 0)
    await two_activities(here)
    client = here.frontend.client
    found = await here.operator.do(client.get(URL))
    found["data"] = {QUEUE: found["data"][QUEUE].replace("0.0", "100")}
    await here.operator.do(client.replace(URL, found))
    polls = [await here.call("PollActivityTaskQueue") for _ in range(3)]
    assert len([poll for poll in polls if poll.task_token]) == 2


@served
async def test_an_unreadable_entry_is_reported_and_blocks_no_worker(here: Served) -> None:
    client = here.frontend.client
    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": TASK_QUEUES.config_map, "namespace": "default"},
        "data": {"orders": '{"activity": {"fairnessWeightOverrides": {"a": 0}}}'},
    }
    await here.operator.do(client.create(kube.path(kube.CORE, "default", "configmaps", None), body))
    await two_activities(here)
    assert (await here.call("PollActivityTaskQueue")).task_token


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"task_queue": ""}, "TaskQueue is not set"),
        ({"task_queue_type": 0}, "TaskQueueType is not set"),
        ({"task_queue": 300 * "ö"}, "too long"),
    ],
)
def test_an_invalid_change_is_rejected(change: dict[str, Any], message: str) -> None:
    @served
    async def refused(here: Served) -> None:
        with pytest.raises((RpcError, UnfitError), match=message):
            await here.call("UpdateTaskQueueConfig", **{"task_queue": QUEUE, "task_queue_type": ACTIVITY, **change})

    refused()
