"""What schedules cost: the search for rare times; and, on a cluster, many that fire, and many that are due in the same second.

Figures are printed, and nothing is decided by them. PERDURE_SCHEDULES sets how many there are, PERDURE_SECONDS for how long they
fire (10,000 and 300 are the sizes that docs/sizing.md speaks of).
"""

import asyncio
import os
import time
from collections import Counter
from datetime import UTC, datetime
from statistics import median, quantiles

import pytest

from bench.schedules import create_all, herd, lateness, schedule
from perdure.api.kinds.schedule import ScheduleSpec
from perdure.schedule.times import Times
from support.cluster.audit import what, writes
from support.cluster.namespace import SYSTEM, Cluster

pytestmark = [pytest.mark.bench, pytest.mark.timeout(3600)]

SCHEDULES = int(os.environ.get("PERDURE_SCHEDULES", "200"))
SECONDS = int(os.environ.get("PERDURE_SECONDS", "30"))


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


def show(title: str, late: list[float]) -> None:
    hundredths = quantiles(late, n=100) if len(late) > 1 else late * 99
    print(
        f"{title}: {len(late)} actions, late p50 {median(late):.3f} s, p99 {hundredths[98]:.3f} s, most {max(late):.3f} s"
    )


def usage(namespace: Cluster) -> tuple[float, float]:
    """Seconds of CPU that the operator has used since it began, and its memory in MiB."""
    system = Cluster(namespace.kubectl, namespace.kubeconfig, SYSTEM)
    (pod,) = system.list("pods", "--field-selector=status.phase=Running")
    text = system("get", "--raw", f"/api/v1/namespaces/{SYSTEM}/pods/{pod['metadata']['name']}:8080/proxy/metrics")
    reported = dict(line.split() for line in text.splitlines() if line.startswith("process_"))
    return float(reported["process_cpu_seconds_total"]), float(reported["process_resident_memory_bytes"]) / 2**20


@pytest.mark.cluster
@pytest.mark.alone
async def test_many_schedules_that_fire_at_different_times(namespace: Cluster) -> None:
    every = max(2, SCHEDULES * 2 // 5)
    name = namespace.namespace
    objects = [
        schedule(f"s-{n:05}", name, intervals=[{"every": f"{every}s", "offset": f"{n % every}s"}])
        for n in range(SCHEDULES)
    ]
    took = await create_all("schedules", name, objects)
    print(f"{SCHEDULES} schedules created in {took:.1f} s, each fires every {every} s")
    namespace.wait("all to have a first status", lambda: all("status" in each for each in namespace.list("schedules")))
    since = datetime.now(UTC)  # noqa: TID251 (of this machine, which is the cluster's)
    (before, _), actions, written = usage(namespace), actions_of(namespace), writes_of(name)
    await asyncio.sleep(SECONDS)
    (after, memory), done = usage(namespace), actions_of(namespace) - actions
    cost = writes_of(name) - written
    show("spread", lateness(namespace, since))
    print(f"operator: {(after - before) / SECONDS:.2f} cores, {memory:.0f} MiB")
    print(f"{done} actions; writes: {dict(cost)}; {cost.total() / max(done, 1):.2f} for each action")
    assert done


def actions_of(namespace: Cluster) -> int:
    """The number of actions of the schedules in a namespace."""
    return sum((each.get("status") or {}).get("counts", {}).get("actions", 0) for each in namespace.list("schedules"))


def writes_of(namespace: str) -> Counter[str]:
    """The writes that schedules cost: their own, and the making of their runs."""
    reported = Counter(map(what, writes(namespace)))
    return Counter(
        {key: count for key, count in reported.items() if "schedules" in key or key == "create workflowruns"}
    )


@pytest.mark.cluster
@pytest.mark.alone
async def test_many_schedules_that_are_due_in_the_same_second(namespace: Cluster) -> None:
    found = await herd(namespace, SCHEDULES)
    show("herd", found.late)
    print(
        f"the last of {SCHEDULES} runs started {found.last:.1f} s after they were due; as many raw creates with a status write "
        f"each took {found.raw:.1f} s; the last of as many Jobs of CronJobs was made {found.cron_jobs:.0f} s after"
    )
