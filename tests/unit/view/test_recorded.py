"""The output of `describe` for runs recorded on a cluster."""

import pytest

from perdure.api.times import read_kubernetes_time
from perdure.view.page import Page
from perdure.view.runs.describe import as_data, describe
from perdure.view.runs.events import check, table
from perdure.view.runs.run import read_run
from support.recorded_runs import NAMES, recorded
from support.view.flow import golden, plain

NOW = read_kubernetes_time("2026-11-21T10:00:00Z")
assert NOW is not None
PAGE = Page(now=NOW, width=80)


def test_a_recorded_run_with_children_branches_catch_and_handler_is_shown() -> None:
    run = read_run(recorded("whole"), now=PAGE.now)
    shown = plain(describe(run, PAGE))
    assert shown[shown.index("Steps") : shown.index("\n\nWhat next")] == golden("""
        Steps 3/3
        STEP         STATUS       KIND                 TRIES  START  TIME
        ├─ kids      ✓ Succeeded  childWorkflow child         +0s    2.3s
        │  │ 3 items: 3 Succeeded
        │  ├─ [0]    ✓ Succeeded  childWorkflow child         +0s    1.1s
        │  ├─ [1]    ✓ Succeeded  childWorkflow child         +0s    1.2s
        │  └─ [2]    ✓ Succeeded  childWorkflow child         +1.1s  1.1s
        ├─ race      ✓ Succeeded  parallel Any                +0s    1s
        │  ├─ slow   ⊘ Cancelled  call nap                    +0s    1s
        │  │  └─ s   ⊘ Cancelled  sleep 1m                    +0s    1s
        │  └─ quick  ✓ Succeeded  call nap                    +0s    1s
        │     └─ s   ✓ Succeeded  sleep 1s                    +0s    1s
        ├─ broken    ✓ Succeeded  fail Oops                   +2.3s  0s
        └─ finally   ✓ Succeeded  handler nap                 +2.3s  1s
           └─ s      ✓ Succeeded  sleep 1s                    +2.3s  1s
    """)
    data = as_data(run, PAGE)
    assert [step["path"] for step in data["steps"][0]["steps"]] == ["kids[0]", "kids[1]", "kids[2]"]
    assert data["steps"][1]["steps"][0]["state"] == "Cancelled"


def test_a_recorded_run_that_timed_out_is_shown() -> None:
    shown = plain(describe(read_run(recorded("parent"), now=PAGE.now), PAGE))
    assert shown[shown.index("Steps") : shown.index("\n\nWhat next")] == golden("""
        Steps
        STEP  STATUS     KIND                TRIES  START  TIME
        ├─ a  ⊘ Stopped  childWorkflow long         +0s    4s
        │    interrupted when the run ended TimedOut
        ├─ b  ⊘ Stopped  childWorkflow long         +0s    4s
        │    interrupted when the run ended TimedOut
        └─ c  ⊘ Stopped  childWorkflow long         +0s    4s
             interrupted when the run ended TimedOut

        Failure
          Timeout: workflow timeout
    """)


@pytest.mark.parametrize("name", NAMES)
def test_every_recorded_event_fits_its_line(name: str) -> None:
    events = recorded(name)["status"]["history"]["events"]
    check(events)
    lines = table(events, PAGE)
    assert len(lines) == len(events) + 1
    assert max(len(line.plain) for line in lines) <= 80


@pytest.mark.parametrize("cut", [("state",), ("history",), ("definition", "state"), ("conditions",), ("phase",)])
@pytest.mark.parametrize("name", ["whole", "parent"])
def test_an_incomplete_status_is_shown_as_far_as_possible(name: str, cut: tuple[str, ...]) -> None:
    obj = recorded(name)
    for part in cut:
        obj["status"].pop(part, None)
    assert name in plain(describe(read_run(obj, now=PAGE.now), PAGE))
