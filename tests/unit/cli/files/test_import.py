from pathlib import Path

import pytest
import yaml
from click.testing import Result

from support.cli import perdure

GOOD = """
kind: Workflow
metadata: {name: good}
spec:
  entrypoint: main
  templates:
  - {name: main, container: {image: busybox, command: [echo, hello]}}
"""
BAD = GOOD.replace("name: good", "name: bad").replace(
    "{name: main,", "{name: main, metrics: {prometheus: [{name: x}]},"
)


def invoke(*arguments: str, stdin: str = "") -> Result:
    return perdure("import", *arguments, stdin=stdin)


def test_a_complete_import_prints_manifests(tmp_path: Path) -> None:
    file = tmp_path / "workflow.yaml"
    file.write_text(GOOD)
    result = invoke("argo", str(file))
    assert (result.exit_code, result.stderr) == (0, "")
    assert yaml.safe_load(result.stdout)["kind"] == "WorkflowRun"


def test_standard_input_is_accepted() -> None:
    assert invoke("argo", "-", stdin=GOOD).exit_code == 0


def test_fields_without_a_counterpart_are_reported_and_the_rest_is_printed() -> None:
    result = invoke("argo", "-", stdin=f"{GOOD}---{BAD}")
    assert result.exit_code == 1
    assert "Not imported: Workflow/bad: spec.templates[0].metrics: has no counterpart" in result.stderr
    assert [each["metadata"]["name"] for each in yaml.safe_load_all(result.stdout)] == ["good", "bad"]


def test_a_strict_import_prints_nothing_if_a_field_has_no_counterpart() -> None:
    result = invoke("argo", "-", "--strict", stdin=BAD)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "nothing was written" in result.stderr


@pytest.mark.parametrize("text", ["kind: Deployment\n", "a: [", "kind: Workflow\nspec: 5\n"])
def test_files_without_workflows_are_errors(text: str) -> None:
    result = invoke("argo", "-", stdin=text)
    assert result.exit_code in {1, 2}
    assert result.stderr
    assert not isinstance(result.exception, (TypeError, AttributeError, KeyError))


def test_a_file_that_does_not_exist_is_an_error() -> None:
    result = invoke("argo", "missing.yaml")
    assert result.exit_code == 2
    assert "missing.yaml: cannot be read" in result.stderr
