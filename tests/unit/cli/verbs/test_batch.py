"""Requests to one run by name, or to all open runs that match a selector."""

import time
from typing import Any

import pytest

from perdure.api.kinds.operation import REQUESTS
from perdure.api.rules import cel_name
from perdure.cli.operations import DONE
from support.apiserver import ApiServer, items
from support.cli import perdure

RUNS = "/apis/perdure.dev/v1alpha1/namespaces/shop/workflowruns"
VERBS = {
    "cancel": "cancelled",
    "stop": "stopped",
    "terminate": "terminated",
    "pause": "paused",
    "unpause": "unpaused",
}


def run(name: str, phase: str) -> dict[str, Any]:
    made = {"name": name, "namespace": "shop", "uid": name, "creationTimestamp": "2026-01-01T00:00:00Z"}
    return {"metadata": made, "spec": {}, "status": {"phase": phase}}


@pytest.fixture
def shop(server: ApiServer) -> ApiServer:
    server.answers |= {RUNS: items(run("a", "Running"), run("b", "Paused"), run("c", "Completed"))}
    server.answers[f"{RUNS}/a"] = run("a", "Running")
    condition = {"type": "Complete", "status": "True", "reason": "Done", "message": "recorded"}
    server.status = lambda _: {"phase": "Complete", "completionTime": "2026-01-01T00:00:00Z", "conditions": [condition]}
    return server


def test_each_request_has_a_past_participle() -> None:
    assert DONE.keys() == {cel_name(request) for request in REQUESTS}


@pytest.mark.parametrize(("verb", "done"), VERBS.items())
def test_a_run_gets_a_request_by_name(shop: ApiServer, verb: str, done: str) -> None:
    ended = perdure(verb, "a", "--reason", "wrong")
    assert (ended.exit_code, ended.stdout) == (0, f"workflowrun.perdure.dev/a {done}: recorded\n"), ended.stderr
    assert shop.created[0]["spec"] == {"target": {"kind": "WorkflowRun", "name": "a"}, verb: {"reason": "wrong"}}


@pytest.mark.parametrize(("verb", "done"), VERBS.items())
def test_all_open_runs_with_the_labels_get_the_request(shop: ApiServer, verb: str, done: str) -> None:
    ended = perdure(verb, "-l", "team=shop", "--yes")
    assert ended.exit_code == 0, ended.stderr
    assert ended.stdout.splitlines() == [f"workflowrun.perdure.dev/{name} {done}: recorded" for name in "ab"]
    assert [each["spec"]["target"]["name"] for each in shop.created] == ["a", "b"]
    assert shop.asked[0][0] == RUNS
    assert shop.asked[0][1]["labelSelector"] == ["team=shop"]


@pytest.mark.usefixtures("shop")
@pytest.mark.parametrize(("verb", "done"), VERBS.items())
def test_several_runs_get_a_request_by_name(verb: str, done: str) -> None:
    ended = perdure(verb, "a", "workflowrun.perdure.dev/b", "a", "--reason", "wrong")
    assert ended.exit_code == 0, ended.stderr
    assert ended.stdout.splitlines() == [f"workflowrun.perdure.dev/{name} {done}: recorded" for name in "ab"]


def test_each_refusal_of_several_requests_is_reported(shop: ApiServer) -> None:
    recorded = shop.status({})
    refused = {"type": "Failed", "status": "True", "reason": "WorkflowExecutionCompleted", "message": "it has closed"}
    failed = {"phase": "Failed", "completionTime": "2026-01-01T00:00:00Z", "conditions": [refused]}
    shop.status = lambda made: failed if made["spec"]["target"]["name"] in "ac" else recorded
    ended = perdure("cancel", "a", "b", "c")
    assert (ended.exit_code, ended.stdout) == (1, "workflowrun.perdure.dev/b cancelled: recorded\n")
    assert ended.stderr.splitlines() == [
        f"Error: workflowrun.perdure.dev/{name} not cancelled: WorkflowExecutionCompleted: it has closed"
        for name in "ac"
    ]


@pytest.mark.parametrize(
    "chosen", [["--workflow", "etl"], ["--workflow", "workflow.perdure.dev/etl", "-l", "team=shop"]]
)
def test_all_open_runs_of_a_workflow_get_the_request(shop: ApiServer, chosen: list[str]) -> None:
    other = {**run("d", "Running"), "spec": {"workflow": {"name": "other"}}}
    etl = [{**run(name, "Running"), "spec": {"workflow": {"name": "etl"}}} for name in "ab"]
    shop.answers[RUNS] = items(*etl, other, {**run("c", "Completed"), "spec": {"workflow": {"name": "etl"}}})
    ended = perdure("stop", *chosen, "--yes")
    assert (ended.exit_code, len(ended.stdout.splitlines())) == (0, 2), ended.stderr
    assert [each["spec"]["target"]["name"] for each in shop.created] == ["a", "b"]


def test_without_a_terminal_a_request_to_several_runs_needs_yes(shop: ApiServer) -> None:
    ended = perdure("cancel", "-l", "team=shop", stdin="y\n")
    assert (ended.exit_code, ended.stdout, shop.created) == (2, "", [])
    assert ended.stderr == "Error: 2 runs match; pass --yes to cancel them, or --dry-run to list them\n"


@pytest.mark.parametrize(
    ("arguments", "want"), [(["a"], ["a"]), (["-l", "team=shop"], ["a", "b"])], ids=["by name", "by labels"]
)
def test_a_dry_run_prints_the_runs_and_changes_nothing(shop: ApiServer, arguments: list[str], want: list[str]) -> None:
    ended = perdure("terminate", *arguments, "--dry-run")
    assert (ended.exit_code, ended.stderr, shop.created) == (0, "", [])
    assert ended.stdout.splitlines() == [f"workflowrun.perdure.dev/{name} terminated (dry run)" for name in want]


def test_without_a_match_nothing_is_requested(server: ApiServer) -> None:
    server.answers[RUNS] = items(run("c", "Completed"))
    ended = perdure("stop", "-l", "team=shop")
    assert (ended.exit_code, ended.stdout, ended.stderr) == (0, "", "No open run matches.\n")


def test_a_name_and_a_selector_exclude_each_other(server: ApiServer) -> None:
    for chosen in (["a"], ["-w", "a"]):
        ended = perdure("cancel", *chosen, "-l", "team=shop")
        assert (ended.exit_code, server.asked) == (2, [])
        assert "leave out NAME and --workflow-id" in " ".join(ended.stderr.split())


def test_a_signal_goes_to_all_open_runs_with_the_labels(shop: ApiServer) -> None:
    sent = perdure("signal", "-l", "team=shop", "--name", "reload", "--input", "[1]", "--yes")
    assert (sent.exit_code, len(sent.stdout.splitlines())) == (0, 2), sent.stderr
    assert [each["spec"]["signal"] for each in shop.created] == [{"name": "reload", "input": [1]}] * 2


def test_requests_per_second_are_limited(shop: ApiServer) -> None:
    shop.answers[RUNS] = items(*(run(name, "Running") for name in "abc"))
    started = time.monotonic()
    assert perdure("cancel", "-l", "team=shop", "--yes", "--no-wait", "--rps", "8").exit_code == 0
    assert time.monotonic() - started >= 2 / 8
    assert len(shop.created) == 3


def test_many_results_are_read_as_a_list(shop: ApiServer) -> None:
    operations = "/apis/perdure.dev/v1alpha1/namespaces/shop/operations"
    shop.answers[RUNS] = items(*(run(f"run-{number}", "Running") for number in range(30)))
    shop.answers[operations] = lambda: items(*({**each, "status": shop.status(each)} for each in shop.created))
    ended = perdure("cancel", "-l", "team=shop", "--yes")
    assert (ended.exit_code, len(ended.stdout.splitlines())) == (0, 30), ended.stderr
    assert [path for path, _ in shop.asked] == [RUNS, operations]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["cancel", "a", "--rps", "5"], "requires several runs"),
        (["cancel", "-l", "team=shop", "--rps", "0"], "is less than 0.01"),
        (["signal", "-l", "team=shop", "--name", "go", "--start", "flow"], "leave out --selector"),
    ],
)
def test_conflicting_options_are_rejected(server: ApiServer, arguments: list[str], message: str) -> None:
    done = perdure(*arguments)
    assert (done.exit_code, server.asked) == (2, [])
    assert message in " ".join(done.stderr.split())


def test_a_rejection_is_printed_to_stderr_with_the_workflow_id(server: ApiServer) -> None:
    refused = {"type": "Failed", "status": "True", "reason": "TargetNotFound", "message": "no open run"}
    server.status = lambda _: {"phase": "Failed", "completionTime": "2026-01-01T00:00:00Z", "conditions": [refused]}
    done = perdure("signal", "-w", "A 1", "--name", "go")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == "Error: workflow ID `A 1` not signaled: TargetNotFound: no open run\n"
