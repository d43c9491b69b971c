"""`perdure rerun` of a run that a Schedule started: it repeats the time, and does not belong to the Schedule."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from perdure.api.kinds.schedule import ScheduleSpec
from perdure.api.labels import API_VERSION, SCHEDULE_TIMES_ANNOTATION
from perdure.schedule.run_manifests import owner_of, schedule_scope, scheduled_run
from perdure.schedule.state import ScheduledRun, ScheduleState, Start
from perdure.schedule.times import Times
from support.apiserver import ApiServer
from support.cli import RUNS, perdure

DUE = datetime(2026, 1, 31, 2, 30, tzinfo=UTC)
SCHEDULE: dict[str, Any] = {
    "metadata": {"name": "nightly", "namespace": "shop", "uid": "s"},
    "spec": {"workflowRunTemplate": {"spec": {"workflow": {"name": "report"}}}},
}
REPORT = {
    "steps": [
        {
            "name": "report",
            "return": {
                "output": {
                    "day": "${schedule.?scheduledTime.orValue(now)}",
                    "by": "${schedule.?name.orValue('hand')}",
                    "since": "${schedule.?lastCompletionResult.orValue('the beginning')}",
                }
            },
        }
    ]
}


@pytest.fixture(autouse=True)
def workflow(server: ApiServer) -> None:
    """The Workflow of the runs exists."""
    server.answers[RUNS.replace("workflowruns", "workflows/report")] = {"metadata": {"name": "report"}, "spec": REPORT}


def started(server: ApiServer, *, definition: Any = None, **state: Any) -> dict[str, Any]:
    """Have the API server show a closed run of the Schedule."""
    start = Start(nominal=DUE, actual=DUE)
    running = ScheduledRun(name=start.run_name("nightly", 1, ""), start=start, started=DUE)
    run = scheduled_run(SCHEDULE, running, ScheduleState(cursor=DUE, handled_after=DUE, **state))
    run["metadata"]["uid"] = "u"
    run["status"] = {"phase": "Failed", "completionTime": "2026-01-31T02:31:00Z"}
    if definition is not None:
        run["status"]["definition"] = json.dumps(definition)
    server.answers[f"{RUNS}/{run['metadata']['name']}"] = run
    return run


@pytest.mark.parametrize("options", [[], ["--input", "{}"], ["-p", "a=1"]], ids=["same input", "--input", "-p"])
def test_rerun_of_a_scheduled_run_has_its_scheduled_time(server: ApiServer, tmp_path: Path, options: list[str]) -> None:
    original = started(server)
    assert perdure("rerun", original["metadata"]["name"], *options, "--name", "again", "--no-wait").exit_code == 0
    (again,) = server.created
    workflow = {"apiVersion": API_VERSION, "kind": "Workflow", "metadata": {"name": "report"}, "spec": REPORT}
    (tmp_path / "again.yaml").write_text(yaml.safe_dump_all([workflow, again]))
    done = perdure("simulate", "-f", str(tmp_path / "again.yaml"), "-o", "json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["output"] == {
        "day": "2026-01-31T02:30:00Z",
        "by": "nightly",
        "since": "the beginning",
    }


def test_rerun_of_a_scheduled_run_does_not_belong_to_the_schedule(server: ApiServer) -> None:
    assert owner_of(original := started(server)) == "s"
    assert perdure("rerun", original["metadata"]["name"], "--no-wait").exit_code == 0
    (again,) = server.created
    assert owner_of(again) == ""
    assert not any(key.startswith("perdure.dev/") for key in again["metadata"].get("labels", {}))
    assert "annotations" not in again["metadata"]


@pytest.mark.parametrize(
    ("definition", "state", "missing"),
    [
        (REPORT, {"result": 7, "failure": {"message": "no disk"}}, "`schedule.lastCompletionResult`"),
        (
            None,
            {"result": 7, "failure": {"message": "no disk"}},
            "`schedule.lastCompletionResult` and `schedule.lastFailure`",
        ),
        (REPORT, {}, ""),
        ({"steps": []}, {"result": 7}, ""),
    ],
    ids=["read by YAML", "possibly read by code", "nothing to pass on", "not read"],
)
def test_rerun_of_a_scheduled_run_warns_when_it_loses_the_previous_outcome(
    server: ApiServer, definition: Any, state: dict[str, Any], missing: str
) -> None:
    original = started(server, definition=definition, **state)
    server.answers[RUNS.replace("workflowruns", "workflows/report")] = (403, {"message": "no"})
    done = perdure("rerun", original["metadata"]["name"], "--no-wait")
    assert done.exit_code == 0, done.stderr
    assert (f"Warning: the new run does not receive {missing}: only" in done.stderr) == bool(missing)
    assert bool(done.stderr) == bool(missing)


def test_rerun_of_a_scheduled_run_keeps_the_times_around_its_own(server: ApiServer) -> None:
    times = Times(ScheduleSpec.parse({"cron": ["CRON_TZ=Europe/Berlin 30 3 * * FRI"], **SCHEDULE["spec"]}))
    due = datetime(2026, 3, 27, 2, 30, tzinfo=UTC)
    start = Start(nominal=due, actual=due)
    running = ScheduledRun(name=start.run_name("nightly"), start=start, started=due)
    original = scheduled_run(SCHEDULE, running, ScheduleState(cursor=due, handled_after=due), times)
    original["metadata"]["uid"] = "u"
    original["status"] = {"phase": "Completed", "completionTime": "2026-03-27T02:31:00Z"}
    server.answers[f"{RUNS}/{original['metadata']['name']}"] = original
    assert perdure("rerun", original["metadata"]["name"], "--no-wait").exit_code == 0
    (again,) = server.created
    assert list(again["metadata"]["annotations"]) == [SCHEDULE_TIMES_ANNOTATION]
    want = {
        "name": "nightly",
        "scheduledTime": due,
        "timeZone": "Europe/Berlin",
        "utcOffset": "+01:00",
        "localTime": "2026-03-27T03:30:00+01:00",
        "localDate": "2026-03-27",
        "previousTime": datetime(2026, 3, 20, 2, 30, tzinfo=UTC),
        "nextTime": datetime(2026, 4, 3, 1, 30, tzinfo=UTC),  # clocks go forward in between
    }
    assert schedule_scope(again) == want
    assert schedule_scope(original) == {**want, "lastCompletionResult": None, "lastFailure": None}
