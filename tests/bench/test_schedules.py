"""What schedules cost: the search for rare times; and, on a cluster, many that fire, and many that are due in the same second.

Figures are printed, and nothing is decided by them. PERDURE_SCHEDULES sets how many there are, PERDURE_SECONDS for how long they
fire (10,000 and 300 are the sizes that docs/sizing.md speaks of).
"""

import asyncio
import json
import os
import time
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from statistics import median, quantiles
from typing import Any

import pytest

from perdure.api.kinds.schedule import ScheduleSpec
from perdure.kube import client as kube
from perdure.kube.access import find_access
from perdure.schedule.times import Times
from support.audit import what, writes
from support.kube import SYSTEM, Cluster, Json

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


async def create_all(plural: str, namespace: str, objects: list[Json], *, status: Json | None = None) -> float:
    """Create objects, as many at a time as the operator does, and write a status into each; seconds that it took."""
    access = find_access()
    began = time.perf_counter()
    async with kube.Client.open(access, user_agent="perdure-bench", connections=32) as client:
        gate = asyncio.Semaphore(32)

        async def create(obj: Json) -> None:
            async with gate:
                made = await client.create(kube.path(kube.PERDURE, namespace, plural), obj)
                if status is not None:
                    url = kube.path(kube.PERDURE, namespace, plural, obj["metadata"]["name"])
                    await client.set_status(url, made, status)

        await asyncio.gather(*map(create, objects))
    return time.perf_counter() - began


def lateness(namespace: Cluster, since: datetime | None = None) -> list[float]:
    """Seconds from when runs were due, at the earliest at some time, to when they were decided."""
    found = []
    for each in namespace.list("schedules"):
        for action in (each.get("status") or {}).get("recentActions") or []:
            due, began = (datetime.fromisoformat(action[field]) for field in ("scheduledTime", "actualTime"))
            if since is None or due >= since:
                found.append((began - due).total_seconds())
    return found


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


def cron_jobs(namespace: Cluster, count: int) -> list[float]:
    """Seconds after they were due that Kubernetes' own CronJob controller has made as many Jobs; suspended, so without pods."""
    pod = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "none"}]}
    job = {"spec": {"suspend": True, "template": {"spec": pod}}}
    due = datetime.now(UTC).replace(second=0, microsecond=0) + timedelta(minutes=2 + count // 500)  # noqa: TID251 (as above)
    spec = {"schedule": f"{due.minute} {due.hour} {due.day} {due.month} *", "timeZone": "UTC", "jobTemplate": job}
    manifests = [
        {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": f"c-{n:05}"}, "spec": spec}
        for n in range(count)
    ]
    namespace("create", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": manifests}))

    def made() -> list[float] | None:
        found = [datetime.fromisoformat(j["metadata"]["creationTimestamp"]) for j in namespace.list("jobs")]
        return [(each - due).total_seconds() for each in found] if len(found) == count else None

    late: list[float] = namespace.wait("all Jobs to be made", made, seconds=900)
    namespace("delete", "cronjobs,jobs", "--all", "--wait=false")
    return late


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
    (before, _), actions, written = usage(namespace), actions_of(namespace), own_writes(name)
    await asyncio.sleep(SECONDS)
    (after, memory), done = usage(namespace), actions_of(namespace) - actions
    cost = own_writes(name) - written
    show("spread", lateness(namespace, since))
    print(f"operator: {(after - before) / SECONDS:.2f} cores, {memory:.0f} MiB")
    print(f"{done} actions; writes: {dict(cost)}; {cost.total() / max(done, 1):.2f} for each action")
    assert done


def actions_of(namespace: Cluster) -> int:
    """The number of actions of the schedules in a namespace."""
    return sum((each.get("status") or {}).get("counts", {}).get("actions", 0) for each in namespace.list("schedules"))


def own_writes(namespace: str) -> Counter[str]:
    """The writes that schedules cost: their own, and the making of their runs."""
    reported = Counter(map(what, writes(namespace)))
    return Counter(
        {key: count for key, count in reported.items() if "schedules" in key or key == "create workflowruns"}
    )


@dataclass(frozen=True)
class Herd:
    """Schedules that were due in the same second."""

    late: list[float]
    """Seconds from when each action was due to when it was decided."""
    last: float
    """Seconds from when all were due to when the last run had started."""
    raw: float
    """Seconds that as many creates with a status write each took."""
    cron_jobs: float
    """Seconds from when as many CronJobs were due to when the last Job was created."""


async def herd(namespace: Cluster, count: int) -> Herd:
    """Have as many schedules fire in the same second, and measure the same of raw objects and of CronJobs."""
    name = namespace.namespace
    gone = {"name": "none", "workflowId": "none", "runId": "none"}
    failure = {"kind": "Application", "message": "none"}
    letter = {"workflowRun": gone, "step": "none", "activity": "none", "failure": failure, "attempts": 1}
    letter["failedTime"] = "2026-01-01T00:00:00Z"
    # Objects of about the size of a small run, which no operator watches.
    raw = [
        {
            "apiVersion": "perdure.dev/v1alpha1",
            "kind": "DeadLetter",
            "metadata": {"name": f"raw-{n:05}"},
            "spec": letter,
        }
        for n in range(count)
    ]
    took = await create_all("deadletters", name, raw, status={"redrives": 1})
    namespace("delete", "deadletters", "--all", "--wait=false")
    now = datetime.now(UTC)  # noqa: TID251 (of this machine, which is the cluster's)
    due = now.replace(microsecond=0) + timedelta(seconds=max(60, count // 25))
    calendar = {field: str(getattr(due, field)) for field in ("year", "month", "hour", "minute", "second")}
    objects = [schedule(f"s-{n:05}", name, calendars=[{**calendar, "dayOfMonth": str(due.day)}]) for n in range(count)]
    await create_all("schedules", name, objects)

    def started() -> list[float] | None:
        found = lateness(namespace)
        return found if len(found) == count else None

    def running() -> list[datetime] | None:
        found = namespace.list("workflowruns", "-l", "perdure.dev/schedule")
        times = [run["status"]["startTime"] for run in found if "startTime" in run.get("status", {})]
        return list(map(datetime.fromisoformat, times)) if len(times) == count else None

    late = namespace.wait("all actions to be recorded", started, seconds=600)
    # An action is recorded before its run is created.
    last = (max(namespace.wait("the runs of all to start", running, seconds=600)) - due).total_seconds()
    return Herd(late, last, took, max(cron_jobs(namespace, count)))


@pytest.mark.cluster
@pytest.mark.alone
async def test_many_schedules_that_are_due_in_the_same_second(namespace: Cluster) -> None:
    found = await herd(namespace, SCHEDULES)
    show("herd", found.late)
    print(
        f"the last of {SCHEDULES} runs started {found.last:.1f} s after they were due; as many raw creates with a status write "
        f"each took {found.raw:.1f} s; the last of as many Jobs of CronJobs was made {found.cron_jobs:.0f} s after"
    )
