"""What schedules cost: the search for rare times; and, on a cluster, many that fire, and many that are due in the same second.

Figures are printed, and nothing is decided by them. PERDURE_SCHEDULES sets how many there are, PERDURE_SECONDS for how long they
fire (10,000 and 300 are the sizes that docs/limits.md speaks of).
"""

import asyncio
import os
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from statistics import median, quantiles
from typing import Any

import pytest

from audit import what, writes
from kube import Cluster, Json
from perdure.api.schedule import ScheduleSpec
from perdure.kube import client as api
from perdure.kube.access import find_access
from perdure.schedule.times import Times

pytestmark = [pytest.mark.bench, pytest.mark.timeout(3600)]

SCHEDULES = int(os.environ.get("PERDURE_SCHEDULES", "200"))
SECONDS = int(os.environ.get("PERDURE_SECONDS", "30"))
QUICK: Json = {"steps": [{"name": "end", "return": {"output": "done"}}]}


def test_the_search_for_rare_times_is_fast() -> None:
    template = {"spec": {"workflow": {"name": "none"}}}
    after = datetime(2060, 3, 1, tzinfo=UTC)
    for spec in (
        {"cron": ["0 0 29 2 MON"]},
        {"cron": ["0 0 29 2 MON"], "timeZone": "Europe/Berlin"},
        {"calendars": [{"month": "2", "dayOfMonth": "29", "dayOfWeek": "Mon"}], "exclude": [{"year": "2072"}]},
        {"cron": ["0 0 30 2 *"]},
        {"cron": ["* * * * *"], "exclude": [{}]},
        {"cron": ["* * * * *"]},
    ):
        times = Times(ScheduleSpec.parse({**spec, "workflowRunTemplate": template}))
        took = []
        for _ in range(20):
            began = time.perf_counter()
            found = next(times.nominal(after), None)
            took.append((time.perf_counter() - began) * 1000)
        print(f"{max(took):7.3f} ms at most, {median(took):.3f} ms mostly: {spec} -> {found}")


def schedule(name: str, namespace: str, **spec: Any) -> Json:
    return {
        "apiVersion": "perdure.dev/v1alpha1",
        "kind": "Schedule",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "overlapPolicy": "AllowAll",
            "catchupWindow": "1h",
            "workflowRunTemplate": {"spec": {"inline": QUICK}},
            **spec,
        },
    }


async def create_all(plural: str, namespace: str, objects: list[Json]) -> float:
    """Create objects, as many at a time as the operator does; seconds that it took."""
    access = find_access()
    began = time.perf_counter()
    async with api.Client.open(access, user_agent="perdure-bench", connections=32) as client:
        gate = asyncio.Semaphore(32)

        async def create(obj: Json) -> None:
            async with gate:
                await client.create(api.path(api.PERDURE, namespace, plural), obj)

        await asyncio.gather(*map(create, objects))
    return time.perf_counter() - began


def lateness(namespace: Cluster) -> list[float]:
    """Seconds from when runs were due to when they were decided."""
    found = []
    for each in namespace.list("schedules"):
        for action in (each.get("status") or {}).get("recentActions") or []:
            due, began = (datetime.fromisoformat(action[field]) for field in ("scheduledTime", "actualTime"))
            found.append((began - due).total_seconds())
    return found


def show(title: str, late: list[float]) -> None:
    hundredths = quantiles(late, n=100) if len(late) > 1 else late * 99
    print(
        f"{title}: {len(late)} actions, late p50 {median(late):.3f} s, p99 {hundredths[98]:.3f} s, most {max(late):.3f} s"
    )


@pytest.mark.cluster
@pytest.mark.alone
async def test_many_schedules_that_fire_now_and_then(namespace: Cluster) -> None:
    every = max(2, SCHEDULES * 2 // 5)
    name = namespace.namespace
    objects = [
        schedule(f"s-{n:05}", name, intervals=[{"every": f"{every}s", "offset": f"{n % every}s"}])
        for n in range(SCHEDULES)
    ]
    took = await create_all("schedules", name, objects)
    print(f"{SCHEDULES} schedules created in {took:.1f} s, each fires every {every} s")
    await asyncio.sleep(SECONDS)
    show("spread", lateness(namespace))
    by_what = Counter(what(entry) for entry in writes(name))
    actions = sum((s.get("status") or {}).get("counts", {}).get("actions", 0) for s in namespace.list("schedules"))
    own = {key: count for key, count in by_what.items() if "schedules" in key or key == "create workflowruns"}
    print(
        f"{actions} actions; writes: {own}; {(sum(own.values()) - 2 * SCHEDULES) / max(actions, 1):.2f} for each action"
    )
    assert actions


@pytest.mark.cluster
@pytest.mark.alone
async def test_many_schedules_that_are_due_in_the_same_second(namespace: Cluster) -> None:
    name = namespace.namespace
    raw = [
        {
            "apiVersion": "perdure.dev/v1alpha1",
            "kind": "WorkflowRun",
            "metadata": {"name": f"raw-{n:05}", "namespace": name},
            "spec": {"workflow": {"name": "nobody"}},
        }
        for n in range(SCHEDULES)
    ]
    took = await create_all("workflowruns", name, raw)
    namespace("delete", "workflowruns", "--all", "--wait=false")
    due = datetime.now(UTC) + timedelta(seconds=max(20, SCHEDULES // 25))  # noqa: TID251 (of this machine, which is the cluster's)
    calendar = {field: str(getattr(due, field)) for field in ("year", "month", "hour", "minute", "second")}
    objects = [
        schedule(f"s-{n:05}", name, calendars=[{**calendar, "dayOfMonth": str(due.day)}]) for n in range(SCHEDULES)
    ]
    await create_all("schedules", name, objects)

    def started() -> list[float] | None:
        found = lateness(namespace)
        return found if len(found) == SCHEDULES else None

    late = namespace.wait("all to have started", started, seconds=600)
    made = [
        datetime.fromisoformat(run["metadata"]["creationTimestamp"])
        for run in namespace.list("workflowruns", "-l", "perdure.dev/schedule")
    ]
    show("herd", late)
    last = (max(made) - due).total_seconds()
    print(f"the last of {len(made)} runs was made {last:.0f} s after; as many raw creates took {took:.1f} s")
    assert len(made) >= SCHEDULES
