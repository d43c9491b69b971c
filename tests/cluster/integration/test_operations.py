"""Operations with a real API server and the operator: each request is executed once and answered."""

import json
from typing import Any

import pytest
import yaml

from perdure.engine import events as ev
from support.cluster.namespace import Cluster, Json, check_history, python, recorded
from support.cluster.operations import answer, ask, inline, operation
from support.manuals import REPOSITORY

pytestmark = pytest.mark.cluster

APPROVAL = {"name": "approval", "waitForSignal": {"name": "approved"}}
OUTPUT = {"name": "told", "return": {"output": "${steps.approval.output}"}}
EXAMPLES = sorted((REPOSITORY / "examples" / "operations").glob("*.yaml"))


def workflow_id(text: str) -> Json:
    return {"kind": "WorkflowRun", "workflowId": text}


def refused(namespace: Cluster, manifest: Json) -> str:
    done = namespace.run("create", "-f", "-", stdin=yaml.safe_dump(manifest))
    assert done.returncode, done.stdout
    return done.stderr


def test_a_signal_is_recorded_and_its_answer_is_in_the_status(namespace: Cluster) -> None:
    namespace.start("order", {"workflowId": "A/1", **inline(APPROVAL, OUTPUT)})
    reason, message = ask(namespace, "notify", workflow_id("A/1"), signal={"name": "approved", "input": {"by": "ada"}})
    assert (reason, message) == ("Done", "`order` has recorded it")
    assert namespace.closed("order")["output"] == {"by": "ada"}
    run, status = namespace.get("workflowrun", "order"), answer(namespace, "notify")
    assert run is not None
    assert (status["verb"], status["workflowRun"], status["runId"]) == ("signal", "order", run["metadata"]["uid"])
    assert status["result"] == {"workflowRun": "order", "workflowId": "A/1", "runId": run["metadata"]["uid"]}
    (signal,) = [e for e in recorded(run) if isinstance(e, ev.WorkflowExecutionSignaled)]
    assert signal.identity == "operation/notify"
    check_history(run)
    shown = namespace("get", "wop", "notify").splitlines()
    assert shown[0].split() == ["NAME", "VERB", "NAME", "WORKFLOW-ID", "PHASE", "REASON", "AGE"]
    assert shown[1].split()[:-1] == ["notify", "signal", "A/1", "Complete", "Done"]

    def reported() -> list[Json]:
        events = namespace.list("events.v1.events.k8s.io")
        return [e for e in events if e["regarding"]["name"] == "order" and e["reason"] == "OperationDone"]

    (event,) = namespace.wait("an Event on the run", reported)
    assert (event["note"], event["related"]["name"]) == ("Operation notify: signal", "notify")


def test_a_run_created_paused_starts_when_it_is_unpaused_and_can_be_paused_again(namespace: Cluster) -> None:
    namespace.start("order", {"startPaused": True, **inline(APPROVAL, OUTPUT)})
    namespace.condition("workflowrun", "order", "Paused")
    assert ask(namespace, "early", "order", signal={"name": "approved", "input": 1})[0] == "Deferred"
    assert (namespace.get("workflowrun", "order") or {})["status"]["phase"] == "Paused"
    assert ask(namespace, "again", "order", pause={"reason": "twice is fine"})[0] == "Done"
    assert ask(namespace, "go", "order", unpause={})[0] == "Done"
    assert namespace.closed("order")["output"] == 1
    assert ask(namespace, "late", "order", pause={})[0] == "WorkflowExecutionCompleted"


def test_cancel_runs_the_handlers_and_terminate_does_not(namespace: Cluster) -> None:
    steps = {"steps": [APPROVAL], "onCancel": {"block": "tidy"}, "blocks": [{"name": "tidy", "steps": [
        {"name": "wait", "waitForSignal": {"name": "tidied"}}]}]}  # fmt: skip
    namespace.start("order", {"inline": steps})
    for name in ("one", "two"):
        namespace.apply(operation(name, "order", cancel={"reason": name}))
    assert [answer(namespace, name)["phase"] for name in ("one", "two")] == ["Complete", "Complete"]
    run = namespace.get("workflowrun", "order")
    assert run is not None
    (event,) = [e for e in recorded(run) if isinstance(e, ev.WorkflowExecutionCancelRequested)]
    assert event.identity in {"operation/one", "operation/two"}
    assert ask(namespace, "tidied", "order", signal={"name": "tidied"})[0] == "Done"
    assert namespace.closed("order")["phase"] == "Cancelled"
    assert ask(namespace, "three", "order", cancel={})[0] == "Done"
    namespace.start("other", {"inline": steps})
    assert ask(namespace, "stop", "other", terminate={"reason": "enough", "details": {"a": 1}})[0] == "Done"
    status = namespace.closed("other")
    assert (status["phase"], status["failure"]["message"]) == ("Terminated", "enough")
    assert ask(namespace, "closed", workflow_id("other"), signal={"name": "x"}) == (
        "WorkflowExecutionCompleted",
        "the run has closed: Terminated",
    )


def test_an_activity_can_be_paused_and_completed_by_an_operation(namespace: Cluster) -> None:
    slow = python("import time\ntime.sleep(600)", retryPolicy={"exponential": {"maximumAttempts": 2}})
    steps = [{"name": "charge", "activity": {"name": "work"}}]
    output = {"name": "told", "return": {"output": "${steps.charge.output}"}}
    namespace.start("order", inline(*steps, output, activities=[slow]))
    namespace.pending("order", step="charge")
    assert ask(namespace, "no", "order", completeActivity={"step": "chrage", "result": {}}) == (
        "ActivityNotFound",
        "no activity `chrage` is open",
    )
    cancelled = ask(namespace, "not", "order", completeActivity={"step": "charge", "cancelled": {}})
    assert cancelled[0] == "CancelNotRequested"
    assert ask(namespace, "hold", "order", pause={"step": "charge"})[0] == "Done"
    namespace.pending("order", step="charge", state="Paused")
    failure = {"type": "Declined", "message": "by phone"}
    assert ask(namespace, "fail", "order", completeActivity={"step": "charge", "failure": failure})[0] == "Done"
    namespace.pending("order", attempt=2, state="Paused")
    assert ask(namespace, "go", "order", unpause={"step": "charge"})[0] == "Done"
    assert ask(namespace, "done", "order", completeActivity={"step": "charge", "result": {"output": 7}})[0] == "Done"
    assert namespace.closed("order")["output"] == 7


def test_a_reset_activity_starts_again_with_its_first_attempt(namespace: Cluster) -> None:
    policy = {"exponential": {"initialInterval": "1h", "maximumAttempts": 2}}
    fails = python("raise SystemExit(1)", retryPolicy=policy)
    namespace.start("order", inline({"name": "charge", "activity": {"name": "work"}}, activities=[fails]))
    namespace.pending("order", step="charge", attempt=2, state="BackingOff")
    assert ask(namespace, "no", "order", resetActivity={"step": "chrage"})[0] == "ActivityNotFound"
    assert len(namespace.list("pods")) == 1
    assert ask(namespace, "again", "order", resetActivity={"step": "charge"})[0] == "Done"
    # The policy permits two attempts again: a third one is due in an hour.
    namespace.pending("order", step="charge", attempt=3, state="BackingOff")
    assert len(namespace.list("pods")) == 2


def test_signals_arrive_in_the_order_of_their_creation(namespace: Cluster) -> None:
    items = {"items": "${lists.range(40)}", "maxConcurrency": 1}
    take = {"name": "approval", "forEach": items, "waitForSignal": {"name": "approved"}}
    namespace.start("order", inline(take, OUTPUT))
    # Their names are in another order.
    asked = [
        operation(f"notify-{number * 7 % 40:02}", "order", signal={"name": "approved", "input": number})
        for number in range(40)
    ]
    namespace.create(*asked)
    assert namespace.closed("order")["output"] == list(range(40))


def test_concurrent_signals_with_start_create_one_run_with_both_signals(namespace: Cluster) -> None:
    two = {"items": [1, 2], "maxConcurrency": 1}
    steps = [{"name": "approval", "forEach": two, "waitForSignal": {"name": "approved"}}, OUTPUT]
    flow = {"apiVersion": "perdure.dev/v1alpha1", "kind": "Workflow", "metadata": {"name": "cart"}}
    namespace.apply({**flow, "spec": {"steps": steps}})
    asked = [
        operation(
            f"add-{item}",
            workflow_id("Cart 7, of=ada\\"),
            signalWithStart={"name": "approved", "input": item, "start": {"workflow": {"name": "cart"}}},
        )
        for item in ("lamp", "table")
    ]
    namespace.create(*asked)
    results = [answer(namespace, f"add-{item}")["result"] for item in ("lamp", "table")]
    assert [each["started"] for each in results] == [True, False]
    (run,) = namespace.list("workflowruns")
    assert {each["runId"] for each in results} == {run["metadata"]["uid"]}
    status = namespace.closed(run["metadata"]["name"])
    assert status["output"] == ["lamp", "table"]
    # It has completed, and by default, an ID is reused only after a failure.
    start = {"name": "approved", "start": {"workflow": {"name": "cart"}}}
    reason, message = ask(namespace, "late", workflow_id("Cart 7, of=ada\\"), signalWithStart=start)
    assert reason == "WorkflowExecutionCompleted"
    assert "was used by" in message


def test_a_signal_reaches_the_newest_run_after_continue_as_new(namespace: Cluster) -> None:
    steps = [
        APPROVAL,
        {"name": "again", "when": "${input < 3}", "continueAsNew": {"input": "${input + 1}"}},
        {"name": "done", "return": {"output": "${steps.approval.output}"}},
    ]
    flow = {"apiVersion": "perdure.dev/v1alpha1", "kind": "Workflow", "metadata": {"name": "counter"}}
    namespace.apply({**flow, "spec": {"steps": steps}})
    namespace.start("count", {"workflow": {"name": "counter"}, "input": 1})
    asked = [
        operation(f"notify-{number}", workflow_id("count"), signal={"name": "approved", "input": number})
        for number in range(3)
    ]
    namespace.create(*asked)
    assert [answer(namespace, f"notify-{number}")["phase"] for number in range(3)] == ["Complete"] * 3

    def last() -> list[Json]:
        return [run for run in namespace.list("workflowruns") if (run.get("status") or {}).get("phase") == "Completed"]

    assert namespace.wait("the third run", last)[0]["status"]["output"] == 2
    assert ask(namespace, "old", "count", signal={"name": "approved"})[0] == "WorkflowExecutionCompleted"


def test_an_operation_on_a_missing_run_fails_immediately(namespace: Cluster) -> None:
    assert ask(namespace, "a", "none", cancel={}) == (
        "TargetNotFound",
        f"there is no WorkflowRun `none` in namespace `{namespace.namespace}`",
    )
    assert ask(namespace, "b", workflow_id("none"), signal={"name": "x"})[0] == "TargetNotFound"
    for name, kind, verb in (("c", "Schedule", "trigger"), ("d", "Schedule", "pause"), ("e", "DeadLetter", "redrive")):
        message = f"there is no {kind} `x` in namespace `{namespace.namespace}`"
        assert ask(namespace, name, {"kind": kind, "name": "x"}, **{verb: {}}) == ("TargetNotFound", message)


def test_operations_do_not_reach_runs_of_other_namespaces(namespace: Cluster, cluster: Cluster) -> None:
    namespace.start("order", inline(APPROVAL, OUTPUT))
    other = Cluster(cluster.kubectl, cluster.kubeconfig, "default")
    name = f"reach-{namespace.namespace}"
    try:
        assert ask(other, name, f"order-{namespace.namespace}", terminate={})[0] == "TargetNotFound"
    finally:
        other.delete("operation", name)
    manifest = operation("reach", "order", terminate={})
    manifest["spec"]["target"]["namespace"] = namespace.namespace
    assert "unknown field" in refused(namespace, manifest)


@pytest.mark.slow
def test_hostile_requests_are_rejected_without_side_effects(namespace: Cluster) -> None:
    namespace.start("order", inline(APPROVAL, OUTPUT))
    deep: Any = 1
    for _ in range(400):
        deep = [deep]
    assert "128 KiB" in ask(namespace, "large", "order", signal={"name": "x", "input": "x" * 200_000})[1]
    namespace("create", "-f", "-", stdin=json.dumps(operation("deep", "order", signal={"name": "x", "input": deep})))
    assert answer(namespace, "deep")["conditions"][0]["reason"] == "PayloadTooLarge"
    for broken in (
        operation("x", "Not_A_Name", cancel={}),
        operation("x", "../secrets/a", cancel={}),
        operation("x", {"kind": "Pod", "name": "a"}, cancel={}),
        operation("x", {"kind": "Schedule", "workflowId": "a"}, pause={}),
        operation("x", workflow_id("a" * 5000), cancel={}),
        operation("x", "order"),
        operation("x", "order", cancel={}, terminate={}),
        operation("x", "order", signal={"input": 1}),
        operation("x", "order", signalWithStart={"name": "a", "start": {"workflow": {"name": "b"}}}),
    ):
        assert refused(namespace, broken)
    change = json.dumps({"spec": {"signal": {"name": "y"}}})
    assert "must not change" in namespace.run("patch", "wop", "large", "--type=merge", "-p", change).stderr
    # Each of these fits, but not all of them: the run continues and reports the ones that do not.
    many = [operation(f"fill-{n}", "order", signal={"name": "x", "input": "x" * 120_000}) for n in range(12)]
    namespace.create(*many)
    reasons = [answer(namespace, f"fill-{n}")["conditions"][0]["reason"] for n in range(12)]
    assert set(reasons) == {"SignalNotAwaited", "PayloadTooLarge"}
    assert ask(namespace, "last", "order", signal={"name": "approved", "input": 1})[0] == "Done"
    assert namespace.closed("order")["output"] == 1


def test_an_operation_deleted_before_its_run_starts_has_no_effect(namespace: Cluster) -> None:
    namespace.start("order", {"workflow": {"name": "late"}})
    namespace.condition("workflowrun", "order", "WorkflowNotFound")
    for name in ("withdrawn", "kept"):
        namespace.apply(operation(name, "order", signal={"name": "approved", "input": name}))
        namespace.wait(
            "it to be taken up", lambda n=name: (namespace.get("wop", n) or {}).get("status", {}).get("phase")
        )
    namespace.delete("operation", "withdrawn")
    namespace("label", "operation", "kept", "touched=yes")
    flow = {"apiVersion": "perdure.dev/v1alpha1", "kind": "Workflow", "metadata": {"name": "late"}}
    namespace.apply({**flow, "spec": {"steps": [APPROVAL, OUTPUT]}})
    assert namespace.closed("order")["output"] == "kept"
    assert answer(namespace, "kept")["phase"] == "Complete"


def test_an_operation_is_deleted_after_its_ttl(namespace: Cluster) -> None:
    namespace.apply(operation("short", "none", cancel={}, ttlSecondsAfterFinished=0))
    namespace.apply(operation("long", "none", cancel={}))
    namespace.wait("it to be removed", lambda: namespace.get("operation", "short") is None)
    assert answer(namespace, "long")["phase"] == "Failed"


ANSWERS = {
    "reset-activity": {"Done", "Deferred"},  # it waits for the end of the attempt if the attempt has started
    "update-activity-options": {
        "ActivityNotFound"
    },  # of workers only, as the next one: tests/rpc/visibility/test_batches.py
    "update-options": {"NotSupported"},
}
"""The reasons of the answers to examples for which it is not `Done`."""


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_the_example_operations_succeed(namespace: Cluster, file: Any) -> None:
    flow = {"apiVersion": "perdure.dev/v1alpha1", "kind": "Workflow", "metadata": {"name": "approval"}}
    namespace.apply({**flow, "spec": {"steps": [APPROVAL, OUTPUT]}})
    slow = python("import time\ntime.sleep(600)", name="charge")
    charge = {"name": "charge", "needs": [], "activity": {"name": "charge"}}
    if file.stem != "signal-with-start":
        namespace.start("order-42", inline({**APPROVAL, "needs": []}, charge, activities=[slow]))
        namespace.pending("order-42", step="charge")
    if file.stem == "retry":
        assert ask(namespace, "end", "order-42", terminate={})[0] == "Done"
    made = namespace("create", "-f", str(file), "-o", "name").split()
    assert made
    expected = ANSWERS.get(file.stem, {"Done"})
    for name in made:
        status = answer(namespace, name.rpartition("/")[2])
        assert status["conditions"][0]["reason"] in expected, status


def test_a_retry_repeats_failed_steps_and_keeps_results_of_successful_ones(namespace: Cluster) -> None:
    """The failing activity reads a Secret that is corrected between the two runs."""
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "card"}, "stringData": {"valid": "no"}}
    namespace.apply(secret)
    reserve = python("activity.complete('reserved')", name="reserve")
    charge = python("import os\nactivity.complete('paid') if os.environ['VALID'] == 'yes' else exit(1)", name="charge")
    charge["container"]["env"] = [{"name": "VALID", "valueFrom": {"secretKeyRef": {"name": "card", "key": "valid"}}}]
    charge["retryPolicy"] = {"exponential": {"maximumAttempts": 1}}
    steps = [
        {"name": "reserve", "activity": {"name": "reserve"}},
        {"name": "charge", "activity": {"name": "charge"}},
        {"name": "done", "return": {"output": "${steps.reserve.output}, ${steps.charge.output}"}},
    ]
    namespace.start("order", {"inline": {"activities": [reserve, charge], "steps": steps}})
    assert namespace.closed("order")["phase"] == "Failed"

    namespace.apply(secret | {"stringData": {"valid": "yes"}})
    assert ask(namespace, "wrong", "order", retry={"from": ["pay"]}) == (
        "ResetPointNotFound",
        "`from`: step `pay` has not started in that run; choose one of `reserve`, `charge`",
    )
    assert ask(namespace, "again", "order", retry={})[0] == "Done"
    retried = (namespace.get("operation", "again") or {})["status"]["result"]["workflowRun"]
    status = namespace.closed(retried)
    assert (status["phase"], status["output"]) == ("Completed", "reserved, paid")
    pods = [pod["metadata"] for pod in namespace.list("pods")]
    retried_pods = [pod for pod in pods if pod["annotations"]["perdure.dev/run"] == retried]
    assert {pod["labels"]["perdure.dev/activity"] for pod in retried_pods} == {"charge"}


def test_a_stop_runs_finally_but_no_compensation(namespace: Cluster) -> None:
    blocks = [{"name": name, "steps": [{"name": "note", "activity": {"name": name}}]} for name in ("tidy", "react")]
    work = [python("activity.complete('done')", name=name) for name in ("reserve", "release", "tidy", "react")]
    release = {"activity": {"name": "release"}}
    steps = [{"name": "reserve", "activity": {"name": "reserve"}, "compensate": release}, APPROVAL]
    more = {"blocks": blocks, "onCancel": {"block": "react"}, "finally": {"block": "tidy"}}
    namespace.start("order", {"inline": {"activities": work, "steps": steps, **more}})

    def reserved() -> bool:
        begun = "history" in ((namespace.get("workflowrun", "order") or {}).get("status") or {})
        return begun and any(
            isinstance(event, ev.ActivityTaskCompleted) for event in recorded(namespace.with_history("order"))
        )

    namespace.wait("the step to be completed", reserved)
    assert ask(namespace, "stop", "order", stop={"reason": "enough"})[0] == "Done"
    assert namespace.closed("order")["phase"] == "Cancelled"
    run = namespace.with_history("order")
    done = [event.activity_type for event in recorded(run) if isinstance(event, ev.ActivityTaskScheduled)]
    assert done == ["reserve", "tidy"]
