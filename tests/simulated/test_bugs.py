"""The simulation finds bugs of earlier versions when they are brought back."""

from pathlib import Path

import pytest

from simulated.bugs import BUGS, Bug

_SEEDS = 40
"""How many seeds a bug may hide from. With its first seed, each bug fails now; a change of the operator may move that."""


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_the_simulation_finds_each_reintroduced_bug(bug: Bug, tmp_path: Path) -> None:
    bug.plant(tmp_path)
    found = bug.search(tmp_path, first=bug.first_seed, seeds=_SEEDS)
    assert found.returncode == 1, found.stdout[-2_000:] + found.stderr[-2_000:]
    assert bug.found in found.stdout, found.stdout[-2_000:]
