"""Reports of obstacles of attempts, and the release of their pods. Times are seconds."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import msgspec
from aiohttp import web

from perdure.api.kinds.workflow import Retention, WorkflowSpec
from perdure.api.reasons import EventReason
from perdure.controller.pods.attempt_pods import PATIENCE, PodKey
from perdure.controller.runs.attempts.attempts import RunAttempts
from perdure.controller.runs.attempts.held_pods import HeldPods, PodRelease
from perdure.controller.runs.conditions import RunEventRecorder
from perdure.controller.runs.status import StatusComposer
from perdure.controller.runs.store import RunStore
from perdure.controller.workflows.definitions import Definition
from perdure.engine.inputs import AttemptFailed, AttemptWaiting
from perdure.engine.ledger import AttemptOutcome, Retired
from perdure.engine.state import PendingActivity, RunState
from perdure.engine.step import RunTransition
from perdure.kube.access import Access
from perdure.kube.client import Client
from perdure.kube.events import Recorder
from perdure.language.compiler import compile_program
from perdure.runtime.attempts import Attempt, PodSettings, RunRef
from perdure.runtime.pods.builder import build_pod
from support.http_server import serving
from support.managers import services_over

T0 = datetime(2026, 1, 1, tzinfo=UTC)
RUN = RunRef(namespace="shop", name="order", uid="0b7d1b5e-0000-4000-8000-0", workflow_id="order")
SPEC = {
    "activities": [{"name": "work", "startToCloseTimeout": "5m", "container": {"image": "shop"}}],
    "steps": [{"name": "step", "activity": {"name": "work"}}],
}
DEFINITION = Definition(compile_program(WorkflowSpec.parse(SPEC)), "order", None)
WORK = DEFINITION.program.activities["work"]
NO_IMAGE = "container activity: ErrImagePull: no such image"


def at(offset: float) -> datetime:
    return T0 + timedelta(seconds=offset)


def state_of(*numbers: int, stuck: bool = False) -> RunState:
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
    return RunState(start_time=T0, next_event_id=9, activities={str(w.scheduled_event_id): w for w in works})


STORED = {"metadata": {"namespace": RUN.namespace, "name": RUN.name, "uid": RUN.uid, "resourceVersion": "1"}}
"""The run's object."""


class Reports(Recorder):
    """Keeps the notes of Events about attempts that do not start, and about results that are not stored."""

    def __init__(self, client: Client, *, instance: str) -> None:
        super().__init__(client, instance=instance)
        self.notes: list[str] = []

    def record(
        self,
        about: dict[str, Any],  # noqa: ARG002 (the interface)
        *,
        kind: str,  # noqa: ARG002
        reason: EventReason,
        note: str,
        action: str,  # noqa: ARG002
        related: dict[str, Any] | None = None,
    ) -> None:
        if reason is not EventReason.POD_REFUSED:
            self.notes.append(f"{related['name']}: {note}" if related else note)


@asynccontextmanager
async def attempts(
    wake: Callable[[], None] = lambda: None,
    *,
    server: str = "http://127.0.0.1:1",
    settings: PodSettings = PodSettings(),  # noqa: B008 (immutable)
) -> AsyncIterator[tuple[RunAttempts, list[str]]]:
    async with Client.open(Access(server=server), user_agent="perdure-test") as client:
        recorder = Reports(client, instance="test")
        services = services_over(client, recorder, settings)
        found = RunAttempts(
            services,
            RUN,
            RunStore(client, STORED, RUN, services.blobs, StatusComposer(RUN.uid)),
            None,
            RunEventRecorder(recorder, RUN, "order"),
            wake=wake,
        )
        found.define(DEFINITION)
        yield found, recorder.notes


_uids: Iterator[int] = count()


def waiting_pod(number: int, reason: str, message: str = "") -> dict[str, Any]:
    pod = build_pod(
        RUN, Attempt(scheduled_event_id=number, attempt=1, activity_id="a", activity_type="work"), WORK, PodSettings()
    )
    state = {"waiting": {"reason": reason, **({"message": message} if message else {})}}
    status = {"phase": "Pending", "containerStatuses": [{"name": "activity", "state": state}]}
    meta = {**pod["metadata"], "uid": f"pod-{number}", "resourceVersion": str(next(_uids))}
    return {**pod, "metadata": meta, "spec": {**pod["spec"], "nodeName": "node"}, "status": status}


async def test_a_lasting_obstacle_is_reported_once() -> None:
    async with attempts() as (found, reported):
        state = state_of(2)
        found.held.update(waiting_pod(2, "ErrImagePull", "no such image"))
        (first,) = await found.gather(state, at(0))
        assert first == AttemptWaiting(scheduled_event_id=2, attempt=1, reason=NO_IMAGE)
        assert found.next_wake(state, at(0)) == at(5)
        assert reported == []
        (second,) = await found.gather(state, at(5))
        assert second == AttemptWaiting(scheduled_event_id=2, attempt=1, reason=NO_IMAGE, stuck=True)
        assert reported == [f"order-2-1: Step step2: attempt 1 does not start: {NO_IMAGE}"]
        assert await found.gather(state_of(2, stuck=True), at(6)) == []
        assert found.next_wake(state_of(2, stuck=True), at(6)) is None
        found.held.update(waiting_pod(2, "ImagePullBackOff"))
        await found.gather(state_of(2, stuck=True), at(60))
        await found.gather(state, at(61))  # the commit has failed
        assert len(reported) == 1


async def test_a_short_obstacle_is_not_reported() -> None:
    async with attempts() as (found, reported):
        state = state_of(2)
        found.held.update(waiting_pod(2, "ErrImagePull", "no such image"))
        await found.gather(state, at(0))
        found.held.update(waiting_pod(2, "ContainerCreating"))
        (passed,) = await found.gather(state, at(3))
        assert passed == AttemptWaiting(scheduled_event_id=2, attempt=1, reason="ContainerCreating")
        assert await found.gather(state, at(9)) == [passed]
        assert reported == []


async def test_one_of_several_equal_obstacles_is_reported() -> None:
    async with attempts() as (found, reported):
        state = state_of(2, 3)
        for number in (2, 3):
            found.held.update(waiting_pod(number, "ErrImagePull", "no such image"))
        await found.gather(state, at(0))
        assert [item.stuck for item in await found.gather(state, at(5)) if isinstance(item, AttemptWaiting)] == [
            True,
            True,
        ]
        assert len(reported) == 1


# Failures and their logs


class Node:
    """The API server of a node that returns a log when the test decides, or never. Pods have failed."""

    def __init__(self) -> None:
        self.asked = 0
        self.requested = asyncio.Event()
        self.woken: list[str] = []
        self._awake = asyncio.Event()
        self._connection: asyncio.Transport | None = None
        self._log: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        if not request.path.endswith("/log"):
            return web.json_response(failed_pod(2))
        self.asked += 1
        assert request.transport is not None
        self._connection = request.transport
        self.requested.set()
        response = web.Response(text=await self._log)
        response.force_close()
        return response

    def wake(self) -> None:
        self.woken.append("woken")
        self._awake.set()

    async def answer(self, text: str) -> None:
        self._log.set_result(text)
        await self._awake.wait()

    async def close(self) -> None:
        """End the connection, on which the run may have given up."""
        if not self._log.done():
            await self.answer("")
        while self._connection is not None and not self._connection.is_closing():  # noqa: ASYNC110 (the transport has no event)
            await asyncio.sleep(0)
        await asyncio.sleep(0)


def failed_pod(number: int) -> dict[str, Any]:
    pod = waiting_pod(number, "ErrImagePull")
    ended = {"terminated": {"exitCode": 3, "reason": "Error", "startedAt": "2026-01-01T00:00:01Z"}}
    return {**pod, "status": {"phase": "Failed", "containerStatuses": [{"name": "activity", "state": ended}]}}


@asynccontextmanager
async def failing() -> AsyncIterator[tuple[RunAttempts, Node]]:
    """A failed attempt whose log has been requested from its node."""
    node = Node()
    async with serving(node.handle) as address, attempts(node.wake, server=address) as (found, _):
        found.held.update(failed_pod(2))
        assert await found.gather(state_of(2), at(2)) == []
        await node.requested.wait()
        try:
            yield found, node
        finally:
            await node.close()


async def test_a_failure_waits_for_its_log_without_blocking_others() -> None:
    async with failing() as (found, node):
        assert found.next_wake(state_of(2), at(2)) == at(2) + PATIENCE
        assert not found.settled
        await node.answer("it has failed")
        assert node.woken == ["woken"]
        assert found.next_wake(state_of(2), at(3)) == at(3)
        (reported,) = await found.gather(state_of(2), at(3))
        assert isinstance(reported, AttemptFailed)
        assert reported.failure.log == "it has failed"
        found.held.recheck()  # the commit has failed
        assert await found.gather(state_of(2), at(4)) == [reported]
        assert node.asked == 1


async def test_a_failure_is_reported_without_a_log_that_does_not_arrive() -> None:
    async with failing() as (found, node):
        assert await found.gather(state_of(2), at(11)) == []
        (reported,) = await found.gather(state_of(2), at(2) + PATIENCE)
        assert isinstance(reported, AttemptFailed)
        assert reported.failure.log is None
        assert node.woken == []


async def test_a_failure_is_reported_without_an_unreadable_log() -> None:
    woken = asyncio.Event()
    async with attempts(woken.set) as (found, _):
        found.held.update(failed_pod(2))
        assert await found.gather(state_of(2), at(2)) == []
        await woken.wait()
        (reported,) = await found.gather(state_of(2), at(3))
        assert isinstance(reported, AttemptFailed)


async def test_no_log_is_read_in_a_namespace_that_is_excluded() -> None:
    node, reported = Node(), []
    for pattern in ("shop", "sh*", "other"):
        settings = PodSettings(without_logs=(pattern,))
        async with (
            serving(node.handle) as address,
            attempts(node.wake, server=address, settings=settings) as (found, _),
        ):
            found.held.update(failed_pod(2))
            reported += await found.gather(state_of(2), at(2))
            if pattern == "other":
                await node.requested.wait()
                await node.close()
            else:
                assert not node.asked
    assert [isinstance(each, AttemptFailed) and each.failure.log for each in reported] == [None, None]


async def test_a_failure_precedes_a_deadline_that_passes_while_its_log_is_read() -> None:
    async with failing() as (found, _):
        state = state_of(2)
        late = msgspec.structs.replace(
            state.activities["2"], started_time=at(1), start_to_close_timeout=timedelta(seconds=3)
        )
        state = msgspec.structs.replace(state, activities={"2": late})

        (reported,) = await found.gather(state, at(4))
        assert isinstance(reported, AttemptFailed)


async def test_a_pod_of_a_closed_attempt_does_not_wait_for_its_log() -> None:
    async with failing() as (found, _):
        later, ended = RunState(start_time=T0, next_event_id=9), Retired(2, 1, AttemptOutcome.TIMED_OUT)
        found.retire(RunTransition(later, events=(), retired=(ended,), durable=True, more=False))
        assert found.next_wake(later, at(2)) is None
        assert not found.settled, "the pod is still to be released"


async def test_a_run_is_not_settled_while_it_holds_a_pod_that_was_read() -> None:
    async with failing() as (found, node):
        await node.answer("it has failed")
        await found.gather(state_of(2), at(3))
        assert not found.settled


def holding(pod: dict[str, Any]) -> tuple[HeldPods, list[int]]:
    """Held pods, and the scheduled events of the attempts that nobody waits for anymore."""
    dropped = list[int]()
    held = HeldPods(RUN, lambda key, _: dropped.append(key.scheduled_event_id), lambda _: None)
    held.update(pod)
    return held, dropped


def test_a_pod_that_no_attempt_of_the_state_needs_is_released() -> None:
    held, dropped = holding(failed_pod(2))
    newer = RunState(start_time=T0, next_event_id=9)
    held.release_unneeded(newer, held.superfluous(newer))
    assert len(held.to_release) == 1
    assert dropped == [2]


def test_a_pod_observed_after_the_state_was_confirmed_is_not_released() -> None:
    held, dropped = holding(failed_pod(2))
    older = RunState(start_time=T0, next_event_id=2)
    held.release_unneeded(older, [])
    assert not held.to_release
    assert not dropped
    assert [key.scheduled_event_id for key in held.superfluous(older)] == [2]


def test_all_pods_of_a_deleted_run_are_released_until_they_are_deleted() -> None:
    pod = failed_pod(2)
    held, _ = holding(pod)
    held.release_all()
    assert list(held.to_release) == [pod["metadata"]["uid"]]
    assert not held.settled
    held.released(pod["metadata"]["uid"])
    assert held.settled


def succeeded_pod(number: int) -> dict[str, Any]:
    ended = {"terminated": {"exitCode": 0, "reason": "Completed", "startedAt": "2026-01-01T00:00:01Z"}}
    status = {"phase": "Succeeded", "containerStatuses": [{"name": "activity", "state": ended}]}
    return {**waiting_pod(number, "ContainerCreating"), "status": status}


def test_a_pod_is_released_as_it_ended_when_a_watch_lags_behind_the_read_that_showed_its_end() -> None:
    earlier, ended = waiting_pod(2, "ContainerCreating"), succeeded_pod(2)
    held, _ = holding(ended)
    held.update(earlier)
    held.retire(PodKey(2, 1), AttemptOutcome.COMPLETED)
    assert list(held.to_release.values()) == [PodRelease(ended, Retention.EXPIRE)]


def test_a_watch_that_lags_does_not_replace_a_pod_by_an_earlier_one_of_the_same_attempt() -> None:
    earlier, current = waiting_pod(2, "ContainerCreating"), waiting_pod(2, "ContainerCreating")
    earlier["metadata"]["uid"] = "earlier"
    held, _ = holding(current)
    held.update(earlier)
    held.delete(earlier)
    assert held.pods == {PodKey(2, 1): current}


async def test_a_pod_of_a_closed_run_is_read_before_it_is_released() -> None:
    """Its activity may have completed since a watch has shown that it runs: another operator has recorded this."""
    waiting, ended = waiting_pod(2, "ContainerCreating"), succeeded_pod(2)
    asked = list[str]()

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        asked.append(request.method)
        return web.json_response(ended if "/pods/" in request.path else STORED)

    async with serving(answer) as address, attempts(server=address) as (found, _):
        found.held.update(waiting)
        await found.apply(RunState(start_time=T0, next_event_id=9), at(1))
        assert found.settled
    assert asked == ["GET", "GET", "PATCH"], "confirm the state, read the pod, and drop its finalizer"
