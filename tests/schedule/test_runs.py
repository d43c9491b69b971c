from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace
from pydantic import ValidationError

from perdure.api.names import MAX_WORKFLOW_ID
from perdure.api.schedule import WorkflowRunTemplate
from perdure.schedule.runs import is_of, not_handed_on, scheduled_by, scheduled_run
from perdure.schedule.state import Running, Start, State

NOMINAL = datetime(2026, 11, 21, 1, 30, tzinfo=UTC)
STATE = State(cursor=NOMINAL, handled_after=NOMINAL, result={"n": 1}, failure={"message": "no disk"})


def schedule(**template: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "nightly", "namespace": "shop", "uid": "u-1"},
        "spec": {"workflowRunTemplate": {"spec": {"workflow": {"name": "report"}}, **template}},
    }


def running(*, request: str = "", attempt: int = 1, triggered: bool = False) -> Running:
    start = Start(nominal=NOMINAL, actual=NOMINAL, request=request, triggered=triggered)
    return Running(name=start.run_name("nightly", attempt), start=start, started=NOMINAL, attempt=attempt)


def test_a_run_carries_its_schedule_its_time_and_what_came_before() -> None:
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
    ],
    ids=["by time", "again", "triggered", "backfilled"],
)
def test_15_names_and_workflow_ids_say_the_time_and_never_collide(run: Running, name: str, workflow_id: str) -> None:
    made = scheduled_run(schedule(spec={"workflow": {"name": "report"}, "workflowId": "report"}), run, STATE)
    assert (made["metadata"]["name"], made["spec"]["workflowId"]) == (name, workflow_id)
    assert (made["spec"].get("workflowIdReusePolicy") == "AllowDuplicate") == (name != "nightly-20261121t013000z")


def test_a_retry_without_a_workflow_id_has_that_of_the_first_run() -> None:
    made = scheduled_run(schedule(), running(attempt=3), STATE)
    assert made["spec"]["workflowId"] == "nightly-20261121t013000z"


def test_a_run_is_recognised_by_its_owner_its_time_and_its_request() -> None:
    mine = scheduled_run(schedule(), running(), STATE)
    assert is_of(mine, schedule(), running())
    assert not is_of(mine, schedule(), running(request="a"))
    other = schedule()
    other["metadata"]["uid"] = "u-2"
    assert not is_of(mine, other, running())
    assert not is_of({"metadata": {"name": "nightly-20261121t013000z"}}, schedule(), running())


def test_a_template_cannot_forge_what_ties_runs_together() -> None:
    forged = {
        "labels": {"perdure.dev/schedule": "other"},
        "annotations": {"perdure.dev/parent": "{}", "example.com/a": "b"},
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
def test_what_does_not_fit_beside_the_annotations_of_the_template_is_left_out(
    beside: int, result: int, failure: int, left_out: str
) -> None:
    annotations = {f"a{number}": "x" * (beside // 4) for number in range(4)}
    state = replace(STATE, result="\u00e9" * (result // 2) or None, failure={"message": "x" * failure})
    run = scheduled_run(schedule(metadata={"annotations": annotations}), running(), state)
    found = run["metadata"]["annotations"]
    assert sum(len(name.encode()) + len(value.encode()) for name, value in found.items()) <= 256 * 1024
    assert not_handed_on(run, state) == left_out
    assert annotations.items() <= found.items()


@pytest.mark.parametrize(("length", "fits"), [(960, True), (961, False), (1_000, False)])
def test_the_time_fits_behind_the_workflow_id_of_the_template(length: int, fits: bool) -> None:
    spec = {"workflow": {"name": "report"}, "workflowId": "x" * length}
    if not fits:
        with pytest.raises(ValidationError, match="the time is added to it"):
            WorkflowRunTemplate.parse({"spec": spec})
        return
    WorkflowRunTemplate.parse({"spec": spec})
    made = scheduled_run(schedule(spec=spec), running(request="a"), STATE)
    assert len(made["spec"]["workflowId"]) <= MAX_WORKFLOW_ID
