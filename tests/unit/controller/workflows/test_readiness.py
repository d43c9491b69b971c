"""The condition `Ready` of a Workflow."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import pytest
from aiohttp import web

from perdure.api.kinds.workflow import Activity
from perdure.api.labels import API_VERSION
from perdure.api.reasons import ConditionReason
from perdure.controller.errors import NotYetError
from perdure.controller.pods.attempt_pods import ActivityIdentity, Pods
from perdure.controller.retry_policies import Policies
from perdure.controller.workflows.definitions import Definitions
from perdure.controller.workflows.readiness import Readiness, named_policies, status, verdict
from perdure.kube.events import Recorder
from perdure.language.program import Finding, Severity
from perdure.runtime.attempts import PodSettings
from perdure.runtime.pods.builder import build_trial
from support.http_server import api_server

T0 = datetime(2026, 1, 1, tzinfo=UTC)
ERROR = Finding("spec.steps[0]", "is wrong")
WARNING = Finding("spec.steps[1]", "looks wrong", Severity.WARNING)
NOTE = Finding("spec.steps[2]", "is worth a look", Severity.NOTE)


def test_errors_make_a_workflow_not_ready_and_hide_warnings() -> None:
    assert verdict([ERROR, WARNING]) == (False, ConditionReason.INVALID_SPEC, "spec.steps[0]: is wrong")


def test_the_message_of_a_ready_workflow_has_warnings_but_no_notes() -> None:
    want = "valid, with warnings: spec.steps[1]: looks wrong"
    assert verdict([WARNING, NOTE]) == (True, ConditionReason.ACCEPTED, want)
    assert verdict([NOTE]) == (True, ConditionReason.ACCEPTED, "")


def test_only_the_first_findings_are_in_the_message() -> None:
    message = verdict([ERROR] * 12)[2]
    assert message.count("is wrong") == 10
    assert message.endswith("; and 2 more: `perdure lint` shows all")


def test_an_unchanged_verdict_keeps_the_status() -> None:
    accepted: dict[str, Any] = status({}, True, ConditionReason.ACCEPTED, "", generation=1, now=T0)
    assert accepted["observedGeneration"] == accepted["conditions"][0]["observedGeneration"] == 1
    later = T0 + timedelta(hours=1)
    assert status(accepted, True, ConditionReason.ACCEPTED, "", generation=1, now=later) == accepted
    refused = status(accepted, False, ConditionReason.INVALID_SPEC, "x", generation=2, now=later)
    assert refused["conditions"][0]["status"] == "False"
    assert refused["conditions"][0]["lastTransitionTime"] > accepted["conditions"][0]["lastTransitionTime"]


def test_a_trial_pod_belongs_to_no_run() -> None:
    activity = Activity.parse(
        {"name": "work", "startToCloseTimeout": "1m", "heartbeatTimeout": "5s", "container": {"image": "i"}}
    )
    pod = build_trial("shop", activity, PodSettings())
    assert pod["spec"]["containers"][0]["image"] == "i"
    assert "ownerReferences" not in pod["metadata"]
    assert "finalizers" not in pod["metadata"]
    assert pod["metadata"]["labels"] == {}
    assert pod["spec"].get("serviceAccountName") is None


def test_references_to_retry_policies_are_found_except_in_user_data() -> None:
    named = {"retryPolicy": {"name": "standard"}}
    spec = {
        "activities": [{"name": "work", **named, "container": {"args": [named]}}],
        "steps": [{"name": "a", "activity": {"name": "work", "input": named, "retryPolicy": {"exponential": {}}}}],
        "blocks": [{"name": "b", "steps": [{"name": "c", "childWorkflow": {"retryPolicy": {"name": "other"}}}]}],
    }
    assert list(named_policies(spec, "spec")) == [
        ("spec.activities[0].retryPolicy.name", "standard"),
        ("spec.blocks[0].steps[0].childWorkflow.retryPolicy.name", "other"),
    ]


async def test_a_workflow_is_reconciled_when_its_policies_are_created_or_deleted() -> None:
    spec = {
        "activities": [
            {
                "name": "work",
                "startToCloseTimeout": "1m",
                "retryPolicy": {"name": "standard"},
                "container": {"image": "i"},
            }
        ],
        "steps": [{"name": "a", "activity": {"name": "work"}}],
    }
    meta = {"namespace": "shop", "name": "order", "uid": "w", "generation": 1, "resourceVersion": "1"}
    policy = {
        "apiVersion": API_VERSION,
        "kind": "RetryPolicy",
        "metadata": {"namespace": "shop", "name": "standard", "uid": "p", "resourceVersion": "2"},
        "spec": {"exponential": {"maximumAttempts": 3}},
    }
    written: list[Any] = []
    known: list[Any] = []

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        if request.method in {"PUT", "PATCH"}:
            written.append(orjson.loads(await request.read()))
            return web.json_response({"metadata": meta})
        if "retrypolicies" in request.path:
            return web.json_response(known[0] if known else {"reason": "NotFound"}, status=200 if known else 404)
        if "/workflows/" in request.path:
            return web.json_response({"apiVersion": API_VERSION, "kind": "Workflow", "metadata": meta, "spec": spec})
        if "workflowdefaults" in request.path:
            return web.json_response({"reason": "NotFound"}, status=404)
        if "workflowrevisions" in request.path:
            return web.json_response({"metadata": {"uid": "r"}}, status=201 if request.method == "POST" else 404)
        return web.json_response({})

    async with api_server(answer) as client:
        recorder = Recorder(client, instance="test")
        policies = Policies(client, recorder)
        pods = Pods(client, ActivityIdentity(client, "perdure-activity"), PodSettings())
        readiness = Readiness(client, Definitions(client), pods, policies, recorder)
        with pytest.raises(NotYetError) as compiling:
            await readiness.reconcile("shop", "order", T0)
        await asyncio.wait([compiling.value.awaited])
        await readiness.reconcile("shop", "order", T0)
        reported = str(written[-1])
        assert "RetryPolicyNotFound" in reported
        assert "spec.activities[0].retryPolicy.name: there is no valid RetryPolicy `standard`" in reported
        assert readiness.stale("shop") == []
        known.append(policy)
        policies.update(policy)
        assert readiness.stale("shop") == ["order"]
        await readiness.reconcile("shop", "order", T0)
        assert "Accepted" in str(written[-1])
        assert readiness.stale("shop") == []
        policies.delete(policy)
        assert readiness.stale("shop") == ["order"]
        readiness.forget("shop", "order")
        assert readiness.stale("shop") == []
