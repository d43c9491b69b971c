"""The examples of the guides for Airflow and GitHub Actions run as the guides say."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from perdure.cli.files.scenarios import simulate_scenario
from support.manuals import REPOSITORY, blocks_in

Json = dict[str, Any]


def simulate(folder: Path, guide: str, scenario: Json) -> Json:
    """Simulate the Workflow of the example of a guide."""
    page = REPOSITORY / "docs" / guide
    (manifests,) = [found for each in blocks_in(page, page.read_text(encoding="utf-8")) if (found := each.ours())]
    file, scenario_file = folder / "manifests.yaml", folder / "scenario.yaml"
    file.write_text(yaml.safe_dump_all(manifests))
    scenario_file.write_text(yaml.safe_dump({"workflow": manifests[0]["metadata"]["name"], **scenario}))
    report: Json = simulate_scenario([str(file)], str(scenario_file))[1].as_json()
    return report


def inputs(report: Json) -> list[Any]:
    return [event["input"] for event in report["events"] if event["eventType"] == "ActivityTaskScheduled"]


@pytest.mark.parametrize(
    ("code", "phase", "status"), [(0, "Completed", "Succeeded"), (1, "Failed", "Failed")], ids=["success", "failure"]
)
def test_the_example_for_airflow_loads_each_file_and_reports_the_end(
    tmp_path: Path, code: int, phase: str, status: str
) -> None:
    load = {"exitCode": code} if code else {"output": None}
    activities = {"files": [{"output": ["a.csv", "b.csv"]}], "load": [load] * 6}
    scenario = {"input": {"day": "2026-11-21"}, "activities": activities}
    report = simulate(tmp_path, "from-airflow.md", scenario)
    assert report["phase"] == phase
    loaded = [{"file": "a.csv"}, {"file": "b.csv"}]
    assert inputs(report) == [{"day": "2026-11-21"}, *loaded, {"status": status}]
    assert len(report["attempts"]["load"]) == len(loaded) * (3 if code else 1)


def test_the_example_for_github_actions_reports_a_failure_after_all_items(tmp_path: Path) -> None:
    activities = {"restore": [{"whenInput": {"database": "orders"}, "exitCode": 1}, {"output": None}, {"output": None}]}
    report = simulate(tmp_path, "from-github-actions.md", {"activities": activities})
    assert report["phase"] == "Failed"
    assert inputs(report) == [*({"database": each} for each in ("orders", "billing", "stock")), {"result": "Failed"}]
