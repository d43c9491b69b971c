"""`perdure retry`, `rerun`, `stop` and `start -p`: their requests."""

import json
from typing import Any

import pytest
from click.testing import CliRunner

from perdure.cli.app import build
from support.apiserver import ApiServer, items
from support.view.flow import charged_after_two_refusals

RUN = "/apis/perdure.dev/v1alpha1/namespaces/shop/workflowruns/order-42"


def call(*arguments: str) -> Any:
    return CliRunner().invoke(build("perdure"), list(arguments), prog_name="perdure")


def asked(server: ApiServer, *arguments: str) -> dict[str, Any]:
    """The spec of the object that a command creates."""
    done = call(*arguments)
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
    given = ["-p", "n=3", "-p", "name=ada", "-p", 'list=["a"]', "-p", "id=007", "-p", "e==", "-p", 'text="3"']
    spec = asked(server, "start", "order", "--input", '{"n": 1, "kept": true}', *given, "--no-wait")
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
        (["rerun"], "set either NAME or --workflow-id"),
    ],
)
def test_invalid_usage_names_the_option(arguments: list[str], said: str) -> None:
    done = call(*arguments)
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
    done = call("retry", "order-42", option)
    assert done.exit_code == code, done.output
    assert [made["kind"] for made in server.created] == ["Operation"]


def test_a_retry_that_is_not_followed_has_no_timeout(server: ApiServer) -> None:
    done = call("retry", "order-42", "--timeout", "5m")
    assert (done.exit_code, server.created) == (2, [])
    assert "requires --wait or --logs" in done.stderr
