"""Workflows on a real cluster: pinned definitions, steps, failures, timeouts, and the output of kubectl."""

import json

import pytest

from perdure.engine import events as ev
from support.cluster.namespace import Cluster, check_history, python, recorded

pytestmark = pytest.mark.cluster

HELLO = {"steps": [{"name": "hello", "return": {"output": "hello ${input.name}"}}]}


def workflow(name: str, spec: dict[str, object]) -> dict[str, object]:
    return {"apiVersion": "perdure.dev/v1alpha1", "kind": "Workflow", "metadata": {"name": name}, "spec": spec}


def test_steps_see_input_outputs_variables_the_run_and_the_time_of_the_event(namespace: Cluster) -> None:
    steps = [
        {"name": "first", "set": {"total": "${input.a + input.b}", "who": "${run.workflowId}"}},
        {"name": "nap", "sleep": {"duration": "${string(vars.total) + 's'}"}},
        {"name": "last", "return": {"output": {"total": "${vars.total}", "who": "${vars.who}", "text": "${now}"}}},
    ]
    namespace.start("sums", {"workflowId": "sums/of 2 things", "input": {"a": 1, "b": 1}, "inline": {"steps": steps}})
    status = namespace.closed("sums")
    assert status["output"]["total"] == 2
    assert status["output"]["who"] == "sums/of 2 things"
    run = namespace.with_history("sums")
    check_history(run)
    fired = next(e for e in recorded(run) if isinstance(e, ev.TimerFired))
    began = next(e for e in recorded(run) if isinstance(e, ev.TimerStarted))
    assert (fired.event_time - began.event_time).total_seconds() >= 2


def test_a_run_waits_for_its_workflow_and_keeps_the_definition_it_started_with(namespace: Cluster) -> None:
    namespace.start("early", {"workflow": {"name": "greeting"}, "input": {"name": "Ada"}})
    condition = namespace.condition("workflowrun", "early", "WorkflowNotFound")
    assert condition["status"] == "Unknown"
    assert "greeting" in condition["message"]
    slow = {"steps": [{"name": "nap", "sleep": {"duration": "4s"}}, *HELLO["steps"]]}
    namespace.apply(workflow("greeting", slow))
    namespace.wait("the run to start", lambda: namespace("get", "wfr", "early", "-o", "jsonpath={.status.startTime}"))
    namespace.apply(workflow("greeting", {"steps": [{"name": "no", "fail": {"message": "changed"}}]}))
    assert namespace.closed("early")["output"] == "hello Ada"


def test_a_run_waits_until_its_workflow_is_fixed(namespace: Cluster) -> None:
    broken = {"steps": [{"name": "oops", "activity": {"name": "missing"}}]}
    namespace.apply(workflow("greeting", broken))
    namespace.start("waits", {"workflow": {"name": "greeting"}, "input": {"name": "Ada"}})
    condition = namespace.condition("workflowrun", "waits", "InvalidWorkflow")
    assert "spec.steps[0].activity.name" in condition["message"]
    assert "`missing`" in condition["message"]
    namespace.apply(workflow("greeting", HELLO))
    assert namespace.closed("waits")["output"] == "hello Ada"


@pytest.mark.parametrize(
    ("steps", "type_", "message"),
    [
        ([{"name": "no", "fail": {"type": "Refused", "message": "by ${input.name}"}}], "Refused", "by Ada"),
        ([{"name": "no", "return": {"output": "${input.nmae}"}}], "ExpressionError", "nmae"),
        (
            [{"name": "no", "return": {"output": "${input.name +}"}}],
            "InvalidWorkflow",
            "spec.inline.steps[0].return.output",
        ),
        ([{"name": "no", "return": {"output": "${setps.a}"}}], "InvalidWorkflow", "setps"),
    ],
    ids=[
        "a step that fails",
        "a missing field",
        "an expression that does not compile",
        "a name that cannot exist",
    ],
)
def test_an_error_fails_the_run_with_its_step_and_message(
    namespace: Cluster, steps: list[dict[str, object]], type_: str, message: str
) -> None:
    namespace.start("fails", {"input": {"name": "Ada"}, "inline": {"steps": steps}})
    status = namespace.closed("fails")
    assert status["phase"] == "Failed"
    assert status["failure"]["type"] == type_
    assert message in status["failure"]["message"]


def test_a_run_that_outgrows_its_object_is_terminated_and_too_large_an_input_prevents_the_start(
    namespace: Cluster,
) -> None:
    work = python("activity.main({'work': lambda _: 'x' * 250_000})", resultSize="Large")
    steps = [{"name": f"step-{number}", "activity": {"name": "work"}} for number in range(6)]
    namespace.start("grows", {"inline": {"activities": [work], "steps": steps}})
    namespace.start("huge", {"inline": HELLO, "input": {"name": "x" * 300_000}})
    grown = namespace.closed("grows")
    assert grown["phase"] == "Terminated"
    assert "1024 KiB" in grown["failure"]["message"]
    # The pod whose result did not fit has ended and is kept for its log, without a finalizer.
    namespace.wait(
        "no pod to be held", lambda: not [p for p in namespace.list("pods") if p["metadata"].get("finalizers")]
    )
    huge = namespace.closed("huge")
    assert huge["phase"] == "Failed"
    assert "spec.input" in huge["failure"]["message"]


@pytest.mark.slow
@pytest.mark.parametrize("field", ["runTimeout", "executionTimeout"])
def test_the_run_timeout_closes_the_run_and_stops_its_pods(namespace: Cluster, field: str) -> None:
    work = python("import time; time.sleep(600)")
    steps = [{"name": "slow", "activity": {"name": "work"}}]
    namespace.start("late", {field: "4s", "inline": {"activities": [work], "steps": steps}})
    status = namespace.closed("late")
    assert status["phase"] == "TimedOut"
    (condition,) = status["conditions"]
    assert (condition["status"], condition["reason"]) == ("False", "TimedOut")
    # It is kept as its `podRetention` says, for its log, or deleted if it had none yet.
    namespace.wait(
        "its pod to be stopped", lambda: {pod["status"]["phase"] for pod in namespace.list("pods")} <= {"Failed"}
    )


def test_a_closed_run_is_deleted_with_its_pods_after_its_ttl(namespace: Cluster) -> None:
    work = python("raise SystemExit(1)", retryPolicy={"exponential": {"maximumAttempts": 1}})
    steps = [{"name": "fails", "activity": {"name": "work"}}]
    namespace.start("kept", {"inline": HELLO, "input": {"name": "Ada"}})
    namespace.start("brief", {"ttlSecondsAfterFinished": 2, "inline": {"activities": [work], "steps": steps}})
    namespace.wait("it to be removed", lambda: namespace.get("workflowrun", "brief") is None)
    namespace.wait("its pod to be removed", lambda: not namespace.list("pods"))
    assert namespace.closed("kept")["phase"] == "Completed"
    namespace("patch", "wfr", "kept", "--type=merge", "-p", '{"spec": {"ttlSecondsAfterFinished": 0}}')
    namespace.wait("the other one to be removed", lambda: namespace.get("workflowrun", "kept") is None)


def test_invalid_search_attributes_fail_the_run(namespace: Cluster) -> None:
    attributes = {"customer": "ada", "bad name!": "x", "large": "x" * 300_000}
    namespace.start("odd", {"searchAttributes": attributes, "inline": HELLO, "input": {"name": "Ada"}})
    failure = namespace.closed("odd")["failure"]
    assert failure["type"] == "InvalidWorkflow"
    assert "spec.searchAttributes.bad name!: must be 1 to 63 letters" in failure["message"]
    assert "spec.searchAttributes.large: has more than 2,048 bytes" in failure["message"]
    assert namespace("get", "wfr", "-l", "search.perdure.dev/customer=ada", "-o", "name").split()


def test_a_deeply_nested_value_fails_only_its_own_run(namespace: Cluster) -> None:
    depth = 4_000
    spec = json.dumps({"inline": HELLO, "input": "deep"}).replace('"deep"', "[" * depth + "]" * depth)
    head = '{"apiVersion": "perdure.dev/v1alpha1", "kind": "WorkflowRun", "metadata": {"name": "deep"}, "spec": '
    body = head + spec + "}"
    url = f"/apis/perdure.dev/v1alpha1/namespaces/{namespace.namespace}/workflowruns"
    namespace("create", "--raw", url, "-f", "-", stdin=body)
    namespace.wait("it to fail", lambda: namespace("get", "wfr", "deep", "-o", "jsonpath={.status.phase}") == "Failed")
    assert "spec.input" in namespace("get", "wfr", "deep", "-o", "jsonpath={.status.failure.message}")
    namespace.start("other", {"inline": HELLO, "input": {"name": "Ada"}})
    assert namespace.closed("other")["output"] == "hello Ada"


def test_kubectl_shows_selects_and_explains_runs(namespace: Cluster) -> None:
    namespace.start("hello", {"input": {"name": "Ada"}, "inline": HELLO})
    namespace("wait", "wfr/hello", "--for=condition=Succeeded", "--timeout=60s")
    header, row = namespace("get", "wfr").splitlines()
    assert header.split() == ["NAME", "PHASE", "PROGRESS", "REASON", "AWAITS", "COMPLETED", "AGE"]
    assert row.split()[:4] == ["hello", "Completed", "1/1", "Completed"]
    assert namespace("get", "wfr", "--field-selector", "status.phase=Completed", "-o", "name") == (
        "workflowrun.perdure.dev/hello\n"
    )
    explained = namespace("explain", "wfr.spec")
    for field in ("executionTimeout", "workflowId", "input", "inline"):
        assert field in explained
    assert "Default" in explained
    assert "hello" in namespace("get", "perdure")


def test_an_invalid_run_is_rejected_by_the_api_server(namespace: Cluster) -> None:
    done = namespace.run(
        "create",
        "-f",
        "-",
        stdin="apiVersion: perdure.dev/v1alpha1\nkind: WorkflowRun\nmetadata: {name: x}\nspec: {runTimeout: soon}\n",
    )
    assert done.returncode != 0
    assert "spec.runTimeout" in done.stderr
