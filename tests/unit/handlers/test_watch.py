"""Lists and watches as kopf receives them, from an API server on loopback."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web

from perdure.controller.namespaces import ServedNamespaces
from perdure.handlers.watch import Feed
from perdure.kube.access import Access
from perdure.kube.client import Client, Object
from perdure.kube.responses import Undecodable, decode
from support.http_server import serving

Json = dict[str, Any]
RUNS = "/apis/perdure.dev/v1alpha1/workflowruns"
DEEP = "[" * 100_000 + "]" * 100_000


def run(name: str, version: int, value: str = "1") -> str:
    meta = {"name": name, "namespace": "default", "uid": f"uid-{name}", "resourceVersion": str(version)}
    head = f'{{"apiVersion":"perdure.dev/v1alpha1","kind":"WorkflowRun","metadata":{json.dumps(meta)}'
    return head + f',"spec":{{"input":{value}}}}}'


def page(version: int, *runs: str, following: str = "") -> web.Response:
    meta = json.dumps({"resourceVersion": str(version), "continue": following})
    head = '{"apiVersion":"perdure.dev/v1alpha1","items":['
    return web.Response(body=f'{head}{",".join(runs)}],"kind":"WorkflowRunList","metadata":{meta}}}\n')


def event(type_: str, obj: str) -> str:
    return f'{{"type":"{type_}","object":{obj}}}\n'


@dataclass
class Server:
    """Answers with pages to lists, and with streams to watches, one after the other."""

    pages: list[Callable[[], web.Response]] = field(default_factory=list)
    streams: list[list[str]] = field(default_factory=list)
    asked: list[dict[str, str]] = field(default_factory=list)

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        self.asked.append(dict(request.query))
        if "watch" not in request.query:
            return self.pages.pop(0)()
        response = web.StreamResponse()
        await response.prepare(request)
        for line in self.streams.pop(0):
            await response.write(line.encode())
        return response


@dataclass
class Finished:
    """Removes runs of these names from lists, and these versions from watches."""

    names: set[str] = field(default_factory=set)
    taken: list[str] = field(default_factory=list)
    version: str = ""
    written: set[str] = field(default_factory=set)
    """Versions of runs that the process has written itself."""

    async def list_version(self, plural: str, namespace: str | None) -> str:
        assert (plural, namespace) == ("workflowruns", None)
        version, self.version = self.version, ""
        return version

    def process_listed(self, plural: str, obj: Object) -> bool:
        assert plural == "workflowruns"
        name = obj["metadata"]["name"]
        if name in self.names:
            self.taken.append(name)
        return name in self.names

    def process_change(self, plural: str, obj: Object) -> bool:
        assert plural == "workflowruns"
        return obj["metadata"]["resourceVersion"] in self.written


class Kopf:
    """Reads a feed as kopf does."""

    def __init__(self, feed: Feed, server: str) -> None:
        self._feed = feed
        self._server = server

    async def watch(self, *, initial: bool = True, until: int = 1_000) -> list[tuple[str, str]]:
        """Types and names of events, until the stream ends or has sent a number of them."""
        query = "watch=true&timeoutSeconds=240" + ("&sendInitialEvents=true" if initial else "&resourceVersion=0")
        response = await self._feed.request("get", f"{self._server}{RUNS}?{query}")
        reported: list[tuple[str, str]] = []
        async with response, aclosing(response.content.iter_chunked(1024)) as chunks:
            async for chunk in chunks:
                assert chunk.endswith(b"\n")
                report = json.loads(chunk)
                obj = report["object"]
                reported.append((report["type"], (obj.get("metadata") or {}).get("name", str(obj.get("code", "")))))
                if len(reported) == until:
                    break
        return reported


@dataclass
class Stage:
    server: Server
    taken: Finished
    feed: Feed
    kopf: Kopf
    skipped: list[Undecodable]
    client: Client
    troubles: list[str | None]
    """What the probe reports, before each retry."""


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    server, taken = Server(), Finished()
    async with (
        serving(server.handle) as address,
        Client.open(Access(server=address), user_agent="test", connections=0) as client,
    ):
        troubles: list[str | None] = []

        async def sleep(_seconds: float) -> None:
            troubles.append(feed.trouble())

        feed = Feed(client, taken, sleep=sleep)
        skipped: list[Undecodable] = []
        client.lists.skipped = skipped.append
        yield Stage(server, taken, feed, Kopf(feed, address), skipped, client, troubles)


async def test_a_redirect_of_a_request_of_kopf_is_not_followed(stage: Stage) -> None:
    stage.server.pages = [lambda: web.Response(status=307, headers={"Location": "/other"})]
    async with await stage.feed.request("get", f"{stage.client.access.server}/version") as response:
        assert response.status == 307
    assert len(stage.server.asked) == 1


async def test_a_kind_is_listed_in_pages_and_watched_from_its_version(stage: Stage) -> None:
    stage.server.pages = [lambda: page(7, run("a", 1), run("b", 2), following="x"), lambda: page(7, run("c", 3))]
    stage.server.streams = [[event("MODIFIED", run("a", 8)), event("DELETED", run("b", 9))]]
    reported = await stage.kopf.watch()
    assert reported == [
        ("ADDED", "a"),
        ("ADDED", "b"),
        ("ADDED", "c"),
        ("BOOKMARK", ""),
        ("MODIFIED", "a"),
        ("DELETED", "b"),
    ]
    first, second, watch = stage.server.asked
    assert (first.get("continue"), second["continue"]) == (None, "x")
    assert watch == {"watch": "true", "timeoutSeconds": "240", "resourceVersion": "7"}


async def test_kopf_gets_no_events_of_namespaces_that_are_not_served(stage: Stage) -> None:
    stage.client.lists.serves = ServedNamespaces(excluded=("team-*",)).__contains__
    unserved = [run(name, version).replace('"default"', '"team-a"') for name, version in (("x", 2), ("y", 9))]
    stage.server.pages = [lambda: page(7, run("a", 1), unserved[0])]
    stage.server.streams = [[event("ADDED", run("b", 8)), event("ADDED", unserved[1])], []]
    assert await stage.kopf.watch() == [("ADDED", "a"), ("BOOKMARK", ""), ("ADDED", "b")]
    assert await stage.kopf.watch(initial=False) == []
    assert stage.server.asked[-1]["resourceVersion"] == "9"  # after omitted events, too


async def test_a_watch_that_ended_continues_after_the_last_event_without_a_list(stage: Stage) -> None:
    stage.server.pages = [lambda: page(7)]
    stage.server.streams = [[event("ADDED", run("a", 8))], [event("ADDED", run("b", 9))]]
    await stage.kopf.watch()
    assert await stage.kopf.watch(initial=False) == [("ADDED", "b")]
    assert stage.server.asked[-1]["resourceVersion"] == "8"


async def test_an_event_that_was_not_processed_is_delivered_again(stage: Stage) -> None:
    stage.server.pages = [lambda: page(7)]
    stage.server.streams = [[event("ADDED", run("a", 8))], [event("ADDED", run("a", 8))]]
    assert await stage.kopf.watch(until=2) == [("BOOKMARK", ""), ("ADDED", "a")]
    assert await stage.kopf.watch(initial=False) == [("ADDED", "a")]
    assert stage.server.asked[-1]["resourceVersion"] == "7"


async def test_an_interrupted_list_is_restarted(stage: Stage) -> None:
    stage.server.pages = [lambda: page(7, run("a", 1), following="x"), lambda: page(8, run("a", 1), run("b", 2))]
    stage.server.streams = [[]]
    assert await stage.kopf.watch(until=1) == [("ADDED", "a")]
    assert await stage.kopf.watch(initial=False) == [("ADDED", "a"), ("ADDED", "b"), ("BOOKMARK", "")]


async def test_finished_runs_do_not_reach_kopf(stage: Stage) -> None:
    stage.taken.names = {"old"}
    stage.server.pages = [lambda: page(7, run("old", 1), run("new", 2))]
    stage.server.streams = [[]]
    assert await stage.kopf.watch() == [("ADDED", "new"), ("BOOKMARK", "")]
    assert stage.taken.taken == ["old"]


async def test_own_writes_do_not_reach_kopf_except_deletions(stage: Stage) -> None:
    stage.taken.written = {"8", "10"}
    stage.server.pages = [lambda: page(7, run("a", 1))]
    stage.server.streams = [
        [event("MODIFIED", run("a", 8)), event("MODIFIED", run("a", 9)), event("DELETED", run("a", 10))],
        [],
    ]
    assert await stage.kopf.watch() == [("ADDED", "a"), ("BOOKMARK", ""), ("MODIFIED", "a"), ("DELETED", "a")]
    assert await stage.kopf.watch(initial=False) == []
    assert stage.server.asked[-1]["resourceVersion"] == "10"


async def test_a_watch_resumes_without_a_list_until_its_version_is_too_old(stage: Stage) -> None:
    stage.taken.version = "5"
    stage.server.streams = [[event("ERROR", '{"code":410,"reason":"Expired","message":"too old"}')], []]
    assert await stage.kopf.watch() == [("BOOKMARK", ""), ("ERROR", "410")]
    assert [asked.get("resourceVersion") for asked in stage.server.asked] == ["5"]
    stage.server.pages = [lambda: page(9, run("a", 6))]
    assert await stage.kopf.watch() == [("ADDED", "a"), ("BOOKMARK", "")]


async def test_only_undecodable_objects_are_skipped_and_reported(stage: Stage) -> None:
    stage.server.pages = [
        lambda: page(7, run("a", 1), run("deep", 2, DEEP), run("b", 3), following="x"),
        lambda: page(7),
    ]
    stage.server.streams = [
        [
            event("ADDED", run("deeper", 8, DEEP)),
            "nonsense\n",
            event("ADDED", run("c", 9, '"[[["')),
            event("ADDED", DEEP),
        ]
    ]
    assert await stage.kopf.watch() == [("ADDED", "a"), ("ADDED", "b"), ("BOOKMARK", ""), ("ADDED", "c")]
    names = [found.stored.name if found.stored else None for found in stage.skipped]
    assert names == ["deep", "deeper", None, None]
    assert {(found.kind, found.api_version) for found in stage.skipped[:2]} == {("WorkflowRun", "perdure.dev/v1alpha1")}
    assert "too deep" in stage.skipped[0].problem


async def test_a_rejected_list_is_retried_and_reported_by_the_probe(stage: Stage) -> None:
    refusal = {"kind": "Status", "reason": "Forbidden", "message": "no right to list", "code": 403}
    stage.server.pages = [lambda: web.json_response(refusal, status=403), lambda: page(7, run("a", 1))]
    stage.server.streams = [[]]
    assert await stage.kopf.watch() == [("ADDED", "a"), ("BOOKMARK", "")]
    assert stage.troubles == [f"cannot watch {RUNS}: 403 no right to list"]
    assert stage.feed.trouble() is None


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("18446744073709552000", 1.8446744073709552e19),
        ("-9223372036854776000", -9.223372036854776e18),
        ("123456789012345678901234567890", 1.2345678901234568e29),
        ("9223372036854776000", 9223372036854776000),
        ("9007199254740993", 9007199254740993),
        ('"18446744073709552000"', "18446744073709552000"),
        ('"[\\n\\"é"', '[\n"é'),
        ("[" * 300 + "1" + "]" * 300, None),
    ],
)
async def test_kopf_gets_objects_as_the_client_reads_them(stage: Stage, written: str, read: Any) -> None:
    stage.server.pages = [lambda: page(7, run("a", 1, written))]
    stage.server.streams = [[event("MODIFIED", run("a", 8, written))]]
    response = await stage.feed.request("get", f"http://server{RUNS}?watch=true&sendInitialEvents=true")
    async with response, aclosing(response.content.iter_chunked(1024)) as chunks:
        lines = [line async for line in chunks]
    objects = [json.loads(line)["object"] for line in lines if b'"BOOKMARK"' not in line]
    found = decode(run("a", 1, written).encode())["spec"]["input"]
    assert [each["spec"]["input"] for each in objects] == [found, found]
    assert {type(each["spec"]["input"]) for each in objects} == {type(found)}
    assert read is None or found == read
    assert {each["kind"] for each in objects} == {"WorkflowRun"}
    assert all(line.count(b"\n") == 1 for line in lines)
