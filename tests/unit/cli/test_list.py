"""Which runs `list` shows."""

import pytest

from perdure.api import workflowrun
from perdure.cli.choosing import Chosen
from perdure.cli.view.phases import CLOSED, RunPhase
from perdure.kube import clock

NEW: dict[str, object] = {"metadata": {"name": "new"}}
PAUSED = {"metadata": {"name": "paused"}, "status": {"phase": "Paused"}}
FAILED = {"metadata": {"name": "failed"}, "status": {"phase": "Failed"}}


def test_the_phases_are_those_of_the_api() -> None:
    assert list(map(str, RunPhase)) == list(map(str, workflowrun.Phase))
    assert sorted(CLOSED) == sorted(phase for phase in workflowrun.Phase if phase.is_closed)


@pytest.mark.parametrize(
    ("phases", "shown"),
    [
        (set(), [NEW, PAUSED, FAILED]),
        ({"Paused"}, [PAUSED]),
        ({"Pending"}, [NEW]),
        ({"Paused", "Failed"}, [PAUSED, FAILED]),
        ({"TimedOut"}, []),
    ],
    ids=["all", "one", "no operator has seen it", "two", "none"],
)
def test_runs_are_chosen_by_phase(phases: set[str], shown: list[dict[str, object]]) -> None:
    chosen = Chosen(phases=frozenset(phases))
    assert [run for run in (NEW, PAUSED, FAILED) if chosen.takes(run, clock.now())] == shown
