"""Resets with a real API server and the operator: exactly one complete new run, whatever happens meanwhile."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import TypeAlias

import pytest

from perdure.api.kinds.operation import Reset
from perdure.api.names import reset_name
from perdure.api.policies import ResetPoint
from perdure.api.reasons import ConditionReason
from perdure.controller.errors import RefusedError, when_ready
from perdure.controller.runs.resets import NewRun, reset
from perdure.controller.workflows.definitions import Definitions
from perdure.engine import events as ev
from perdure.engine import history
from perdure.kube.access import find_access
from perdure.kube.client import Client
from support.cluster.namespace import Cluster, Json, check_history, python
from support.cluster.process import Process

pytestmark = pytest.mark.cluster

Asker: TypeAlias = Callable[..., Awaitable[NewRun]]


def workflow(name: str, *steps: Json, **more: object) -> Json:
    spec = {"steps": list(steps), **more}
    return {"apiVersion": "perdure.dev/v1alpha1", "kind": "Workflow", "metadata": {"name": name}, "spec": spec}


def nap(name: str, duration: str) -> Json:
    return {"name": name, "sleep": {"duration": duration}}


def signal(namespace: Cluster, name: str, value: object, workflow_id: str = "long") -> None:
    """Have another run signal the open run of a workflow ID."""
    step = {"name": "signal", "signal": {"workflowId": workflow_id, "name": name, "input": value}}
    namespace.start(f"signal-{workflow_id}-{name}", {"inline": {"steps": [step]}})


def event(namespace: Cluster, run: str, kind: type[ev.Event], number: int = 0) -> int:
    """The ID of an event of a run, once it exists."""

    def look() -> int:
        if "history" not in ((namespace.get("workflowrun", run) or {}).get("status") or {}):
            return 0
        recorded = history.decode_events(namespace.with_history(run)["status"]["history"]["events"])
        found = [each.event_id for each in recorded if isinstance(each, kind)]
        return found[number] if len(found) > number else 0

    found: int = namespace.wait(f"{kind.__name__} of {run}", look)
    return found


@pytest.fixture
async def ask(namespace: Cluster, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Asker]:
    """Request a reset, as the controller of Operations does."""
    monkeypatch.setenv("KUBECONFIG", str(namespace.kubeconfig))
    async with Client.open(find_access(), user_agent="perdure-test") as client:
        definitions = Definitions(client)

        async def asked(name: str, request_id: str = "op-1", **wanted: object) -> NewRun:
            run = await asyncio.to_thread(namespace.get, "workflowrun", name)  # while others wait for their answers
            assert run is not None
            attempt = partial(
                reset, client, definitions, run, Reset.parse(wanted), request_id=request_id, identity="ada"
            )
            return await when_ready(attempt, seconds=300)  # its definition may have to be compiled

        yield asked


@pytest.mark.slow
async def test_a_failed_run_is_reset_and_continues_with_the_fixed_workflow(namespace: Cluster, ask: Asker) -> None:
    work = python("activity.complete('worked')")
    first = {"name": "first", "activity": {"name": "work"}}
    tidy = [{"name": "tidy", "steps": [{"name": "nap", "sleep": {"duration": "1s"}}]}]
    more: Json = {"activities": [work], "blocks": tidy, "finally": {"block": "tidy"}}
    namespace.apply(workflow("mended", first, {"name": "bad", "fail": {"type": "Bad", "message": "no"}}, **more))
    namespace.start("fails", {"workflow": {"name": "mended"}, "workflowId": "one", "runTimeout": "1h"})
    before = namespace.closed("fails")
    assert before["phase"] == "Failed"
    good = {"name": "good", "return": {"output": "${steps.first.output} by ${run.name} ${run.runId}"}}
    namespace.apply(workflow("mended", first, good, **more))
    made = await ask("fails", eventId=event(namespace, "fails", ev.ActivityTaskCompleted), reason="mended")
    status = namespace.closed(made.name)
    assert status["phase"] == "Completed"
    # Completed work is not repeated, and the meaning of `run` does not change.
    assert status["output"] == f"worked by fails {before['runId']}"
    assert status["firstRunId"] == before["runId"]
    assert status["runId"] == made.run_id != before["runId"]
    run = namespace.with_history(made.name)
    assert run["spec"]["workflowId"] == "one"
    check_history(run)
    old, new = (namespace.with_history(name)["status"]["history"]["events"] for name in ("fails", made.name))
    assert new[: made.event_id] == old[: made.event_id]
    reported = new[made.event_id]
    assert (reported["eventType"], reported["reason"], reported["identity"]) == ("WorkflowTaskFailed", "mended", "ada")
    assert reported["cause"] == "ResetWorkflow"
    assert (reported["baseRunId"], reported["newRunId"]) == (before["runId"], made.run_id)
    assert namespace.closed("fails") == before
    # The newest decision of the steps is meant, not one of `finally`.
    assert (await ask("fails", "op-3", to=ResetPoint.LAST_WORKFLOW_TASK)).event_id == made.event_id
    # Reset once more, from the new run.
    again = await ask(made.name, "op-2", to=ResetPoint.FIRST_WORKFLOW_TASK)
    assert namespace.closed(again.name)["output"] == status["output"]
    check_history(namespace.with_history(again.name))


async def test_repeated_reset_requests_terminate_an_open_run_and_create_one_new_run(
    namespace: Cluster, ask: Asker
) -> None:
    loop = {"items": "${lists.range(150)}", "maxConcurrency": 20}
    steps = [
        {"name": "naps", "forEach": loop, "sleep": {"duration": "1s"}},
        nap("more", "1s"),
        {"name": "heard", "waitForSignal": {"name": "go"}},
        {"name": "finish", "waitForSignal": {"name": "finish"}},
        {"name": "end", "return": {"output": "${steps.heard.output}"}},
    ]
    namespace.start("long", {"inline": {"steps": steps}})
    namespace.wait("a segment", lambda: namespace.segments(namespace.get("workflowrun", "long") or {}), seconds=600)
    last = event(namespace, "long", ev.TimerFired, 150)
    signal(namespace, "go", "heard")
    event(namespace, "long", ev.WorkflowExecutionSignaled)
    answers = await asyncio.gather(*(ask("long", eventId=last) for _ in range(5)))
    assert len(set(answers)) == 1
    made = answers[0]
    old = namespace.closed("long")
    assert old["phase"] == "Terminated"
    assert f"reset to event {last} of `long`, as `{made.name}`" in old["failure"]["message"]
    event(namespace, made.name, ev.WorkflowExecutionSignaled)
    signal(namespace, "finish", None)
    status = namespace.closed(made.name)
    assert status["output"] == "heard"
    assert await ask("long", eventId=last) == made
    assert len(namespace.list("workflowruns")) == 4
    run = namespace.with_history(made.name)
    assert run["status"]["history"]["segments"] >= 1
    check_history(run)
    assert check_history(namespace.with_history("long")).closed


async def test_a_reset_to_an_event_without_a_decision_is_rejected_with_valid_ones(
    namespace: Cluster, ask: Asker
) -> None:
    namespace.start("waits", {"inline": {"steps": [nap("short", "1s"), nap("long", "1h")]}})
    event(namespace, "waits", ev.TimerStarted, 1)
    with pytest.raises(
        RefusedError, match="cannot be reset to event 2, where no decision was made; choose event 1 or 3"
    ) as caught:
        await ask("waits", eventId=2)
    assert caught.value.reason is ConditionReason.RESET_POINT_NOT_FOUND
    with pytest.raises(RefusedError, match="choose event 3"):
        await ask("waits", eventId=99)
    assert (await ask("waits", to=ResetPoint.LAST_WORKFLOW_TASK)).event_id == 3
    with pytest.raises(RefusedError, match="not created by this reset"):
        await _taken(namespace, ask)


async def _taken(namespace: Cluster, ask: Asker) -> None:
    namespace.start(reset_name("waits", "op-9"), {"inline": {"steps": [nap("any", "1s")]}})
    await ask("waits", "op-9", eventId=1)


async def test_a_reset_keeps_earlier_children_and_closes_later_ones(namespace: Cluster, ask: Asker) -> None:
    waits = {"name": "wait", "waitForSignal": {"name": "go"}}
    namespace.apply(workflow("waits", waits, {"name": "end", "return": {"output": "${run.runId}"}}))
    child = {"workflow": {"name": "waits"}}
    steps = [
        {"name": "early", "childWorkflow": {**child, "workflowId": "early"}, "needs": []},
        {**nap("pause", "1s"), "needs": []},
        {"name": "late", "childWorkflow": {**child, "workflowId": "late-${run.name}"}, "needs": ["pause"]},
        {"name": "end", "needs": ["early", "late"], "return": {"output": "${[steps.early.output, steps.late.output]}"}},
    ]
    namespace.start("parent", {"inline": {"steps": steps}})
    point = event(namespace, "parent", ev.TimerFired)
    event(namespace, "parent", ev.ChildWorkflowExecutionStarted, 1)
    children = {
        run["spec"]["workflowId"]: run for run in namespace.list("workflowruns") if run["metadata"]["name"] != "parent"
    }
    made = await ask("parent", eventId=point)
    event(namespace, made.name, ev.ChildWorkflowExecutionStarted, 1)
    signal(namespace, "go", None, "early")
    signal(namespace, "go", None, "late-parent")
    status = namespace.closed(made.name)
    assert status["phase"] == "Completed"
    early, late = children["early"]["metadata"], children["late-parent"]["metadata"]
    assert status["output"][0] == early["uid"]
    assert status["output"][1] != late["uid"]
    assert namespace.closed(late["name"])["phase"] == "Terminated"
    kept = namespace.get("workflowrun", early["name"])
    assert kept is not None
    assert [owner["uid"] for owner in kept["metadata"]["ownerReferences"]] == [made.run_id]
    check_history(namespace.with_history(made.name))
    # The child is kept when its former parent is deleted.
    namespace.delete("workflowrun", "parent")
    assert namespace.get("workflowrun", early["name"]) is not None


@pytest.mark.slow
@pytest.mark.own
async def test_a_run_can_be_reset_while_the_operator_is_down(
    namespace: Cluster, ask: Asker, operator_process: Process
) -> None:
    slow = python("import time; time.sleep(3); activity.complete('worked')")
    steps = [nap("first", "1s"), {"name": "work", "activity": {"name": "work"}}]
    namespace.start("interrupted", {"inline": {"activities": [slow], "steps": steps}})
    point = event(namespace, "interrupted", ev.TimerFired)
    with operator_process.down():
        made = await ask("interrupted", eventId=point)
        assert await ask("interrupted", eventId=point) == made
        assert (namespace.get("workflowrun", "interrupted") or {})["status"].get("completionTime") is None
    status = namespace.closed(made.name)
    assert status["output"] == "worked"
    assert len(namespace.list("workflowruns")) == 2
    check_history(namespace.with_history(made.name))
    check_history(namespace.with_history("interrupted"))
