"""`perdure schemas`: JSON Schemas that accept every example, and reject mistakes."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml

from perdure.api.crdgen import KINDS, structural_schema
from perdure.api.kinds.schedule import Schedule
from perdure.api.kinds.workflow import Workflow
from perdure.api.kinds.workflowrun import WorkflowRun
from perdure.api.models import Resource
from support.cli import perdure
from support.cluster.namespace import cache_folder

EXAMPLES = Path(__file__).parents[4] / "examples"
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
    done = perdure("schemas", str(folder))
    assert done.exit_code == 0, done.stderr
    files = {
        version: {kind.__name__: folder / f"perdure.dev/{kind.__name__.lower()}_{version}.json" for kind in KINDS}
        for version in ("v1beta1", "v1alpha1")
    }
    wanted = [folder / "kustomize.json", *(file for each in files.values() for file in each.values())]
    assert sorted(done.stdout.split()) == sorted(map(str, wanted))
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
    done = perdure("schemas", str(tmp_path / "file"))
    assert (done.exit_code, done.stdout) == (2, "")
    assert f"`{tmp_path}/file/perdure.dev/workflow_v1beta1.json` cannot be written: " in done.stderr


# kustomize


BASE = """
apiVersion: perdure.dev/v1alpha1
kind: Workflow
metadata: {name: order}
spec:
  limits: [{name: shop}]
  activities:
  - {name: charge, startToCloseTimeout: 1m, container: {image: shop, args: [charge]}}
  - {name: ship, startToCloseTimeout: 1m, container: {image: shop}}
  blocks:
  - {name: undo, steps: [{name: refund, set: {a: 1}}]}
  steps:
  - {name: charge, activity: {name: charge}}
  - {name: ship, activity: {name: ship}}
"""
PATCH = """
apiVersion: perdure.dev/v1alpha1
kind: Workflow
metadata: {name: order}
spec:
  activities:
  - {name: ship, $patch: delete}
  - {name: charge, startToCloseTimeout: 5m, container: {image: shop:2}}
  - {name: pack, startToCloseTimeout: 1m, container: {image: pack}}
  limits: [{name: warehouse}]
  blocks: [{name: undo, maxConcurrency: 2}]
"""
STEPS = "- {op: replace, path: /spec/steps/1/activity/name, value: pack}"


def kustomized(folder: Path, *patches: dict[str, Any]) -> dict[str, Any]:
    """The base with patches, as kubectl builds it with the schemas of `perdure schemas`."""
    program = shutil.which("kubectl") or shutil.which("kubectl", path=cache_folder() / "bin")
    assert program is not None, "kubectl is needed: put it on PATH, or run `python3 hack/cluster tools`"
    assert perdure("schemas", str(folder)).exit_code == 0
    kustomization = {"resources": ["base.yaml"], "openapi": {"path": "kustomize.json"}, "patches": list(patches)}
    (folder / "base.yaml").write_text(BASE)
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    done = subprocess.run([program, "kustomize", str(folder)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = yaml.safe_load(done.stdout)
    Workflow.parse(found)
    return found["spec"]  # type: ignore[no-any-return]


def test_a_patch_of_kustomize_merges_named_entries_by_their_names(tmp_path: Path) -> None:
    """Without the merge keys, a patch of one template replaces all (kustomize#1530, argoproj/argo-schema-generator)."""
    spec = kustomized(tmp_path, {"patch": PATCH})
    charge = {"name": "charge", "startToCloseTimeout": "5m", "container": {"image": "shop:2", "args": ["charge"]}}
    assert {each["name"]: each for each in spec["activities"]}["charge"] == charge
    assert {each["name"] for each in spec["activities"]} == {"charge", "pack"}
    assert {each["name"] for each in spec["limits"]} == {"shop", "warehouse"}
    assert spec["blocks"] == [{"name": "undo", "steps": [{"name": "refund", "set": {"a": 1}}], "maxConcurrency": 2}]
    assert [step["name"] for step in spec["steps"]] == ["charge", "ship"]


def test_a_patch_of_kustomize_keeps_the_order_of_steps(tmp_path: Path) -> None:
    target = {"kind": "Workflow", "name": "order"}
    spec = kustomized(tmp_path, {"patch": PATCH}, {"target": target, "patch": STEPS})
    assert [(step["name"], step["activity"]["name"]) for step in spec["steps"]] == [
        ("charge", "charge"),
        ("ship", "pack"),
    ]
    replacing = {**yaml.safe_load(BASE), "spec": {"steps": [{"name": "ship", "activity": {"name": "ship"}}]}}
    assert [step["name"] for step in kustomized(tmp_path, {"patch": yaml.safe_dump(replacing)})["steps"]] == ["ship"]


def lists_of(schema: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """The lists in a schema whose entries have a name, by path."""
    if not isinstance(schema, dict):
        return
    if "name" in (schema.get("items") or {}).get("properties", {}):
        yield path, schema
    for key, each in schema.items():
        yield from lists_of(each, f"{path}.{key}".removesuffix(".properties").removesuffix(".items"))


@pytest.mark.parametrize("kind", [Workflow, WorkflowRun, Schedule], ids=lambda kind: kind.__name__)
def test_the_api_server_merges_lists_with_unique_names_by_them(kind: type[Resource]) -> None:
    """Server-side apply, so that two owners can have different activities of one Workflow."""
    spec = structural_schema(kind)["properties"]["spec"]
    merged = {path.rsplit(".", 1)[-1] for path, each in lists_of(spec) if each["x-kubernetes-list-type"] == "map"}
    assert merged >= {"activities", "blocks", "steps", "limits", "workspaces", "branches"}
    for path, each in lists_of(spec):
        if each["x-kubernetes-list-type"] == "map":
            assert each["x-kubernetes-list-map-keys"] == ["name"], path
