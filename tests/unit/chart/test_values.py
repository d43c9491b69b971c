"""`helm upgrade --reuse-values`: the values of an earlier chart, whose defaults replace those of this one.

Helm then renders the templates as if `values.yaml` were that of the earlier chart (`reuseValues` in its pkg/action/upgrade.go).
"""

import copy
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from unit.chart.manifests import CHART, Helm

pytestmark = pytest.mark.cluster

DEFAULTS: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
REQUIRED = (CHART / "files" / "required-values.txt").read_text(encoding="utf-8").split()


@pytest.fixture
def rendered(helm: Helm, tmp_path: Path) -> Any:
    """Render the chart as if `values.yaml` had other values; return the output and the errors."""

    def render(values: dict[str, Any], *flags: str) -> tuple[str, str]:
        chart = tmp_path / "perdure"
        shutil.copytree(CHART, chart, dirs_exist_ok=True)
        (chart / "values.yaml").write_text(json.dumps(values), encoding="utf-8")
        done = helm("template", "perdure", str(chart), *flags)
        assert (done.returncode == 0) == (not done.stderr), done.stderr
        return done.stdout, done.stderr

    return render


def without(*paths: str) -> dict[str, Any]:
    values = copy.deepcopy(DEFAULTS)
    for path in paths:
        *groups, name = path.split(".")
        within = values
        for group in groups:
            within = within[group]
        del within[name]
    return values


def test_the_values_of_an_earlier_chart_are_refused_with_the_missing_names_and_the_fix(rendered: Any) -> None:
    _, errors = rendered(without("upgrades", "finishedRuns.maxMiBPerNamespace", "ui.image", "ui.enabled"))
    assert "values are missing: upgrades, finishedRuns.maxMiBPerNamespace, ui.enabled, ui.image." in errors
    assert "Upgrade with --reset-then-reuse-values" in errors


def test_each_required_value_is_checked(rendered: Any) -> None:
    _, errors = rendered(without(*REQUIRED))
    assert f"values are missing: {', '.join(REQUIRED)}." in errors


def test_values_that_are_not_required_can_be_missing(rendered: Any) -> None:
    def leaves(values: dict[str, Any], path: str) -> list[str]:
        found = []
        for name, each in values.items():
            inner = f"{path}{name}"
            within = isinstance(each, dict) and any(one.startswith(f"{inner}.") for one in REQUIRED)
            found += leaves(each, f"{inner}.") if within else [inner]
        return found

    optional = [path for path in leaves(DEFAULTS, "") if path not in REQUIRED]
    assert {"affinity", "resources", "runAsUser", "imageRegistry", "ui.oidc.providerUrl"} <= set(optional)
    on = [
        f"--set={each}.enabled=true"
        for each in ("ui", "console", "networkPolicy", "serviceMonitor", "grafanaDashboard")
    ]
    output, errors = rendered(without(*optional), *on)
    assert not errors
    assert [each for each in yaml.load_all(output, yaml.CSafeLoader) if each and each["kind"] == "Deployment"]
    empty, _ = rendered(DEFAULTS | {"runAsUser": None, "resources": {}}, *on)
    assert environment(output) == environment(empty)


def environment(output: str) -> dict[str, Any]:
    """The environment of each container; empty and missing are the same."""
    return {
        f"{each['metadata']['name']}/{container['name']}": {
            entry["name"]: entry.get("value") or entry.get("valueFrom") for entry in container.get("env", ())
        }
        for each in yaml.load_all(output, yaml.CSafeLoader)
        if each and each["kind"] == "Deployment"
        for container in each["spec"]["template"]["spec"]["containers"]
    }
