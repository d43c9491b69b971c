"""Which files of kept steps the steps that a reset or a retry repeats can read."""

from collections.abc import Sequence
from datetime import UTC, datetime

import pytest

from perdure.api.kinds.workflow import Activity
from perdure.engine import events as ev
from perdure.runtime.pods.workspaces import lost_files, needed_files, writers

_NOW = datetime(2026, 1, 1, tzinfo=UTC)


def _activity(name: str, *mounts: str, read_only: bool = False) -> Activity:
    return Activity.parse(
        {
            "name": name,
            "startToCloseTimeout": "1m",
            "container": {"image": "i"},
            "workspaces": [{"name": each, "readOnly": read_only} for each in mounts],
        }
    )


_ACTIVITIES = {
    each.name: each
    for each in (
        _activity("write", "files"),
        _activity("read", "files", read_only=True),
        _activity("notify"),
        _activity("copy", "files", "other"),
    )
}


def _history(*steps: tuple[str, str]) -> list[ev.AnyEvent]:
    """Steps that run one after the other: their paths, and their activities. The events of step n are 2n + 1 and 2n + 2."""
    events: list[ev.AnyEvent] = []
    for path, activity in steps:
        number = len(events) + 1
        events += [
            ev.ActivityTaskScheduled(event_id=number, event_time=_NOW, activity_id=path, activity_type=activity),
            ev.ActivityTaskCompleted(
                event_id=number + 1,
                event_time=_NOW,
                scheduled_event_id=number,
                started_event_id=number,
                activity_id=path,
                attempt=1,
            ),
        ]
    return events


@pytest.mark.parametrize(
    ("steps", "point", "kept", "want"),
    [
        ([("w", "write"), ("r", "read")], 2, (), {"files": ["w"]}),
        ([("w", "write"), ("r", "read")], 0, (), {}),
        ([("w", "write"), ("n", "notify")], 2, (), {}),
        ([("r", "read"), ("q", "read")], 2, (), {}),
        ([("w", "write"), ("r", "read"), ("v", "write")], 0, (2, 6), {"files": ["w", "v"]}),
        ([("w", "write"), ("r", "read")], 0, (2, 4), {}),
        ([("w", "write"), ("r:compensate", "read")], 2, (), {}),
        ([("w", "write"), ("c", "copy")], 2, (), {"files": ["w"]}),
        ([("w", "write"), ("r", "read")], 3, (), {"files": ["w"]}),
    ],
    ids=[
        "a repeated step reads what a kept one wrote",
        "everything is repeated",
        "no repeated step mounts the workspace",
        "the kept step mounts it read-only",
        "kept results after the point",
        "everything is kept",
        "a compensation may not run again",
        "the second workspace has no files yet",
        "the repeated step was open at the point",
    ],
)
def test_needed_files(
    steps: Sequence[tuple[str, str]], point: int, kept: tuple[int, ...], want: dict[str, list[str]]
) -> None:
    events = _history(*steps)
    assert needed_files(events[:point], events[point:], kept, _ACTIVITIES) == want


def test_writers_of_an_activity_that_is_not_defined_any_more_are_not_known() -> None:
    assert writers(_history(("w", "gone"), ("v", "write")), _ACTIVITIES) == {"files": ["v"]}


def test_the_message_names_each_step_once_and_loops_without_their_items() -> None:
    paths = [*(f"parts[{i}]" for i in range(10)), "a", "b", "c", "d", "e"]
    assert "the files of steps `parts`, `a`, `b`, `c`, `d`, …, which" in lost_files("files", paths)
    assert "the files of step `parts`, which" in lost_files("files", paths[:2])
