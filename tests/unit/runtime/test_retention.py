"""Which finished runs are removed before their time."""

from dataclasses import dataclass, replace
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.runtime import status_encoding
from perdure.runtime.retention import Limits, Policy, Share, Tally, fair_share, stored_size, surplus


@dataclass(frozen=True)
class Run:
    uid: str
    closed: str
    size: int
    workflow: str = ""
    phase: str = "Completed"


def runs(*sizes: int) -> list[Run]:
    """Runs that finished one after the other."""
    return [Run(f"run-{n}", f"2026-01-01T00:{n:02}:00Z", size) for n, size in enumerate(sizes)]


def removed(found: list[Run], limits: Limits, *kept: int) -> list[int]:
    """Numbers of the removed runs; those in `kept` are protected."""
    stays = {f"run-{n}" for n in kept}
    return [int(run.uid.removeprefix("run-")) for run in surplus(found, limits, lambda run: run.uid not in stays)]


@pytest.mark.parametrize(
    ("limits", "kept", "want"),
    [
        (Limits(runs=5, size=100), (), []),
        (Limits(runs=3, size=100), (), [0, 1]),
        (Limits(runs=3, size=100), (0,), [1, 2]),
        (Limits(runs=3, size=100), (0, 1, 2, 3, 4), []),
        (Limits(runs=9, size=21), (), [0, 1, 2]),
        (Limits(runs=9, size=21), (1,), [0, 2, 3]),
        (Limits(runs=1, size=21), (), [0, 1, 2, 3]),
        (Limits(runs=0, size=100), (), []),
        (Limits(runs=0, size=0), (), []),
        (Limits(runs=0, size=1), (), [0, 1, 2, 3, 4]),
    ],
)
def test_the_oldest_runs_are_removed_until_the_rest_is_within_the_limits(
    limits: Limits, kept: tuple[int, ...], want: list[int]
) -> None:
    assert removed(runs(10, 10, 10, 10, 10), limits, *kept) == want


def test_the_order_of_runs_does_not_matter() -> None:
    assert removed(runs(1, 1, 1, 1)[::-1], Limits(runs=2)) == [0, 1]


@given(st.lists(st.integers(0, 50), max_size=12), st.integers(0, 12), st.integers(0, 200), st.sets(st.integers(0, 11)))
def test_remaining_runs_are_within_the_limits_or_protected(
    sizes: list[int], count: int, size: int, kept: set[int]
) -> None:
    limits, found = Limits(runs=count, size=size), runs(*sizes)
    gone = set(removed(found, limits, *kept))
    assert not gone & kept
    left = [n for n in range(len(sizes)) if n not in gone]
    if limits.exceeded_by(Tally(len(left), sum(sizes[n] for n in left))):
        assert set(left) <= kept
    elif gone:  # and no more than that
        before = [*left, max(gone)]
        assert limits.exceeded_by(Tally(len(before), sum(sizes[n] for n in before)))


@pytest.mark.parametrize(
    ("retention", "workflow", "phase", "seconds"),
    [
        ({}, "load", "Completed", 86_400),
        ({"ttlSecondsAfterFinished": 5}, "load", "Completed", 5),
        ({"ttlSecondsAfterFinished": 5}, "load", "TimedOut", 5),
        ({"ttlSecondsAfterFinished": 5, "ttlSecondsAfterFailure": 9}, "load", "Failed", 9),
        ({"ttlSecondsAfterFinished": 5, "ttlSecondsAfterFailure": 9}, "load", "ContinuedAsNew", 5),
        ({"ttlSecondsAfterFailure": 9}, "load", "Completed", 86_400),
        ({"workflows": [{"name": "load", "ttlSecondsAfterFinished": 0}]}, "load", "Completed", 0),
        ({"workflows": [{"name": "load", "ttlSecondsAfterFinished": 0}]}, "store", "Completed", 86_400),
        (
            {"ttlSecondsAfterFailure": 9, "workflows": [{"name": "load", "ttlSecondsAfterFinished": 1}]},
            "load",
            "Failed",
            1,
        ),
        (
            {"ttlSecondsAfterFinished": 5, "workflows": [{"name": "load", "ttlSecondsAfterFailure": 1}]},
            "load",
            "Completed",
            5,
        ),
    ],
)
def test_the_workflow_and_the_outcome_determine_how_long_a_run_is_kept(
    retention: dict[str, Any], workflow: str, phase: str, seconds: int
) -> None:
    assert Policy.of({"retention": retention}).ttl(workflow, phase) == seconds


def test_a_workflow_with_a_history_limit_of_its_own_counts_by_itself() -> None:
    found = [
        replace(run, workflow=workflow, phase=phase)
        for run, (workflow, phase) in zip(
            runs(*[1] * 9),
            [
                *[("load", "Completed"), ("store", "Completed"), ("ship", "Completed")] * 2,
                *[("load", "Failed"), ("store", "Cancelled"), ("ship", "Terminated")],
            ],
            strict=True,
        )
    ]
    limits = {
        "successfulRunsHistoryLimit": 1,
        "failedRunsHistoryLimit": 2,
        "workflows": [{"name": "load", "successfulRunsHistoryLimit": 0}, {"name": "ship", "failedRunsHistoryLimit": 0}],
    }
    gone = Policy.of({"retention": limits}).beyond_limits(found)
    assert [run.uid for run in gone] == ["run-0", "run-1", "run-2", "run-3", "run-4", "run-8"]
    assert Policy().beyond_limits(found) == []


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from(["Completed", "Failed"])), max_size=12),
    st.fixed_dictionaries(
        {}, optional=dict.fromkeys(("successfulRunsHistoryLimit", "failedRunsHistoryLimit"), st.integers(0, 4))
    ),
)
def test_as_many_runs_of_each_outcome_stay_as_the_limits_say(
    kinds: list[tuple[str, str]], limits: dict[str, int]
) -> None:
    found = [replace(run, workflow=w, phase=p) for run, (w, p) in zip(runs(*[1] * len(kinds)), kinds, strict=True)]
    gone = set(Policy.of({"retention": limits}).beyond_limits(found))
    for phase, name in (("Completed", "successfulRunsHistoryLimit"), ("Failed", "failedRunsHistoryLimit")):
        of_phase = [run for run in found if run.phase == phase]
        kept = [run for run in of_phase if run not in gone]
        assert len(kept) == min(len(of_phase), limits.get(name, len(of_phase)))
        assert kept == of_phase[len(of_phase) - len(kept) :]


@pytest.mark.parametrize(
    ("amounts", "limit", "want"),
    [
        ([], 10, None),
        ([3, 4], 10, None),
        ([3, 7], 10, None),
        ([3, 9], 10, 7),
        ([1, 100, 100], 21, 10),
        ([100, 1, 5, 100], 16, 5),
        ([5, 5], 0, None),
        ([5, 5, 5], 2, 0),
    ],
)
def test_those_with_the_most_lose_first(amounts: list[int], limit: int, want: int | None) -> None:
    assert fair_share(amounts, limit) == want


@given(st.lists(st.integers(0, 50), max_size=10), st.integers(1, 200), st.integers(0, 100))
def test_what_one_adds_takes_nothing_from_a_smaller_one(amounts: list[int], limit: int, more: int) -> None:
    share = fair_share(amounts, limit)
    if share is not None:
        assert sum(min(amount, share) for amount in amounts) <= limit
        assert sum(min(amount, share + 1) for amount in amounts) > limit
    flooded = fair_share([*amounts, more], limit)
    fair = limit // (len(amounts) + 1)
    assert flooded is None or flooded >= fair


def test_the_share_of_a_namespace_limits_its_runs() -> None:
    limits = Limits(runs=0, size=0, all_runs=6)
    share = limits.share([Tally(9, 0), Tally(2, 0)])
    assert share == Share(runs=4)
    gone = surplus(runs(*[1] * 9), limits, lambda _: True, share)
    assert [run.uid for run in gone] == [f"run-{number}" for number in range(5)]
    assert limits.exceeded_by(Tally(9, 0), share).endswith("this one has 9, its share of the limit of 6 is 4")
    assert limits.exceeded_by(Tally(2, 0), share) == ""
    assert limits.used(Tally(3, 0)) == 0.5
    assert Limits(all_size=4).used(Tally(1, 6)) == 1.5


def test_the_reason_for_the_removal_is_reported() -> None:
    limits = Limits(runs=10, size=2 * 1024 * 1024)
    assert "12 finished runs, and the limit is 10" in limits.exceeded_by(Tally(12, 0))
    assert "take 3 MiB, and the limit is 2 MiB" in limits.exceeded_by(Tally(2, 3 * 1024 * 1024))
    assert limits.exceeded_by(Tally(10, 2 * 1024 * 1024)) == ""


def test_the_size_of_a_run_includes_its_segments() -> None:
    tail = [{"eventId": 300, "result": "x" * 100}]
    history = {"events": tail, "segments": 2, "sizeBytes": 100_000 + len(orjson.dumps(tail[0]))}
    run: dict[str, Any] = {"metadata": {"name": "r"}, "spec": {"input": "y" * 1000}, "status": {"history": history}}
    texts = status_encoding.encode(run["status"])
    assert stored_size(run) == len(orjson.dumps({**run, "status": texts})) + 100_000
    run["status"]["history"]["segments"] = texts["history"]["segments"] = 0
    assert stored_size(run) == len(orjson.dumps({**run, "status": texts}))
    assert stored_size({"metadata": {}}) == len(orjson.dumps({"metadata": {}}))
    run["spec"]["input"] = 2**70
    assert stored_size(run) == history["sizeBytes"]
