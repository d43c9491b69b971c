"""Reading of scenario files."""

from pathlib import Path

import pytest

from perdure.cli.files.documents import UnreadableFileError, read_documents
from perdure.cli.files.scenarios import simulate_scenario

RUN = "apiVersion: perdure.dev/v1alpha1\nkind: WorkflowRun\nmetadata: {name: a}\nspec:\n  input: {%s: 3}\n"
RUN += "  inline: {steps: [{name: a, return: {output: '${input}'}}]}\n"


@pytest.mark.parametrize(
    ("key", "read"),
    [("on", "true"), ("yes", "true"), ("n", "false"), ("Y", "true"), ("TRUE", "true"), ("1", "1"), ("0x1f", "31")],
)
def test_a_key_that_is_not_a_string_is_converted_as_by_kubectl(tmp_path: Path, key: str, read: str) -> None:
    (tmp_path / "run.yaml").write_text(RUN % key)
    _, report = simulate_scenario([str(tmp_path / "run.yaml")], None)
    assert report.output == {read: 3}


@pytest.mark.parametrize(("value", "read"), [("y", True), ("N", False), ("on", True), ("'y'", "y"), ("=", "=")])
def test_a_value_is_read_as_by_kubectl(tmp_path: Path, value: str, read: object) -> None:
    (tmp_path / "values.yaml").write_text(f"value: {value}\n")
    assert read_documents(str(tmp_path / "values.yaml")) == [{"value": read}]


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("{~: 1}", "a key must be a string, not null"),
        ("{[a]: 1}", "a key must be a string, not a list or a map"),
        ("&a [*a]", "contains an alias of itself"),
        ("!!int x", "is not valid YAML"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_yaml_that_kubectl_rejects_is_rejected(tmp_path: Path, text: str, want: str) -> None:
    (tmp_path / "bad.yaml").write_text(text)
    with pytest.raises(UnreadableFileError, match=want):
        read_documents(str(tmp_path / "bad.yaml"))


@pytest.mark.parametrize("key", ["'on'", '"n"', "next"])
def test_a_string_key_is_accepted(tmp_path: Path, key: str) -> None:
    (tmp_path / "run.yaml").write_text(RUN % key)
    _, report = simulate_scenario([str(tmp_path / "run.yaml")], None)
    assert report.output == {key.strip("'\""): 3}
