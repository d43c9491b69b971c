"""`perdure schemas`: JSON Schemas that accept every example, and reject mistakes."""

import json
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml

from perdure.api.crdgen import KINDS
from unit.cli.calling import call

EXAMPLES = Path(__file__).parents[3] / "examples"
MANIFESTS = [
    pytest.param(document, id=f"{file.relative_to(EXAMPLES)}-{number}")
    for file in sorted(EXAMPLES.rglob("*.yaml"))
    for number, document in enumerate(yaml.safe_load_all(file.read_text()))
    if str((document or {}).get("apiVersion")).startswith("perdure.dev/") and "metadata" in document
]


@pytest.fixture(scope="module")
def validators(tmp_path_factory: pytest.TempPathFactory) -> dict[str, jsonschema_rs.Draft7Validator]:
    """The validator of each kind, from the files."""
    folder = tmp_path_factory.mktemp("schemas")
    done = call("schemas", str(folder))
    assert done.exit_code == 0, done.stderr
    files = {
        version: {kind.__name__: folder / f"perdure.dev/{kind.__name__.lower()}_{version}.json" for kind in KINDS}
        for version in ("v1beta1", "v1alpha1")
    }
    assert sorted(done.stdout.split()) == sorted(str(file) for each in files.values() for file in each.values())
    for kind, file in files["v1beta1"].items():
        text = file.read_text().replace('"perdure.dev/v1beta1"', '"perdure.dev/v1alpha1"')
        assert text == files["v1alpha1"][kind].read_text()
    return {
        kind: jsonschema_rs.Draft7Validator(json.loads(file.read_text())) for kind, file in files["v1alpha1"].items()
    }


@pytest.mark.parametrize("manifest", MANIFESTS)
def test_every_example_is_valid(manifest: dict[str, Any], validators: dict[str, jsonschema_rs.Draft7Validator]) -> None:
    validators[manifest["kind"]].validate(manifest)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"spec": {"steps": [{"name": "a", "sleeep": {}}]}}, "sleeep"),
        ({"spec": {"steps": [{"name": "a", "sleep": {"duration": 5}}]}}, "is not of type"),
        ({"spec": {"steps": "none"}}, "is not of type"),
        ({"kind": "Workfow"}, "Workflow"),
        ({"apiVersion": "perdure.dev/v1"}, "v1alpha1"),
        ({"spce": {}}, "spce"),
    ],
)
def test_invalid_manifests_are_rejected(
    change: dict[str, Any], message: str, validators: dict[str, jsonschema_rs.Draft7Validator]
) -> None:
    valid = {
        "apiVersion": "perdure.dev/v1alpha1",
        "kind": "Workflow",
        "metadata": {"name": "a", "labels": {"team": "shop"}},
        "spec": {"steps": [{"name": "a", "sleep": {"duration": "5s"}}], "output": None},
    }
    validators["Workflow"].validate(valid)
    with pytest.raises(jsonschema_rs.ValidationError, match=message):
        validators["Workflow"].validate({**valid, **change})


def test_a_stored_object_with_a_status_is_valid(validators: dict[str, jsonschema_rs.Draft7Validator]) -> None:
    stored = {
        "apiVersion": "perdure.dev/v1alpha1",
        "kind": "WorkflowRun",
        "metadata": {"name": "a"},
        "spec": {"workflow": {"name": "b"}},
        "status": {"phase": "Running", "anything": 1},
    }
    validators["WorkflowRun"].validate(stored)


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = call("schemas", str(tmp_path / "file"))
    assert (done.exit_code, done.stdout) == (2, "")
    assert f"`{tmp_path}/file/perdure.dev/workflow_v1beta1.json` cannot be written: " in done.stderr
