"""WorkflowLimits that are shared by operators, with an API server on loopback that compares and swaps."""

import copy
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from perdure.api.kinds.workflowlimit import LimitEntry, WorkflowLimitSpec
from perdure.api.state_versions import ATTEMPT_RATES
from perdure.controller import state_versions
from perdure.controller.directory import Directory
from perdure.controller.fleet.shards import AllShards
from perdure.controller.limit_releases import LimitReleases
from perdure.controller.limits import (
    Claim,
    Full,
    Granted,
    Unusable,
    Wanted,
    WorkflowLimits,
    taken_together,
)
from perdure.controller.queue import LimitKey
from perdure.kube import client as kube
from perdure.kube.access import Access
from perdure.kube.client import Client
from perdure.kube.clock import now
from perdure.kube.events import Recorder
from perdure.runtime.attempts import RunRef
from perdure.runtime.limits import LimitQueue
from unit.controller.stored import Store, serving


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    async with serving() as found:
        yield found


@asynccontextmanager
async def operator(store: Store) -> AsyncIterator[WorkflowLimits]:
    async with Client.open(Access(server=store.address), user_agent="test") as client:
        yield WorkflowLimits(client, Recorder(client, instance="test"))


def claim(name: str, *, queues: bool = True) -> Claim:
    run = RunRef(namespace="shop", name=name, uid=f"uid-{name}", workflow_id=name)
    return Claim(run, LimitEntry(run=name, run_id=run.uid, created=now(), since=now()), queues=queues)


async def test_a_change_by_another_operator_is_taken_into_account(store: Store) -> None:
    store.put("workflowlimits", "mutex", spec={})
    async with operator(store) as one, operator(store) as two:
        two.update(copy.deepcopy(store.objects["workflowlimits/mutex"]))
        assert await one.claim("shop", "mutex", claim("a")) == Granted()
        assert await two.claim("shop", "mutex", claim("b")) == Full(WorkflowLimitSpec())
        assert store.conflicts == 1
        status = store.objects["workflowlimits/mutex"]["status"]
        assert [each["run"] for each in status["holders"]] == ["a"]
        assert [each["run"] for each in status["waiters"]] == ["b"]


async def test_a_waiting_run_is_woken_when_it_holds_the_limit(store: Store) -> None:
    store.put("workflowlimits", "mutex", spec={})
    async with operator(store) as limits:
        woken: list[str] = []
        limits.wake = lambda run: woken.append(run.name)
        for name in ("a", "b", "c"):
            await limits.claim("shop", "mutex", claim(name))

        async def release(queue: LimitQueue, spec: WorkflowLimitSpec) -> LimitQueue:
            return queue.release({"uid-a"}).admit(spec.capacity, now())

        await limits.change("shop", "mutex", release)
        assert woken == ["b"]
        assert await limits.claim("shop", "mutex", claim("b")) == Granted()
        assert [name for name, _ in limits.listing("shop", "uid-c")] == ["mutex"]


async def test_a_limit_that_does_not_exist_or_is_invalid_cannot_be_used(store: Store) -> None:
    async with operator(store) as limits:
        woken: list[str] = []
        limits.wake = lambda run: woken.append(run.name)
        assert await limits.claim("shop", "mutex", claim("a")) == Unusable()
        limits.update(store.put("workflowlimits", "mutex", spec={"capacity": -1}))
        assert woken == ["a"]
        assert await limits.claim("shop", "mutex", claim("a")) == Unusable()
        (ready,) = store.objects["workflowlimits/mutex"]["status"]["conditions"]
        assert (ready["status"], ready["reason"]) == ("False", "InvalidSpec")
        assert "capacity: must be at least 0" in ready["message"]
        before = store.objects["workflowlimits/mutex"]["status"]
        limits.update(store.put("workflowlimits", "mutex", spec={"capacity": 1}, status=before))
        assert woken == ["a", "a"]
        assert await limits.claim("shop", "mutex", claim("a")) == Granted()


async def test_a_limit_of_a_newer_version_is_reported_and_left_as_it_is(store: Store) -> None:
    limit = store.put("workflowlimits", "mutex", spec={"capacity": 2})
    async with operator(store) as limits:
        assert await limits.claim("shop", "mutex", claim("a")) == Granted()
    status = store.objects["workflowlimits/mutex"]["status"]
    newer = {**status, "holders": [{**status["holders"][0], "slots": 2}], "reserved": {"b": 1}}
    store.put("workflowlimits", "mutex", spec=limit["spec"], status=newer)
    async with operator(store) as limits:
        woken: list[str] = []
        limits.wake = lambda run: woken.append(run.name)
        for _ in range(3):
            answer = await limits.claim("shop", "mutex", claim("b"))
        assert answer == Unusable(newer=True)
        assert isinstance(answer, Unusable)
        assert answer.reason("mutex", "shop").startswith("a newer version of Perdure has written the status")
        found = store.objects["workflowlimits/mutex"]["status"]
        (ready,) = found["conditions"]
        assert (ready["status"], ready["reason"]) == ("False", "NewerState")
        assert "unknown field `status.holders[0].slots`" in ready["message"]
        assert {**found, "conditions": None} == {**newer, "conditions": None}
        limits.update(store.put("workflowlimits", "mutex", spec=limit["spec"], status=status))
        assert woken == ["b"]
        assert await limits.claim("shop", "mutex", claim("b")) == Granted()


async def test_a_run_that_must_not_wait_is_not_listed(store: Store) -> None:
    store.put("workflowlimits", "mutex", spec={})
    async with operator(store) as limits:
        await limits.claim("shop", "mutex", claim("a"))
        assert await limits.claim("shop", "mutex", claim("b", queues=False)) == Full(WorkflowLimitSpec())
        assert not list(limits.listing("shop", "uid-b"))


@pytest.mark.parametrize(
    ("stored", "held"),
    [
        ({"state": {"status": "Running", "activities": {"2": {}}}}, ["r"]),
        ({"state": {"status": "Running", "holds": {"2": {}}}}, ["r"]),
        ({"phase": "Pending"}, ["r"]),
        ({"state": {"status": "Running"}}, []),
    ],
    ids=["an older version arrives late", "a step holds it", "the run has not begun", "it has ended"],
)
async def test_a_limit_is_released_only_after_the_run_records_the_end_of_the_activity_or_step(
    store: Store, stored: dict[str, Any], held: list[str]
) -> None:
    def run(status: dict[str, Any]) -> kube.Object:
        return store.put("workflowruns", "r", spec={}, status=status)

    store.put("workflowlimits", "mutex", spec={})
    store.objects["pods"] = {"metadata": {}, "items": []}
    async with Client.open(Access(server=store.address), user_agent="test") as client:
        limits, directory = WorkflowLimits(client, Recorder(client, instance="test")), Directory()
        woken: list[LimitKey] = []
        releases = LimitReleases(client, limits, AllShards(), directory, woken.append)
        older = run({"state": {"status": "Running"}})
        current = run({"state": {"status": "Running", "activities": {"2": {}}}})
        directory.put(current)
        taken = LimitEntry(run="r", run_id=current["metadata"]["uid"], event_id=2, created=now(), since=now())
        ref = RunRef(namespace="shop", name="r", uid=taken.run_id, workflow_id="r")
        assert await limits.claim("shop", "mutex", Claim(ref, taken)) == Granted()
        run(stored)
        releases.update_run(older)
        assert woken == [LimitKey("shop", "mutex")]
        await releases.reconcile("shop", "mutex", now())
        assert [each["run"] for each in store.objects["workflowlimits/mutex"]["status"]["holders"]] == held


def attempt_claim(name: str, attempt: int = 1) -> Claim:
    made = claim(name)
    entry = made.entry.model_copy(update={"event_id": 5, "attempt": attempt})
    return Claim(made.run, entry)


def rated(store: Store, name: str, period: str = "1h") -> None:
    rate = {"count": 1, "period": period, "counts": "Attempts"}
    store.put("workflowlimits", name, spec={"capacity": 500, "rate": rate})


async def test_an_attempt_waits_for_a_rate_that_counts_attempts_and_is_woken_when_it_is_permitted(store: Store) -> None:
    rated(store, "calls")
    async with operator(store) as limits:
        woken: list[str] = []
        limits.wake = lambda run: woken.append(run.name)
        place = Wanted("calls", attempt_claim("a"))
        assert await limits.acquire("shop", (place,)) == []
        assert await limits.permit("shop", (place,), 1) == [], "the place came with a permission"
        ((missing, full),) = await limits.permit("shop", (place,), 2)
        assert (missing, full.until is not None) == (place, True)
        assert full.reason("calls", "", "holder") == (
            "WorkflowLimit `calls` is full: it allows 500 holders and 1 attempt per 1h"
        )
        before = store.objects["workflowlimits/calls"]["metadata"]["resourceVersion"]
        assert len(await limits.permit("shop", (place,), 2)) == 1
        assert store.objects["workflowlimits/calls"]["metadata"]["resourceVersion"] == before, "it waits already"
        assert woken == []

        async def an_hour_later(queue: LimitQueue, spec: WorkflowLimitSpec) -> LimitQueue:
            past = [each.model_copy(update={"time": each.time - timedelta(hours=2)}) for each in queue.recent]
            return replace(queue, recent=tuple(past)).admit(spec.capacity, now(), spec.rate)

        await limits.change("shop", "calls", an_hour_later)
        assert woken == ["a"]
        assert await limits.permit("shop", (place,), 2) == []


async def test_of_two_rates_none_is_asked_until_both_have_room(store: Store) -> None:
    rated(store, "calls")
    rated(store, "others")
    async with operator(store) as limits:
        taken = Wanted("others", attempt_claim("b"))
        assert await limits.acquire("shop", (taken,)) == []
        group = taken_together([Wanted(name, attempt_claim("a")) for name in ("calls", "others")])
        for name in ("calls", "others"):
            entry = group[0].claim.entry.model_copy(update={"attempt": 1, "permitted": None}).dump()
            status = store.objects[f"workflowlimits/{name}"].get("status") or {"conditions": [], "waiters": []}
            holders = [entry, *status.get("holders", [])]
            spec = store.objects[f"workflowlimits/{name}"]["spec"]
            limits.update(store.put("workflowlimits", name, spec=spec, status={**status, "holders": holders}))
        missing = await limits.permit("shop", group, 1)
        assert [place.limit for place, _ in missing] == ["others"]
        assert not store.objects["workflowlimits/calls"]["status"].get("recent"), "a permission would expire"


async def test_a_rate_counts_admissions_until_all_operators_know_attempts(store: Store) -> None:
    rated(store, "calls")
    token = state_versions.process.set(state_versions.StateVersions(writes=ATTEMPT_RATES - 1))
    try:
        async with operator(store) as limits:
            place = Wanted("calls", attempt_claim("a"))
            assert await limits.acquire("shop", (place,)) == []
            assert await limits.permit("shop", (place,), 2) == []
            (holder,) = store.objects["workflowlimits/calls"]["status"]["holders"]
            assert not {"attempt", "permitted"} & holder.keys()
    finally:
        state_versions.process.reset(token)
