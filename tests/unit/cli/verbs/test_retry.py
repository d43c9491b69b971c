"""`perdure retry`, `rerun`, `stop` and `start -p`: their requests."""

import json
from typing import Any

import pytest

from perdure.api.labels import RESET_ANNOTATION
from support.apiserver import ApiServer, items
from support.cli import perdure
from support.view.flow import Flow, charged_after_two_refusals

RUN = "/apis/perdure.dev/v1alpha1/namespaces/shop/workflowruns/order-42"


WORKFLOW = "/apis/perdure.dev/v1alpha1/namespaces/shop/workflows/order"


def asked(server: ApiServer, *arguments: str) -> dict[str, Any]:
    """The spec of the object that a command creates."""
    done = perdure(*arguments)
    assert done.exit_code == 0, done.stderr
    spec: dict[str, Any] = server.created[-1]["spec"]
    return spec


@pytest.mark.parametrize(
    ("arguments", "request_"),
    [
        (["retry", "order-42"], {"retry": {}}),
        (
            ["retry", "order-42", "--from", "charge", "--from", "rooms[3]", "--reason", "fixed"],
            {"retry": {"from": ["charge", "rooms[3]"], "reason": "fixed"}},
        ),
        (["retry", "order-42", "--no-reapply-signals"], {"retry": {"reapplySignals": False}}),
        (["stop", "order-42", "--reason", "enough"], {"stop": {"reason": "enough"}}),
    ],
)
def test_retry_and_stop_are_operations(server: ApiServer, arguments: list[str], request_: dict[str, Any]) -> None:
    spec = asked(server, *arguments, "--no-wait")
    assert spec == {"target": {"kind": "WorkflowRun", "name": "order-42"}, **request_}


@pytest.fixture
def ran(server: ApiServer) -> ApiServer:
    """A run that can be repeated."""
    server.answers[RUN] = {
        "metadata": {
            "name": "order-42",
            "namespace": "shop",
            "uid": "u",
            "labels": {"team": "shop", "perdure.dev/schedule": "nightly"},
        },
        "spec": {
            "workflow": {"name": "order"},
            "workflowId": "A-1",
            "input": {"id": "A-1", "amount": 3},
            "startPaused": True,
        },
        "status": {"phase": "Failed", "completionTime": "2026-01-01T12:00:00Z"},
    }
    server.answers[WORKFLOW] = {"metadata": {"name": "order"}}
    return server


def test_a_rerun_has_the_spec_and_the_user_labels_of_the_original(ran: ApiServer) -> None:
    spec = asked(ran, "rerun", "order-42", "--no-wait")
    assert spec == {"workflow": {"name": "order"}, "workflowId": "A-1", "input": {"id": "A-1", "amount": 3}}
    assert ran.created[-1]["metadata"]["labels"] == {"team": "shop"}
    assert ran.created[-1]["metadata"]["generateName"] == "order-42-"


def test_the_input_of_a_rerun_can_be_changed(ran: ApiServer) -> None:
    spec = asked(ran, "rerun", "order-42", "-p", "amount=20", "-p", "note=by phone", "--name", "order-43", "--no-wait")
    assert spec["input"] == {"id": "A-1", "amount": 20, "note": "by phone"}
    assert ran.created[-1]["metadata"]["name"] == "order-43"
    assert asked(ran, "rerun", "order-42", "--input", "[7]", "--no-wait")["input"] == [7]


def test_parameters_are_json_or_text(server: ApiServer) -> None:
    server.answers[WORKFLOW] = {"metadata": {"name": "order"}}
    options = ["-p", "n=3", "-p", "name=ada", "-p", 'list=["a"]', "-p", "id=007", "-p", "e==", "-p", 'text="3"']
    spec = asked(server, "start", "order", "--input", '{"n": 1, "kept": true}', *options, "--no-wait")
    assert json.loads(json.dumps(spec["input"])) == {
        "n": 3,
        "kept": True,
        "name": "ada",
        "list": ["a"],
        "id": "007",
        "e": "=",
        "text": "3",
    }


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["start", "order", "-p", "amount"], "`amount` does not have the form key=value"),
        (["start", "order", "-p", "=3"], "`=3` does not have the form key=value"),
        (["start", "order", "-p", "a=1", "-p", "a=2"], "`a` is given twice"),
        (["start", "order", "--input", "[1]", "-p", "a=1"], "sets fields of an object, but the input is not an object"),
        (["rerun", "order-42", "--timeout", "5m"], "requires --wait"),
        (["rerun"], "set either NAME or --workflow-id, or choose runs with --workflow or --selector"),
        (["retry", "a", "b", "--wait"], "follows one run; leave it out for several"),
        (["rerun", "a", "b", "--name", "c"], "names one run; leave it out for several"),
        (["retry", "a", "--workflow", "order"], "leave out NAME and --workflow-id"),
        (["retry", "a", "--since", "2h"], "requires --workflow or --selector"),
    ],
)
def test_invalid_usage_names_the_option(arguments: list[str], said: str) -> None:
    done = perdure(*arguments)
    assert done.exit_code == 2
    assert said in " ".join(done.stderr.split())


@pytest.mark.parametrize(("phase", "code"), [("Completed", 0), ("Failed", 1)])
@pytest.mark.parametrize("option", ["--wait", "--logs"])
def test_a_retry_follows_the_new_run_until_it_ends(server: ApiServer, option: str, phase: str, code: int) -> None:
    new = charged_after_two_refusals().at(56).object
    new["metadata"]["name"], new["status"]["phase"] = "order-43", phase
    server.answers |= {f"{RUN.removesuffix('42')}43": new, "/api/v1/namespaces/shop/pods": items()}
    answer = {"phase": "Complete", "completionTime": "2026-01-01T12:01:00Z", "result": {"workflowRun": "order-43"}}
    server.status = lambda _: answer
    done = perdure("retry", "order-42", option)
    assert done.exit_code == code, done.output
    assert [made["kind"] for made in server.created] == ["Operation"]


def test_a_retry_that_is_not_followed_has_no_timeout(server: ApiServer) -> None:
    done = perdure("retry", "order-42", "--timeout", "5m")
    assert (done.exit_code, server.created) == (2, [])
    assert "requires --wait or --logs" in done.stderr


# Several runs, and runs that were retried before

DONE = {"type": "Complete", "status": "True", "reason": "Done", "message": "done"}
RUNS = RUN.rpartition("/")[0]


def failed(
    name: str, workflow: str = "order", phase: str = "Failed", *, of: str = "", at: str = "00:00"
) -> dict[str, Any]:
    """A closed run; `of`: the run that it retries; `at`: when it was created."""
    origin = {"requestId": "r", "lineage": [{"name": of, "runId": f"uid-of-{of}", "eventId": 3}]}
    annotations = {"annotations": {RESET_ANNOTATION: json.dumps(origin)}} if of else {}
    made = {"name": name, "namespace": "shop", "uid": f"uid-of-{name}", "creationTimestamp": f"2026-01-01T{at}:00Z"}
    return {
        "metadata": {**made, **annotations},
        "spec": {"workflow": {"name": workflow}, **({"workflowId": of} if of else {})},
        "status": {"phase": phase, "completionTime": "2026-01-01T12:00:00Z"},
    }


def serve(server: ApiServer, *runs: dict[str, Any]) -> None:
    server.answers |= {f"{RUNS}/{run['metadata']['name']}": run for run in runs}
    server.answers[RUNS] = items(*runs)
    server.answers[WORKFLOW] = {"metadata": {"name": "order"}}


def targets(server: ApiServer) -> list[str]:
    return [made["spec"]["target"]["name"] for made in server.created]


def test_several_runs_are_retried_by_name(server: ApiServer) -> None:
    serve(server, failed("a"), failed("b"))
    answer = {"phase": "Complete", "completionTime": "2026-01-01T12:01:00Z", "conditions": [DONE]}
    server.status = lambda made: {**answer, "result": {"workflowRun": f"{made['spec']['target']['name']}-2"}}
    done = perdure("retry", "a", "workflowrun.perdure.dev/b", "-o", "name")
    assert (done.exit_code, targets(server)) == (0, ["a", "b"]), done.stderr
    assert done.stdout.split() == ["workflowrun.perdure.dev/a-2", "workflowrun.perdure.dev/b-2"]


def test_the_last_failed_runs_of_a_workflow_are_retried(server: ApiServer) -> None:
    retried = failed("a-2", of="a")
    cancelled, of_other_workflow = failed("d", phase="Cancelled"), failed("e", "other")
    serve(
        server,
        failed("a"),
        retried,
        failed("b", phase="TimedOut"),
        failed("c", phase="Completed"),
        cancelled,
        of_other_workflow,
    )
    assert perdure("retry", "--workflow", "order", "--dry-run").stdout.split() == [
        word for name in ("a-2", "b") for word in (f"workflowrun.perdure.dev/{name}", "retried", "(dry", "run)")
    ]
    refused = perdure("retry", "--workflow", "order")
    assert (refused.exit_code, server.created) == (2, [])
    assert "2 runs match; pass --yes to retry them" in refused.stderr
    assert perdure("retry", "--workflow", "order", "--yes", "--no-wait").exit_code == 0
    assert targets(server) == ["a-2", "b"]


@pytest.mark.parametrize(("phase", "want"), [("Failed", ["a-3"]), ("Completed", [])])
@pytest.mark.parametrize("verb", ["retry", "rerun"])
def test_of_several_retries_of_a_run_only_the_last_one_counts(
    server: ApiServer, verb: str, phase: str, want: list[str]
) -> None:
    """A failed retry was retried although a later retry of the same run had completed."""
    serve(server, failed("a"), failed("a-2", of="a", at="01:00"), failed("a-3", phase=phase, of="a", at="02:00"))
    server.answers[f"{RUNS}/a-3"] = failed("a-3", phase=phase, of="a")
    assert perdure(verb, "--workflow", "order", "--yes", "--no-wait").exit_code == 0
    found = targets(server) if verb == "retry" else [made["metadata"]["generateName"][:-1] for made in server.created]
    assert found == want


@pytest.mark.parametrize(
    ("command", "what"),
    [
        (["retry", "--dry-run"], "failed"),
        (["retry", "--yes"], "failed"),
        (["rerun"], "failed"),
        (["rerun", "--dry-run=server"], "failed"),
        (["terminate", "--dry-run"], "open"),
    ],
)
def test_a_command_says_that_no_run_matches(server: ApiServer, command: list[str], what: str) -> None:
    """Two days of new users: with `--dry-run`, it said nothing."""
    serve(server, failed("c", phase="Completed"))
    done = perdure(*command, "--workflow", "order")
    assert (done.exit_code, done.stdout, done.stderr) == (0, "", f"No {what} run matches.\n")


def test_the_failed_runs_of_a_workflow_are_rerun_and_each_failure_is_reported(server: ApiServer) -> None:
    serve(server, failed("a"), failed("b"), failed("c", phase="Completed"))
    server.refuses = lambda body: body["metadata"]["generateName"] == "a-"
    done = perdure("rerun", "--workflow", "order", "--yes", "--no-wait")
    assert (done.exit_code, done.stdout) == (1, "workflowrun.perdure.dev/b-1 created\n")
    assert done.stderr.startswith("Error: ")
    assert done.stderr.count("\n") == 1


def test_a_run_whose_retry_has_completed_is_not_retried_again(server: ApiServer) -> None:
    serve(server, failed("a"), failed("a-2", phase="Completed", of="a"))
    done = perdure("retry", "a")
    assert (done.exit_code, server.created) == (1, [])
    assert done.stderr == (
        "Error: the run `a` was already retried: `a-2` has completed; to run its steps once more, pass --force, or name "
        "them with --from\n"
    )
    for option in (["--force"], ["--from", "charge"]):
        assert perdure("retry", "a", *option, "--no-wait").exit_code == 0
    assert targets(server) == ["a", "a"]


def test_a_failed_retry_of_which_a_later_one_has_completed_is_not_retried(server: ApiServer) -> None:
    """Found by an audit: only what repeats the named run itself counted."""
    serve(server, failed("a"), failed("a-2", of="a", at="00:01"), failed("a-3", phase="Completed", of="a", at="00:02"))
    done = perdure("retry", "a-2")
    assert (done.exit_code, server.created) == (1, [])
    assert done.stderr.startswith("Error: the run `a-2` was already retried: `a-3` has completed")


def test_of_several_runs_those_whose_retry_has_completed_are_refused_and_the_others_retried(server: ApiServer) -> None:
    serve(server, failed("a"), failed("a-2", phase="Completed", of="a"), failed("b"))
    done = perdure("retry", "a", "b", "--no-wait")
    assert (done.exit_code, targets(server)) == (1, ["b"])
    assert done.stderr.startswith("Error: the run `a` was already retried: `a-2` has completed")
    assert done.stderr.count("\n") == 1


def test_a_run_whose_retry_has_failed_is_retried_with_a_warning(server: ApiServer) -> None:
    serve(server, failed("a"), failed("a-2", of="a"))
    done = perdure("retry", "a", "--no-wait")
    assert (done.exit_code, targets(server)) == (0, ["a"])
    assert done.stderr == "Warning: `a-2` already retries the run `a`, and may have more results to keep\n"


SWEEP = """
activities:
- {name: fit, startToCloseTimeout: 5m, container: {image: shop}}
steps:
- {name: train, forEach: {items: "${input}", as: it, maxConcurrency: 1}, activity: {name: fit}}
"""


def test_steps_to_run_again_are_named_by_the_values_of_their_items(server: ApiServer) -> None:
    flow = Flow(SWEEP, [{"lr": 0.1}, {"lr": 0.2}, {"lr": 0.2}]).started(1).completed(2).started(3).completed(4)
    server.answers[RUN] = flow.object
    assert asked(server, "retry", "order-42", "--from", "train[lr=0.1]", "--from", "train[2]", "--no-wait")[
        "retry"
    ] == {"from": ["train[0]", "train[2]"]}
    for step, which in (("train[lr=0.3]", "none"), ("train[lr=0.2]", "several: `train[1]`, `train[2]`")):
        done = perdure("retry", "order-42", "--from", step, "--no-wait")
        assert (done.exit_code, done.stderr) == (
            2,
            f"Error: --from: the run `order-42` must have one step `{step}`, but has {which}\n",
        )
    assert perdure("retry", "a", "b", "--from", "train[lr=0.1]").exit_code == 2
