"""`simulate` and `test` as they are called: files, output, exit codes."""

import json
from pathlib import Path

import pytest

from support.cli import perdure
from support.view.flow import golden

ORDER = """
apiVersion: perdure.dev/v1alpha1
kind: Workflow
metadata: {name: order}
spec:
  activities:
  - {name: charge, startToCloseTimeout: 30s, retryPolicy: {name: standard}, container: {image: shop}}
  steps:
  - {name: charge, activity: {name: charge, input: "${input}"}}
  - {name: change-of-mind, sleep: {duration: 30d}}
  - name: ship
    forEach: {items: "${input.items}"}
    childWorkflow: {workflow: {name: ship}, input: "${item}"}
"""
POLICY = """
apiVersion: perdure.dev/v1alpha1
kind: RetryPolicy
metadata: {name: standard}
spec: {exponential: {maximumAttempts: 3}}
"""
HAPPY = """
files: [../order.yaml]
retryPolicies: [../policy.yaml]
startTime: 2026-03-01T00:00:00Z
input: {items: [lamp]}
activities:
  charge:
  - fail: {type: Declined, message: no funds}
  - {after: 2s, output: paid}
children: {ship: [{after: 1d, output: shipped}]}
expect: {phase: Completed, output: [shipped], elapsed: 31d3s, attempts: {charge: 2}}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "scenarios").mkdir()
    (tmp_path / "order.yaml").write_text(ORDER)
    (tmp_path / "policy.yaml").write_text(POLICY)
    (tmp_path / "scenarios" / "happy.yaml").write_text(HAPPY)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_simulation_is_shown_as_timeline_tree_and_outcome(folder: Path) -> None:
    assert folder.exists()
    done = perdure("simulate", "--scenario", "scenarios/happy.yaml")
    assert done.exit_code == 0
    assert (
        done.stdout
        == golden(
            """
        Timeline
        TIME    STEP            WHAT HAPPENED
        +0s     -               ● Running     starts: {"items":["lamp"]}
        +0s     charge          ● Running     activity charge
        +0s     charge          ↻ BackingOff  attempt 1 failed: Declined: no funds; attempt 2 in 1s
        +1s     charge          ● Running     activity charge, attempt 2
        +3s     charge          ✓ Succeeded   "paid"
        +3s     change-of-mind  ◔ Waiting     for 30d
        +30d3s  change-of-mind  ◔ Waiting     the time has passed
        +30d3s  ship[0]         ● Running     child ship "lamp"
        +31d3s  ship[0]         ✓ Succeeded   "shipped"
        +31d3s  -               ✓ Completed   ["shipped"]

        Steps
        STEP               STATUS       KIND                TRIES  START   TIME
        ├─ charge          ✓ Succeeded  activity charge     2      +0s     3s
        ├─ change-of-mind  ✓ Succeeded  sleep 30d                  +3s     30d
        └─ ship            ✓ Succeeded  childWorkflow ship         +30d3s  1d
           └─ [0]          ✓ Succeeded  item                       +30d3s  1d

        Outcome
        Status:       ✓ Completed
        Duration:     31d3s
        Output:       ["shipped"]
        Attempts:     charge 2

        Expectations
        ✓ met
        """
        )
        + "\n"
    )


def test_a_simulation_as_json_has_everything(folder: Path) -> None:
    assert folder.exists()
    done = perdure("simulate", "-f", "order.yaml", "--scenario", "scenarios/happy.yaml", "-o", "json")
    assert done.exit_code == 0
    reported = json.loads(done.stdout)
    assert (reported["phase"], reported["output"], reported["failure"]) == ("Completed", ["shipped"], None)
    assert (reported["elapsed"], reported["runs"], reported["startTime"]) == (31 * 86400 + 3, 1, "2026-03-01T00:00:00Z")
    assert [attempt["outcome"] for attempt in reported["attempts"]["charge"]] == ["Failed", "Completed"]
    assert reported["attempts"]["charge"][1] | {"start": 1, "end": 3, "attempt": 2} == reported["attempts"]["charge"][1]
    assert [step["name"] for step in reported["steps"]] == ["charge", "change-of-mind", "ship"]
    fired = next(event for event in reported["events"] if event["eventType"] == "TimerFired")
    assert (fired["time"], fired["eventTime"]) == (30 * 86400 + 3, "2026-03-31T00:00:03Z")
    assert reported["unmet"] == []


def test_a_simulation_requires_only_a_manifest(folder: Path) -> None:
    flow = (folder / "order.yaml").read_text() + "---" + (folder / "policy.yaml").read_text()
    done = perdure("simulate", "-f", "-", "-o", "json", stdin=flow)
    assert done.exit_code == 0
    assert json.loads(done.stdout)["failure"]["type"] == "ExpressionError", "there are no items without an input"


def test_integers_that_the_api_server_rounds_are_reported_on_standard_error(folder: Path) -> None:
    (folder / "sum.yaml").write_text(
        "apiVersion: perdure.dev/v1alpha1\nkind: Workflow\nmetadata: {name: sum}\n"
        "spec: {steps: [{name: id, set: {order: 12345678901234567890}}]}\n"
    )
    done = perdure("simulate", "--file", "sum.yaml", "-o", "json")
    assert (done.exit_code, json.loads(done.stdout)["phase"]) == (0, "Completed")
    assert done.stderr == (
        "Warning: sum.yaml:4:40: spec.steps[0].set.order: the API server stores `12345678901234567890` as a floating-point "
        "number with about 16 digits, because it has more than 64 bits; write it in quotes\n"
    )


def test_the_items_of_a_list_are_simulated(folder: Path) -> None:
    (folder / "list.yaml").write_text(
        "apiVersion: v1\nkind: List\nitems:\n"
        "- apiVersion: perdure.dev/v1alpha1\n  kind: Workflow\n  metadata: {name: nap}\n"
        "  spec: {steps: [{name: nap, sleep: {duration: 1s}}]}\n"
    )
    done = perdure("simulate", "--file", "list.yaml", "-o", "json")
    assert (done.exit_code, json.loads(done.stdout)["phase"]) == (0, "Completed")


def test_any_outcome_of_the_run_has_exit_code_0(folder: Path) -> None:
    (folder / "fails.yaml").write_text("{input: {items: []}, activities: {charge: [{exitCode: 3}]}}")
    done = perdure("simulate", "-f", "order.yaml", "-f", "policy.yaml", "--scenario", "fails.yaml")
    assert done.exit_code == 0
    assert "caused by ExitCode3: container activity failed (exit code 3)" in done.stdout


def test_an_unmet_expectation_has_exit_code_1(folder: Path) -> None:
    (folder / "scenarios" / "happy.yaml").write_text(HAPPY.replace("charge: 2}", "charge: 1}"))
    done = perdure("simulate", "--scenario", "scenarios/happy.yaml")
    assert done.exit_code == 1
    assert done.stdout.endswith("Expectations\n✗ attempts.charge: expected 1, got 2: Failed, Completed\n")


@pytest.mark.parametrize(
    ("arguments", "want"),
    [
        (("-f", "none.yaml"), "none.yaml: cannot be read: No such file or directory"),
        (("-f", "order.yaml"), "order.yaml: spec.activities[0].retryPolicy.name: there is no RetryPolicy `standard`"),
        (("-f", "broken.yaml"), "broken.yaml: is not valid YAML"),
        (("--scenario", "broken.yaml"), "broken.yaml: is not valid YAML"),
        (("--scenario", "two.yaml"), "two.yaml: must be one scenario, but has 2 documents"),
        (("--scenario", "lost.yaml"), "away.yaml: cannot be read"),
        (("-f", "order.yaml", "-f", "policy.yaml", "--scenario", "endless.yaml"), "make it end"),
        ((), "set a manifest"),
    ],
)
def test_an_invalid_file_has_exit_code_2(folder: Path, arguments: tuple[str, ...], want: str) -> None:
    (folder / "broken.yaml").write_text("a: [")
    (folder / "two.yaml").write_text("input: 1\n---\ninput: 2\n")
    (folder / "lost.yaml").write_text("files: [away.yaml]")
    (folder / "endless.yaml").write_text("maxEvents: 2")
    done = perdure("simulate", *arguments)
    assert done.exit_code == 2
    assert done.stdout == ""
    assert "Error: " in done.stderr
    assert want in done.stderr


def test_a_folder_of_scenarios_is_tested(folder: Path) -> None:
    scenarios = folder / "scenarios"
    (scenarios / "policy.yaml").write_text(POLICY)
    assert perdure("test", "scenarios").stdout == (
        "✓ scenarios/happy.yaml  Completed after 31d3s\n✓ 1 scenario: 1 as expected\n"
    )
    (scenarios / "deeper").mkdir()
    (scenarios / "deeper" / "sad.yml").write_text(HAPPY.replace("../", "../../").replace("Completed", "Failed"))
    done = perdure("test", "scenarios")
    assert done.exit_code == 1
    assert (
        done.stdout
        == golden(
            """
        ✗ scenarios/deeper/sad.yml  Completed after 31d3s
            phase: expected Failed, got Completed
        ✓ scenarios/happy.yaml  Completed after 31d3s
        ✗ 2 scenarios: 1 as expected, 1 not as expected
        """
        )
        + "\n"
    )
    (scenarios / "a-typo.yaml").write_text("inptu: 1")
    done = perdure("test", "scenarios", "-o", "json")
    assert done.exit_code == 2
    reported = json.loads(done.stdout)
    assert (reported["met"], reported["unmet"], reported["bad"]) == (1, 1, 1)
    assert reported["scenarios"][0]["errors"] == ["scenarios/a-typo.yaml: inptu: unknown field; did you mean `input`?"]


def test_a_folder_without_scenarios_is_an_error(folder: Path) -> None:
    (folder / "empty").mkdir()
    failures = {
        "empty": "empty has no scenarios",
        "away": "no such folder",
        "a" * 300: "cannot be read: File name too long",
    }
    for name, want in failures.items():
        done = perdure("test", name)
        assert done.exit_code == 2
        assert want in done.stderr
