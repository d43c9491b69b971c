from dataclasses import replace
from typing import Any

import pytest

from perdure.api.kinds.schedule import ScheduleStatus
from perdure.api.reasons import ConditionReason
from perdure.schedule import inputs as inp
from perdure.schedule.inputs import RunOutcome
from perdure.schedule.state import load_state
from perdure.schedule.status import Problem, compose
from unit.schedule.drive import T0, Drive, M, rules


def status_of(drive: Drive, problem: Problem | None = None) -> dict[str, Any]:
    found = compose({}, drive.rules, drive.state, problem=problem, generation=3, now=drive.now)
    ScheduleStatus.parse(found)
    return found


def condition(status: dict[str, Any], kind: str) -> tuple[str, str, str]:
    found = next(each for each in status["conditions"] if each["type"] == kind)
    return found["status"], found["reason"], found.get("message", "")


def test_a_status_has_past_and_future_times() -> None:
    drive = Drive(rules())
    drive.until(T0 + 3 * M)
    drive.close(next(iter(drive.open)), result={"n": 1})
    drive.until(T0 + 4 * M)
    status = status_of(drive)
    assert condition(status, "Ready")[:2] == ("True", "Accepted")
    assert condition(status, "Paused")[:2] == ("False", "NotPaused")
    assert status["nextScheduledTimes"][0] == "2026-01-01T00:05:00Z"
    assert len(status["nextScheduledTimes"]) == 10
    assert status["lastScheduledTime"] == "2026-01-01T00:04:00Z"
    assert [action["status"] for action in status["recentActions"]] == ["Completed", "Running"]
    assert status["counts"] == {"actions": 2, "missedCatchupWindow": 0, "overlapSkipped": 2, "bufferDropped": 0}
    assert status["active"] == 1
    assert status["lastCompletionResult"] == {"n": 1}
    assert load_state(status) == drive.state


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        ({"paused": True, "notes": "the move"}, ("PausedBySpec", "`spec.paused` is true: the move")),
        ({"remainingActions": 0}, ("OutOfActions", "All `remainingActions` are used up; change the field to continue")),
    ],
)
def test_a_schedule_that_does_not_run_has_a_reason_and_no_next_times(
    spec: dict[str, Any], want: tuple[str, str]
) -> None:
    drive = Drive(rules(**spec))
    drive.advance()
    status = status_of(drive)
    assert condition(status, "Paused") == ("True", *want)
    assert status["nextScheduledTimes"] == []


def test_pauses_by_clients_name_the_user() -> None:
    drive = Drive(rules(pauseOnFailure=True))
    drive.until(T0 + M)
    name = next(iter(drive.open))
    drive.close(name, RunOutcome.FAILED, message="no disk")
    reason, message = condition(status_of(drive), "Paused")[1:]
    assert reason == "PausedByFailure"
    assert name in message
    assert "no disk" in message
    drive.advance(inp.ScheduleUnpauseRequested(request_id="u"))
    drive.advance(inp.SchedulePauseRequested(request_id="p", reason="lunch"))
    assert condition(status_of(drive), "Paused") == ("True", "PausedByOperation", "An Operation has paused it: lunch")


@pytest.mark.parametrize(
    ("spec", "reason", "words"),
    [
        ({"cron": ["0 0 30 2 *"]}, "NoMoreTimes", "No time matches"),
        ({"endTime": "2026-01-01T00:00:30Z"}, "NoMoreTimes", "`endTime`, 2026-01-01T00:00:30Z"),
        ({"cron": []}, "Accepted", "triggers"),
    ],
)
def test_a_schedule_without_further_times_reports_that(spec: dict[str, Any], reason: str, words: str) -> None:
    drive = Drive(rules(**spec))
    drive.until(T0 + M)
    assert condition(status_of(drive), "Ready")[1] == reason
    assert words in condition(status_of(drive), "Ready")[2]


def test_an_invalid_spec_is_reported() -> None:
    drive = Drive(replace(rules(), times=None))
    drive.advance()
    problem = Problem(ConditionReason.UNKNOWN_TIME_ZONE, "time zone `Mars/Base` does not exist")
    status = status_of(drive, problem)
    assert condition(status, "Ready") == ("False", "UnknownTimeZone", problem.message)
    assert status["spec"] == {"summary": "* * * * *"}
