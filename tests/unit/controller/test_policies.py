"""RetryPolicies and their circuit breakers, with an API server of one kind on loopback that compares and swaps."""

import asyncio
import copy
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from perdure.controller.retry_policies import Policies
from perdure.engine.state import CircuitReport, CircuitResult
from perdure.kube.access import Access
from perdure.kube.client import Client
from perdure.kube.clock import now
from perdure.kube.events import Recorder
from perdure.observe import metrics
from unit.controller.stored import Json, Store, serving


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    async with serving() as found:
        yield found


@asynccontextmanager
async def operator(store: Store) -> AsyncIterator[Policies]:
    """The policies of one operator, which has observed the store at its start."""
    async with Client.open(Access(server=store.address), user_agent="test") as client:
        policies = Policies(client, Recorder(client, instance="test"))
        for key, obj in store.objects.items():
            if key.startswith("retrypolicies/"):
                policies.update(copy.deepcopy(obj))
        yield policies


def breaker(**fields: Any) -> Json:
    return {"exponential": {}, "circuitBreaker": {"failureThreshold": 3, "openDuration": "60s", **fields}}


def report_of(result: CircuitResult, ago: float = 0) -> CircuitReport:
    return CircuitReport(policy="shared", result=result, time=now() - timedelta(seconds=ago))


FAILED, SUCCEEDED = CircuitResult.FAILED, CircuitResult.SUCCEEDED


async def test_the_status_shows_the_waits_and_that_the_policy_is_accepted(store: Store) -> None:
    store.put("retrypolicies", "shared", spec={"exponential": {"maximumAttempts": 4}})
    async with operator(store) as policies:
        await policies.reconcile("shop", "shared")
        status = store.objects["retrypolicies/shared"]["status"]
        assert status["preview"] == ["1s", "2s", "4s", "8s", "16s", "32s", "1m4s", "1m40s"]
        assert status["waits"] == "1s 2s 4s"
        assert status["observedGeneration"] == 1
        (ready,) = status["conditions"]
        assert (ready["type"], ready["status"], ready["message"]) == ("Ready", "True", "retries 3 times")
        assert "circuit" not in status
        await policies.reconcile("shop", "shared")
        assert store.writes == 1
        assert policies.of("shop")["shared"].maximum_attempts == 4


async def test_an_invalid_policy_is_reported_and_treated_as_missing(store: Store) -> None:
    store.put("retrypolicies", "shared", spec={"exponential": {"initialInterval": "soon"}})
    async with operator(store) as policies:
        await policies.reconcile("shop", "shared")
        assert store.conditions() == {"Ready": ("False", "InvalidSpec")}
        assert await policies.missing("shop", {"shared"}) == ["shared"]


async def test_a_circuit_breaker_of_a_newer_version_admits_nothing_and_keeps_its_state(store: Store) -> None:
    store.put("retrypolicies", "shared", spec=breaker())
    async with operator(store) as policies:
        assert await policies.report("shop", "run/2/1", report_of(FAILED))
    status = store.objects["retrypolicies/shared"]["status"]
    newer = {**status, "circuit": {**status["circuit"], "slowCalls": 7}}
    store.put("retrypolicies", "shared", spec=breaker(), status=newer)
    async with operator(store) as policies:
        held = await policies.admit("shop", "shared", "run/3/1")
        assert held is not None
        assert "a newer version of Perdure has written the circuit breaker of RetryPolicy `shared`" in held.reason
        assert not await policies.report("shop", "run/2/2", report_of(FAILED)), "the run keeps its report"
        await policies.reconcile("shop", "shared")
        assert store.circuit == newer["circuit"]
        assert store.conditions()["Ready"] == ("False", "NewerState")
        policies.update(store.put("retrypolicies", "shared", spec=breaker(), status=status))
        assert await policies.admit("shop", "shared", "run/3/1") is None
        assert await policies.report("shop", "run/2/2", report_of(FAILED))
    assert store.circuit["consecutiveFailures"] == 2
    assert store.conditions()["Ready"] == ("True", "Accepted")


async def test_a_policy_that_no_watch_has_shown_is_read(store: Store) -> None:
    async with operator(store) as policies:
        assert await policies.missing("shop", {"shared"}) == ["shared"]
        store.put("retrypolicies", "shared", spec={"exponential": {}})
        assert await policies.missing("shop", {"shared"}) == []


async def test_an_outdated_observation_of_a_policy_is_ignored(store: Store) -> None:
    old = store.put("retrypolicies", "shared", spec={"exponential": {"maximumAttempts": 4}})
    store.put("retrypolicies", "shared", spec={"exponential": {"maximumAttempts": 9}})
    async with operator(store) as policies:
        policies.update(old)
        assert policies.of("shop")["shared"].maximum_attempts == 9
        policies.delete(old)
        assert "shared" not in policies.of("shop")


async def test_concurrent_failures_reported_by_two_operators_are_counted_once_each(store: Store) -> None:
    store.put("retrypolicies", "shared", spec=breaker(failureThreshold=1000))
    async with operator(store) as first, operator(store) as second:
        reports = [(f"run-{n}/2/1", report_of(FAILED)) for n in range(50)]
        # Every run reports twice, the second time to the other operator, as after a kill before the answer was recorded.
        both = [each.report("shop", who, report) for who, report in reports for each in (first, second)]
        await asyncio.gather(*both)
    assert store.circuit["consecutiveFailures"] == 50
    assert store.writes == 50
    assert store.conflicts > 0


async def test_an_open_circuit_survives_a_restart_and_closes_after_its_trials(store: Store) -> None:
    store.put("retrypolicies", "shared", spec=breaker(failureThreshold=2, successThreshold=2))
    async with operator(store) as policies:
        for n in range(2):
            await policies.report("shop", f"run-{n}/2/1", report_of(FAILED))
        assert store.circuit["state"] == "Open"
        assert store.conditions()["CircuitClosed"] == ("False", "CircuitOpen")
        held = await policies.admit("shop", "shared", "run-9/2/1")
        assert held is not None
        assert held.until is not None
        assert held.until > now()
        assert (
            metrics.REGISTRY.get_sample_value(
                "perdure_circuit_state", {"namespace": "shop", "retry_policy": "shared", "state": "Open"}
            )
            == 1
        )
    store.objects["retrypolicies/shared"]["status"]["circuit"]["openUntil"] = "2026-01-01T00:00:00Z"
    for n in range(20):
        store.put("workflowruns", f"run-{n}", status={"state": {"activities": {"3": {}}}})
    async with operator(store) as policies:
        answers = await asyncio.gather(
            *(policies.admit("shop", "shared", f"run-{n}/workflowruns-run-{n}/3/1") for n in range(20))
        )
        assert sum(answer is None for answer in answers) == 1
        for _ in range(2):
            await policies.admit("shop", "shared", "run-x/3/1")
            trial = store.circuit["trial"]
            await policies.report("shop", trial, report_of(SUCCEEDED))
        assert store.circuit["state"] == "Closed"
        assert await policies.admit("shop", "shared", "run-z/3/1") is None


@pytest.mark.parametrize(
    ("state", "freed"),
    [
        (None, True),
        ({"activities": {}}, True),
        ({"activities": {"2": {"attempt": 4}}}, True),
        ({"activities": {"2": {"attempt": 3}}}, False),
        ({"activities": {}, "reports": {"2/3": {}}}, False),
    ],
    ids=["its run was deleted", "its activity has closed", "another attempt runs", "it runs", "its report is pending"],
)
async def test_a_trial_that_can_no_longer_report_is_replaced(store: Store, state: Json | None, *, freed: bool) -> None:
    circuit = {"state": "HalfOpen", "trial": "run-a/workflowruns-run-a/2/3"}
    store.put("retrypolicies", "shared", spec=breaker(), status={"circuit": circuit})
    if state is not None:
        store.put("workflowruns", "run-a", status={"state": state})
    async with operator(store) as policies:
        held = await policies.admit("shop", "shared", "run-b/2/1")
        assert (held is None) == freed
        assert store.objects["retrypolicies/shared"]["status"]["circuit"]["trial"] == (
            "run-b/2/1" if freed else "run-a/workflowruns-run-a/2/3"
        )


async def test_a_trial_of_a_recreated_run_is_replaced(store: Store) -> None:
    circuit = {"state": "HalfOpen", "trial": "run-a/another-uid/2/3"}
    store.put("retrypolicies", "shared", spec=breaker(), status={"circuit": circuit})
    store.put("workflowruns", "run-a", status={"state": {"activities": {"2": {"attempt": 3}}}})
    async with operator(store) as policies:
        assert await policies.admit("shop", "shared", "run-b/uid/2/1") is None


async def test_waiting_runs_are_woken_when_a_circuit_admits_more_attempts(store: Store) -> None:
    obj = store.put("retrypolicies", "shared", spec=breaker(failureThreshold=1))
    woken: Counter[str] = Counter()
    async with operator(store) as policies:
        policies.changed = lambda namespace: woken.update([namespace])
        await policies.report("shop", "run-a/2/1", report_of(FAILED, ago=100))
        before = woken["shop"]
        assert await policies.admit("shop", "shared", "run-b/2/1") is None  # open for 60 s, 100 s ago: it is tried
        await policies.report("shop", "run-b/2/1", report_of(SUCCEEDED))
        assert woken["shop"] > before
        policies.delete(obj)
        assert await policies.admit("shop", "shared", "run-c/2/1") is None


async def test_removing_a_circuit_breaker_releases_waiting_attempts(store: Store) -> None:
    store.put("retrypolicies", "shared", spec=breaker(failureThreshold=1))
    async with operator(store) as policies:
        await policies.report("shop", "run-a/2/1", report_of(FAILED))
        changed = store.put(
            "retrypolicies", "shared", spec={"exponential": {}}, status=store.objects["retrypolicies/shared"]["status"]
        )
        policies.update(changed)
        assert await policies.admit("shop", "shared", "run-b/2/1") is None
        await policies.reconcile("shop", "shared")
        assert "circuit" not in store.objects["retrypolicies/shared"]["status"]
        assert set(store.conditions()) == {"Ready"}
