"""When it is told that something is in the way of an attempt; the API server is never asked. Times are seconds."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

from perdure.api.workflow import Activity
from perdure.controller.attempts import Attempts
from perdure.controller.identity import ActivityIdentity
from perdure.controller.pods import Pods
from perdure.controller.policies import Policies
from perdure.engine.inputs import AttemptWaiting
from perdure.engine.state import PendingActivity, State
from perdure.kube.access import Access
from perdure.kube.client import Client
from perdure.kube.events import Recorder
from perdure.runtime.attempts import Attempt, PodSettings, RunRef
from perdure.runtime.pods import build_pod

T0 = datetime(2026, 1, 1, tzinfo=UTC)
RUN = RunRef(namespace="shop", name="order", uid="0b7d1b5e-0000-4000-8000-0", workflow_id="order")
WORK = Activity.parse({"name": "work", "startToCloseTimeout": "5m", "container": {"image": "shop"}})
NO_IMAGE = "container activity: ErrImagePull: no such image"


def at(offset: float) -> datetime:
    return T0 + timedelta(seconds=offset)


def state_of(*numbers: int, stuck: bool = False) -> State:
    works = [
        PendingActivity(
            scheduled_event_id=number,
            activity_id=f"step{number}",
            activity_type="work",
            first_scheduled_time=T0,
            scheduled_time=T0,
            stuck=stuck,
            waiting_reason=NO_IMAGE if stuck else None,
        )
        for number in numbers
    ]
    return State(start_time=T0, next_event_id=9, activities={str(w.scheduled_event_id): w for w in works})


@asynccontextmanager
async def attempts() -> AsyncIterator[tuple[Attempts, list[str]]]:
    told: list[str] = []
    async with Client.open(Access(server="http://127.0.0.1:1"), user_agent="perdure-test") as client:
        pods = Pods(client, ActivityIdentity(client, "perdure-activity"), PodSettings())
        policies = Policies(client, Recorder(client, instance="test"))
        found = Attempts(
            pods,
            policies,
            RUN,
            lambda _note, _pod: None,
            lambda note, pod: told.append(f"{pod}: {note}"),
            wake=lambda: None,
        )
        found.activities = {"work": WORK}
        yield found, told


_uids: Iterator[int] = count()


def waiting_pod(number: int, reason: str, message: str = "") -> dict[str, Any]:
    pod = build_pod(
        RUN, Attempt(scheduled_event_id=number, attempt=1, activity_id="a", activity_type="work"), WORK, PodSettings()
    )
    state = {"waiting": {"reason": reason, **({"message": message} if message else {})}}
    status = {"phase": "Pending", "containerStatuses": [{"name": "activity", "state": state}]}
    meta = {**pod["metadata"], "uid": f"pod-{number}", "resourceVersion": str(next(_uids))}
    return {**pod, "metadata": meta, "spec": {**pod["spec"], "nodeName": "node"}, "status": status}


async def test_what_is_in_the_way_for_a_while_is_told_once() -> None:
    async with attempts() as (found, told):
        state = state_of(2)
        found.observe(waiting_pod(2, "ErrImagePull", "no such image"))
        (first,) = await found.gather(state, at(0))
        assert first == AttemptWaiting(scheduled_event_id=2, attempt=1, reason=NO_IMAGE)
        assert found.next_wake(state, at(0)) == at(5)
        assert told == []
        (second,) = await found.gather(state, at(5))
        assert second == AttemptWaiting(scheduled_event_id=2, attempt=1, reason=NO_IMAGE, stuck=True)
        assert told == [f"order-2-1: Step step2: attempt 1 does not start: {NO_IMAGE}"]
        assert await found.gather(state_of(2, stuck=True), at(6)) == []
        assert found.next_wake(state_of(2, stuck=True), at(6)) is None
        found.observe(waiting_pod(2, "ImagePullBackOff"))
        await found.gather(state_of(2, stuck=True), at(60))
        await found.gather(state, at(61))  # the commit has come to nothing
        assert len(told) == 1


async def test_what_passes_soon_is_not_told() -> None:
    async with attempts() as (found, told):
        state = state_of(2)
        found.observe(waiting_pod(2, "ErrImagePull", "no such image"))
        await found.gather(state, at(0))
        found.observe(waiting_pod(2, "ContainerCreating"))
        (passed,) = await found.gather(state, at(3))
        assert passed == AttemptWaiting(scheduled_event_id=2, attempt=1, reason="ContainerCreating")
        assert await found.gather(state, at(9)) == [passed]
        assert told == []


async def test_of_many_that_wait_alike_one_is_told() -> None:
    async with attempts() as (found, told):
        state = state_of(2, 3)
        for number in (2, 3):
            found.observe(waiting_pod(number, "ErrImagePull", "no such image"))
        await found.gather(state, at(0))
        assert [item.stuck for item in await found.gather(state, at(5)) if isinstance(item, AttemptWaiting)] == [
            True,
            True,
        ]
        assert len(told) == 1
