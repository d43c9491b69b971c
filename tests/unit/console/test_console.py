"""`perdure console`: the content of its pages, permissions, and escaping of user input."""

import asyncio
import base64
import gzip
import json
import re
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest

from perdure.api import labels
from perdure.api.names import artifact_set_name, log_key
from support import console
from support.apiserver import ApiServer, Log
from support.apiserver import serving as api_server
from support.cli import perdure, perdure_in_thread
from support.console import NASTY, PERDURE, PODS, WEB_UI, fill, opened, parsed, pod, shown
from support.view.flow import Flow

PAGES = (
    "/namespaces/shop/runs",
    "/namespaces/shop/runs/order-42",
    "/namespaces/shop/runs/order-42/logs/order-42-5-3",
    "/namespaces/shop/workflows",
    "/namespaces/shop/limits",
    "/namespaces/shop/retrypolicies",
    "/namespaces/shop/deadletters",
    "/namespaces/shop/deadletters/order-7-charge",
    "/namespaces/shop/schedules",
    "/namespaces/shop/schedules/nightly",
    "/fleet",
)


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiServer]:
    with api_server(tmp_path, monkeypatch) as found:
        attempts = [
            pod("order-42-2-2", "reserve", 2),
            pod("order-42-5-1", "charge", 1, event=5, code=1),
            pod("order-42-5-3", "charge", 3, event=5, code=None),
        ]
        fill(found, console.order(), *attempts)
        yield found


@pytest.mark.usefixtures("api")
async def test_a_run_is_shown_with_graph_steps_and_attempts() -> None:
    async with opened() as browser:
        page = await browser.get("/namespaces/shop/runs/order-42")
    text = shown(page)
    assert "charge ✓ Succeeded · attempt 3" in text
    assert "change-of-mind ◔ Waiting" in text
    assert re.search(r"reserve ✓ Succeeded activity reserve-stock 2 ", text)
    assert "charge#1 ✗ Failed order-42-5-1 Log of charge#1" in text
    assert "charge#3 ● Running order-42-5-3 Log of charge#3" in text
    assert "reserve#1 ○ Deleted" in text
    uid = console.UID
    assert f'href="{WEB_UI}/namespaces/shop/workflows/order-42/{uid}"' in page
    assert "data-live" in page


async def test_the_log_of_an_attempt_is_text(api: ApiServer) -> None:
    async with opened() as browser:
        path = "/namespaces/shop/runs/order-42/logs/order-42-5-3"
        page = await browser.get(path)
        assert f'data-source="{path}/text?follow"' in page
        async with browser.session.get(f"{browser.origin}{path}/text?follow") as answer:
            assert answer.content_type == "text/plain"
            assert answer.headers["X-Content-Type-Options"] == "nosniff"
            text = await answer.text()
        assert text.splitlines()[-1] == "2026-01-01T12:00:02Z done"
        assert ("follow", ["true"]) in api.asked[-1][1].items()
        # The log of a pod that is not an attempt of the run is not shown.
        await browser.get("/namespaces/shop/runs/order-42/logs/other/text", status=404)
        assert await browser.get(f"{path}?container=main") == page
        await browser.get(f"{path}?container=other", status=404)
        assert f"{PODS}/other/log" not in [where for where, _ in api.asked]


@pytest.mark.usefixtures("api")
async def test_the_lists_show_limits_breakers_dead_letters_and_the_fleet() -> None:
    async with opened() as browser:
        limits = shown(await browser.get("/namespaces/shop/limits"))
        assert "one-per-customer ! Full : 1 held, 2 waiting; room for 1 of each key" in limits
        assert re.search(
            r"Holders Run Step Key Priority Since order-1 . ada 1 .* Waiters, the next one first .*order-2", limits
        )
        breakers = shown(await browser.get("/namespaces/shop/retrypolicies"))
        assert "✗ Open 5 failures in a row; opens at 5; open until 2026-01-01T12:30:00Z" in breakers
        assert "↻ HalfOpen" in breakers
        letters = shown(await browser.get("/namespaces/shop/deadletters"))
        assert "order-7-charge ✗ Failed order-42 charge" in letters
        letter = shown(await browser.get("/namespaces/shop/deadletters/order-7-charge"))
        assert "perdure deadletters redrive -n shop order-7-charge" in letter
        fleet = shown(await browser.get("/fleet"))
        assert "perdure-0 ✗ Expired" in fleet
        assert "perdure-0, perdure-1" in fleet


async def test_a_list_is_read_in_pages(api: ApiServer) -> None:
    api.answers[f"{PERDURE}/deadletters"] = {"metadata": {"continue": "a&b"}, "items": [console.letter()]}
    async with opened() as browser:
        page = await browser.get("/namespaces/shop/deadletters?continue=x")
    assert 'href="?continue=a%26b"' in page
    query = next(query for where, query in api.asked if where == f"{PERDURE}/deadletters" and "continue" in query)
    assert query == {"limit": ["50"], "continue": ["x"]}


async def test_runs_are_listed_newest_first_and_filtered_by_phase(api: ApiServer) -> None:
    runs = [
        {
            "metadata": {
                **console.meta(f"r-{day:03}"),
                "creationTimestamp": f"2026-01-01T{day // 60:02}:{day % 60:02}:00Z",
            }
        }
        for day in range(120)
    ]
    api.answers[f"{PERDURE}/workflowruns"] = console.items(
        *({**run, "spec": {}, "status": {"phase": "Failed"}} for run in runs)
    )
    async with opened() as browser:
        first = await browser.get("/namespaces/shop/runs?phase=Failed")
        last = await browser.get("/namespaces/shop/runs?phase=Failed&page=3")
    assert re.findall(r">(r-\d+)</a>", first) == [f"r-{number:03}" for number in range(119, 69, -1)]
    assert 'href="?phase=Failed&amp;page=2"' in first
    assert re.findall(r">(r-\d+)</a>", last) == [f"r-{number:03}" for number in range(19, -1, -1)]
    assert "Next page" not in last
    asked = [query for where, query in api.asked if where == f"{PERDURE}/workflowruns"]
    assert asked[-1]["fieldSelector"] == ["status.phase=Failed"]


async def test_a_run_in_deletion_is_not_listed_as_running(api: ApiServer) -> None:
    """A finalizer of another controller can keep it for long (kestra#8459)."""
    meta = {**console.meta("leaving"), "deletionTimestamp": "2026-01-01T00:00:00Z"}
    leaving = {"metadata": meta, "spec": {}, "status": {"phase": "Running"}}
    api.answers[f"{PERDURE}/workflowruns"] = console.items(leaving)
    async with opened() as browser:
        assert "Deleting" in await browser.get("/namespaces/shop/runs")
        assert "leaving" not in await browser.get("/namespaces/shop/runs?phase=Running")


@pytest.mark.usefixtures("api")
async def test_schedules_are_shown_with_their_next_times() -> None:
    async with opened() as browser:
        listed = shown(await browser.get("/namespaces/shop/schedules"))
        one = await browser.get("/namespaces/shop/schedules/nightly")
    assert "Europe/Berlin" in listed
    assert "2026-01-02T02:00:00Z 2026-01-03T02:00:00Z 2026-01-04T02:00:00Z 1 Trigger nightly Pause nightly" in listed
    assert "Trigger weekly Unpause weekly" in listed
    assert "2026-01-06T02:00:00Z" in shown(one)
    assert 'href="/namespaces/shop/runs/order-42"' in one


async def test_items_are_in_natural_order_and_named_by_their_values(api: ApiServer) -> None:
    flow = console.fanned_out(11)
    fill(api, flow, *(pod(f"album-1-{number}-1", f"each[{number}]/load", 1) for number in (10, 2)))
    async with opened() as browser:
        text = shown(await browser.get("/namespaces/shop/runs/album-1"))
    assert text.index("each[2]/load#1") < text.index("each[10]/load#1")
    flow = Flow(console.FAN_OUT, {"items": [{"lr": 0.1}, {"lr": 0.2}]}, name="album-1").completed(1, [], of="list")
    fill(api, flow, pod("album-1-5-1", "each[1]/load", 1))
    async with opened() as browser:
        text = shown(await browser.get("/namespaces/shop/runs/album-1"))
    assert "each[0: lr=0.1]/load" in text
    assert "each[1: lr=0.2]/load#1 ✓ Succeeded" in text


async def test_an_archived_log_is_read_by_a_pod(api: ApiServer) -> None:
    archived = {
        "name": "reserve-stock",
        "startToCloseTimeout": "5m",
        "artifacts": {"archiveLogs": True},
        "container": {},
    }
    run = console.order().object
    run["status"] = {**run["status"], "definition": {**run["status"]["definition"], "activities": [archived]}}
    api.answers[f"{PERDURE}/workflowruns/order-42"] = run
    path = "/namespaces/shop/runs/order-42/logs/order-42-2-1/archived"
    key = log_key("shop", console.UID, 2, 1)
    api.answers[f"{PERDURE}/artifactsets/{artifact_set_name(console.UID)}"] = {
        "metadata": {"annotations": {labels.IMAGE_ANNOTATION: "perdure:x"}},
        "spec": {"stores": ["perdure-artifacts"]},
    }
    content = base64.b64encode(gzip.compress(b"<b>picked</b>\n")).decode()
    api.answers[f"{PODS}/perdure-logs-1/log"] = Log(f"{json.dumps({'found': key})}\n{content}\n")
    api.status = lambda _: {"phase": "Succeeded"}
    async with opened() as browser:
        assert f'href="{path}"' in await browser.get("/namespaces/shop/runs/order-42")
        async with browser.session.get(browser.origin + path) as answer:
            assert (answer.content_type, await answer.text()) == ("text/plain", "<b>picked</b>\n")
    assert api.deleted == ["perdure-logs-1"]
    async with opened(read_only=True) as browser:
        assert "/archived" not in await browser.get("/namespaces/shop/runs/order-42")
        await browser.get(path, status=404)


@pytest.mark.parametrize("path", PAGES)
async def test_user_input_is_escaped(api: ApiServer, path: str) -> None:
    flow = console.order()
    flow.input = {"note": NASTY}
    run = flow.object
    run["spec"] = {"workflow": {"name": NASTY}, "workflowId": NASTY}
    run["status"] = {**run["status"], "output": NASTY}
    api.answers |= {f"{PERDURE}/workflowruns": console.items(run), f"{PERDURE}/workflowruns/order-42": run}
    async with opened() as browser, browser.session.get(browser.origin + path) as answer:
        policy = answer.headers["Content-Security-Policy"]
        page = parsed(await answer.text())
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    scripts = [attributes for tag, attributes in page.tags if tag == "script"]
    assert scripts == [{"src": "/static/console.js", "defer": None}]
    assert not [tag for tag, _ in page.tags if tag in {"img", "style", "iframe", "object", "base"}]
    for tag, attributes in page.tags:
        assert not [name for name in attributes if name.startswith("on") or name == "style"], tag
        assert not (attributes.get("href") or "").lower().startswith(("javascript:", "data:"))


async def test_only_objects_that_the_user_can_read_are_shown(api: ApiServer) -> None:
    said = 'workflowlimits.perdure.dev is forbidden: User "ada" cannot list resource "workflowlimits" in the namespace "shop"'
    refused = (403, {"kind": "Status", "reason": "Forbidden", "message": said})
    api.answers |= {f"{PERDURE}/workflowlimits": refused, PODS: refused}
    async with opened() as browser:
        page = shown(await browser.get("/namespaces/shop/limits", status=403))
        assert "No permission" in page
        assert 'User "ada" cannot list' in page
        assert "one-per-customer" not in page
        run = shown(await browser.get("/namespaces/shop/runs/order-42"))
        assert "You have no permission to list pods in this namespace." in run
        await browser.get("/namespaces/shop/runs/order-42/logs/order-42-5-3/text", status=403)


@pytest.mark.usefixtures("api")
@pytest.mark.parametrize(
    "path",
    ["/namespaces/shop/runs/none", "/namespaces/shop/other", "/namespaces/%2e%2e/runs", "/namespaces/a%20b/runs"],
)
async def test_a_missing_object_is_not_found(path: str) -> None:
    async with opened() as browser:
        await browser.get(path, status=404)


@pytest.mark.usefixtures("api")
async def test_the_form_switches_the_namespace() -> None:
    async with opened() as browser:
        await browser.get("/go?namespace=..%2Fx", status=404)
        asked = browser.session.get(f"{browser.origin}/go?namespace=billing", allow_redirects=False)
        async with asked as answer:
            assert answer.headers["Location"] == "/namespaces/billing/runs"


async def test_lists_are_read_only_and_require_the_cookie_of_the_browser(api: ApiServer) -> None:
    async with opened() as browser, aiohttp.ClientSession() as other:
        for path in (*PAGES, "/static/console.js"):
            async with other.get(browser.origin + path) as answer:
                assert answer.status == 403
                assert await answer.text() == "Open the address that `perdure console` printed.\n"
            for method in ("POST", "PUT", "PATCH", "DELETE"):
                async with browser.session.request(method, browser.origin + path) as answer:
                    assert answer.status == 405
        for headers in ({"Origin": "https://evil.example"}, {"Host": "evil.example"}):
            async with browser.session.get(browser.origin + PAGES[0], headers=headers) as answer:
                assert answer.status == 403
    assert not api.created
    assert not api.deleted


@pytest.mark.usefixtures("api")
async def test_a_log_stream_is_closed_when_the_reader_disconnects() -> None:
    async with opened() as browser:
        asked = f"{browser.origin}/namespaces/shop/runs/order-42/logs/order-42-5-3/text?follow"
        for _ in range(100):  # more than there are connections
            async with browser.session.get(asked) as answer:
                await answer.content.read(1)
        async with asyncio.timeout(60):
            await browser.get(PAGES[0])


@pytest.mark.usefixtures("api")
def test_a_port_in_use_is_an_error() -> None:
    async def serve() -> int:
        async with opened() as browser:
            port = browser.origin.rpartition(":")[2]
            done = await perdure_in_thread("console", "--port", port, "--no-browser")
            assert "choose another one with --port" in done.stderr
            return done.exit_code

    assert asyncio.run(serve()) == 2


@pytest.mark.usefixtures("api")
def test_an_invalid_address_of_the_web_ui_is_rejected() -> None:
    done = perdure("console", "--web-ui", "javascript:alert(1)")
    assert done.exit_code == 2
    assert "--web-ui" in done.stderr
