"""The commands and tables of docs/testing.md are right."""

import re
from pathlib import Path

import pytest
import yaml

from perdure.simulation.scenario import Expect, Scenario, ScriptedAttempt
from support.cli import perdure
from support.manuals import REPOSITORY

PAGE = (REPOSITORY / "docs" / "testing.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


def test_the_documented_first_test_has_the_documented_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manifest, scenario = [text for language, text in BLOCKS if language == "yaml"][:2]
    (tmp_path / "order.yaml").write_text(manifest)
    (tmp_path / "scenarios").mkdir()
    (tmp_path / "scenarios" / "slow-network.yaml").write_text(scenario)
    monkeypatch.chdir(tmp_path)
    shown = [text.partition("\n") for language, text in BLOCKS if language == "console"]
    assert len(shown) == 2
    for command, _, want in shown:
        arguments = command.removeprefix("$ perdure ").split()
        assert perdure(*arguments).stdout == want


def names(section: str) -> set[str]:
    """The fields in the first column of a section's table."""
    match = re.search(rf"^#+ {section}\n(.*?)(?=^#|\Z)", PAGE, re.DOTALL | re.MULTILINE)
    assert match
    rows = re.findall(r"^\| (.*?) \|", match[1], re.MULTILINE)
    return {name.partition(":")[0] for row in rows for name in re.findall(r"`([^`]+)`", row)}


@pytest.mark.parametrize(
    ("section", "model"), [("The scenario", Scenario), ("Activities", ScriptedAttempt), ("Expectations", Expect)]
)
def test_the_documented_fields_are_those_of_the_model(section: str, model: type[Scenario]) -> None:
    assert names(section) == {field.alias for field in model.model_fields.values()}


def test_the_documented_scenario_is_valid() -> None:
    assert Scenario.parse(yaml.safe_load([text for language, text in BLOCKS if language == "yaml"][1])).expect
