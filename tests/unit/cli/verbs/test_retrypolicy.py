"""`perdure retrypolicy preview`: the waits of a policy, from its manifest."""

import json
from pathlib import Path

import pytest

from support.cli import perdure

POLICY = """
apiVersion: perdure.dev/v1alpha1
kind: RetryPolicy
metadata: {name: google}
spec: {cloudScheduler: {retryCount: 5, minBackoffDuration: 10s, maxBackoffDuration: 300s, maxDoublings: 3}}
"""


def preview(tmp_path: Path, text: str, *options: str) -> tuple[int, str, str]:
    file = tmp_path / "policy.yaml"
    file.write_text(text)
    done = perdure("retrypolicy", "preview", "-f", str(file), *options)
    return done.exit_code, done.stdout, done.stderr


def test_waits_are_seconds_in_json(tmp_path: Path) -> None:
    code, out, _ = preview(tmp_path, POLICY, "--count", "8", "-o", "json")
    assert code == 0
    assert json.loads(out) == [10, 20, 40, 80, 160, 240, 300, 300]


def test_waits_are_durations_in_text_followed_by_the_limit(tmp_path: Path) -> None:
    code, out, _ = preview(tmp_path, POLICY, "--count", "4")
    assert code == 0
    assert out.splitlines() == ["10s", "20s", "40s", "1m20s", "# retries 5 times"]


@pytest.mark.parametrize(
    ("spec", "limit"),
    [
        ("exponential: {}", "retries without limit"),
        ("exponential: {maximumAttempts: 1}", "does not retry"),
        ("exponential: {maximumAttempts: 2}", "retries once"),
        ("cloudScheduler: {}", "does not retry: `retryCount` and `maxRetryDuration` are both 0"),
        ("cloudScheduler: {maxRetryDuration: 90s}", "retries 5 times at most, until 1m30s after the first attempt"),
        (
            "cloudScheduler: {retryCount: 1, maxRetryDuration: 90s}",
            "retries at least once, and until 1m30s after the first attempt",
        ),
    ],
)
def test_limits_are_described_in_text(tmp_path: Path, spec: str, limit: str) -> None:
    text = f"kind: RetryPolicy\nmetadata: {{name: x}}\nspec:\n  {spec}\n"
    assert preview(tmp_path, text)[1].splitlines()[-1] == f"# {limit}"


def test_a_fraction_of_a_second_is_kept(tmp_path: Path) -> None:
    text = "kind: RetryPolicy\nspec: {exponential: {initialInterval: 100ms, backoffCoefficient: '1.5'}}"
    assert json.loads(preview(tmp_path, text, "-o", "json", "--count", "3")[1]) == [0.1, 0.15, 0.225]


@pytest.mark.parametrize(
    ("text", "options", "reported"),
    [
        ("kind: Workflow", (), "has no RetryPolicy"),
        ("kind: RetryPolicy\nspec: {cloudScheduler: {retryCount: 6}}", (), "spec.cloudScheduler.retryCount"),
        ("kind: RetryPolicy\nspec: {exponential: {maximumAttempts: -1}}", (), "maximumAttempts"),
        ("kind: [", (), "is not valid YAML"),
        (POLICY, ("standard",), "set either NAME or --file"),
    ],
)
def test_an_error_is_one_sentence(tmp_path: Path, text: str, options: tuple[str, ...], reported: str) -> None:
    code, _, err = preview(tmp_path, text, *options)
    assert code == 2
    assert reported.removeprefix("spec.") in err
