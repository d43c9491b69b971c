"""Starting runs with labels, dry runs, and logs."""

from typing import Any

import pytest
import yaml
from click.testing import Result

from support.apiserver import ApiServer, Log, items
from support.cli import perdure
from support.view.flow import charged_after_two_refusals
from unit.cli.verbs.launch import DEFINITION, PODS, WORKFLOW, pod

RUNS = "/apis/perdure.dev/v1alpha1/namespaces/shop/workflowruns"


def start(*options: str) -> Result:
    return perdure("start", "flow", *options)


def test_a_client_dry_run_prints_the_manifest_and_sends_nothing(server: ApiServer) -> None:
    done = start("--dry-run=client", "-p", "id=7", "-l", "team=shop", "--id-reuse-policy", "RejectDuplicate", "-n", "a")
    assert (done.exit_code, server.asked, server.created) == (0, [], []), done.stderr
    assert yaml.safe_load(done.stdout) == {
        "apiVersion": "perdure.dev/v1alpha1",
        "kind": "WorkflowRun",
        "metadata": {"generateName": "flow-", "labels": {"team": "shop"}, "namespace": "a"},
        "spec": {"workflow": {"name": "flow"}, "input": {"id": 7}, "workflowIdReusePolicy": "RejectDuplicate"},
    }
    assert start("--dry-run=client", "-o", "name").stdout == "workflowrun.perdure.dev/flow-\n"
    assert start("--dry-run", "-o", "name").stdout == "workflowrun.perdure.dev/flow-\n"
    assert server.created == []


def test_a_server_dry_run_validates_and_creates_nothing(server: ApiServer) -> None:
    server.answers[WORKFLOW] = DEFINITION
    done = start("--dry-run=server", "-p", "id=7", "--name", "order")
    assert (done.exit_code, done.stdout) == (0, "workflowrun.perdure.dev/order created (server dry run)\n"), done.stderr
    assert (server.created, server.tried) == ([], [(RUNS, {"dryRun": ["All"]})])
    done = start("--dry-run=server")
    assert done.exit_code == 1
    assert "the input is not valid for Workflow `flow`" in done.stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["-l", "team"], "`team` does not have the form KEY=VALUE"),
        (["-l", "perdure.dev/run-id=7"], "`perdure.dev/run-id` is reserved for the operator"),
        (["--logs", "--wait"], "leave out --wait, --watch, and --no-wait"),
        (["--logs", "--no-wait"], "leave out --wait, --watch, and --no-wait"),
        (["--timeout", "5m"], "requires --wait or --logs"),
        (["--dry-run", "maybe"], "is not one of"),
    ],
)
def test_invalid_options_are_rejected_before_any_request(server: ApiServer, options: list[str], said: str) -> None:
    done = start(*options)
    assert (done.exit_code, server.asked, server.created) == (2, [], [])
    assert said in " ".join(done.stderr.split())


@pytest.mark.parametrize(("phase", "code"), [("Completed", 0), ("Failed", 1)])
def test_logs_are_printed_until_the_run_ends(server: ApiServer, phase: str, code: int) -> None:
    flow = charged_after_two_refusals().at(56)
    server.answers |= {
        WORKFLOW: DEFINITION,
        PODS: items(pod()),
        f"{PODS}/order-2-2/log": Log("picked the lamp\n"),
    }
    server.status = lambda _: {**flow.status, "phase": phase}
    done = start("-p", "id=7", "--name", "order", "--logs")
    assert done.exit_code == code, done.output
    assert done.stdout.splitlines()[:2] == ["workflowrun.perdure.dev/order created", "reserve#2: picked the lamp"]
    assert ("ended as Failed" in done.stderr) == (code == 1)


def test_logs_of_a_run_that_takes_too_long_end_with_its_timeout(server: ApiServer) -> None:
    server.answers |= {WORKFLOW: DEFINITION, PODS: items()}
    server.status = lambda _: {"phase": "Running"}
    done = start("-p", "id=7", "--name", "order", "--logs", "--timeout", "100ms")
    assert done.exit_code == 124
    assert "the run `order` has not ended within 100ms; it keeps running" in done.stderr


LARGE = "12345678901234567890"


@pytest.mark.parametrize(
    ("given", "want"),
    [
        (("-p", f"a={LARGE}"), {"a": LARGE}),
        (("-p", f"a=[{LARGE}, -{LARGE}, 7]"), {"a": [LARGE, f"-{LARGE}", 7]}),
        (("--input", f'{{"a": {{"b": {LARGE}}}, "c": 1.5}}'), {"a": {"b": LARGE}, "c": 1.5}),
        (("-p", "a=1e400"), {"a": "1e400"}),
        (("-p", "a=NaN"), {"a": "NaN"}),
        (("-p", 'a={"b": [1e3]}'), {"a": {"b": [1000]}}),
    ],
)
def test_digits_of_an_input_are_kept(server: ApiServer, given: tuple[str, ...], want: Any) -> None:
    """argo-workflows#3990, in lists and objects too: the API server would round such integers."""
    server.answers[WORKFLOW] = {**DEFINITION, "spec": {**DEFINITION["spec"], "input": {}}}
    assert start("--no-wait", *given).exit_code == 0
    assert server.created[0]["spec"]["input"] == want


@pytest.mark.parametrize("given", [("-p", 'a={"b": 1e400}'), ("-p", "a=[NaN]"), ("--input", '{"a": -1e400}')])
def test_a_number_that_cannot_be_stored_is_rejected(server: ApiServer, given: tuple[str, ...]) -> None:
    """It became `.inf` in a dry run, and null in a simulation."""
    server.answers[WORKFLOW] = DEFINITION
    done = start("--no-wait", *given)
    assert (done.exit_code, server.created) == (2, [])
    assert "is not a number that Kubernetes can store" in done.stderr


@pytest.mark.parametrize(
    "declared",
    [
        {"default": {"version": "1.0", "count": 1}},
        {"schema": {"type": "object", "properties": {"version": {"type": ["string", "null"]}}}},
        {"schema": {"type": "object", "properties": {"version": {"type": "string"}, "count": {"type": "integer"}}}},
    ],
)
def test_a_parameter_is_a_string_if_the_workflow_declares_a_string(server: ApiServer, declared: dict[str, Any]) -> None:
    server.answers[WORKFLOW] = {**DEFINITION, "spec": {**DEFINITION["spec"], "input": declared}}
    parameters = ("-p", "version=1.10", "-p", "count=2", "-p", "other=1.10", "-p", 'quoted="7"')
    assert start("--no-wait", *parameters).exit_code == 0
    assert server.created[0]["spec"]["input"] == {"version": "1.10", "count": 2, "other": "1.10", "quoted": "7"}
    assert start("--no-wait", "-p", 'version="2"').exit_code == 0
    assert server.created[1]["spec"]["input"] == {"version": "2"}
    assert start("--no-wait", "--input", '{"other": "1"}', "-p", "other=2").exit_code == 0
    assert server.created[2]["spec"]["input"] == {"other": "2"}
