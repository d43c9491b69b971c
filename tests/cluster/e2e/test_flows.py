"""Control flow on a real cluster: the manifests of docs/flows.md, and relations between runs."""

from datetime import datetime, timedelta

import pytest
import yaml

from perdure.language.memory import load_memory
from support.cluster.namespace import Cluster, Json, check_history, python
from support.cluster.operations import ask
from support.manuals import REPOSITORY, blocks_in

pytestmark = pytest.mark.cluster

FLOWS = REPOSITORY / "docs" / "flows.md"
EXPECTED: dict[str, Json] = {
    "graph": {"phase": "Completed", "output": {"total": 320, "discount": "Skipped"}},
    "two-at-a-time": {"phase": "Completed", "output": "clean"},
    "branches": {
        "phase": "Completed",
        "output": {
            "clean": ["room 101 is clean", "room 102 is clean", "room 103 is clean"],
            "first": {"quick": "1s"},
            "size": "large",
        },
    },
    "checks": {"phase": "Failed"},
    "deadline": {"phase": "Failed"},
    "saga": {"phase": "Failed"},
    "report": {"phase": "Failed"},
    "two-countdowns": {"phase": "Completed", "output": ["liftoff", "liftoff"]},
    "hooks": {"phase": "Completed", "output": ["book: started", "book: Succeeded, on the list"]},
    "sign-off": {"phase": "Completed"},
}
"""What the runs of the page come to."""
FOREIGN_IMAGES = {"with-a-database"}
"""Runs of the page with images that the cluster of the tests cannot pull: the simulator plays them (tests/unit/golden)."""


def manifests() -> list[Json]:
    blocks = blocks_in(FLOWS, FLOWS.read_text(encoding="utf-8"))
    found = [manifest for block in blocks for manifest in yaml.safe_load_all(block.text)]
    return [manifest for manifest in found if manifest["metadata"]["name"] not in FOREIGN_IMAGES]


def release(run: str) -> Json:
    """The Operation that approves a run."""
    signal = {"name": "release", "input": {"approved": True, "comment": "looks good"}}
    spec = {"target": {"kind": "WorkflowRun", "name": run}, "signal": signal}
    return {"apiVersion": "perdure.dev/v1alpha1", "kind": "Operation", "metadata": {"name": "approve"}, "spec": spec}


def inline(*steps: Json, **more: object) -> Json:
    return {"inline": {"steps": list(steps), **more}}


def workflow(name: str, *steps: Json, **more: object) -> Json:
    spec = {"steps": list(steps), **more}
    return {"apiVersion": "perdure.dev/v1alpha1", "kind": "Workflow", "metadata": {"name": name}, "spec": spec}


def test_the_documented_flows_behave_as_described(namespace: Cluster) -> None:
    documents = manifests()
    assert {m["metadata"]["name"] for m in documents if m["kind"] == "WorkflowRun"} == set(EXPECTED)
    for manifest in documents:
        namespace.apply(manifest)
    namespace.apply(release("sign-off"))
    for name, expected in EXPECTED.items():
        status = namespace.closed(name)
        assert {key: status.get(key) for key in expected} == expected
        run = namespace.get("workflowrun", name)
        assert run is not None
        state = check_history(run)
        if name == "saga":
            variables = load_memory(state.memory).vars
            assert variables["undone"] == ["flight F-2", "hotel H-1"]
            assert variables["report"].startswith("NoCar: ")
        if name == "checks":
            assert load_memory(state.memory).vars == {
                "notes": "all tests have run",
                "told": "lint Failed, notes Succeeded, publish not started",
            }
        if name == "deadline":
            assert status["conditions"][0]["reason"] == "DeadlineExceeded"
            assert load_memory(state.memory).vars["told"] == "slow Cancelled"
        if name == "report":
            assert load_memory(state.memory).vars["report"] == "failed: SoldOut"
        if name == "sign-off":
            decision = load_memory(state.memory).vars["decision"]
            assert isinstance(decision, dict)
            assert (decision["approved"], decision["comment"]) == (True, "looks good")


def test_only_one_run_of_a_workflow_id_is_open(namespace: Cluster) -> None:
    nap = {"name": "nap", "sleep": {"duration": "1h"}}
    namespace.start("first", {"workflowId": "one", **inline(nap)})
    namespace.condition("workflowrun", "first", "Running")
    namespace.start("second", {"workflowId": "one", **inline(nap)})
    status = namespace.closed("second")
    assert status["phase"] == "Failed"
    assert status["failure"]["type"] == "WorkflowExecutionAlreadyStarted"
    assert "`first`" in status["failure"]["message"]
    namespace.start("third", {"workflowId": "one", "workflowIdConflictPolicy": "UseExisting", **inline(nap)})
    assert namespace.closed("third")["output"]["workflowRun"] == "first"
    rest = {"name": "rest", "return": {"output": "instead"}}
    namespace.start("fourth", {"workflowId": "one", "workflowIdConflictPolicy": "TerminateExisting", **inline(rest)})
    assert namespace.closed("first")["phase"] == "Terminated"
    assert namespace.closed("fourth")["output"] == "instead"
    # `fourth` has completed, and by default an id is used again only after a failure.
    namespace.start("fifth", {"workflowId": "one", **inline(rest)})
    assert namespace.closed("fifth")["failure"]["type"] == "WorkflowExecutionAlreadyStarted"
    namespace.start("sixth", {"workflowId": "one", "workflowIdReusePolicy": "AllowDuplicate", **inline(rest)})
    assert namespace.closed("sixth")["output"] == "instead"
    namespace.start("seventh", {"workflowId": "one", "workflowIdReusePolicy": "RejectDuplicate", **inline(rest)})
    assert namespace.closed("seventh")["failure"]["type"] == "WorkflowExecutionAlreadyStarted"


def test_only_one_of_many_simultaneous_runs_with_a_workflow_id_starts(namespace: Cluster) -> None:
    nap = {"name": "nap", "sleep": {"duration": "1h"}}
    names = [f"twin-{n}" for n in range(20)]
    runs = [
        {"apiVersion": "perdure.dev/v1alpha1", "kind": "WorkflowRun", "metadata": {"name": name}, "spec": spec}
        for name in names
        for spec in [{"workflowId": "same", **inline(nap)}]
    ]
    namespace.create(*runs)

    def decided() -> list[str] | None:
        phases = [(run.get("status") or {}).get("phase") for run in namespace.list("workflowruns")]
        return phases if all(phase in {"Running", "Failed"} for phase in phases) else None

    assert sorted(namespace.wait("all to be decided", decided)) == ["Failed"] * 19 + ["Running"]


def test_a_failed_run_is_retried_as_a_separate_run(namespace: Cluster) -> None:
    spec = inline(
        {"name": "try", "when": "${run.attempt < 3}", "fail": {"type": "Early", "message": "attempt ${run.attempt}"}},
        {"name": "done", "return": {"output": "${run.attempt}"}},
    )
    policy = {"exponential": {"initialInterval": "1s", "maximumAttempts": 5}}
    namespace.start("again", {**spec, "retryPolicy": policy, "searchAttributes": {"customer": "ada", "note": "a b"}})
    first = namespace.closed("again")
    assert first["phase"] == "Failed"

    def last() -> Json | None:
        runs = [run for run in namespace.list("workflowruns") if (run.get("status") or {}).get("phase") == "Completed"]
        return runs[0] if runs else None

    run = namespace.wait("the third attempt to complete", last)
    assert run["status"]["output"] == run["status"]["attempt"] == 3
    assert run["status"]["firstRunId"] == first["runId"]
    assert run["spec"]["workflowId"] == "again"
    assert run["metadata"]["labels"]["search.perdure.dev/customer"] == "ada"
    assert run["metadata"]["annotations"]["search.perdure.dev/note"] == "a b"
    assert len(namespace.list("workflowruns", "-l", "search.perdure.dev/customer=ada")) == 3


def test_children_end_with_their_parent_according_to_their_policies(namespace: Cluster) -> None:
    namespace.apply(
        workflow(
            "long",
            {"name": "nap", "sleep": {"duration": "1h"}},
            blocks=[{"name": "tidy", "steps": [{"name": "t", "set": {"tidy": True}}]}],
            onCancel={"block": "tidy"},
        )
    )
    children = [
        {
            "name": policy.lower(),
            "needs": [],
            "childWorkflow": {"workflow": {"name": "long"}, "workflowId": policy, "parentClosePolicy": policy},
        }
        for policy in ("Terminate", "RequestCancel", "Abandon")
    ]
    namespace.start("parent", {**inline(*children), "runTimeout": "5s"})
    assert namespace.closed("parent")["phase"] == "TimedOut"

    def phases() -> dict[str, str] | None:
        runs = {
            r["spec"].get("workflowId"): (r.get("status") or {}).get("phase") for r in namespace.list("workflowruns")
        }
        open_ = [name for name in ("Terminate", "RequestCancel") if runs.get(name) == "Running"]
        return None if open_ or len(runs) < 4 else runs

    ended = namespace.wait("the children to close", phases)
    assert (ended["Terminate"], ended["RequestCancel"], ended["Abandon"]) == ("Terminated", "Cancelled", "Running")

    def settled() -> bool:
        state = (namespace.get("workflowrun", "parent") or {})["status"]["state"]
        return not state.get("children")

    namespace.wait("the parent to have nothing left to do", settled)


def test_a_signal_reaches_the_other_run_once_and_a_missing_run_fails_the_step(namespace: Cluster) -> None:
    wait = {"name": "wait", "waitForSignal": {"name": "go"}}
    namespace.start(
        "listener",
        inline(wait, {"name": "more", "sleep": {"duration": "2s"}}, output="${[steps.wait.output, signals.go]}"),
    )
    send = {"name": "send", "signal": {"workflowId": "listener", "name": "go", "input": {"count": 1}}}
    namespace.start("speaker", inline(send))
    assert namespace.closed("speaker")["phase"] == "Completed"
    assert namespace.closed("listener")["output"] == [{"count": 1}, []]
    namespace.start("late", inline(send))
    assert namespace.closed("late")["failure"]["type"] == "ExternalWorkflowExecutionNotFound"


def test_a_delayed_run_starts_later_and_a_paused_one_waits(namespace: Cluster) -> None:
    rest = {"name": "rest", "return": {"output": "rested"}}
    namespace.start("delayed", {**inline(rest), "startDelay": "3s"})
    namespace.start("later", {**inline(rest), "startDelay": "1h"})
    namespace.start("paused", {**inline(rest), "startPaused": True})
    assert namespace.condition("workflowrun", "later", "StartDelayed")["status"] == "Unknown"
    assert namespace.condition("workflowrun", "paused", "Paused")["status"] in {"True", "Unknown"}
    delayed = namespace.closed("delayed")
    assert delayed["output"] == "rested"
    created = (namespace.get("workflowrun", "delayed") or {})["metadata"]["creationTimestamp"]
    assert datetime.fromisoformat(delayed["completionTime"]) - datetime.fromisoformat(created) >= timedelta(seconds=3)
    assert (namespace.get("workflowrun", "paused") or {})["status"]["phase"] == "Paused"


@pytest.mark.slow
def test_the_loser_of_a_race_is_stopped_and_its_result_is_ignored(namespace: Cluster) -> None:
    stops = "import signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: sys.exit(143)); time.sleep(600)"
    slow = python(stops, name="slow")
    beats = "import time\n@activity.defn\ndef beat():\n    while True:\n        activity.heartbeat()\n        time.sleep(0.2)\n"
    beating = python(f"{beats}activity.run(beat)", name="beating", heartbeatTimeout="20s")
    blocks = [{"name": name, "steps": [{"name": "do", "activity": {"name": name}}]} for name in ("slow", "beating")] + [
        {"name": "quick", "steps": [{"name": "over", "waitForSignal": {"name": "over"}}]}
    ]
    branches = [{"name": name, "block": name} for name in ("slow", "beating", "quick")]
    spec = inline(
        {"name": "race", "parallel": {"wait": "Any", "branches": branches}},
        {"name": "after", "sleep": {"duration": "40s"}},
    )
    spec["inline"] |= {"activities": [slow, beating], "blocks": blocks, "output": "${steps.race.output}"}
    namespace.start("race", spec)
    namespace.wait(
        "both pods to run", lambda: [pod["status"]["phase"] for pod in namespace.list("pods")] == ["Running"] * 2
    )
    ask(namespace, "over", "race", signal={"name": "over"})
    status = namespace.closed("race")
    assert status["output"] == {"quick": None}
    run = namespace.get("workflowrun", "race")
    assert run is not None
    check_history(run)
    kinds = [event["eventType"] for event in run["status"]["history"]["events"]]
    assert kinds.count("ActivityTaskCancelRequested") == 2
    assert kinds.count("ActivityTaskCanceled") == 2
    namespace.wait("the pods to be gone", lambda: not namespace.list("pods"))


def test_a_run_with_invalid_input_never_starts(namespace: Cluster) -> None:
    schema = {"type": "object", "properties": {"nights": {"type": "integer", "minimum": 1}}, "required": ["nights"]}
    spec = inline({"name": "s", "set": {"x": 1}}, input={"schema": schema})
    namespace.start("fits", {**spec, "input": {"nights": 2}})
    namespace.start("fits-not", {**spec, "input": {"nights": 0}})
    assert namespace.closed("fits")["phase"] == "Completed"
    status = namespace.closed("fits-not")
    assert status["failure"]["type"] == "InvalidInput"
    assert "spec.input.nights" in status["failure"]["message"]
