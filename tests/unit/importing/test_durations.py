"""Durations of Go in foreign manifests."""

from pathlib import Path

import pytest

from perdure.importing.durations import go_duration
from unit.importing.imported import argo, tekton, workflow


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("1h0m0s", "1h"),
        ("1.5h", "1h30m"),
        (".5m", "30s"),
        ("1.s", "1s"),
        ("+90m", "1h30m"),
        ("1h1h", "2h"),
        ("250ms", "250ms"),
        ("1500us", "2ms"),
        ("1µs", "1ms"),
        ("0", None),
        ("0s", None),
        ("-0s", None),
        ("99999999h", "99999d"),
    ],
)
def test_a_duration_of_go(text: str, want: str | None) -> None:
    """The forms of Go's `time.ParseDuration`."""
    assert go_duration(text) == want


@pytest.mark.parametrize("text", ["", "90", "5x", "1d", "s", "1h 5m", "{{inputs.parameters.x}}", True, "--1s"])
def test_other_texts_are_no_durations(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration such as"):
        go_duration(text)


def test_a_duration_is_not_below_zero() -> None:
    with pytest.raises(ValueError, match="`-5s` is below zero; write a duration such as `90s`, or remove it"):
        go_duration("-5s")


@pytest.mark.parametrize(("text", "want"), [("90", "1m30s"), (90, "1m30s"), ("0", None), (0, None), ("0.5m", "30s")])
def test_numbers_are_seconds_in_argo(text: object, want: str | None) -> None:
    """`ParseStringToDuration` of Argo."""
    assert go_duration(text, seconds=True) == want


def test_durations_of_templates(tmp_path: Path) -> None:
    """tektoncd/pipeline#1303: zero is no limit, and fractions convert; they were replaced by a day."""
    made = argo(
        tmp_path,
        workflow(
            """- name: main
  steps: [[{name: a, template: a}, {name: b, template: b}, {name: c, template: c}, {name: d, template: d}]]
- {name: a, timeout: "1.5h", container: {image: i}}
- {name: b, timeout: "0", activeDeadlineSeconds: 5, container: {image: i}}
- {name: c, activeDeadlineSeconds: 0, container: {image: i}}
- {name: d, retryStrategy: {limit: 2, backoff: {duration: "0.5m", maxDuration: "1.5h", cap: "90"}}, container: {image: i}}""",
            "entrypoint: main\nactiveDeadlineSeconds: 0",
        ),
    )
    assert made.complete, made.sentences
    assert [made.activity(name)["startToCloseTimeout"] for name in "abc"] == ["1h30m", "5s", "365d"]
    assert "runTimeout" not in made.manifests[0]["spec"]
    assert made.activity("d")["retryPolicy"]["exponential"] == {
        "initialInterval": "30s",
        "backoffCoefficient": "1",
        "maximumInterval": "1m30s",
        "maximumAttempts": 3,
    }
    assert made.activity("d")["scheduleToCloseTimeout"] == "1h30m"


@pytest.mark.parametrize(
    ("field", "duration", "elapsed"),
    [("timeout", "5s", 5), ("timeout", "0.1m", 6), ("timeout", "1m", 10), ("activeDeadlineSeconds", "7", 7)],
)
def test_a_deadline_that_the_run_knows(tmp_path: Path, field: str, duration: str, elapsed: int) -> None:
    """The form of a duration of Go is converted when the run knows it, too."""
    made = argo(
        tmp_path,
        workflow(
            f"- name: main\n  {field}: '{{{{inputs.parameters.limit}}}}'\n"
            "  inputs: {parameters: [{name: limit}]}\n  container: {image: i}",
            f"entrypoint: main\narguments: {{parameters: [{{name: limit, value: '{duration}'}}]}}",
        ),
    )
    assert made.complete, made.sentences
    assert made.simulate({"main": [{"after": "10s"}]})["elapsed"] == elapsed


TASK = "taskSpec: {steps: [{name: s, image: i, command: [work]}]}"


@pytest.mark.parametrize(
    ("text", "want"), [("'0'", "365d"), ("0s", "365d"), ("1.5h", "1h30m"), ("1h0m0s", "1h"), ("", "1h")]
)
@pytest.mark.parametrize("kind", ["Pipeline", "TaskRun", "PipelineRun"])
def test_limits_of_tasks(tmp_path: Path, kind: str, text: str, want: str) -> None:
    """tektoncd/pipeline#1303: the limits were copied, and then rejected."""
    timeout = f"timeout: {text}" if text else "{}"
    specs = {
        "Pipeline": f"spec:\n  tasks:\n  - name: t\n    {TASK}\n    {timeout.replace('{}', 'retries: 0')}\n",
        "TaskRun": f"spec:\n  {TASK}\n  {timeout.replace('{}', 'retries: 0')}\n",
        "PipelineRun": f"spec:\n  pipelineSpec:\n    tasks:\n    - name: t\n      {TASK}\n      timeout: 7s\n"
        f"  taskRunSpecs:\n  - {{pipelineTaskName: t, {timeout.replace('{}', 'timeout: 1h')}}}\n",
    }
    made = tekton(tmp_path, f"apiVersion: tekton.dev/v1\nkind: {kind}\nmetadata: {{name: t}}\n{specs[kind]}")
    assert made.complete, made.sentences
    assert made.spec["activities"][0]["startToCloseTimeout"] == want
