"""`--output` of verbs that follow a run to its end: standard output is one document, the run."""

import json
from typing import Any

import pytest
import yaml

from support.apiserver import ApiServer, Log, items
from support.cli import RUNS, perdure
from support.view.flow import charged_after_two_refusals
from unit.cli.verbs.launch import DEFINITION, PODS, WORKFLOW, pod

VERBS = [["start", "flow", "-p", "id=7", "--name", "order"], ["rerun", "old", "--name", "order"], ["retry", "old"]]
RETRIED = {"phase": "Complete", "completionTime": "2026-01-01T12:01:00Z", "result": {"workflowRun": "order"}}
UNKNOWN = {"type": "Succeeded", "status": "Unknown", "reason": "Running"}
OLD = {
    "metadata": {"name": "old", "namespace": "shop", "uid": "u"},
    "spec": {"workflow": {"name": "flow"}, "input": {"id": 7}},
    "status": {"phase": "Failed", "completionTime": "2026-01-01T12:00:00Z"},
}


@pytest.fixture
def scene(server: ApiServer) -> ApiServer:
    """A server with a Workflow, a closed run, and the pod of the new run `order`."""
    server.answers |= {
        WORKFLOW: DEFINITION,
        f"{RUNS}/old": OLD,
        PODS: items(pod()),
        f"{PODS}/order-2-2/log": Log("picked the lamp\n"),
    }
    return server


def retried(server: ApiServer, verb: list[str], run: dict[str, Any]) -> None:
    """Have the API server show the new run as the verb needs it."""
    if verb[0] == "retry":
        server.answers[f"{RUNS}/order"] = run
    server.status = lambda made: RETRIED if made["kind"] == "Operation" else run["status"]


def documents(text: str) -> list[Any]:
    return list(yaml.safe_load_all(text))


@pytest.mark.parametrize(("output", "phase", "code"), [("json", "Completed", 0), ("yaml", "Failed", 1)])
@pytest.mark.parametrize("option", ["--wait", "--logs"])
@pytest.mark.parametrize("verb", VERBS, ids=["start", "rerun", "retry"])
def test_output_is_the_final_run_when_it_is_followed(
    scene: ApiServer, verb: list[str], option: str, *, output: str, phase: str, code: int
) -> None:
    final = charged_after_two_refusals().at(56).object
    final["metadata"]["name"], final["status"]["phase"] = "order", phase
    retried(scene, verb, final)
    done = perdure(*verb, option, "-o", output)
    assert done.exit_code == code, done.stderr
    (run,) = documents(done.stdout)
    assert (run["kind"], run["metadata"]["name"], run["status"]["phase"]) == ("WorkflowRun", "order", phase)
    assert "order" in done.stderr
    assert ("reserve#2: picked the lamp" in done.stderr) == (option == "--logs")


@pytest.mark.parametrize(
    ("verb", "option"), [(VERBS[0], "--wait"), (VERBS[0], "--logs"), (VERBS[2], "--wait")], ids=str
)
def test_output_is_the_open_run_when_it_has_not_ended_in_time(scene: ApiServer, verb: list[str], option: str) -> None:
    final = charged_after_two_refusals().at(56).object
    running = {"metadata": {**final["metadata"], "name": "order"}, "kind": "WorkflowRun", "spec": final["spec"]}
    running["status"] = {"phase": "Running", "conditions": [UNKNOWN]}
    scene.answers[PODS] = items()
    retried(scene, verb, running)
    done = perdure(*verb, option, "--timeout", "2s", "-o", "json")
    assert done.exit_code == 124
    run = json.loads(done.stdout)
    assert (run["metadata"]["name"], run["status"]["phase"]) == ("order", "Running")
    assert done.stderr.endswith("Error: the run `order` has not ended within 2s; it keeps running\n")


def test_output_is_the_name_once_when_the_run_is_followed(scene: ApiServer) -> None:
    scene.status = lambda _: charged_after_two_refusals().at(56).status
    done = perdure(*VERBS[0], "--wait", "-o", "name")
    assert (done.exit_code, done.stdout) == (0, "workflowrun.perdure.dev/order\n"), done.stderr


def test_output_is_the_operation_when_a_retry_is_refused(scene: ApiServer) -> None:
    refused = {"type": "Complete", "status": "True", "reason": "RunOpen", "message": "the run is open"}
    scene.status = lambda _: {**RETRIED, "phase": "Failed", "conditions": [refused], "result": {}}
    done = perdure("retry", "old", "--wait", "-o", "json")
    assert done.exit_code == 1
    assert json.loads(done.stdout)["kind"] == "Operation"
