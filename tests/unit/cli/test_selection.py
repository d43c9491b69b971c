"""Verbs for many runs: `list` with filters, `count`, `delete` and `prune`."""

import json
from datetime import timedelta
from typing import Any

import pytest

from perdure.api.phases import CLOSED
from perdure.kube import clock
from support.apiserver import ApiServer, items
from support.cli import RUNS, perdure


def run(name: str, phase: str = "Completed", *, days: float = 0, **search: str) -> dict[str, Any]:
    time = (clock.now() - timedelta(days=days)).isoformat()
    ended = {} if phase in {"Running", ""} else {"completionTime": time}
    meta = {"name": name, "namespace": "shop", "uid": f"uid-{name}", "creationTimestamp": time}
    found = {f"search.perdure.dev/{key}": value for key, value in search.items()}
    status = {"phase": phase, "startTime": time, **ended} if phase else {}
    return {"kind": "WorkflowRun", "metadata": {**meta, "annotations": found}, "spec": {}, "status": status}


@pytest.fixture
def runs(server: ApiServer) -> ApiServer:
    found = [
        run("new", Customer="C-7"),
        run("open", "Running", days=40, Customer='["C-7","C-8"]'),
        run("failed", "Failed", days=2, Customer="C-9"),
        run("old", days=40),
        run("unseen", "", days=1),
    ]
    server.answers[RUNS] = items(*found)
    server.answers |= {f"{RUNS}/{each['metadata']['name']}": each for each in found}
    return server


def listed(*arguments: str) -> list[str]:
    done = perdure("list", "-o", "name", *arguments)
    assert done.exit_code == 0, done.stderr
    return [line.rpartition("/")[2] for line in done.stdout.split()]


@pytest.mark.parametrize(
    ("arguments", "want"),
    [
        (["--limit", "2"], ["new", "unseen"]),
        (["--since", "36h"], ["new", "unseen"]),
        (["--search-attribute", "Customer=C-7"], ["new", "open"]),
        (["--search-attribute", "Customer=C-7", "--phase", "Running"], ["open"]),
        (["--search-attribute", "Customer=C"], []),
        (["--phase", "Pending"], ["unseen"]),
        (["--prefix", "o"], ["old", "open"]),
        (["--prefix", "o", "--phase", "Running"], ["open"]),
    ],
)
@pytest.mark.usefixtures("runs")
def test_list_filters_runs(arguments: list[str], want: list[str]) -> None:
    assert listed(*arguments) == want


def test_a_run_in_deletion_is_not_listed_as_open(server: ApiServer) -> None:
    """A finalizer of another controller can keep it for long (kestra#8459)."""
    leaving, ended = run("leaving", "Running"), run("ended", days=1)
    for each in (leaving, ended):
        each["metadata"]["deletionTimestamp"] = "2026-01-01T12:00:30Z"
    server.answers[RUNS] = items(leaving, ended)
    server.answers |= {f"{RUNS}/{each['metadata']['name']}": each for each in (leaving, ended)}
    assert listed("--running") == listed("--phase", "Running") == []
    assert listed("--completed") == ["ended"]
    assert [line.split()[:2] for line in perdure("list").stdout.splitlines()[1:]] == [
        ["leaving", "Deleting"],
        ["ended", "Completed"],
    ]
    assert json.loads(perdure("count", "-o", "json").stdout)["phases"] == {"Completed": 1, "Deleting": 1}


def test_labels_are_matched_by_the_api_server(runs: ApiServer) -> None:
    listed("-l", "team=shop,tier!=a")
    assert runs.asked[0][1]["labelSelector"] == ["team=shop,tier!=a"]


def test_phases_are_matched_by_the_api_server(runs: ApiServer) -> None:
    assert listed("--phase", "Failed") == ["failed"]
    assert runs.asked[-1][1]["fieldSelector"] == ["status.phase=Failed"]
    assert listed("--running") == ["unseen", "open"]
    excluded = runs.asked[-1][1]["fieldSelector"][0].split(",")
    assert set(excluded) == {f"status.phase!={phase}" for phase in CLOSED}


@pytest.mark.parametrize("options", [["--limit", "2"], ["--limit", "2", "--all-namespaces"]])
def test_a_limit_reads_only_the_newest_runs_in_full(runs: ApiServer, options: list[str]) -> None:
    runs.answers[RUNS.replace("/namespaces/shop", "")] = runs.answers[RUNS]
    done = perdure("list", *options, "-o", "json")
    found = json.loads(done.stdout)["items"]
    assert [run["metadata"]["name"] for run in found] == ["new", "unseen"]
    assert all("spec" in run for run in found)
    read = [path for path, _ in runs.asked if path.startswith(f"{RUNS}/")]
    assert sorted(read) == [f"{RUNS}/new", f"{RUNS}/unseen"]  # in parallel, so in any order


def test_a_large_limit_reads_the_list(runs: ApiServer) -> None:
    assert json.loads(perdure("list", "--limit", "101", "-o", "json").stdout)["items"][0]["spec"] == {}
    assert [path for path, _ in runs.asked] == [RUNS]


def test_a_run_deleted_or_changed_during_the_list_is_not_listed(runs: ApiServer) -> None:
    del runs.answers[f"{RUNS}/new"]
    runs.answers[f"{RUNS}/old"] = run("old", "Failed", days=40)
    done = perdure("list", "--phase", "Completed", "--limit", "2")
    assert (done.exit_code, done.stdout) == (0, "")
    assert "There are no runs in phase Completed in namespace shop" in done.stderr


@pytest.mark.usefixtures("runs")
def test_a_search_attribute_filter_requires_a_value() -> None:
    done = perdure("list", "--search-attribute", "Customer")
    assert (done.exit_code, "does not have the form NAME=VALUE" in done.stderr) == (2, True)


def test_search_attributes_have_the_values_that_code_has_upserted(server: ApiServer) -> None:
    """Issue 44, C 3: `list` and `count` only found the values of the start, which labels repeat."""
    upserted, removed = run("upserted", "Running", Customer="C-7"), run("removed", "Running", Customer="C-8")
    attributes = {"Customer": "C-8", "Tags": ["a", "b"], "Rate": {"type": "Double", "value": "0.5"}}
    upserted["status"]["state"] = {"code": {"taskQueue": "q", "searchAttributes": json.dumps(attributes)}}
    removed["status"]["state"] = {"code": {"taskQueue": "q"}}
    server.answers[RUNS] = items(upserted, removed)
    server.answers |= {f"{RUNS}/{each['metadata']['name']}": each for each in (upserted, removed)}
    for wanted, found in (("Customer=C-8", True), ("Customer=C-7", False), ("Tags=b", True), ("Rate=0.5", True)):
        assert listed("--search-attribute", wanted) == (["upserted"] if found else [])
        assert listed("--search-attribute", wanted, "--limit", "1") == (["upserted"] if found else [])
        counted = json.loads(perdure("count", "--search-attribute", wanted, "-o", "json").stdout)
        assert counted["total"] == int(found)


def test_count_sums_runs_by_phase(runs: ApiServer) -> None:
    assert perdure("count").stdout.splitlines() == [
        "Pending    1",
        "Running    1",
        "Completed  2",
        "Failed     1",
        "Total      5",
    ]
    assert json.loads(perdure("count", "--since", "36h", "-o", "json").stdout) == {
        "total": 2,
        "phases": {"Pending": 1, "Completed": 1},
    }
    assert perdure("count", "--search-attribute", "Customer=C-7", "--completed").stdout.split() == [
        *("Completed", "1"),
        *("Total", "1"),
    ]
    # Search attributes are in the status of a run of code, so those are read whole.
    assert [query.get("includeObject") for _, query in runs.asked] == [["Metadata"], ["Metadata"], None]
    assert perdure("count", "--prefix", "o").stdout.splitlines() == ["Running    1", "Completed  1", "Total      2"]


def test_delete_waits_until_the_runs_do_not_exist(runs: ApiServer) -> None:
    done = perdure("delete", "new", "old")
    assert (done.exit_code, done.stdout) == (
        0,
        "workflowrun.perdure.dev/new deleted\nworkflowrun.perdure.dev/old deleted\n",
    )
    assert runs.deleted == ["new", "old"]
    assert runs.asked[-1][0] == f"{RUNS}/old"


def test_delete_reports_runs_that_still_exist(runs: ApiServer) -> None:
    runs.stays.add(f"{RUNS}/new")
    done = perdure("delete", "new", "--timeout", "1ms")
    assert (done.exit_code, "these runs still exist after 0.001s: `new`" in done.stderr) == (124, True)
    assert perdure("delete", "new", "--no-wait").exit_code == 0


def test_delete_selects_runs(runs: ApiServer) -> None:
    assert perdure("delete", "--phase", "Failed").exit_code == 0
    assert runs.deleted == ["failed"]


def test_delete_of_a_missing_run_fails_unless_ignored(runs: ApiServer) -> None:
    assert perdure("delete", "nope").exit_code == 2
    assert perdure("delete", "nope", "--ignore-not-found").exit_code == 0
    assert perdure("delete", "--phase", "TimedOut").exit_code == 1
    assert not runs.deleted


@pytest.mark.parametrize("arguments", [[], ["new", "--all"], ["new", "-l", "a=b"]])
def test_delete_requires_exactly_one_selection(runs: ApiServer, arguments: list[str]) -> None:
    assert perdure("delete", *arguments).exit_code == 2
    assert not runs.deleted


@pytest.mark.parametrize(
    ("arguments", "want"),
    [
        (["--older-than", "30d"], ["old"]),
        (["--older-than", "1d"], ["failed", "old"]),
        (["--older-than", "1d", "--phase", "Failed"], ["failed"]),
        (["--keep", "1"], ["failed", "old"]),
        (["--keep", "2", "--older-than", "1d"], ["old"]),
        (["--keep", "3"], []),
    ],
)
def test_prune_deletes_closed_runs_only(runs: ApiServer, arguments: list[str], want: list[str]) -> None:
    shown = perdure("prune", "--dry-run", *arguments)
    assert shown.stdout == "".join(f"workflowrun.perdure.dev/{name} deleted (dry run)\n" for name in want)
    assert not runs.deleted
    assert perdure("prune", *arguments).exit_code == 0
    assert runs.deleted == want


@pytest.mark.parametrize("arguments", [[], ["--keep", "1", "--phase", "Running"]])
def test_prune_rejects_options_that_could_delete_open_runs(runs: ApiServer, arguments: list[str]) -> None:
    assert perdure("prune", *arguments).exit_code == 2
    assert not runs.deleted


def test_prune_keeps_a_recreated_run(runs: ApiServer) -> None:
    runs.answers[f"{RUNS}/old"] = run("old", "Running") | {"metadata": {"name": "old", "uid": "another"}}
    assert perdure("prune", "--older-than", "30d").exit_code == 0
    assert not runs.deleted
