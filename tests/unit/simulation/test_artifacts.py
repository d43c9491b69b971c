"""Scenarios define the output artifacts of an attempt."""

import pytest

from perdure.simulation.manifests import BadFileError
from unit.simulation.stage import play

FLOW = """
activities:
- name: make
  startToCloseTimeout: 1m
  container: {image: i}
  artifacts: {outputs: [{name: report, path: /out/report}, {name: log, path: /out/log, optional: true}]}
- name: use
  startToCloseTimeout: 1m
  container: {image: i}
  artifacts: {inputs: [{name: report, path: /in/report, from: "${input.report}"}]}
steps:
- {name: make, activity: {name: make}}
- {name: use, activity: {name: use, input: {report: "${steps.make.artifacts.report}"}}}
output: "${[steps.make.artifacts.report.size, has(steps.make.artifacts.log)]}"
"""


def test_an_attempt_produces_all_artifacts_by_default() -> None:
    assert play(FLOW).json["output"] == [1024, True]
    assert play(FLOW, "activities: {make: [{artifacts: {report: 7}}]}").json["output"] == [7, False]


def test_an_attempt_without_a_required_artifact_fails_and_is_retried() -> None:
    played = play(FLOW, "activities: {make: [{artifacts: {log: 1}}, {}]}")
    assert [how for _, _, how in played.attempts("make")] == ["Failed", "Completed"]
    assert played.phase == "Completed"


def test_artifacts_belong_to_their_attempt() -> None:
    keys = FLOW.replace(
        "steps.make.artifacts.report.size, has(steps.make.artifacts.log)", "steps.make.artifacts.report.key"
    )
    first = play(keys).json["output"][0]
    second = play(keys, "activities: {make: [{fail: {}}, {}]}").json["output"][0]
    assert first.rpartition("-")[0] == second.rpartition("-")[0]
    assert (first.rpartition("-")[2], second.rpartition("-")[2]) == ("1/report", "2/report")


def test_a_successful_attempt_archives_its_log_unless_the_scenario_leaves_it_out() -> None:
    archiving = FLOW.replace("artifacts: {outputs", "artifacts: {archiveLogs: true, outputs").replace(
        "container: {image: i}", "container: {image: i, command: [run]}"
    )
    sizes = archiving.replace("has(steps.make.artifacts.log)", "steps.make.artifacts[?'log.gz'].size.orValue(0)")
    assert play(sizes).json["output"] == [1024, 1024]
    scenario = "activities: {make: [{artifacts: {report: 7, log.gz: 20}}]}"
    assert play(sizes, scenario).json["output"] == [7, 20]
    assert play(sizes, scenario.replace(", log.gz: 20", "")).json["output"] == [7, 0]


LARGE = FLOW.replace("artifacts: {outputs", "artifacts: {largeResults: true, outputs").replace(
    "steps.make.artifacts.report.size, has(steps.make.artifacts.log)",
    "steps.make.output, steps.make.artifacts[?'result.json'].orValue(null)",
)


def test_a_large_output_becomes_a_reference() -> None:
    assert play(LARGE, "activities: {make: [{output: {total: 7}}]}").json["output"] == [{"total": 7}, None]
    output, artifact = play(LARGE, f"activities: {{make: [{{output: {'x' * 5000}}}]}}").json["output"]
    assert output == artifact
    assert (output["size"], output["key"].rpartition("/")[2]) == (5002, "result.json")
    output, artifact = play(LARGE, "activities: {make: [{artifacts: {report: 1, result.json: 5000000}}]}").json[
        "output"
    ]
    assert output == artifact
    assert output["size"] == 5_000_000


def test_a_large_output_of_an_activity_that_does_not_store_it_fails() -> None:
    played = play(FLOW, f"activities: {{make: [{{output: {'x' * 5000}}}]}}")
    assert (played.phase, [how for _, _, how in played.attempts("make")]) == ("Failed", ["Failed"])


def test_an_unknown_artifact_in_a_scenario_is_an_error() -> None:
    with pytest.raises(
        BadFileError,
        match=r"activities\.make\[0\]\.artifacts\.reprot: unknown output artifact; known: `log`, `report`",
    ):
        play(FLOW, "activities: {make: [{artifacts: {reprot: 1}}]}")
