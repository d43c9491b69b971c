"""The configuration for kube-state-metrics: its fields exist in the CRDs."""

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from perdure.api.crdgen import KINDS, structural_schema
from perdure.api.labels import GROUP, VERSION
from unit.chart.manifests import CHART

VALUES = yaml.safe_load((CHART / "files/kube-state-metrics.yaml").read_text())
RESOURCES: list[dict[str, Any]] = VALUES["customResourceState"]["config"]["spec"]["resources"]
MODELS = {kind.__name__: kind for kind in KINDS}


def at(schema: dict[str, Any], path: list[str]) -> dict[str, Any]:
    """The schema of a field."""
    for name in path:
        schema = schema["items"] if name.isdigit() else schema["properties"][name]
    return schema


def fields(metric: dict[str, Any]) -> Iterator[list[str]]:
    """The paths that a metric reads."""
    each = next(value for key, value in metric["each"].items() if key != "type")
    path = each.get("path", [])
    inner = [*each.get("labelsFromPath", {}).values(), *([each["valueFrom"]] if "valueFrom" in each else [])]
    yield path
    items = ["0"] if "valueFrom" in each else []
    yield from ([*path, *items, *more] for more in inner)


@pytest.mark.parametrize("resource", RESOURCES, ids=lambda resource: resource["groupVersionKind"]["kind"])
def test_each_metric_reads_fields_of_the_kind(resource: dict[str, Any]) -> None:
    kind = resource["groupVersionKind"]["kind"]
    assert resource["groupVersionKind"] == {"group": GROUP, "version": VERSION, "kind": kind}
    assert resource["metricNamePrefix"] == f"kube_perdure_{kind.lower()}"
    schema = structural_schema(MODELS[kind])
    for metric in resource["metrics"]:
        for path in fields(metric):
            if path[:1] != ["metadata"]:
                assert at(schema, path), path
        states = metric["each"].get("stateSet")
        if states:
            assert states["list"] == at(schema, states["path"])["enum"]


def test_kube_state_metrics_has_permission_for_its_kinds() -> None:
    rules = VALUES["rbac"]["extraRules"]
    assert rules[0]["apiGroups"] == [GROUP]
    read = {MODELS[resource["groupVersionKind"]["kind"]].info.plural for resource in RESOURCES}
    assert set(rules[0]["resources"]) == read
    assert rules[0]["verbs"] == ["list", "watch"]
