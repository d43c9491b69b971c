"""The pytest plugin for flows: a local run as a fixture, recorded histories as parameters, and attempts in reports of failures.

pytest loads it wherever `perdure` is installed, so it imports flows, and Temporal's SDK, only for tests that use them.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

    from perdure.flow.local import LocalRun

_START: Final = datetime(2026, 1, 1, tzinfo=UTC)
"""When local runs start by default: the same time in each run of the tests."""
_RUNS = pytest.StashKey[list[Any]]()

_MARKERS = (
    "flow_start(time): the virtual time at which `local_run` starts, such as 2026-11-27T02:00:00Z",
    "flow_histories(pattern): recorded histories for the fixture `flow_history`, relative to the file of the test",
)


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers."""
    for marker in _MARKERS:
        config.addinivalue_line("markers", marker)


@pytest.fixture
def local_run(request: pytest.FixtureRequest) -> LocalRun:
    """A run of a flow in this process, in virtual time. If the test fails, its report shows the attempts of activities."""
    from perdure.flow.local import LocalRun  # noqa: PLC0415 - needs the Temporal SDK

    marker = request.node.get_closest_marker("flow_start")
    run = LocalRun(start=_START if marker is None else _time_of(marker.args[0]))
    request.node.stash.setdefault(_RUNS, []).append(run)
    return run


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Call a test with `flow_history` once for each history of its marker.

    Raises:
        pytest.UsageError: The test has no marker, or no history matches.
    """
    if "flow_history" not in metafunc.fixturenames:
        return
    marker = metafunc.definition.get_closest_marker("flow_histories")
    if marker is None:
        raise pytest.UsageError(f"{metafunc.definition.nodeid}: `flow_history` needs the marker `flow_histories`")
    folder = Path(metafunc.definition.path).parent
    files = sorted(each for pattern in marker.args for each in folder.glob(str(pattern)))
    if not files:
        raise pytest.UsageError(f"{metafunc.definition.nodeid}: no history in {folder} matches {marker.args}")
    metafunc.parametrize("flow_history", files, ids=[file.stem for file in files])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the attempts of a flow to the report of a failed test."""
    report = yield
    if call.when == "call" and report.failed:
        report.sections += [("Flow", run.timeline()) for run in item.stash.get(_RUNS, []) if run.calls]
    return report


def _time_of(value: str | datetime) -> datetime:
    found = datetime.fromisoformat(value) if isinstance(value, str) else value
    if found.tzinfo is None:
        raise pytest.UsageError(f"flow_start: {value} has no time zone")
    return found
