"""Many Schedules at once: create them, and measure how late they fire."""

import asyncio
import json
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from perdure.kube import client as kube
from perdure.kube.access import find_access
from support.cluster.namespace import Cluster, Json

QUICK: Json = {"steps": [{"name": "end", "return": {"output": "done"}}]}


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
