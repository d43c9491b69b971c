"""`perdure result`: the output of a run, and nothing else."""

import json
from typing import Any

import pytest
from click.testing import Result

from support.apiserver import ApiServer
from support.cli import perdure
from support.view.flow import Flow, declined

RUNS = "/apis/perdure.dev/v1alpha1/namespaces/shop/workflowruns"
FAILURE = {"kind": "Application", "type": "CardDeclined", "message": "no funds"}


def run(name: str, phase: str, **status: Any) -> dict[str, Any]:
    ended = {} if phase == "Running" else {"completionTime": "2026-01-01T00:01:00Z"}
    meta = {"name": name, "namespace": "shop", "uid": f"uid-{name}", "resourceVersion": "1"}
    return {"metadata": meta, "spec": {}, "status": {"phase": phase, **ended, **status}}


def result(*options: str) -> Result:
    return perdure("result", "order", *options)


@pytest.mark.parametrize(
    ("output", "options", "want"),
    [
        ("shipped", (), "shipped\n"),
        ("shipped", ("-o", "json"), '"shipped"\n'),
        ({"items": [1, 2]}, ("-o", "jsonpath={.items[1]}"), "2\n"),
        (None, (), "null\n"),
    ],
)
def test_the_output_is_printed(server: ApiServer, output: Any, options: tuple[str, ...], want: str) -> None:
    server.answers[f"{RUNS}/order"] = run("order", "Completed", output=output)
    done = result(*options)
    assert (done.exit_code, done.stdout, done.stderr) == (0, want, "")


def test_an_object_is_printed_as_json(server: ApiServer) -> None:
    server.answers[f"{RUNS}/order"] = run("order", "Completed", output={"id": "A-1", "paid": True})
    assert json.loads(result().stdout) == {"id": "A-1", "paid": True}


@pytest.mark.parametrize(
    ("phase", "status", "said"),
    [
        ("Failed", {"failure": FAILURE}, "Error: the run `order` ended as Failed: CardDeclined: no funds\n"),
        ("Cancelled", {}, "Error: the run `order` ended as Cancelled\n"),
    ],
)
def test_a_run_that_does_not_complete_has_no_result(
    server: ApiServer, phase: str, status: dict[str, Any], said: str
) -> None:
    server.answers[f"{RUNS}/order"] = run("order", phase, **status)
    done = result()
    assert (done.exit_code, done.stdout, done.stderr) == (1, "", said)


def test_result_waits_until_the_run_closes(server: ApiServer) -> None:
    looks = iter([run("order", "Running"), run("order", "Running"), run("order", "Completed", output=7)])
    server.answers[f"{RUNS}/order"] = lambda: next(looks)
    assert result().stdout == "7\n"


def test_the_result_comes_from_the_last_run_of_the_chain(server: ApiServer) -> None:
    last = {
        "eventId": 1,
        "eventType": "WorkflowExecutionContinuedAsNew",
        "eventTime": "2026-01-01T00:01:00Z",
        "newWorkflowRun": "order-2",
    }
    server.answers |= {
        f"{RUNS}/order": run("order", "ContinuedAsNew", history={"events": [last]}),
        f"{RUNS}/order-2": run("order-2", "Completed", output="second"),
    }
    assert result().stdout == "second\n"


def test_a_run_that_takes_too_long_keeps_running(server: ApiServer) -> None:
    server.answers[f"{RUNS}/order"] = run("order", "Running")
    done = result("--timeout", "50ms")
    assert (done.exit_code, done.stdout) == (124, "")
    assert done.stderr == "Error: the run has not ended within 50ms; it keeps running\n"


def test_a_run_that_is_replaced_has_no_result(server: ApiServer) -> None:
    other = run("order", "Completed", output=7)
    other["metadata"]["uid"] = "other"
    looks = iter([run("order", "Running"), run("order", "Running"), other])
    server.answers[f"{RUNS}/order"] = lambda: next(looks)
    done = result()
    assert (done.exit_code, done.stdout) == (2, "")
    assert "another one of that name was created" in done.stderr


def test_the_failure_names_an_item_by_its_value(server: ApiServer) -> None:
    sweep = """
activities:
- {name: fit, startToCloseTimeout: 5m, container: {image: shop}}
steps:
- {name: train, forEach: {items: "${input}", as: it}, activity: {name: fit}}
"""
    flow = Flow(sweep, [{"lr": 0.1}], name="order").started(1).failed(2, declined(non_retryable=True))
    server.answers[f"{RUNS}/order"] = flow.object
    assert result().stderr.startswith(
        "Error: the run `order` ended as Failed: step `train[0: lr=0.1]`: activity `fit` failed after 1 attempt"
    )
