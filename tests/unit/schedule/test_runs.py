from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from pydantic import ValidationError

from perdure.api.kinds.schedule import ScheduleSpec, WorkflowRunTemplate
from perdure.api.names import MAX_SCHEDULE_NAME, MAX_WORKFLOW_ID, schedule_name
from perdure.schedule.run_manifests import (
    ScheduleTimes,
    is_of,
    omitted_data,
    owner_of,
    schedule_scope,
    scheduled_by,
    scheduled_run,
)
from perdure.schedule.state import ScheduledRun, ScheduleState, Start
from perdure.schedule.times import Times

NOMINAL = datetime(2026, 11, 21, 1, 30, tzinfo=UTC)
STATE = ScheduleState(cursor=NOMINAL, handled_after=NOMINAL, result={"n": 1}, failure={"message": "no disk"})


def schedule(**template: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "nightly", "namespace": "shop", "uid": "u-1"},
        "spec": {"workflowRunTemplate": {"spec": {"workflow": {"name": "report"}}, **template}},
    }


def running(*, request: str = "", attempt: int = 1, triggered: bool = False, instead: str = "") -> ScheduledRun:
    start = Start(nominal=NOMINAL, actual=NOMINAL, request=request, triggered=triggered)
    name = start.run_name("nightly", attempt, instead)
    return ScheduledRun(name=name, start=start, started=NOMINAL, attempt=attempt, instead=instead)


def test_a_run_has_its_schedule_its_time_and_the_previous_results() -> None:
    run = scheduled_run(schedule(metadata={"labels": {"team": "accounts"}}), running(), STATE)
    assert run["metadata"]["name"] == "nightly-20261121t013000z"
    assert run["metadata"]["labels"] == {"team": "accounts", "perdure.dev/schedule": "nightly"}
    assert run["metadata"]["ownerReferences"][0]["uid"] == "u-1"
    assert run["spec"]["searchAttributes"] == {
        "TemporalScheduledStartTime": "2026-11-21T01:30:00Z",
        "TemporalScheduledById": "nightly",
    }
    tie = scheduled_by(run)
    assert tie is not None
    assert tie.scope() == {
        "name": "nightly",
        "scheduledTime": NOMINAL,
        "lastCompletionResult": {"n": 1},
        "lastFailure": {"message": "no disk"},
    }


@pytest.mark.parametrize(
    ("run", "name", "workflow_id"),
    [
        (running(), "nightly-20261121t013000z", "report-2026-11-21T01:30:00Z"),
        (running(attempt=2), "nightly-20261121t013000z-r2", "report-2026-11-21T01:30:00Z"),
        (
            running(request="a", triggered=True),
            "nightly-20261121t013000z-tca978112",
            "report-2026-11-21T01:30:00Z-tca978112",
        ),
        (running(request="a"), "nightly-20261121t013000z-bca978112", "report-2026-11-21T01:30:00Z-bca978112"),
        (running(instead="0a1b"), "nightly-20261121t013000z-x0a1b", "report-2026-11-21T01:30:00Z"),
        (running(instead="0a1b", attempt=2), "nightly-20261121t013000z-x0a1b-r2", "report-2026-11-21T01:30:00Z"),
    ],
    ids=["by time", "again", "triggered", "backfilled", "under another name", "under another name again"],
)
def test_15_names_and_workflow_ids_contain_the_time_and_never_collide(
    run: ScheduledRun, name: str, workflow_id: str
) -> None:
    made = scheduled_run(schedule(spec={"workflow": {"name": "report"}, "workflowId": "report"}), run, STATE)
    assert (made["metadata"]["name"], made["spec"]["workflowId"]) == (name, workflow_id)
    assert (made["spec"].get("workflowIdReusePolicy") == "AllowDuplicate") == (
        run.attempt > 1 or run.start.request != ""
    )


def test_a_retry_without_a_workflow_id_has_that_of_the_first_run() -> None:
    made = scheduled_run(schedule(), running(attempt=3), STATE)
    assert made["spec"]["workflowId"] == "nightly-20261121t013000z"


def test_a_run_is_identified_by_its_owner_its_time_and_its_request() -> None:
    mine = scheduled_run(schedule(), running(), STATE)
    assert is_of(mine, schedule(), running())
    assert not is_of(mine, schedule(), running(request="a"))
    other = schedule()
    other["metadata"]["uid"] = "u-2"
    assert not is_of(mine, other, running())
    assert not is_of({"metadata": {"name": "nightly-20261121t013000z"}}, schedule(), running())


def test_a_template_cannot_forge_the_relations_or_the_creator_of_runs() -> None:
    forged = {
        "labels": {"perdure.dev/schedule": "other"},
        "annotations": {"perdure.dev/parent": "{}", "audit.perdure.dev/created-by": "admin", "example.com/a": "b"},
    }
    run = scheduled_run(schedule(metadata=forged), running(), STATE)
    assert run["metadata"]["labels"] == {"perdure.dev/schedule": "nightly"}
    assert set(run["metadata"]["annotations"]) == {"example.com/a", "perdure.dev/scheduled-by"}


@pytest.mark.parametrize(
    ("beside", "result", "failure", "left_out"),
    [
        (0, 120_000, 1_000, ""),
        (180_000, 120_000, 1_000, "the last completion result"),
        (180_000, 1_000, 120_000, "the last failure"),
        (200_000, 120_000, 120_000, "the last completion result and the last failure"),
        (180_000, 0, 120_000, "the last failure"),
    ],
)
def test_a_result_that_does_not_fit_next_to_the_annotations_of_the_template_is_omitted(
    beside: int, result: int, failure: int, left_out: str
) -> None:
    annotations = {f"a{number}": "x" * (beside // 4) for number in range(4)}
    state = replace(STATE, result="\u00e9" * (result // 2) or None, failure={"message": "x" * failure})
    run = scheduled_run(schedule(metadata={"annotations": annotations}), running(), state)
    found = run["metadata"]["annotations"]
    assert sum(len(name.encode()) + len(value.encode()) for name, value in found.items()) <= 256 * 1024
    assert omitted_data(run, state) == left_out
    assert annotations.items() <= found.items()


@pytest.mark.parametrize(("length", "fits"), [(960, True), (961, False), (1_000, False)])
def test_the_time_fits_after_the_workflow_id_of_the_template(length: int, fits: bool) -> None:
    spec = {"workflow": {"name": "report"}, "workflowId": "x" * length}
    if not fits:
        with pytest.raises(ValidationError, match="at most"):
            WorkflowRunTemplate.parse({"spec": spec})
        return
    WorkflowRunTemplate.parse({"spec": spec})
    made = scheduled_run(schedule(spec=spec), running(request="a"), STATE)
    assert len(made["spec"]["workflowId"]) <= MAX_WORKFLOW_ID


def test_a_run_with_another_name_has_its_own_workflow_id() -> None:
    """The WorkflowRun that has its name has that as its workflow ID, too."""
    made = scheduled_run(schedule(), running(instead="0a1b", attempt=2), STATE)
    assert made["spec"]["workflowId"] == "nightly-20261121t013000z-x0a1b"


def test_the_longest_names_fit() -> None:
    longest = Start(nominal=NOMINAL, actual=NOMINAL, request="a", triggered=True)
    assert len(longest.run_name("n" * MAX_SCHEDULE_NAME, 1, "0a1b")) == 253
    again = Start(nominal=NOMINAL, actual=NOMINAL)
    assert len(again.run_name("n" * MAX_SCHEDULE_NAME, 99_999, "0a1b")) <= 253


@pytest.mark.parametrize(
    "change",
    [
        {"apiVersion": "example.com/v1"},
        {"kind": "Workflow"},
        {"name": "another"},
        {"controller": False},
    ],
    ids=str,
)
def test_an_owner_reference_alone_does_not_make_a_run_one_of_the_schedule(change: dict[str, Any]) -> None:
    made = scheduled_run(schedule(), running(), STATE)
    assert owner_of(made) == "u-1"
    assert is_of(made, schedule(), running())
    meta = made["metadata"]
    forged = {**made, "metadata": {**meta, "ownerReferences": [{**meta["ownerReferences"][0], **change}]}}
    assert owner_of(forged) == ""
    assert not is_of(forged, schedule(), running())
    unmarked = {**made, "metadata": {**meta, "annotations": {}}}
    assert owner_of(unmarked) == ""
    assert not is_of(unmarked, schedule(), running())


@pytest.mark.parametrize(
    ("attributes", "want"),
    [
        (
            {"TemporalScheduledStartTime": "2026-11-21T02:30:00+01:00", "TemporalScheduledById": "Nightly Report"},
            {"name": schedule_name("Nightly Report"), "scheduledTime": NOMINAL},
        ),
        ({"TemporalScheduledStartTime": "yesterday", "TemporalScheduledById": "nightly"}, {}),
        ({"TemporalScheduledStartTime": ["2026-11-21T01:30:00Z"], "TemporalScheduledById": "nightly"}, {}),
        ({"TemporalScheduledStartTime": "9999-12-31T23:59:59-23:00", "TemporalScheduledById": "nightly"}, {}),
        ({"TemporalScheduledById": "nightly"}, {}),
        (None, {}),
    ],
    ids=["repeated run", "invalid time", "list", "a time after the year 9999", "no time", "other run"],
)
def test_a_run_without_the_annotation_has_the_time_of_its_search_attributes(attributes: Any, want: Any) -> None:
    run = {"metadata": {"name": "again"}, "spec": {"searchAttributes": attributes}}
    assert schedule_scope(run) == want


@pytest.mark.parametrize(
    "times",
    [
        "not JSON",
        '{"utcOffset": 90000}',
        '{"utcOffset": "x"}',
        '{"previousTime": "2026-11-20T01:30:00"}',
        "[]",
    ],
    ids=["no JSON", "an offset of more than a day", "no number", "a time without an offset", "a list"],
)
def test_times_that_a_user_wrote_wrongly_are_ignored(times: str) -> None:
    attributes = {"TemporalScheduledStartTime": "2026-11-21T01:30:00Z", "TemporalScheduledById": "nightly"}
    run = {
        "metadata": {"name": "again", "annotations": {"schedule.perdure.dev/times": times}},
        "spec": {"searchAttributes": attributes},
    }
    assert schedule_scope(run) == {"name": "nightly", "scheduledTime": NOMINAL}


@given(st.integers(0, 40_000), st.sampled_from(["30 2 * * *", "0 0 29 2 *", "@every 7h", "0 0 1 1 * 2030"]))
def test_the_previous_and_the_next_time_enclose_a_time(hours: int, cron: str) -> None:
    times = Times(ScheduleSpec.parse({"cron": [cron], "workflowRunTemplate": {"spec": {"workflow": {"name": "w"}}}}))
    at = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=hours)
    around = ScheduleTimes.around(at, times)
    if around.previous_time is None:
        first = next(times.nominal(datetime(1990, 1, 1, tzinfo=UTC)), None)
        assert first is None or first >= at
    else:
        assert around.previous_time < at
        following = next(times.nominal(around.previous_time), None)
        assert following is None or following >= at
    assert around.next_time == next(times.nominal(at), None)
