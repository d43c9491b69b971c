"""Which runs `list` shows."""

import json
from datetime import timedelta
from typing import Any

import pytest
from click.testing import Result

from perdure.api.phases import CLOSED, Phase
from perdure.client.selection import Selection
from perdure.kube import clock
from support.apiserver import ApiServer, Log, items
from support.cli import perdure

NEW: dict[str, object] = {"metadata": {"name": "new"}}
PAUSED = {"metadata": {"name": "paused"}, "status": {"phase": "Paused"}}
FAILED = {"metadata": {"name": "failed"}, "status": {"phase": "Failed"}}


def test_the_phases_are_those_of_the_api() -> None:
    assert list(map(str, Phase)) == list(map(str, Phase))
    assert sorted(CLOSED) == sorted(phase for phase in Phase if phase.is_closed)


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
def test_runs_are_filtered_by_phase(phases: set[str], shown: list[dict[str, object]]) -> None:
    chosen = Selection(phases=frozenset(phases))
    assert [run for run in (NEW, PAUSED, FAILED) if chosen.matches(run, clock.now())] == shown


# --- list --watch -----------------------------------------------------------------------------------------------------

RUNS = "/apis/perdure.dev/v1alpha1/namespaces/shop/workflowruns"
FORBIDDEN = (403, {"kind": "Status", "reason": "Forbidden", "message": "watch is forbidden"})


def a_run(name: str, phase: str, progress: str = "0/2", version: int = 1) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "shop", "uid": f"uid-{name}", "resourceVersion": str(version)}
    status = {"phase": phase, "progress": progress, "observedGeneration": 1}
    return {"metadata": {**metadata, "creationTimestamp": "2026-01-01T00:00:00Z"}, "spec": {}, "status": status}


def watched(server: ApiServer, listed: list[dict[str, Any]], *watches: Any) -> None:
    """Have the server answer a list, and each watch: with events, or a refusal, which ends the command."""
    following = iter((*watches, FORBIDDEN))

    def answer() -> Any:
        if "watch" not in server.asked[-1][1]:
            return items(*listed)
        found = next(following)
        if isinstance(found, tuple):
            return found
        lines = [json.dumps({"type": kind, "object": run}) for kind, run in found]
        return Log("".join(f"{line}\n" for line in lines))

    server.answers[RUNS] = answer


def watch(*options: str) -> tuple[list[list[str]], Result]:
    """Call `list --watch`; the first three cells of each line, and the result."""
    done = perdure("list", "--watch", *options)
    return [line.split()[:3] for line in done.stdout.splitlines()], done


def test_each_change_is_a_line_in_the_columns_of_the_table(server: ApiServer) -> None:
    first, second = a_run("first", "Running"), a_run("second", "Running")
    watched(
        server,
        [first, second],
        [
            ("ADDED", first),
            ("ADDED", second),
            ("MODIFIED", a_run("first", "Running", version=2)),
            ("BOOKMARK", {"metadata": {"resourceVersion": "9"}}),
            ("MODIFIED", a_run("first", "Running", "1/2", version=3)),
            ("DELETED", second),
            ("ADDED", a_run("third-with-a-long-name", "Pending")),
        ],
        [("ADDED", a_run("first", "Completed", "2/2", version=4))],
    )
    lines, done = watch()
    assert lines == [
        ["NAME", "PHASE", "PROGRESS"],
        ["first", "Running", "0/2"],
        ["second", "Running", "0/2"],
        ["first", "Running", "1/2"],
        ["third-with-a-long-name", "Pending", "0/2"],
        ["first", "Completed", "2/2"],
    ], done.output
    shown = done.stdout.splitlines()
    assert shown[3].index("Running") == shown[0].index("PHASE")
    assert shown[5].index("Completed") == shown[4].index("Pending")
    assert done.exit_code == 2
    assert "watch is forbidden" in done.stderr


def test_a_run_that_no_longer_matches_is_shown_once(server: ApiServer) -> None:
    watched(
        server,
        [a_run("first", "Running")],
        [
            ("MODIFIED", a_run("first", "Failed", version=2)),
            ("MODIFIED", a_run("first", "Failed", "1/2", version=3)),
            ("ADDED", a_run("other", "Pending")),
            ("MODIFIED", a_run("other", "Running", version=2)),
        ],
    )
    lines, _ = watch("--phase", "Running")
    assert lines[1:] == [["first", "Running", "0/2"], ["first", "Failed", "0/2"], ["other", "Running", "0/2"]]


def test_a_watch_continues_after_a_broken_connection(server: ApiServer) -> None:
    watched(server, [], (503, {"message": "no leader"}), [("ADDED", a_run("first", "Running"))])
    lines, done = watch("--limit", "1")
    assert lines == [["NAME", "PHASE", "PROGRESS"], ["first", "Running", "0/2"]]
    assert "no leader); try again later; still watching" in done.stderr


def test_a_watch_supports_only_text_output() -> None:
    done = perdure("list", "--watch", "-o", "json")
    assert done.exit_code == 2
    assert "shows text only" in done.stderr


# --- Choices and order ------------------------------------------------------------------------------------------------


def listed(*options: str) -> list[str]:
    done = perdure("list", "-o", "name", *options)
    assert done.exit_code == 0, done.stderr
    return [line.removeprefix("workflowrun.perdure.dev/") for line in done.stdout.splitlines()]


def test_runs_are_filtered_by_open_and_age_and_sorted_in_both_orders(server: ApiServer) -> None:
    now = clock.now()

    def aged(name: str, phase: str, hours: int) -> dict[str, Any]:
        run = a_run(name, phase)
        run["kind"], run["metadata"]["creationTimestamp"] = "WorkflowRun", (now - timedelta(hours=hours)).isoformat()
        return run

    server.answers[RUNS] = items(aged("old", "Running", 9), aged("mid", "Failed", 5), aged("new", "Paused", 1))
    assert listed() == ["new", "mid", "old"]
    assert listed("--reverse") == ["old", "mid", "new"]
    assert listed("--reverse", "--limit", "2") == ["mid", "new"]
    assert listed("--running") == listed("--open") == ["new", "old"]
    assert listed("--completed") == listed("--closed") == ["mid"]
    assert listed("--status", "Paused") == ["new"]
    assert listed("--older-than", "2h") == ["mid", "old"]
    assert listed("--older", "2h", "--since", "6h") == ["mid"]
    counted = perdure("count", "--running", "--older-than", "2h")
    assert counted.stdout.splitlines() == ["Running  1", "Total    1"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--running", "--completed"], "set one of the three"),
        (["--phase", "Failed", "--running"], "set one of the three"),
        (["--older-than", "soon"], "--older-than"),
        (["--watch", "--reverse"], "leave out --reverse"),
    ],
)
def test_mutually_exclusive_options_are_rejected(server: ApiServer, options: list[str], said: str) -> None:
    done = perdure("list", *options)
    assert (done.exit_code, server.asked) == (2, [])
    assert said in " ".join(done.stderr.split())
