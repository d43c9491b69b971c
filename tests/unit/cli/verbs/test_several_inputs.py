"""Options that are given several times: arguments of code, or an error, but never silently only the last one."""

from pathlib import Path
from typing import Any

import pytest

from perdure.frontend.messages import payloads
from support.apiserver import ApiServer
from support.cli import RUNS, perdure

CODE = {"workflow": {"type": "Order", "taskQueue": "orders"}}
BOTH = {"payloads": [{"json": "A-1001"}, {"json": {"amount": 7.5}}]}
TWO = ["--input", '"A-1001"', "--input", '{"amount": 7.5}']


def old(spec: dict[str, Any]) -> dict[str, Any]:
    """A closed run, to be started again."""
    return {
        "metadata": {"name": "old", "namespace": "shop", "uid": "u"},
        "spec": spec,
        "status": {"phase": "Failed", "completionTime": "2026-01-01T12:00:00Z"},
    }


@pytest.mark.parametrize("verb", ["start", "start --file", "rerun"])
def test_several_inputs_are_the_arguments_of_code(server: ApiServer, tmp_path: Path, verb: str) -> None:
    (tmp_path / "run.yaml").write_text(f"apiVersion: perdure.dev/v1alpha1\nkind: WorkflowRun\nspec: {CODE}\n")
    server.answers[f"{RUNS}/old"] = old({**CODE, "input": 1})
    command = {
        "start": ["start", "--type", "Order", "--task-queue", "orders"],
        "start --file": ["start", "--file", str(tmp_path / "run.yaml")],
        "rerun": ["rerun", "old"],
    }[verb]
    done = perdure(*command, *TWO, "--no-wait")
    assert done.exit_code == 0, done.stderr
    assert server.created[0]["spec"] == {**CODE, "input": BOTH}
    arguments = payloads.from_json(server.created[0]["spec"]["input"])
    assert [each.data for each in arguments] == [b'"A-1001"', b'{"amount":7.5}']


@pytest.mark.parametrize("verb", [["start", "flow"], ["rerun", "old"]], ids=["start", "rerun"])
def test_several_inputs_are_an_error_when_the_workflow_is_yaml(server: ApiServer, verb: list[str]) -> None:
    server.answers[f"{RUNS}/old"] = old({"workflow": {"name": "flow"}})
    done = perdure(*verb, *TWO, "--no-wait")
    assert (done.exit_code, server.created) == (2, [])
    assert "a Workflow in YAML has one input: give one object, such as" in " ".join(done.stderr.split())


def test_a_parameter_is_an_error_when_the_input_is_several_arguments(server: ApiServer) -> None:
    server.answers[f"{RUNS}/old"] = old({**CODE, "input": BOTH})
    done = perdure("rerun", "old", "-p", "amount=8", "--no-wait")
    assert (done.exit_code, server.created) == (2, [])
    assert "-p: sets fields of one input; give several arguments with --input only" in " ".join(done.stderr.split())


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        (["signal", "a", "--name", "go", "--input", "1", "--input", "2"], "'--input' / '-i'"),
        (["signal", "-w", "a", "--name", "go", "--start", "f", "--start-input", "1", "--start-input", "2"], "'--start"),
        (["start", "flow", "--name", "a", "--name=b"], "'--name'"),
        (["cancel", "-l", "a=1", "--selector", "b=2"], "'--selector' / '-l'"),
        (["complete", "a", "--step", "s", "--result", "1", "--result", "2"], "'--result'"),
        (["simulate", "-f", "flow.yaml", "-i", "1", "-i", "2"], "'--input' / '-i'"),
        (["schedule", "create", "a", "--workflow", "f", "--input", "1", "--input", "2"], "'--input' / '-i'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_an_option_for_one_value_is_an_error_when_given_twice(
    server: ApiServer, arguments: list[str], option: str
) -> None:
    done = perdure(*arguments)
    said = " ".join(done.stderr.split())
    assert (done.exit_code, server.asked, server.created) == (2, [], []), said
    assert option in said
    assert "is given 2 times, but takes one value; give it once" in said


def test_a_label_is_an_error_when_given_two_values(server: ApiServer) -> None:
    done = perdure("start", "flow", "-l", "team=a", "-l", "team=b")
    assert (done.exit_code, server.created) == (2, [])
    assert "--label: `team` is given twice" in " ".join(done.stderr.split())


def test_the_last_value_counts_when_an_option_of_an_alias_is_overridden() -> None:
    done = perdure("start", "flow", "-n", "a", "-o", "yaml", "--dry-run=client", "--namespace", "b", "-o", "json")
    assert done.exit_code == 0, done.stderr
    assert '"namespace": "b"' in done.stdout
