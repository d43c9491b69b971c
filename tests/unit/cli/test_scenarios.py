"""How files are read."""

from pathlib import Path

import pytest

from perdure.cli.scenarios import play
from perdure.simulation.cast import BadFileError

RUN = "apiVersion: perdure.dev/v1alpha1\nkind: WorkflowRun\nmetadata: {name: a}\nspec:\n  input: {%s: 3}\n"
RUN += "  inline: {steps: [{name: a, return: {output: '${input}'}}]}\n"


@pytest.mark.parametrize("key", ["on", "yes", "n", "Y", "true"])
def test_a_key_that_yaml_reads_as_a_boolean_is_refused(tmp_path: Path, key: str) -> None:
    (tmp_path / "run.yaml").write_text(RUN % key)
    with pytest.raises(BadFileError, match=f"the key {key} is a boolean, as YAML reads it: write '{key}'"):
        play([str(tmp_path / "run.yaml")], None)


@pytest.mark.parametrize("key", ["'on'", '"n"', "next"])
def test_a_key_that_is_text_is_taken(tmp_path: Path, key: str) -> None:
    (tmp_path / "run.yaml").write_text(RUN % key)
    _, report = play([str(tmp_path / "run.yaml")], None)
    assert report.output == {key.strip("'\""): 3}
