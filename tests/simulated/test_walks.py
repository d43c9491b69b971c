"""docs/architecture-walkthroughs.md names files that its three walks really enter."""

import re
from pathlib import Path

import pytest

from walks import WALKS, play

PAGE = Path(__file__).parents[2] / "docs" / "architecture-walkthroughs.md"
BEFORE = {"handlers/watch.py", "frontend/transport/rpc.py", "frontend/transport/door.py", "frontend/transport/guard.py"}
"""The simulator calls what follows these."""
NOT_ENTERED = {"frontend/peers/router.py"}
"""What only a fleet has."""
AFTER = {"controller/dispatch/runs.py", "controller/runs/start.py"}
"""What happens to a run that a Schedule has created."""


def files(title: str) -> set[str]:
    """The files that a walk names in its table."""
    section = PAGE.read_text(encoding="utf-8").partition(f"## {title}\n")[2].partition("\n## ")[0]
    return set(re.findall(r"`([a-z_/]+\.py)`", section))


@pytest.mark.parametrize(
    ("title", "walk"),
    [
        ("A pod ends, and the run continues", "a pod's end to the commit"),
        ("The spec of a Schedule becomes a run", "a due Schedule to its run"),
        ("A worker responds with RespondWorkflowTaskCompleted", "RespondWorkflowTaskCompleted"),
    ],
)
def test_a_walk_enters_the_files_that_the_page_names(title: str, walk: str) -> None:
    named = files(title)
    assert len(named) > 5
    entered = {f"{each.removeprefix('perdure.').replace('.', '/')}.py" for each in play(WALKS[walk]).modules()}
    assert named - entered - BEFORE - NOT_ENTERED - AFTER == set()
