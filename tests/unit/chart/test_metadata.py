"""The metadata of the chart for catalogs."""

import json
from pathlib import Path
from typing import Any

import yaml

from perdure.api.crdgen import KINDS, custom_resource_definition
from support.cli import perdure
from unit.chart.manifests import CHART


def annotation(name: str) -> Any:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    return yaml.safe_load(chart["annotations"][f"artifacthub.io/{name}"])


def test_the_catalog_has_all_kinds() -> None:
    found = {each["kind"]: each for each in annotation("crds")}
    assert found.keys() == {kind.__name__ for kind in KINDS}
    for kind in KINDS:
        crd = custom_resource_definition(kind)
        (version, _) = crd["spec"]["versions"]
        shown = found[kind.__name__]
        assert (shown["name"], shown["version"]) == (crd["metadata"]["name"], version["name"])
        assert shown["description"] == " ".join(version["schema"]["openAPIV3Schema"]["description"].split())


def test_the_examples_of_the_catalog_pass_lint(tmp_path: Path) -> None:
    examples = annotation("crdsExamples")
    assert [each["kind"] for each in examples] == ["WorkflowRun", "Schedule"]
    file = tmp_path / "examples.yaml"
    file.write_text(yaml.safe_dump_all(examples), encoding="utf-8")
    done = perdure("lint", "-f", str(file), "-o", "json")
    found = json.loads(done.stdout)
    assert (found["objects"], found["errors"]) == (2, 0), done.stdout
