"""Data for tests of the console: runs of the real engine, and the objects of the other lists. And a browser without scripts."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from html.parser import HTMLParser
from typing import Any

import aiohttp

from perdure.api import labels
from perdure.cli.connection import connect
from perdure.console.server import serve_console
from perdure.console.site import ConsoleSettings, KubeconfigAccess
from support.apiserver import ApiServer, Log, items
from support.view.flow import UID, Flow, charged_after_two_refusals

WEB_UI = "http://127.0.0.1:8233"
NASTY = """<script>alert(1)</script><img src=x onerror=alert(2)>'"{{ 7*7 }}</title></pre>"""
"""What users may write into any text."""
PERDURE = "/apis/perdure.dev/v1alpha1/namespaces/shop"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/perdure-system/leases"
PODS = "/api/v1/namespaces/shop/pods"

FAN_OUT = """
activities:
- {name: resize, startToCloseTimeout: 5m, container: {image: shop}}
blocks:
- name: photo
  steps:
  - {name: load, activity: {name: resize}}
  - {name: resize, activity: {name: resize}}
steps:
- {name: list, activity: {name: resize}}
- {name: each, forEach: {items: "${input.items}"}, call: {block: photo}}
- {name: left, needs: [list], activity: {name: resize}}
- {name: both, needs: [each, left], parallel: {branches: [{name: a, block: photo}, {name: b, block: photo}]}}
- {name: approval, waitForSignal: {name: approved}}
"""


def order() -> Flow:
    """Charged at the third attempt; it sleeps."""
    return charged_after_two_refusals()


def meta(name: str, **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "namespace": "shop",
        "uid": f"uid-of-{name}",
        "creationTimestamp": "2026-01-01T11:00:00Z",
        **more,
    }


def ready(word: str = "True", message: str = "") -> dict[str, Any]:
    return {"conditions": [{"type": "Ready", "status": word, "reason": "Valid", "message": message}]}


def pod(name: str, step: str, attempt: int, *, event: int = 2, code: int | None = 0) -> dict[str, Any]:
    state = {"running": {}} if code is None else {"terminated": {"exitCode": code}}
    notes = {labels.ATTEMPT_ANNOTATION: str(attempt), labels.SCHEDULED_EVENT_ANNOTATION: str(event)}
    return {
        "metadata": meta(name, annotations=notes, labels={labels.RUN_ID_LABEL: UID}),
        "spec": {"containers": [{"name": "main", "env": [{"name": "PERDURE_ACTIVITY_ID", "value": step}]}]},
        "status": {
            "phase": "Running" if code is None else "Failed" if code else "Succeeded",
            "containerStatuses": [{"name": "main", "state": state}],
        },
    }


def limit() -> dict[str, Any]:
    entries = [
        {
            "run": f"order-{number}",
            "runId": UID,
            "key": NASTY if number == 3 else "ada",
            "priority": number,
            "created": "2026-01-01T11:00:00Z",
            "since": "2026-01-01T11:30:00Z",
        }
        for number in (1, 2, 3)
    ]
    return {
        "metadata": meta("one-per-customer"),
        "spec": {"capacity": 1},
        "status": {**ready(), "held": 1, "waiting": 2, "holders": entries[:1], "waiters": entries[1:]},
    }


def policy(name: str, state: str | None = None) -> dict[str, Any]:
    circuit = {"circuit": {"state": state, "consecutiveFailures": 5, "openUntil": "2026-01-01T12:30:00Z"}}
    return {
        "metadata": meta(name),
        "spec": {"exponential": {}, **({"circuitBreaker": {"failureThreshold": 5}} if state else {})},
        "status": {**ready(), "waits": "1s 2s 4s 8s 16s …", **(circuit if state else {})},
    }


def letter(name: str = "order-7-charge") -> dict[str, Any]:
    failure = {"kind": "Activity", "message": NASTY, "cause": {"kind": "Application", "type": "Down", "message": NASTY}}
    return {
        "metadata": meta(name),
        "spec": {
            "workflowRun": {"name": "order-42", "workflowId": "A-7", "runId": UID},
            "step": "charge",
            "activity": NASTY,
            "input": {"amount": NASTY},
            "failure": failure,
            "attempts": 3,
            "retryState": "MaximumAttemptsReached",
            "failedTime": "2026-01-01T11:40:00Z",
        },
        "status": {"conditions": [{"type": "Redriven", "status": "False", "message": NASTY}], "failure": failure},
    }


def schedule(name: str = "nightly", **status: Any) -> dict[str, Any]:
    run = {"workflowRun": "order-42", "scheduledTime": "2026-01-01T11:00:00Z", "actualTime": "2026-01-01T11:00:00Z"}
    return {
        "metadata": meta(name),
        "spec": {"cron": ["0 3 * * *"], "timeZone": "Europe/Berlin", "workflowRunTemplate": {"spec": {}}},
        "status": {
            **ready(),
            "spec": {"summary": NASTY, "timeZone": "Europe/Berlin"},
            "lastScheduledTime": "2026-01-01T11:00:00Z",
            "nextScheduledTimes": [f"2026-01-0{day}T02:00:00Z" for day in range(2, 7)],
            "active": 1,
            "recentActions": [{**run, "status": "Running"}],
            **status,
        },
    }


def lease(name: str) -> dict[str, Any]:
    notes = {
        labels.MEMBERS_ANNOTATION: "perdure-0,perdure-1",
        labels.MEMBER_RELEASE_ANNOTATION: NASTY,
        labels.MEMBER_ADDRESS_ANNOTATION: "10.0.0.1:7234",
    }
    return {
        "metadata": meta(name, annotations=notes, labels={labels.FLEET_LABEL: "perdure"}),
        "spec": {"renewTime": "2026-01-01T11:59:59.000000Z", "leaseDurationSeconds": 15},
    }


def fill(api: ApiServer, flow: Flow, *pods: dict[str, Any]) -> None:
    """Have the API server answer with a run, its pods, and an object of each other kind."""
    api.answers |= {
        PODS: items(*pods),
        "/apis/coordination.k8s.io/v1/namespaces/shop/leases": items(),
        "/api/v1/namespaces/shop/events": items(),
        f"{PERDURE}/workflowruns": items(flow.object),
        f"{PERDURE}/workflowruns/{flow.name}": flow.object,
        f"{PERDURE}/workflows": items({"metadata": meta("order-flow"), "spec": {}, "status": ready("False", NASTY)}),
        f"{PERDURE}/workflowlimits": items(limit()),
        f"{PERDURE}/retrypolicies": items(policy("card"), policy("bank", "Open"), policy("mail", "HalfOpen")),
        f"{PERDURE}/deadletters": items(letter()),
        f"{PERDURE}/deadletters/order-7-charge": letter(),
        f"{PERDURE}/schedules": items(schedule(), {**schedule("weekly", paused=True)}),
        f"{PERDURE}/schedules/nightly": schedule(),
        LEASES: items(lease("perdure-0"), lease("perdure-1")),
    }
    for each in pods:
        api.answers[f"{PODS}/{each['metadata']['name']}/log"] = Log(
            f"2026-01-01T12:00:01Z starting {json.dumps(NASTY)}\n2026-01-01T12:00:02Z done\n"
        )


def fanned_out(count: int) -> Flow:
    """A run whose items are half done."""
    return Flow(FAN_OUT, {"items": list(range(count))}, name="album-1").completed(1, [], of="list")


class Browser:
    """A browser that has opened the address that the command prints."""

    def __init__(self, session: aiohttp.ClientSession, origin: str) -> None:
        self.session = session
        self.origin = origin

    async def post(self, path: str, fields: list[tuple[str, str]], status: int, **headers: str) -> tuple[str, str]:
        """Send a form as a page of the console does; returns the page, and where the answer leads to."""
        sent = {"Sec-Fetch-Site": "same-origin", **headers}
        asked = self.session.post(self.origin + path, data=fields, headers=sent, allow_redirects=False)
        async with asked as answer:
            assert answer.status == status, await answer.text()
            return await answer.text(), answer.headers.get("Location", "")

    async def get(self, path: str, status: int = 200) -> str:
        async with self.session.get(self.origin + path) as answer:
            assert answer.status == status, await answer.text()
            return await answer.text()


@asynccontextmanager
async def opened(frontend: Any = None, **settings: Any) -> AsyncIterator[Browser]:
    jar = aiohttp.CookieJar(unsafe=True)
    of_console = ConsoleSettings(namespace="shop", system_namespace="perdure-system", web_ui=WEB_UI, **settings)
    async with (
        connect(context=None, namespace=None, program="perdure") as found,
        serve_console(KubeconfigAccess(found, frontend), of_console, 0) as guard,
        aiohttp.ClientSession(cookie_jar=jar) as session,
    ):
        async with session.get(guard.url()) as answer:
            assert answer.status == 200
        yield Browser(session, f"http://127.0.0.1:{guard.port}")


class _Text(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.parts: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.parts.append(data)


def parsed(html: str) -> _Text:
    parser = _Text()
    parser.feed(html)
    return parser


def shown(html: str) -> str:
    """The text of a page."""
    return " ".join(" ".join(parsed(html).parts).split())
