"""Dead letters of failed activities, and their re-drives; with an API server on loopback."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import msgspec
import orjson
import pytest
from aiohttp import web

from perdure.api.kinds.deadletter import DeadLetter
from perdure.api.labels import API_VERSION
from perdure.api.reasons import ConditionReason
from perdure.controller.deadletters import DeadLetters
from perdure.controller.errors import RefusedError
from perdure.controller.runs.effects.effects import Effects
from perdure.engine import events as ev
from perdure.engine import history
from perdure.engine.effects import WriteDeadLetter
from perdure.engine.inputs import EffectDone
from perdure.kube.events import Recorder
from perdure.runtime.attempts import RunRef
from perdure.runtime.deadletters import dead_letter
from support import histories
from support.engine.coded import Coded, activity
from support.http_server import api_server
from support.managers import manager_over, unchanged


def test_a_dead_letter_has_the_input_that_a_redrive_needs() -> None:
    kept = histories.GOLDEN / "simulated" / "examples" / "circuit-breaker" / "gateway-down.json"
    (run,) = histories.read(kept)
    events = history.decode_events(run.events)
    markers = [event for event in events if isinstance(event, ev.MarkerRecorded)]
    scheduled = {e.event_id: e for e in events if isinstance(e, ev.ActivityTaskScheduled)}
    assert len(markers) == 4
    for marker in markers:
        ref = RunRef(name=run.name, namespace="shop", uid="uid-1", workflow_id="orders")
        event = scheduled[marker.details["scheduledEventId"]]
        written = dead_letter(ref, marker, event, [])
        letter = DeadLetter.parse(written).spec
        assert (letter.input, letter.scheduled_time) == (event.input, event.event_time)
        assert letter.failed_time == marker.event_time
        assert letter.activity == "charge"


class Store:
    """The API server: DeadLetters and WorkflowRuns of the namespace `shop`."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        key = request.path.split("/namespaces/shop/")[1].removesuffix("/status")
        if request.method == "POST":
            obj = orjson.loads(await request.read())
            key += f"/{obj['metadata']['name']}"
            if key in self.objects:
                return web.json_response({"reason": "AlreadyExists", "message": "is there"}, status=409)
            obj["metadata"] |= {"uid": key, "resourceVersion": "1", "creationTimestamp": "2026-01-31T13:00:00Z"}
            self.objects[key] = obj
            return web.json_response(obj, status=201)
        if key == "workflowruns":
            name, uid = request.query["labelSelector"].split("=")
            runs = [o for k, o in self.objects.items() if k.startswith("workflowruns/")]
            return web.json_response(
                {"metadata": {}, "items": [r for r in runs if (r["metadata"].get("labels") or {}).get(name) == uid]}
            )
        obj = self.objects.get(key)
        if obj is None:
            return web.json_response({"reason": "NotFound", "message": "gone"}, status=404)
        if request.method == "PUT":
            obj["status"] = orjson.loads(await request.read())["status"]
        return web.json_response(obj)

    def runs(self) -> list[str]:
        return sorted(key.removeprefix("workflowruns/") for key in self.objects if key.startswith("workflowruns/"))


@asynccontextmanager
async def letters(store: Store) -> AsyncIterator[DeadLetters]:
    async with api_server(store.answer) as client:
        yield DeadLetters(client, Recorder(client, instance="test"))


def stored() -> Store:
    store = Store()
    meta = {"name": "pay", "namespace": "shop", "uid": "uid-of-letter", "resourceVersion": "1", "generation": 1}
    definition = {"name": "charge", "startToCloseTimeout": "1m", "container": {"image": "i"}}
    spec = {"activity": "charge", "definition": definition}
    store.objects["deadletters/pay"] = {"apiVersion": API_VERSION, "kind": "DeadLetter", "metadata": meta, "spec": spec}
    return store


def foreign_run(store: Store, name: str) -> None:
    store.objects[f"workflowruns/{name}"] = {"metadata": {"name": name, "namespace": "shop", "uid": name}, "spec": {}}


async def test_a_name_conflict_does_not_prevent_a_redrive() -> None:
    store = stored()
    foreign_run(store, "pay-redrive-1")
    async with letters(store) as reported:
        assert await reported.redrive("shop", "pay", "op-1") == "pay-redrive-2"
        assert store.objects["deadletters/pay"]["status"]["redrives"] == 2
        assert await reported.redrive("shop", "pay", "op-1") == "pay-redrive-2"
        with pytest.raises(RefusedError) as refused:
            await reported.redrive("shop", "pay", "op-2")
        assert refused.value.reason is ConditionReason.REDRIVE_RUNNING
        del store.objects["workflowruns/pay-redrive-2"]
        assert await reported.redrive("shop", "pay", "op-2") == "pay-redrive-3"
    assert store.runs() == ["pay-redrive-1", "pay-redrive-3"]


async def test_a_dead_letter_of_a_newer_version_is_not_redriven_and_keeps_its_status() -> None:
    store = stored()
    newer = {"redrives": 1, "redriveQueue": "night"}
    store.objects["deadletters/pay"]["status"] = dict(newer)
    async with letters(store) as reported:
        with pytest.raises(RefusedError, match=r"unknown field `status.redriveQueue`") as refused:
            await reported.redrive("shop", "pay", "op-1")
        assert refused.value.reason is ConditionReason.NEWER_STATE
    assert (store.runs(), store.objects["deadletters/pay"]["status"]) == ([], newer)


async def test_a_redrive_without_a_free_name_is_reported() -> None:
    store = stored()
    for number in range(1, 11):
        foreign_run(store, f"pay-redrive-{number}")
    async with letters(store) as reported:
        with pytest.raises(RefusedError, match="other WorkflowRuns") as refused:
            await reported.redrive("shop", "pay", "op-1")
    assert refused.value.reason is ConditionReason.WORKFLOW_ID_IN_USE


async def test_a_dead_letter_with_a_name_conflict_gets_exactly_one_other_name() -> None:
    """Someone else's DeadLetter of that name would have its own definition run by a re-drive."""
    coded = Coded.begin()
    coded.decide(activity("pay"))
    scheduled = coded.events[-1].event_id
    details = {"step": "pay", "activity": "work", "scheduledEventId": scheduled, "failure": {"message": "no"}}
    marker = ev.MarkerRecorded(event_id=9, event_time=coded.now, marker_name="DeadLetter", details=details)
    state = msgspec.structs.replace(coded.state, markers={"9": marker})
    ref = RunRef(name="order", namespace="shop", uid="uid-1", workflow_id="order")
    work = {"name": "work", "startToCloseTimeout": "1m", "container": {"image": "i"}}
    status = {"history": {"events": history.encode(coded.events)}, "definition": {"activities": [work]}}
    run = {"metadata": {"name": "order", "namespace": "shop", "uid": "uid-1"}, "spec": {}}
    letter = dead_letter(ref, marker, cast("ev.ActivityTaskScheduled", coded.events[-1]), [work])
    store, first = Store(), f"deadletters/{letter['metadata']['name']}"
    forged = {**letter, "spec": {**letter["spec"], "definition": {**work, "container": {"image": "forged"}}}}
    store.objects[first] = forged
    async with api_server(store.answer) as client:
        for _ in range(2):  # a crash after the first: it is found then
            manager, refused = manager_over(client), list[str]()
            peers, policies = manager.runs, manager.services.policies
            effects = Effects(client, ref, None, peers, policies, lambda: None, refused.append)
            await effects.apply(state, {**run, "status": status}, coded.now, unchanged)
            assert effects.context.pending.first() == [EffectDone(effect=WriteDeadLetter(9))]
            assert refused == []
    assert store.objects.pop(first) is forged
    [(name, written)] = store.objects.items()
    assert name.startswith("deadletters/order-9-")
    assert written["spec"] == letter["spec"]
