"""The operator in virtual time, on an API server in memory, with faults drawn from seeds.

Each test is a process of its own: the order of a set of strings depends on a hash that is chosen when Python starts, and a seed
has to do the same in every process. One process plays several scenarios: to start it takes as long as two seeds.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from simulated.scenarios.scenarios import SCENARIOS

REPOSITORY = Path(__file__).resolve().parents[2]
SEEDS = int(os.environ.get("PERDURE_SIMULATION_SEEDS") or 2)
"""Of each scenario, with one operator, with two, and with a fleet."""
SERVE_SDKS = {"code", "limited_code", "mixed_with_code"}
"""Scenarios whose operators share the work, if there are several."""
_PARTS = 11
"""Each plays a few scenarios, so that none takes long on a machine with little time for it."""
FIRST = int(os.environ.get("PERDURE_SIMULATION_FIRST_SEED") or 0)


SCATTERED = """
import random, runpy
draw = random.Random(0)
made = [bytes(draw.randrange(480)) for _ in range(200_000)]
kept = draw.sample(made, len(made) // 2)
del made
runpy.run_module("simulated", run_name="__main__")
"""
"""Runs the simulation with a fragmented heap, so that objects have other addresses, and sets of objects another order."""


def simulate(*arguments: str, program: tuple[str, ...] = ("-m", "simulated")) -> "subprocess.CompletedProcess[str]":
    paths = os.pathsep.join([str(REPOSITORY / "operator"), str(REPOSITORY / "tests")])
    return subprocess.run(
        [sys.executable, *program, *arguments],
        env={**os.environ, "PYTHONPATH": paths, "PYTHONHASHSEED": "0"},
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.timeout(0)  # the number of seeds is a matter of choice
@pytest.mark.parametrize("part", range(_PARTS))
@pytest.mark.parametrize(
    "operators",
    [("1",), ("2",), ("3", "--fleet")],
    ids=["one operator", "two operators", "three operators that share the work"],
)
def test_the_invariants_hold_under_random_faults(operators: tuple[str, ...], part: int) -> None:
    """Operators are killed, frozen and cut off, requests and their answers are lost, watches lag and have gaps."""
    scenarios = sorted(SCENARIOS.keys() - (SERVE_SDKS if operators == ("2",) else set()))[part::_PARTS]
    found = simulate("--scenario", *scenarios, "--operators", *operators, "--seed", str(FIRST), "--seeds", str(SEEDS))
    assert found.returncode == 0, found.stdout + found.stderr


@pytest.mark.slow
@pytest.mark.timeout(0)  # as above
@pytest.mark.parametrize("scenario", ["mixed", "mixed_with_code", "hibernation"])
def test_the_invariants_hold_while_operators_of_three_versions_replace_each_other(scenario: str) -> None:
    """One of them reads an older state version, and one writes a field that today's operator does not know."""
    fleet = ("--operators", "3", "--fleet", "--mixed")
    found = simulate("--scenario", scenario, *fleet, "--seed", str(FIRST), "--seeds", str(SEEDS))
    assert found.returncode == 0, found.stdout + found.stderr


@pytest.mark.parametrize("scenario", ["mixed", "code"])
def test_a_seed_does_the_same_in_every_process(scenario: str) -> None:
    options = ("--scenario", scenario, "--operators", "2", "--fleet", "--digest")
    after_another = simulate(*options, "--seed", "6", "--seeds", "2").stdout.splitlines()
    alone = simulate(*options, "--seed", "7", program=("-c", SCATTERED)).stdout.splitlines()
    assert len(after_another) == 2
    assert "digest" in alone[0]
    assert after_another[1:] == alone
