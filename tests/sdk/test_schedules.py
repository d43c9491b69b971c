"""Schedules created by the SDK's client, which are Perdure's Schedules."""

import json
import uuid
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.api.workflowservice.v1 import ListScheduleMatchingTimesRequest, UpdateScheduleRequest
from temporalio.client import (
    Client,
    Schedule,
    ScheduleActionStartWorkflow,
    ScheduleAlreadyRunningError,
    ScheduleBackfill,
    ScheduleCalendarSpec,
    ScheduleHandle,
    ScheduleIntervalSpec,
    ScheduleOverlapPolicy,
    SchedulePolicy,
    ScheduleRange,
    ScheduleSpec,
    ScheduleState,
    ScheduleUpdate,
)
from temporalio.common import Priority, RetryPolicy
from temporalio.service import RPCError, RPCStatusCode

from support.sdk import flows
from support.sdk.client import Temporal, until


class Maker:
    """Creates schedules, and deletes them at the end."""

    def __init__(self, temporal: Temporal) -> None:
        self.temporal = temporal
        self.made: list[ScheduleHandle] = []

    @property
    def client(self) -> Client:
        return self.temporal.client

    async def __call__(
        self,
        workflow: Any,
        *arguments: Any,
        spec: ScheduleSpec | None = None,
        name: str = "",
        start: dict[str, Any] | None = None,
        **said: Any,
    ) -> ScheduleHandle:
        name = name or f"s-{uuid.uuid4().hex[:8]}"
        options = {key: said.pop(key) for key in ("trigger_immediately", "backfill", "memo") if key in said}
        action = ScheduleActionStartWorkflow(
            workflow, args=list(arguments), id=f"of-{name}", task_queue=self.temporal.task_queue, **(start or {})
        )
        handle = await self.client.create_schedule(
            name, Schedule(action=action, spec=spec or ScheduleSpec(), **said), **options
        )
        self.made.append(handle)
        return handle

    async def results(self, handle: ScheduleHandle, number: int) -> list[Any]:
        """The results of the first actions."""

        async def enough() -> Any:
            actions = (await handle.describe()).info.recent_actions
            return actions if len(actions) >= number and all(a.action.first_execution_run_id for a in actions) else None

        found = []
        for action in await until(f"{number} actions", enough):
            started = action.action
            run = self.client.get_workflow_handle(started.workflow_id, run_id=started.first_execution_run_id)
            found.append(await run.result())
        return found


@pytest.fixture
async def make(temporal: Temporal) -> AsyncIterator[Maker]:
    maker = Maker(temporal)
    yield maker
    for handle in maker.made:
        with suppress(RPCError):  # the test may have deleted it
            await handle.delete()


@pytest.mark.cluster
async def test_a_schedule_starts_workflows_and_is_visible_to_kubectl(make: Maker) -> None:
    async with make.temporal.worker():
        handle = await make(
            flows.Greet.run, "you", spec=ScheduleSpec(intervals=[ScheduleIntervalSpec(timedelta(seconds=1))])
        )
        assert set(await make.results(handle, 2)) == {"Hello, you"}
        found = make.temporal.cluster.get("schedule", handle.id)
        assert found["spec"]["workflowRunTemplate"]["spec"]["workflow"]["type"] == "Greet"
        await handle.pause()


async def test_15_a_paused_schedule_can_be_triggered_and_backfilled(make: Maker) -> None:
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    async with make.temporal.worker():
        handle = await make(
            flows.Greet.run,
            "you",
            spec=ScheduleSpec(calendars=[ScheduleCalendarSpec()]),
            state=ScheduleState(paused=True),
            trigger_immediately=True,
        )
        assert (await handle.describe()).info.num_actions == 1
        await handle.backfill(
            ScheduleBackfill(start_at=begin, end_at=begin + timedelta(days=2), overlap=ScheduleOverlapPolicy.ALLOW_ALL)
        )
        assert await make.results(handle, 4) == ["Hello, you"] * 4
        scheduled = {action.scheduled_at for action in (await handle.describe()).info.recent_actions}
        assert {begin + timedelta(days=day) for day in range(3)} <= scheduled


async def test_18_a_failure_pauses_a_schedule_until_it_is_unpaused(make: Maker) -> None:
    async with make.temporal.worker():
        handle = await make(flows.Fails.run, 2, policy=SchedulePolicy(pause_on_failure=True))
        await handle.trigger()

        async def paused() -> bool:
            state = (await handle.describe()).schedule.state
            return state.paused and "Failed" in (state.note or "")

        await until("the pause", paused)
        await handle.unpause(note="looked at it")
        state = (await handle.describe()).schedule.state
        assert not state.paused
        assert state.note == "looked at it"


async def test_overlap_policies_behave_as_in_temporal(make: Maker) -> None:
    handle = await make(flows.Sleeper.run, 600)
    await handle.trigger()
    await handle.trigger()  # silently skipped, as by Temporal's server
    info = (await handle.describe()).info
    assert (info.num_actions, info.num_actions_skipped_overlap, len(info.running_actions)) == (1, 1, 1)
    await handle.trigger(overlap=ScheduleOverlapPolicy.TERMINATE_OTHER)
    assert (await handle.describe()).info.num_actions == 2


async def test_an_update_changes_the_next_action(make: Maker) -> None:
    handle = await make(flows.Greet.run, "one", state=ScheduleState(limited_actions=True, remaining_actions=3))
    described = await handle.describe()
    assert described.schedule.state.remaining_actions == 3

    def change(found: Any) -> ScheduleUpdate:
        found.description.schedule.action.args = ["two"]
        return ScheduleUpdate(found.description.schedule)

    await handle.update(change)
    async with make.temporal.worker():
        await handle.trigger()
        assert await make.results(handle, 1) == ["Hello, two"]
    assert (await handle.describe()).info.last_updated_at is not None


@pytest.mark.parametrize(
    "policy",
    [
        RetryPolicy(),
        RetryPolicy(maximum_attempts=3),
        RetryPolicy(initial_interval=timedelta(seconds=5), non_retryable_error_types=["Broken"]),
        RetryPolicy(backoff_coefficient=1.5, maximum_interval=timedelta(seconds=1)),
    ],
)
async def test_a_retry_policy_survives_an_update_when_fields_equal_the_defaults(
    make: Maker, policy: RetryPolicy
) -> None:
    handle = await make(flows.Greet.run, "you", start={"retry_policy": policy})
    before = (await handle.describe()).raw_description.schedule
    await handle.update(lambda found: ScheduleUpdate(found.description.schedule))
    after = await handle.describe()
    assert after.raw_description.schedule == before
    longest = policy.maximum_interval or policy.initial_interval * 100
    assert after.schedule.action.retry_policy == replace(policy, maximum_interval=longest)


async def test_every_option_of_a_schedule_survives_an_update(make: Maker) -> None:
    start = datetime(2030, 1, 1, tzinfo=UTC)
    handle = await make(
        flows.Greet.run,
        "you",
        start={
            "retry_policy": RetryPolicy(),
            "execution_timeout": timedelta(hours=3),
            "run_timeout": timedelta(hours=2),
            "task_timeout": timedelta(seconds=20),
            "memo": {"note": "why"},
            "static_summary": "in short",
            "static_details": "at length",
            "priority": Priority(priority_key=2, fairness_key="fair", fairness_weight=1.5),
            "headers": {"trace": Payload(metadata={"encoding": b"binary/plain"}, data=b"id")},
        },
        spec=ScheduleSpec(
            calendars=[ScheduleCalendarSpec(hour=[ScheduleRange(8, 18, 2)], comment="in working hours")],
            cron_expressions=["0 12 * * MON"],
            intervals=[ScheduleIntervalSpec(timedelta(hours=1), offset=timedelta(minutes=5))],
            skip=[ScheduleCalendarSpec(day_of_week=[ScheduleRange(0)])],
            start_at=start,
            end_at=start + timedelta(days=365),
            jitter=timedelta(seconds=80),
            time_zone_name="Europe/Berlin",
        ),
        policy=SchedulePolicy(
            overlap=ScheduleOverlapPolicy.BUFFER_ONE, catchup_window=timedelta(hours=1), pause_on_failure=True
        ),
        state=ScheduleState(note="a note", paused=True, limited_actions=True, remaining_actions=5),
        memo={"team": "accounts"},
    )
    before = (await handle.describe()).raw_description
    await handle.update(lambda found: ScheduleUpdate(found.description.schedule))
    after = (await handle.describe()).raw_description
    assert after.schedule == before.schedule
    assert after.memo == before.memo
    started = after.schedule.action.start_workflow
    assert {field.name for field, _ in started.ListFields()} == {
        "workflow_id",
        "workflow_type",
        "task_queue",
        "input",
        "workflow_execution_timeout",
        "workflow_run_timeout",
        "workflow_task_timeout",
        "retry_policy",
        "memo",
        "header",
        "user_metadata",
        "priority",
    }


async def test_20_a_stale_conflict_token_is_rejected(make: Maker) -> None:
    handle = await make(flows.Greet.run, "you")
    raw = (await handle.describe()).raw_description
    await handle.pause()
    with pytest.raises(RPCError, match="conflict token") as caught:
        await make.client.workflow_service.update_schedule(
            UpdateScheduleRequest(
                namespace=make.client.namespace,
                schedule_id=handle.id,
                schedule=raw.schedule,
                conflict_token=raw.conflict_token,
            )
        )
    assert caught.value.status is RPCStatusCode.FAILED_PRECONDITION


async def test_an_id_can_be_any_text_and_is_unique(make: Maker) -> None:
    name = f"Nightly/{uuid.uuid4().hex[:6]}"
    handle = await make(flows.Greet.run, "you", name=name, memo={"why": "because"})
    with pytest.raises(ScheduleAlreadyRunningError):
        await make(flows.Greet.run, "you", name=name)
    listed = {found.id: found async for found in await make.client.list_schedules(f"ScheduleId = '{name}'")}
    assert set(listed) == {name}
    assert await listed[name].memo_value("why") == "because"
    await handle.delete()
    with pytest.raises(RPCError) as caught:
        await handle.describe()
    assert caught.value.status is RPCStatusCode.NOT_FOUND


@pytest.mark.cluster
async def test_deleting_a_schedule_keeps_its_workflows(make: Maker) -> None:
    handle = await make(flows.Sleeper.run, 600, trigger_immediately=True)

    async def acted() -> Any:
        return (await handle.describe()).info.recent_actions

    [action] = await until("the schedule to have acted", acted)
    started: Any = action.action
    await handle.delete()
    run = make.client.get_workflow_handle(started.workflow_id)

    async def orphaned() -> bool:
        found = json.loads(make.temporal.cluster("get", "wfr", "-o", "json"))["items"]
        [obj] = [obj for obj in found if obj["spec"].get("workflowId") == started.workflow_id]
        return not obj["metadata"].get("ownerReferences")

    await until("the run is nobody's", orphaned)
    assert (await run.describe()).status is not None
    await run.terminate()


async def test_matching_times_are_listed(make: Maker) -> None:
    handle = await make(flows.Greet.run, "x", spec=ScheduleSpec(cron_expressions=["0 12 * * *"]))
    request = ListScheduleMatchingTimesRequest(namespace=make.client.namespace, schedule_id=handle.id)
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    request.start_time.FromDatetime(begin)
    request.end_time.FromDatetime(begin + timedelta(days=2))
    found = await make.client.workflow_service.list_schedule_matching_times(request)
    noons = [begin + timedelta(hours=12), begin + timedelta(hours=36)]
    assert [time.ToDatetime(tzinfo=UTC) for time in found.start_time] == noons


@pytest.mark.slow
@pytest.mark.cluster
async def test_3_a_failed_start_is_retried_within_the_catchup_window_and_then_dropped(make: Maker) -> None:
    cluster = make.temporal.cluster
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"}}
    cluster.apply({**quota, "spec": {"hard": {"count/workflowruns.perdure.dev": "0"}}})

    async def counts() -> bool:
        return "used" in cluster.get("resourcequota", "none")["status"]

    try:
        await until("the quota to count", counts)
        short, long = [
            await make(flows.Greet.run, "you", policy=SchedulePolicy(catchup_window=window), trigger_immediately=True)
            for window in (timedelta(seconds=10), timedelta(days=1))
        ]

        async def refused() -> bool:
            recent = cluster.get("schedule", short.id)["status"].get("recentActions", [])
            return [each["status"] for each in recent] == ["Refused"]

        await until("the start to be given up", refused)
    finally:
        cluster.delete("resourcequota", "none")
    async with make.temporal.worker():
        assert await make.results(long, 1) == ["Hello, you"]
    assert not (await short.describe()).info.running_actions


async def test_an_invalid_schedule_field_is_rejected_by_name(make: Maker) -> None:
    for spec, field in (
        (ScheduleSpec(cron_expressions=["not cron"]), "cron"),
        (ScheduleSpec(time_zone_name="Nowhere/Land"), "time zone"),
    ):
        with pytest.raises(RPCError, match=field) as caught:
            await make(flows.Greet.run, "you", spec=spec)
        assert caught.value.status is RPCStatusCode.INVALID_ARGUMENT
