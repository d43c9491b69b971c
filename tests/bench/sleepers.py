"""Many open runs that sleep: the memory of an operator and of the API server, how soon it is ready, and how late timers fire."""

import asyncio
import sys
import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import orjson

from bench.fleets import Member, started, wait
from bench.results import Result
from perdure.api.labels import API_VERSION
from perdure.api.times import format_time, parse_time
from perdure.controller.fleet.shards import SHARDS
from perdure.kube import client as kube
from perdure.kube.access import find_access
from perdure.kube.clock import now
from perdure.runtime import status_encoding
from perdure.runtime.commits import OF_RUNS, committed
from support.cluster.namespace import Cluster, Json, temporary_namespace
from support.sdk.server import Operator

AT_ONCE: Final = 32
PROGRESS: Final = 10_000
SERIES: Final = "bench.perdure.dev/series"
"""Label of the runs that are due together."""
DUE: Final = "bench.perdure.dev/due"
"""Annotation with the time at which the timer of a run is due."""
DUE_WITHIN: Final = 60.0
"""The timers of a part of the runs are due within so many seconds."""
NAP: Json = {
    "steps": [
        {"name": "nap", "sleep": {"duration": "720h"}},
        {"name": "cancelled", "waitForSignal": {"name": "cancelled"}},
    ]
}


async def measure_sleepers(operator: Operator, number: int, due: int) -> list[Result]:
    """Fill a namespace with sleeping runs, and start one operator that serves it, then two, of which one is killed.

    Args:
        operator: Starts the run that the others are copies of.
        number: How many runs sleep.
        due: How many of them are due in the same minute, once while one operator serves them and once while two do.
    """
    operator.cluster.start("sleeper", {"inline": NAP})
    sleeper = operator.cluster.wait("the timer", lambda: _asleep(operator.cluster, "sleeper"))
    results: list[Result] = []
    with temporary_namespace(operator.cluster, excluded=True) as namespace, TemporaryDirectory() as folder:
        before = _server_memory(namespace)
        later = now() + timedelta(days=30)
        await _fill(namespace, sleeper, [later] * (number - 2 * due))
        grown = _server_memory(namespace) - before
        results.append(Result("kube-apiserver, memory for each sleeping run", "KB", grown / (number - 2 * due) / 1000))
        for members in (1, 2):
            soon = now() + timedelta(seconds=120 + due / 100)
            first = len(results)
            await _fill(
                namespace, sleeper, [soon + timedelta(seconds=DUE_WITHIN * i / due) for i in range(due)], members
            )
            with started(namespace, Path(folder), members) as found:
                results += await _measure(namespace, found, number - due * (2 - members), soon, due)
            print(*results[first:], sep="\n", file=sys.stderr)
    return results


def _asleep(cluster: Cluster, name: str) -> Json | None:
    run = cluster.get("workflowrun", name)
    return run if run is not None and ((run.get("status") or {}).get("state") or {}).get("timers") else None


async def _fill(namespace: Cluster, sleeper: Json, times: Sequence[datetime], series: int = 0) -> None:
    """Copy a sleeping run, so that its timer fires at each of the times."""
    url, began = kube.path(kube.PERDURE, namespace.namespace, "workflowruns"), time.monotonic()
    body = {"apiVersion": API_VERSION, **{key: sleeper[key] for key in ("kind", "spec")}}
    text = orjson.dumps(status_encoding.decode(sleeper)["status"]).decode()
    numbered = enumerate(times)

    async def write(client: kube.Client) -> None:
        for each, due in numbered:
            name = f"sleeper-{series}-{each:06}"
            meta = {"name": name, "labels": {SERIES: str(series)}, "annotations": {DUE: format_time(due)}}
            made = await client.create(url, {**body, "metadata": meta})
            uid = made["metadata"]["uid"]
            status = orjson.loads(text.replace(sleeper["metadata"]["uid"], uid).replace('"sleeper"', f'"{name}"'))
            timer = next(iter(status["state"]["timers"].values()))
            timer["fireTime"] = format_time(due)
            status = committed(status, OF_RUNS, uid, 1)
            await client.set_status(f"{url}/{name}", made, status_encoding.encode(status))
            if each % PROGRESS == PROGRESS - 1:
                print(f"{each + 1} sleeping runs after {time.monotonic() - began:.0f} s", file=sys.stderr)

    async with kube.Client.open(find_access(), user_agent="perdure-bench", connections=AT_ONCE) as client:
        await asyncio.gather(*(write(client) for _ in range(AT_ONCE)))


async def _measure(
    namespace: Cluster, members: Sequence[Member], number: int, soon: datetime, due: int
) -> list[Result]:
    """Wait until operators that have just started are ready; then kill one of two, and let timers fire."""
    await asyncio.to_thread(wait, members, lambda: sum(each.check() for each in members) == len(members))
    await asyncio.to_thread(wait, members, lambda: _has_all(members, number))
    results: list[Result] = []
    for position, each in enumerate(members, start=1):
        who = f"operator {position} of {len(members)}, {number} sleeping runs: "
        results += [
            Result(f"{who}ready after", "s", each.ready),
            Result(f"{who}memory", "MiB", each.memory("Rss")),
            Result(f"{who}peak", "MiB", each.peak()),
        ]
    live = list(members)
    if len(members) > 1:
        members[0].process.kill()
        live.remove(members[0])
        began = time.monotonic()
        await asyncio.to_thread(wait, live, lambda: _has_all(live, number))
        results.append(Result("the other is killed: all runs taken over after", "s", time.monotonic() - began))
    late = sorted(await _lateness(namespace, len(members), soon, due))
    results += [
        Result(f"{due} timers due within a minute: late by, p50", "s", late[len(late) // 2]),
        Result(f"{due} timers due within a minute: late by, p99", "s", late[len(late) * 99 // 100]),
        Result(f"{due} timers due within a minute: late by, most", "s", late[-1]),
    ]
    results += [Result("memory afterwards", "MiB", each.memory("Rss")) for each in live]
    return results


def _has_all(members: Sequence[Member], number: int) -> bool:
    found = [each.metrics() for each in members]
    shards = len(members) == 1 or sum(each["perdure_fleet_shards"] for each in found) == SHARDS
    return shards and sum(each["perdure_runs_hibernated"] + each["perdure_runs_known"] for each in found) >= number


async def _lateness(namespace: Cluster, series: int, soon: datetime, due: int) -> list[float]:
    """Wait until all timers of a series have fired, and return by how many seconds each was late."""
    url, selector = kube.path(kube.PERDURE, namespace.namespace, "workflowruns"), f"{SERIES}={series}"
    await asyncio.sleep(max(0.0, (soon - now()).total_seconds() + DUE_WITHIN))
    async with kube.Client.open(find_access(), user_agent="perdure-bench", connections=AT_ONCE) as client:
        while True:
            runs = [run async for run in client.lists.each(url, labelSelector=selector)]
            late = [found for run in runs if (found := _late_by(status_encoding.decode(run))) is not None]
            if len(late) == due:
                return late
            await asyncio.sleep(5)


def _late_by(run: Json) -> float | None:
    """By how many seconds the timer of a run fired late; None if it has not fired."""
    fired = [each for each in run["status"]["history"]["events"] if each["eventType"] == "TimerFired"]
    if not fired:
        return None
    due = parse_time(run["metadata"]["annotations"][DUE])
    return (parse_time(fired[0]["eventTime"]) - due).total_seconds()


def _server_memory(cluster: Cluster) -> float:
    """Resident bytes of the API server."""
    rows = cluster("get", "--raw", "/metrics").splitlines()
    return next(float(row.split()[1]) for row in rows if row.startswith("process_resident_memory_bytes "))
