"""The pytest plugin, in a pytest of its own."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from support.manuals import REPOSITORY

FLOW = """
import perdure.flow as pf

shop = pf.Environment("shop")


@shop.activity(retries=2)
def charge(amount: int) -> int:
    raise RuntimeError("there is no bank here")


@shop.flow
async def order(amount: int) -> int:
    await pf.sleep("30d")
    return await charge(amount)
"""


def run_tests(folder: Path, code: str) -> str:
    """Run tests in a folder with the flow, and return what pytest prints."""
    (folder / "shop.py").write_text(FLOW)
    (folder / "test_shop.py").write_text(code)
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(REPOSITORY / "operator")}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "perdure.flow.pytest_plugin",
        "--strict-markers",
        "-q",
        str(folder),
    ]
    options = ["-c", os.devnull, "--rootdir", str(folder), "-p", "no:cacheprovider", "--import-mode=prepend"]
    return subprocess.run(
        [*command, *options], cwd=folder, env=environment, capture_output=True, text=True, check=False
    ).stdout


def test_a_local_run_is_a_fixture_and_a_failed_test_shows_its_attempts(tmp_path: Path) -> None:
    shown = run_tests(
        tmp_path,
        """
import pytest
from datetime import UTC, datetime, timedelta
from shop import charge, order


@pytest.mark.flow_start("2026-11-27T02:00:00Z")
def test_the_charge_is_after_a_month(local_run):
    local_run.replace(charge, lambda amount: amount + 1)
    assert local_run.run(order, 7) == 8
    assert local_run.now == datetime(2026, 12, 27, 2, tzinfo=UTC)


def test_each_test_has_its_own(local_run):
    local_run.replace(charge, lambda amount: amount)
    local_run.lose(charge)
    assert local_run.run(order, 7) == 8
""",
    )
    assert "1 failed, 1 passed" in shown, shown
    report = shown.partition("Flow")[2].splitlines()
    assert "+30d charge[amount=7]: PodLostError: the pod was lost" in report
    assert "+30d1s charge[amount=7], attempt 2: ok" in report


def test_recorded_histories_are_parameters(tmp_path: Path) -> None:
    (tmp_path / "histories").mkdir()
    for name in ("first", "second"):
        (tmp_path / "histories" / f"{name}.json").write_text("{}")
    shown = run_tests(
        tmp_path,
        """
import pytest


@pytest.mark.flow_histories("histories/*.json")
def test_a_history(flow_history):
    assert flow_history.stem != "second"
""",
    )
    assert "1 failed, 1 passed" in shown, shown
    assert "test_a_history[second]" in shown


@pytest.mark.parametrize(
    ("marker", "problem"),
    [
        ("", "`flow_history` needs the marker `flow_histories`"),
        ('@pytest.mark.flow_histories("none/*.json")', "no history in"),
    ],
)
def test_a_test_without_histories_does_not_pass_silently(tmp_path: Path, marker: str, problem: str) -> None:
    shown = run_tests(tmp_path, f"import pytest\n\n\n{marker}\ndef test_a_history(flow_history):\n    pass\n")
    assert problem in shown


def test_pytest_loads_the_plugin_and_it_imports_no_sdk() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"perdure": "perdure.flow.pytest_plugin"}
    code = "import sys, perdure.flow.pytest_plugin; print([each for each in ('temporalio', 'pydantic') if each in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
