"""Many open runs of one Workflow, by the size of its definition: memory of the API server and of an operator, and a commit.

Once the status of each run contains the definition, as in the form before WorkflowRevisions, and once it refers to a revision.
An operator serves the latter only.
"""

import asyncio
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import orjson

from bench.costs import ApiServerCosts
from bench.fleets import started, wait
from bench.results import Result
from bench.sleepers import AT_ONCE, PROGRESS
from perdure.api.labels import API_VERSION
from perdure.kube import client as kube
from perdure.kube.access import find_access
from perdure.runtime import status_encoding
from perdure.runtime.commits import OF_RUNS, committed
from support.cluster.namespace import Cluster, Json, temporary_namespace
from support.sdk.server import Operator

KILOBYTES: Final = (3, 30, 100)
MOST_BYTES: Final = 400_000_000
"""Of definitions in runs: etcd has 2 GB by default, keeps what was deleted for some minutes, and stores each commit again."""
COMMITS: Final = 1_000
"""Commits whose CPU time is measured, at most one for each run."""
WORKFLOW: Final = "subscription"


def definition_of(size: int) -> Json:
    """A definition of about `size` bytes of JSON: activities with commands, and steps that run them and wait for a signal."""
    found: Json = {"activities": [], "steps": [{"name": "go", "waitForSignal": {"name": "go"}}]}
    while len(json.dumps(found)) < size:
        name = f"work-{len(found['activities'])}"
        container = {
            "image": "registry.example.com/shop/work:1.7.3",
            "command": ["work"],
            "args": ["--step", name, "x" * 1_000],
        }
        found["activities"].append({"name": name, "startToCloseTimeout": "5m", "container": container})
        found["steps"].append({"name": name, "activity": {"name": name, "input": {"order": "${input.order}"}}})
    return found


async def measure_revisions(operator: Operator, number: int) -> list[Result]:
    """Measure both forms with definitions of each size.

    Args:
        operator: Starts the runs that the others are copies of.
        number: How many runs there are of each form; fewer if their definitions would fill etcd.
    """
    results: list[Result] = []
    for kilobytes in KILOBYTES:
        first, definition = len(results), definition_of(kilobytes * 1_000)
        run, revision = await asyncio.to_thread(_run_of, operator.cluster, f"{WORKFLOW}-{kilobytes}", definition)
        inline = {key: value for key, value in run["status"].items() if key != "revision"} | {"definition": definition}
        inside = min(number, MOST_BYTES // len(json.dumps(definition)))
        before = await _measure(operator.cluster, {**run, "status": inline}, [], inside)
        after = await _measure(operator.cluster, run, [revision], number)
        form = f"{inside} runs with the definition in their status"
        results += [
            Result(f"definition of {kilobytes} KB, {number} runs: {what}", unit, figure, form, before[what, unit])
            if (what, unit) in before
            else Result(f"definition of {kilobytes} KB, {number} runs: {what}", unit, figure)
            for (what, unit), figure in after.items()
        ]
        print(*results[first:], sep="\n", file=sys.stderr)
    return results


def _run_of(cluster: Cluster, workflow: str, definition: Json) -> tuple[Json, Json]:
    """Start a run that waits for its signal, and return it with the revision that it refers to."""
    head, name = {"apiVersion": "perdure.dev/v1alpha1", "kind": "Workflow"}, f"first-{workflow}"
    cluster.apply({**head, "metadata": {"name": workflow}, "spec": definition})
    cluster.start(name, {"workflow": {"name": workflow}, "input": {"order": "A-1001"}})
    run = cluster.wait("the run to wait for its signal", lambda: _waiting(cluster, name))
    revision = cluster.get("workflowrevision", run["status"]["revision"]["name"])
    assert revision is not None
    return status_encoding.decode(run), revision


def _waiting(cluster: Cluster, name: str) -> Json | None:
    run = cluster.get("workflowrun", name)
    return run if run is not None and (run.get("status") or {}).get("awaitedSignals") else None


async def _measure(cluster: Cluster, run: Json, revisions: Sequence[Json], number: int) -> dict[tuple[str, str], float]:
    """Fill a namespace with copies of a run, commit some of them again, and let an operator serve those that have revisions."""
    with temporary_namespace(cluster, excluded=True) as namespace, TemporaryDirectory() as folder:
        for each in revisions:
            meta = {key: each["metadata"][key] for key in ("name", "labels")}
            namespace.create({**{key: each[key] for key in ("apiVersion", "kind", "spec")}, "metadata": meta})
        before = _server_memory(namespace)
        copies = await _fill(namespace, run, number)
        grown = _server_memory(namespace) - before
        sent, cpu = await _commit(namespace, copies)
        found = {
            ("kube-apiserver, memory for each run", "KB"): grown / number / 1_000,
            ("bytes of a commit", "KB"): sent / 1_000,
            ("CPU of the API server for each commit", "ms"): cpu,
        }
        if revisions:
            with started(namespace, Path(folder), 1) as (member,):
                await asyncio.to_thread(wait, [member], member.check)

                def has_all() -> bool:
                    metrics = member.metrics()
                    return metrics["perdure_runs_hibernated"] + metrics["perdure_runs_known"] >= number

                await asyncio.to_thread(wait, [member], has_all)
                found["memory of the operator", "MiB"] = member.memory("Rss")
                found["peak of the operator", "MiB"] = member.peak()
    name = namespace.namespace  # to delete the runs costs the API server as much as to create them
    cluster.wait("the namespace to be gone", lambda: cluster.get("namespace", name) is None, seconds=3_600)
    return found


async def _fill(namespace: Cluster, run: Json, number: int) -> list[Json]:
    """Copy a run, and return some of the copies, which are to be committed again."""
    url, began = kube.path(kube.PERDURE, namespace.namespace, "workflowruns"), time.monotonic()
    body = {"apiVersion": API_VERSION, **{key: run[key] for key in ("kind", "spec")}}
    text, original = orjson.dumps(run["status"]).decode(), run["metadata"]
    copies: list[Json] = []
    numbers = iter(range(number))

    async def write(client: kube.Client) -> None:
        for each in numbers:
            name = f"copy-{each:06}"
            made = await client.create(url, {**body, "metadata": {"name": name}})
            uid = made["metadata"]["uid"]
            changed = text.replace(original["uid"], uid).replace(f'"{original["name"]}"', f'"{name}"')
            status = committed(orjson.loads(changed), OF_RUNS, uid, 1)
            written = await client.set_status(f"{url}/{name}", made, status_encoding.encode(status))
            if len(copies) < COMMITS:
                copies.append({**made, "metadata": written["metadata"], "status": status})
            if each % PROGRESS == PROGRESS - 1:
                print(f"{each + 1} runs after {time.monotonic() - began:.0f} s", file=sys.stderr)

    async with kube.Client.open(find_access(), user_agent="perdure-bench", connections=AT_ONCE) as client:
        await asyncio.gather(*(write(client) for _ in range(AT_ONCE)))
    return copies


async def _commit(namespace: Cluster, runs: Sequence[Json]) -> tuple[float, float]:
    """Write the next commit of each run, and return its bytes, and the milliseconds of CPU time of the API server."""
    url = kube.path(kube.PERDURE, namespace.namespace, "workflowruns")
    statuses = [status_encoding.encode(committed(run["status"], OF_RUNS, run["metadata"]["uid"], 2)) for run in runs]
    pairs = iter(zip(runs, statuses, strict=True))
    costs = ApiServerCosts(namespace)

    async def write(client: kube.Client) -> None:
        for run, status in pairs:
            await client.set_status(f"{url}/{run['metadata']['name']}", run, status)

    async with kube.Client.open(find_access(), user_agent="perdure-bench", connections=AT_ONCE) as client:
        await asyncio.gather(*(write(client) for _ in range(AT_ONCE)))
    return sum(len(orjson.dumps(each)) for each in statuses) / len(runs), costs.spent()[0] / len(runs)


def _server_memory(cluster: Cluster) -> float:
    """Bytes that the API server uses once it has collected its garbage; it takes up to twice as much from the system."""
    profile = cluster("get", "--raw", "/debug/pprof/heap?gc=1&debug=1").splitlines()
    return next(float(row.rpartition(" ")[2]) for row in profile if row.startswith("# HeapAlloc = "))
