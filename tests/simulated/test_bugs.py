"""The simulation finds bugs of earlier versions when they are brought back."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from simulated.bugs import BUGS, Bug

CHECKOUT = Path(__file__).parents[2]
_SEEDS = 40
"""How many seeds a bug may hide from. Most of these bugs fail one seed in two."""


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_finds_bug(bug: Bug, tmp_path: Path) -> None:
    shutil.copytree(CHECKOUT / "operator", tmp_path / "operator", ignore=shutil.ignore_patterns("__pycache__"))
    for change in bug.changes:
        file = tmp_path / "operator" / "perdure" / change.file
        text = file.read_text(encoding="utf-8")
        assert text.count(change.good) == 1, f"{change.file} has changed: adapt this bug to it"
        file.write_text(text.replace(change.good, change.bad), encoding="utf-8")
    command = [sys.executable, "-m", "simulated", "--scenario", bug.scenario, "--operators", str(bug.operators)]
    search = os.pathsep.join([str(tmp_path / "operator"), str(CHECKOUT / "tests")])
    found = subprocess.run(
        [*command, "--seeds", str(_SEEDS), "--until-failure"],
        env={**os.environ, "PYTHONPATH": search},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 1, found.stdout[-2_000:] + found.stderr[-2_000:]
    assert bug.found in found.stdout, found.stdout[-2_000:]
