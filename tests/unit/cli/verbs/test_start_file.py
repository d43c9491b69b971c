"""`perdure start --file`: runs from a manifest."""

from pathlib import Path

import pytest

from support.apiserver import ApiServer
from support.cli import perdure

RUN = """
apiVersion: perdure.dev/v1alpha1
kind: WorkflowRun
metadata: {generateName: hello-, labels: {team: shop}, annotations: {note: mine}}
spec:
  input: {name: Ada, times: 1}
  priority: 3
  inline:
    steps: [{name: pause, sleep: {duration: 1s}}]
"""
HEAD = "apiVersion: perdure.dev/v1alpha1\nkind: WorkflowRun\n"
WORKFLOW = """
apiVersion: perdure.dev/v1alpha1
kind: Workflow
metadata: {name: hello}
spec: {steps: [{name: pause, sleep: {duration: 1s}}]}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    found = tmp_path / "run.yaml"
    found.write_text(RUN)
    return found


def test_a_run_can_be_started_from_a_file_and_options_override_its_fields(server: ApiServer, file: Path) -> None:
    done = perdure("start", "-f", str(file), "-p", "times=2", "-l", "tier=a", "-w", "A-1", "--no-wait")
    assert (done.exit_code, done.stdout) == (0, "workflowrun.perdure.dev/hello-1 created\n"), done.stderr
    (made,) = server.created
    assert made["metadata"]["labels"] == {"team": "shop", "tier": "a"}
    assert made["metadata"]["annotations"] == {"note": "mine"}
    assert made["spec"] == {
        "input": {"name": "Ada", "times": 2},
        "priority": 3,
        "inline": {"steps": [{"name": "pause", "sleep": {"duration": "1s"}}]},
        "workflowId": "A-1",
    }


def test_integers_that_the_api_server_rounds_are_reported(server: ApiServer, file: Path) -> None:
    file.write_text(RUN.replace("times: 1", "times: 12345678901234567890"))
    done = perdure("start", "-f", str(file), "--no-wait")
    assert (done.exit_code, len(server.created)) == (0, 1)
    assert done.stderr.startswith(
        f"Warning: {file}:6:29: spec.input.times: the API server stores `12345678901234567890` as"
    )


def test_a_run_of_another_served_version_is_created_in_the_version_of_the_request(
    server: ApiServer, file: Path
) -> None:
    file.write_text(RUN.replace("v1alpha1", "v1beta1"))
    assert perdure("start", "-f", str(file), "--no-wait").exit_code == 0
    (made,) = server.created
    assert made["apiVersion"] == "perdure.dev/v1alpha1"
    file.write_text(RUN.replace("v1alpha1", "v1"))
    assert "contains no WorkflowRun" in perdure("start", "-f", str(file), "--no-wait").stderr


def test_input_and_name_replace_those_of_the_file(server: ApiServer, file: Path) -> None:
    done = perdure("start", "-f", str(file), "--input", "[1]", "--name", "mine", "--priority", "5", "--no-wait")
    assert done.exit_code == 0, done.stderr
    (made,) = server.created
    assert (made["metadata"]["name"], "generateName" in made["metadata"]) == ("mine", False)
    assert (made["spec"]["input"], made["spec"]["priority"]) == ([1], 5)


def test_a_run_without_a_name_gets_a_generated_one(server: ApiServer, file: Path) -> None:
    file.write_text(RUN.replace("generateName: hello-, ", ""))
    assert perdure("start", "-f", str(file), "--no-wait").stdout == "workflowrun.perdure.dev/run-1 created\n"
    assert len(server.created) == 1


def test_other_objects_of_the_file_are_not_created(server: ApiServer, file: Path) -> None:
    file.write_text(f"{WORKFLOW}---{RUN}")
    done = perdure("start", "-f", str(file), "--no-wait")
    assert (done.exit_code, [made["kind"] for made in server.created]) == (0, ["WorkflowRun"])
    assert f"Warning: {file} also contains Workflow `hello`, which this command does not create" in done.stderr


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (WORKFLOW, "contains no WorkflowRun"),
        (f"{RUN}---{RUN}", "contains 2 WorkflowRuns"),
        (f"{HEAD}spec: [1]", "spec: must be an object"),
        (f"{HEAD}spec: {{workflow: hello}}", "spec.workflow: must be an object"),
        ("a: [", "is not valid YAML"),
        (None, "cannot be read"),
    ],
)
def test_a_file_without_exactly_one_valid_run_is_rejected(
    server: ApiServer, file: Path, text: str | None, message: str
) -> None:
    file.unlink() if text is None else file.write_text(text)
    done = perdure("start", "-f", str(file))
    assert (done.exit_code, server.asked, server.created) == (2, [], [])
    assert f"{file}: {message}" in done.stderr


def test_a_file_and_a_workflow_exclude_each_other(server: ApiServer, file: Path) -> None:
    done = perdure("start", "hello", "-f", str(file))
    assert (done.exit_code, server.asked) == (2, [])
    assert "set either WORKFLOW, or --type and --task-queue, or --file" in " ".join(done.stderr.split())
