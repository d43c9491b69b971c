"""Which runs `list` shows."""

import pytest

from perdure.api import workflowrun
from perdure.cli.verbs.list_runs import in_phases
from perdure.cli.view.phases import CLOSED, RunPhase

NEW: dict[str, object] = {"metadata": {"name": "new"}}
PAUSED = {"status": {"phase": "Paused"}}
FAILED = {"status": {"phase": "Failed"}}


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
    assert in_phases([NEW, PAUSED, FAILED], phases) == shown
