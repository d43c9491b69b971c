"""What writing the status of a run costs the API server, next to an object of the same size without a schema.

Each write is sent to every watch, so both kinds are watched equally often: the garbage collector of the cluster watches each
kind, and the operator watches runs.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from statistics import median

from bench.costs import ApiServerCosts
from bench.results import Result
from bench.schedules import QUICK
from perdure.kube import client as kube
from perdure.kube.access import find_access
from perdure.runtime import status_encoding
from support.cluster.namespace import Cluster, Json, run_manifest, temporary_namespace
from support.sdk.server import Operator

OBJECTS = 60
WRITES = 3
"""Of each object, as of a workflow with one activity."""
ROUNDS = 3
BARE = "bench.example.com/v1"
_WATCHES = re.compile(
    r'^apiserver_longrunning_requests\{.*resource="(workflowruns|bares)".*verb="WATCH".*\} (\S+)$', re.MULTILINE
)
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
CRD: Json = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "bares.bench.example.com"},
    "spec": {
        "group": "bench.example.com",
        "names": {"kind": "Bare", "plural": "bares"},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                },
            }
        ],
    },
}


async def measure_writes(operator: Operator) -> list[Result]:
    """The writes of a run that only returns a value, repeated on objects that no operator watches."""
    operator.cluster.start("written", {"inline": QUICK})
    statuses = growing(operator.cluster.closed("written"), WRITES)
    runs = [run_manifest(f"write-{number}", {"inline": QUICK}) for number in range(OBJECTS)]
    bares = [{**run, "apiVersion": BARE, "kind": "Bare"} for run in runs]
    kinds = (kube.PERDURE, "workflowruns", runs), (f"/apis/{BARE}", "bares", bares)
    costs: tuple[list[tuple[float, float]], ...] = [], []
    with temporary_namespace(operator.cluster, excluded=True) as unserved:
        async with (
            kube.Client.open(find_access(), user_agent="perdure-bench") as client,
            _bare_kind(client),
            _watched_equally(client, operator.cluster),
        ):
            for turn in range(ROUNDS):
                for (group, plural, objects), found in zip(kinds, costs, strict=True):
                    url = kube.path(group, unserved.namespace, plural)
                    api = ApiServerCosts(unserved)
                    made = [await client.create(url, _named(each, turn)) for each in objects]
                    creating = api.spent()[0]
                    for each in made:
                        await _write(client, url, each, statuses)
                    found.append((creating, api.spent()[0] - creating))
    mine, theirs = ([median(kind) / OBJECTS for kind in zip(*each, strict=True)] for each in costs)
    bare = "an object without a schema"
    return [
        Result("CPU of the API server for a status write", "ms", mine[1] / WRITES, bare, theirs[1] / WRITES),
        Result(f"the same for a creation and {WRITES} status writes", "ms", sum(mine), bare, sum(theirs)),
    ]


def _named(obj: Json, turn: int) -> Json:
    return {**obj, "metadata": {"name": f"{obj['metadata']['name']}-{turn}"}}


def growing(status: Json, commits: int) -> list[Json]:
    """A status as it grows from commit to commit."""
    events = status["history"]["events"]
    found = []
    for number in range(1, commits + 1):
        some = events[: max(1, len(events) * number // commits)]
        history = {**status["history"], "events": some, "nextEventId": len(some) + 1}
        changed = {**status, "history": history, "commit": {**status["commit"], "number": number}}
        found.append(status_encoding.encode(changed))
    return found


async def _write(client: kube.Client, url: str, obj: Json, statuses: Sequence[Json]) -> None:
    """Write statuses one after the other, as the operator does."""
    for status in statuses:
        answer = await client.set_status(f"{url}/{obj['metadata']['name']}", obj, status)
        obj = {**obj, "metadata": answer["metadata"]}


@asynccontextmanager
async def _bare_kind(client: kube.Client) -> AsyncIterator[None]:
    """A kind with a schema that allows everything, for the length of the block."""
    await client.create(CRDS, CRD)
    try:
        async with asyncio.timeout(60):
            while True:
                try:
                    await client.lists.all(kube.path(f"/apis/{BARE}", "default", "bares"))
                    break
                except kube.NotFoundError:
                    await asyncio.sleep(0.5)
        yield
    finally:
        await client.delete(f"{CRDS}/{CRD['metadata']['name']}")


@asynccontextmanager
async def _watched_equally(client: kube.Client, cluster: Cluster) -> AsyncIterator[None]:
    """Watch the objects without a schema as often as runs are watched, for the length of the block."""
    async with asyncio.timeout(180):
        while True:
            counts = await asyncio.to_thread(_watches, cluster)
            if counts["bares"]:
                break
            await asyncio.sleep(1)  # the garbage collector looks for new kinds every 30 seconds
    async with asyncio.TaskGroup() as group:
        more = range(counts["workflowruns"] - counts["bares"])
        watching = [group.create_task(_drain(client)) for _ in more]
        yield
        for each in watching:
            each.cancel()


async def _drain(client: kube.Client) -> None:
    async for _ in client.watch(f"/apis/{BARE}/bares"):
        pass


def _watches(cluster: Cluster) -> dict[str, int]:
    """How many watches the API server has open on each of the two kinds."""
    counts = {"workflowruns": 0, "bares": 0}
    for kind, count in _WATCHES.findall(cluster("get", "--raw", "/metrics")):
        counts[kind] += int(float(count))
    return counts
