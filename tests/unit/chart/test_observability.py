"""Alerts, the dashboard, and the test of the chart: metrics exist, and alerts have runbooks."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from reference import metrics
from unit.chart.manifests import CHART, NAMESPACED, REPOSITORY, Helm, Manifest, Render, named, of_kind

pytestmark = pytest.mark.cluster

ALERTS = 'prometheusRule={"enabled": true, "labels": {"release": "prometheus"}}'
DASHBOARD = "grafanaDashboard.enabled=true"
TARGET = {"job", "namespace", "pod", "le"}
"""Labels that Prometheus adds, and that of the buckets of a histogram."""


OF_CLUSTER = re.compile(r"\b(apiserver_storage_size_bytes|container_memory_working_set_bytes)\b")
"""Metrics of the cluster, which belong to no release."""


def known_series() -> Iterator[tuple[str, set[str]]]:
    """Yield each time series that the operator serves, and its labels, from the reference."""
    for row in metrics.pages()["metrics.md"].splitlines():
        cells = [cell.strip().replace("`", "") for cell in row.split("|")]
        if len(cells) > 4 and cells[1].startswith("perdure_"):
            endings = ("_bucket", "_sum", "_count") if cells[2] == "histogram" else ("",)
            labels = {f"exported_{name}" if name == "namespace" else name for name in cells[3].split(", ") if name}
            yield from ((cells[1] + ending, labels) for ending in endings)


def alerts(manifests: list[Manifest]) -> list[dict[str, Any]]:
    (group,) = named(manifests, "PrometheusRule", "perdure")["spec"]["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


def dashboard(manifests: list[Manifest]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(named(manifests, "ConfigMap", "perdure-dashboard")["data"]["perdure.json"])
    return found


def queries(manifests: list[Manifest]) -> list[str]:
    panels = dashboard(manifests)["panels"]
    return [rule["expr"] for rule in alerts(manifests)] + [each["expr"] for one in panels for each in one["targets"]]


def test_queries_use_metrics_and_labels_that_exist(render: Render) -> None:
    known = dict(known_series())
    found = queries(render(ALERTS, DASHBOARD))
    assert len(found) > 30
    for query in found:
        used = re.findall(r"(perdure_\w+)\{", query)
        if not used and OF_CLUSTER.search(query):
            continue
        assert used or query.startswith(("absent(up{", "rate(process_", "process_")), query
        assert set(used) <= known.keys(), query
        labels = {name for part in re.findall(r"by \(([^)]*)\)", query) for name in re.split(r",\s*", part)}
        labels |= set(re.findall(r"(\w+)=~?\"", query))
        assert labels <= TARGET.union(*(known[name] for name in used)), query
        assert query.count("(") == query.count(")")


def test_every_query_selects_this_release(render: Render) -> None:
    manifests = render(ALERTS, DASHBOARD)
    for rule in alerts(manifests):
        if OF_CLUSTER.search(rule["expr"]):
            continue
        assert rule["expr"].count('{job="perdure"') == len(re.findall(r"\{", rule["expr"]))
    for panel in dashboard(manifests)["panels"]:
        assert all('{job="$job"' in target["expr"] for target in panel["targets"])


def test_every_alert_has_a_runbook(render: Render) -> None:
    address = 'prometheusRule.runbookUrl="https://docs.example.com/alerts/"'
    rules = alerts(render(ALERTS, "frontend.replicas=2", address))
    sections = re.findall(r"^## (\w+)$", (REPOSITORY / "docs" / "alerts.md").read_text(), re.MULTILINE)
    assert [rule["alert"] for rule in rules] == sections
    assert rules[0]["annotations"]["runbook_url"] == "https://docs.example.com/alerts/#perduredown"
    assert "runbook_url" not in alerts(render(ALERTS))[0]["annotations"]
    for rule in rules:
        assert rule["labels"]["severity"] in {"critical", "warning", "info"}
        labels = set(re.findall(r"\$labels\.(\w+)", json.dumps(rule["annotations"])))
        assert labels <= set(re.findall(r"\w+", " ".join(re.findall(r"by \(([^)]*)\)", rule["expr"]))))


def test_monitoring_is_disabled_by_default_and_has_configurable_labels(render: Render) -> None:
    assert not of_kind(render(), "PrometheusRule", "ServiceMonitor")
    assert "perdure-dashboard" not in [each["metadata"]["name"] for each in of_kind(render(), "ConfigMap")]
    manifests = render(ALERTS, DASHBOARD, 'grafanaDashboard.annotations={"grafana_folder": "Flows"}')
    assert named(manifests, "PrometheusRule", "perdure")["metadata"]["labels"]["release"] == "prometheus"
    found = named(manifests, "ConfigMap", "perdure-dashboard")["metadata"]
    assert found["labels"]["grafana_dashboard"] == "1"
    assert found["annotations"] == {"grafana_folder": "Flows"}


def test_panels_do_not_overlap_and_have_unique_ids(render: Render) -> None:
    panels = dashboard(render(DASHBOARD))["panels"]
    places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels}
    assert len(places) == len(panels) == len({panel["id"] for panel in panels})
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in panels)


# --- helm test --------------------------------------------------------------------------------------------------------


def hooks(render: Render, *settings: str) -> dict[str, Manifest]:
    """The objects that only `helm test` creates, by kind."""
    found = [
        each for each in render(*settings, tests=True) if "helm.sh/hook" in each["metadata"].get("annotations", {})
    ]
    return {each["kind"]: each for each in found}


def test_helm_test_starts_a_run_with_minimal_permissions(render: Render) -> None:
    found = hooks(render)
    assert found.keys() == {"ServiceAccount", "Role", "RoleBinding", "Workflow", "Pod"}
    assert {each["metadata"]["annotations"]["helm.sh/hook"] for each in found.values()} == {"test"}
    weights = {kind: int(each["metadata"]["annotations"]["helm.sh/hook-weight"]) for kind, each in found.items()}
    assert max(weights, key=lambda kind: weights[kind]) == "Pod"
    assert {rule["resources"][0]: rule["verbs"] for rule in found["Role"]["rules"]} == {
        "workflows": ["get"],
        "workflowruns": ["get", "create", "delete"],
    }
    assert not hooks(render, "helmTest.enabled=false")


def test_the_test_pod_is_restricted_and_no_service_selects_it(render: Render) -> None:
    pod = hooks(render)["Pod"]
    assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
    (container,) = pod["spec"]["containers"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    for service in of_kind(render(), "Service"):
        assert not service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()


def test_helm_test_uses_a_namespace_that_the_operator_serves(render: Render) -> None:
    assert hooks(render)["Workflow"]["metadata"]["namespace"] == "default"
    assert hooks(render, 'helmTest.namespace="shop"')["Workflow"]["metadata"]["namespace"] == "shop"
    found = hooks(render, NAMESPACED)
    assert {kind: each["metadata"]["namespace"] for kind, each in found.items()} == {
        "ServiceAccount": "perdure-system",
        "Pod": "perdure-system",
        "Role": "team-a",
        "RoleBinding": "team-a",
        "Workflow": "team-a",
    }
    (container,) = found["Pod"]["spec"]["containers"]
    assert container["command"][-1].count("-n team-a") == 3


def test_helm_lint_passes_with_alerts_and_dashboard(helm: Helm) -> None:
    done = helm("lint", "--strict", str(CHART), "--set-json", ALERTS, "--set-json", DASHBOARD)
    assert done.returncode == 0, done.stdout + done.stderr
