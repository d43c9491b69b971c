"""The operator in virtual time, on an API server in memory, with faults drawn from seeds.

Each test is a process of its own: the order of a set of strings depends on a hash that is chosen when Python starts, and a seed
has to do the same in every process. One process plays all scenarios: to start it takes as long as two seeds.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from simulated.scenarios import SCENARIOS

REPOSITORY = Path(__file__).resolve().parents[2]
SEEDS = int(os.environ.get("PERDURE_SIMULATION_SEEDS") or 3)
"""Of each scenario, with one operator, with two, and with a fleet."""
FIRST = int(os.environ.get("PERDURE_SIMULATION_FIRST_SEED") or 0)


def simulate(*arguments: str) -> "subprocess.CompletedProcess[str]":
    paths = os.pathsep.join([str(REPOSITORY / "operator"), str(REPOSITORY / "tests")])
    return subprocess.run(
        [sys.executable, "-m", "simulated", *arguments],
        env={**os.environ, "PYTHONPATH": paths, "PYTHONHASHSEED": "0"},
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.timeout(0)  # the number of seeds is a matter of choice
@pytest.mark.parametrize(
    "operators",
    [("1",), ("2",), ("3", "--fleet")],
    ids=["one operator", "two operators", "three operators that share the work"],
)
def test_the_invariants_hold_under_random_faults(operators: tuple[str, ...]) -> None:
    """Operators are killed, frozen and cut off, requests and their answers are lost, watches lag and have gaps."""
    scenarios = sorted(SCENARIOS.keys() - ({"code"} if operators == ("2",) else set()))  # those that serve SDKs share
    found = simulate("--scenario", *scenarios, "--operators", *operators, "--seed", str(FIRST), "--seeds", str(SEEDS))
    assert found.returncode == 0, found.stdout + found.stderr


def test_a_seed_does_the_same_in_every_process() -> None:
    options = ("--scenario", "mixed", "--operators", "2", "--fleet", "--seed", "7", "--digest")
    first, again = (simulate(*options) for _ in range(2))
    assert "digest" in first.stdout
    assert first.stdout == again.stdout
