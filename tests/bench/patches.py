"""What a status write costs the API server as a PUT, a JSON patch, and a merge patch, each by HTTP/1.1 and by HTTP/2.

The operator sends PUTs by HTTP/1.1. All variants write the same statuses, in turns, so a busy machine affects all.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from statistics import median
from typing import Any

import orjson

from bench.costs import ApiServerCosts
from bench.results import Result
from bench.writes import growing
from perdure.kube import client as kube
from perdure.kube.access import find_access
from perdure.kube.paths import ONLY_METADATA
from support.cluster.namespace import Json, run_manifest, temporary_namespace
from support.sdk.server import Operator

OBJECTS = 20
WRITES = 8
"""Of each object, after the first one, which is not measured."""
ROUNDS = 7
AT_ONCE = 8
PAST_EVENTS = 400
"""Events before those of a long history, about as many as a run keeps in its status."""
STEPS: Json = {"steps": [{"name": f"nap-{number}", "sleep": {"duration": "1s"}} for number in range(4)]}
PUT, JSON_PATCH, MERGE_PATCH = "PUT", "JSON patch", "merge patch"
HTTP_1, HTTP_2 = "HTTP/1.1", "HTTP/2"

Send = Callable[[str, str, str, Any], Awaitable[Json]]
"""Send a method, URL, type of content, and body; return the decoded response."""


async def measure_patches(operator: Operator) -> list[Result]:
    """Write the statuses of a run with several steps into runs that no operator watches; also after a long history."""
    operator.cluster.start("steps", {"inline": STEPS})
    short = growing(operator.cluster.closed("steps"), WRITES + 1)
    long = [_after_many_events(status) for status in short]
    found = await _compare(operator, short, "a status write", (HTTP_1, HTTP_2))
    size = f"a write of {len(orjson.dumps(long[0])) / 1024:.0f} KiB of status"
    return found + await _compare(operator, long, size, (HTTP_1,))


def _after_many_events(status: Json) -> Json:
    history = status["history"]
    events = [history["events"][number % len(history["events"])] for number in range(PAST_EVENTS)]
    return {**status, "history": {**history, "events": events + history["events"]}}


async def _compare(operator: Operator, statuses: Sequence[Json], write: str, protocols: Sequence[str]) -> list[Result]:
    """Write the same statuses in all forms, by each of the protocols; `write` says what is written."""
    variants = [(form, protocol) for protocol in protocols for form in (PUT, JSON_PATCH, MERGE_PATCH)]
    costs: dict[tuple[str, str], list[float]] = {variant: [] for variant in variants}
    with temporary_namespace(operator.cluster, excluded=True) as unserved:
        url = kube.path(kube.PERDURE, unserved.namespace, "workflowruns")
        async with _by_http_1() as send_1, _by_http_2() as send_2:
            senders = {HTTP_1: send_1, HTTP_2: send_2}
            for turn in range(ROUNDS):
                for variant in (*variants[turn % len(variants) :], *variants[: turn % len(variants)]):
                    form, protocol = variant
                    send = senders[protocol]
                    prefix = f"{form}-{protocol}-{turn}".lower().translate({ord(" "): "-", ord("/"): "-"})
                    runs = [run_manifest(f"{prefix}-{each}", {"inline": STEPS}) for each in range(OBJECTS)]
                    made = await _each(runs, lambda run, send=send: _create(send, url, run, statuses[0]))
                    api = ApiServerCosts(unserved)
                    await _each(made, lambda run, send=send, form=form: _write(send, url, run, form, statuses))
                    costs[variant].append(api.spent()[0] / (OBJECTS * WRITES))
    base = median(costs[variants[0]])
    return [
        Result(
            f"CPU of the API server for {write}, {form} by {protocol}",
            "ms",
            median(costs[form, protocol]),
            f"{PUT} by {HTTP_1}",
            base,
        )
        for form, protocol in variants
    ]


async def _each(objects: Sequence[Json], do: Callable[[Json], Awaitable[Json]]) -> list[Json]:
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(obj: Json) -> Json:
        async with gate:
            return await do(obj)

    return await asyncio.gather(*map(one, objects))


async def _create(send: Send, url: str, run: Json, status: Json) -> Json:
    """Create a run with a first status, and return it as it is stored, without its managed fields."""
    made = await send("POST", url, "application/json", run)
    return await _write_one(send, url, {**run, "metadata": made["metadata"]}, PUT, status)


async def _write(send: Send, url: str, run: Json, form: str, statuses: Sequence[Json]) -> Json:
    for status in statuses[1:]:
        run = await _write_one(send, url, run, form, status)
    return run


async def _write_one(send: Send, url: str, run: Json, form: str, status: Json) -> Json:
    """Write one status if the run has not changed, and return the run as it is stored."""
    before, version = run.get("status", {}), run["metadata"]["resourceVersion"]
    url = f"{url}/{run['metadata']['name']}/status"
    match form:
        case "JSON patch":
            same = {"op": "replace", "path": "/metadata/resourceVersion", "value": version}
            answer = await send("PATCH", url, "application/json-patch+json", [same, *json_patch(before, status)])
        case "merge patch":
            body = {"metadata": {"resourceVersion": version}, "status": merge_patch(before, status)}
            answer = await send("PATCH", url, "application/merge-patch+json", body)
        case _:
            kind = {key: run[key] for key in ("apiVersion", "kind")}
            meta = {key: run["metadata"][key] for key in ("namespace", "name", "resourceVersion")}
            answer = await send("PUT", url, "application/json", {**kind, "metadata": meta, "status": status})
    metadata = {key: value for key, value in answer["metadata"].items() if key != "managedFields"}
    return {**run, "metadata": metadata, "status": status}


def json_patch(before: Json, after: Json) -> list[Json]:
    """The JSON patch (RFC 6902) from one status to the next: it appends the new events."""
    old, new = before["history"], after["history"]
    return [
        *(
            {"op": "add", "path": "/status/history/events/-", "value": event}
            for event in new["events"][len(old["events"]) :]
        ),
        *(
            {"op": "replace", "path": f"/status/history/{field}", "value": value}
            for field, value in new.items()
            if field != "events" and value != old[field]
        ),
        *(
            {"op": "replace", "path": f"/status/{field}", "value": value}
            for field, value in after.items()
            if field != "history" and value != before[field]
        ),
    ]


def merge_patch(before: Json, after: Json) -> Json:
    """The JSON merge patch (RFC 7386) from one object to another."""
    patch: Json = {key: None for key in before if key not in after}
    for key, value in after.items():
        if key in before and isinstance(value, dict) and isinstance(before[key], dict):
            if inner := merge_patch(before[key], value):
                patch[key] = inner
        elif key not in before or before[key] != value:
            patch[key] = value
    return patch


@asynccontextmanager
async def _by_http_1() -> AsyncIterator[Send]:
    """As the operator sends requests."""
    async with kube.Client.open(find_access(), user_agent="perdure-bench", connections=AT_ONCE) as client:

        async def send(method: str, url: str, content: str, body: Any) -> Json:
            headers = {"Content-Type": content, "Accept": ONLY_METADATA}
            return await client.connection.request(method, url, body=body, headers=headers)

        yield send


@asynccontextmanager
async def _by_http_2() -> AsyncIterator[Send]:
    """The same by one connection."""
    import httpx  # noqa: PLC0415 (only this needs it: `make bench` adds it to the environment)

    access = find_access()
    bearer = access.bearer()
    always = {"User-Agent": "perdure-bench", **({"Authorization": f"Bearer {bearer}"} if bearer else {})}
    async with httpx.AsyncClient(
        http1=False,
        http2=True,
        verify=access.ssl_context() or False,
        headers=always,
        timeout=30,
        trust_env=False,
        base_url=access.server,
    ) as client:

        async def send(method: str, url: str, content: str, body: Any) -> Json:
            headers = {"Content-Type": content, "Accept": ONLY_METADATA}
            answer = await client.request(method, url, content=orjson.dumps(body), headers=headers)
            assert answer.http_version == HTTP_2, answer.http_version
            assert answer.is_success, answer.text
            found: Json = orjson.loads(answer.content)
            return found

        yield send
