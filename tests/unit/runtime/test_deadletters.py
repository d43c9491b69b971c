"""DeadLetters: their content, their re-drives, and their status."""

import copy
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from perdure.api.kinds.deadletter import DeadLetter
from perdure.api.kinds.workflow import WorkflowSpec
from perdure.api.kinds.workflowrun import WorkflowRun
from perdure.api.reasons import ConditionReason
from perdure.engine import events as ev
from perdure.engine.retry import CloudSchedulerRetry, RetryPolicy
from perdure.language.compiler import compile_program
from perdure.runtime.attempts import RunRef
from perdure.runtime.chains import Ancestor, ResetOrigin, reset_run
from perdure.runtime.commits import OF_RUNS, digest
from perdure.runtime.deadletters import (
    dead_letter,
    dead_letter_of,
    dead_letter_status,
    is_same_dead_letter,
    newest_of,
    next_number,
    redrive_run,
    redrives,
    refusal,
    requested_by,
    tie_of,
    waits_for,
)

NOW = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
RUN = RunRef(namespace="shop", name="order-42", uid="uid-of-run", workflow_id="order 42")
ACTIVITY = {
    "name": "charge",
    "startToCloseTimeout": "1m",
    "retryPolicy": {"name": "shared"},
    "container": {"image": "i"},
}
FAILURE = {
    "kind": "Activity",
    "type": "Activity",
    "message": "no",
    "attempt": 3,
    "retryState": "MaximumAttemptsReached",
}
SCHEDULED = ev.ActivityTaskScheduled(
    event_id=5,
    event_time=NOW - timedelta(hours=1),
    activity_id="pay",
    activity_type="charge",
    input={"amount": 7},
    start_to_close_timeout=timedelta(minutes=2),
    retry_policy=RetryPolicy(name="shared", cloud_scheduler=CloudSchedulerRetry(retry_count=2)),
)
MARKER = ev.MarkerRecorded(
    event_id=8,
    event_time=NOW,
    marker_name="DeadLetter",
    details={"step": "pay", "activity": "charge", "scheduledEventId": 5, "failure": FAILURE},
)


def letter(**status: Any) -> Any:
    found = dead_letter(RUN, MARKER, SCHEDULED, [ACTIVITY])
    found["metadata"] |= {"uid": "uid-of-letter", "generation": 1}
    return found | ({"status": status} if status else {})


def run(number: int, **status: Any) -> Any:
    found = redrive_run(letter(), f"op-{number}", number)
    found["metadata"]["uid"] = f"uid-{number}"
    found["metadata"]["creationTimestamp"] = f"2026-01-31T13:0{number}:00Z"
    return found | {"status": status}


def test_a_dead_letter_keeps_everything_a_redrive_needs() -> None:
    spec = DeadLetter.parse(letter()).spec
    assert (spec.input, spec.attempts, spec.retry_state) == ({"amount": 7}, 3, "MaximumAttemptsReached")
    assert spec.definition == {
        **ACTIVITY,
        "startToCloseTimeout": "2m",
        "retryPolicy": {
            "cloudScheduler": {
                "retryCount": 2,
                "maxRetryDuration": "0s",
                "minBackoffDuration": "5s",
                "maxBackoffDuration": "1h",
                "maxDoublings": 5,
            }
        },
    }


def test_runs_with_the_same_name_have_separate_dead_letters() -> None:
    names = {
        dead_letter(RunRef(namespace="shop", name="order-42", uid=uid, workflow_id="w"), MARKER, None, [])["metadata"][
            "name"
        ]
        for uid in ("a", "b")
    }
    assert len(names) == 2


@pytest.mark.parametrize("input_", [{"amount": 7}, None, False, 0, "", []])
def test_a_redrive_has_the_same_input(input_: Any) -> None:
    found = letter()
    found["spec"]["input"] = input_
    again = redrive_run(found, "op-1", 1)
    assert again is not None
    parsed = WorkflowRun.parse(again)
    assert parsed.spec.inline is not None
    assert parsed.spec.input == input_
    program = compile_program(WorkflowSpec.parse(parsed.spec.inline.dump()))
    assert program.activities["charge"].start_to_close_timeout == timedelta(minutes=2)
    assert again["metadata"]["name"] == f"{found['metadata']['name']}-redrive-1"
    assert (dead_letter_of(again), requested_by(again)) == (found["metadata"]["name"], "op-1")


def condition(status: Any) -> tuple[str, str]:
    (found,) = status["conditions"]
    return found["status"], found["reason"]


def test_the_status_follows_the_newest_redrive() -> None:
    assert dead_letter_status(letter(), [], NOW) == {}
    first = dead_letter_status(letter(), [run(1)], NOW)
    assert (condition(first), first["redrives"]) == (("Unknown", "RedriveRunning"), 1)
    failed = dead_letter_status(letter(**first), [run(1, completionTime="t", phase="Failed", failure=FAILURE)], NOW)
    assert condition(failed) == ("False", "RedriveFailed")
    assert failed["failure"] == FAILURE
    done = dead_letter_status(
        letter(**failed),
        [
            run(1, completionTime="t", phase="Failed", failure=FAILURE),
            run(2, completionTime="t", phase="Completed", output=5),
        ],
        NOW,
    )
    assert (condition(done), done["redrives"], done["output"]) == (("True", "RedriveSucceeded"), 2, 5)
    assert "failure" not in done
    assert dead_letter_status(letter(**done), [run(2, completionTime="t", phase="Completed", output=5)], NOW) == done


def committed(number: int, **status: Any) -> Any:
    """The run of a re-drive, with a status that a commit has written."""
    found = run(number, **status)
    uid = found["metadata"]["uid"]
    return found | {"status": status | {"commit": {"number": 3, "uid": uid, "digest": digest(status, OF_RUNS, 3, uid)}}}


def test_a_run_with_an_edited_status_does_not_count_as_closed() -> None:
    ended = {"completionTime": "t", "phase": "Completed", "output": 5}
    running = dead_letter_status(letter(), [committed(1, phase="Running")], NOW)
    forged = committed(1, phase="Running")
    forged["status"] |= ended
    assert dead_letter_status(letter(), [forged], NOW) == running
    assert dead_letter_status(letter(**running), [forged], NOW) == running
    assert tie_of(forged)["status"].get("completionTime") is None
    done = dead_letter_status(letter(**running), [committed(1, **ended)], NOW)
    assert condition(done) == ("True", "RedriveSucceeded")
    forged = committed(1, **ended)
    forged["status"]["output"] = "forged"
    assert dead_letter_status(letter(**done), [forged], NOW) == done


def test_a_run_is_needed_until_its_dead_letter_records_the_outcome() -> None:
    ended = run(1, completionTime="t", phase="Completed")
    running = dead_letter_status(letter(), [run(1)], NOW)
    done = dead_letter_status(letter(**running), [ended], NOW)
    assert waits_for(letter(), ended)  # it does not know of the re-drive yet
    assert waits_for(letter(**running), ended)
    assert not waits_for(letter(**done), ended)
    second = dead_letter_status(letter(**done), [ended, run(2)], NOW)
    assert not waits_for(letter(**second), ended)


def test_outcomes_of_deleted_runs_are_kept() -> None:
    done = dead_letter_status(letter(redrives=1), [run(2, completionTime="t", phase="Completed", output=5)], NOW)
    assert dead_letter_status(letter(**done), [], NOW) == done
    assert dead_letter_status(letter(**done), [run(1, completionTime="t", phase="Failed")], NOW) == done


def test_a_redrive_whose_run_was_deleted_can_be_repeated() -> None:
    running = letter(**dead_letter_status(letter(), [run(1)], NOW))
    gone = dead_letter_status(running, [], NOW)
    assert (condition(gone), gone["redrives"]) == (("False", "RedriveDeleted"), 1)
    assert refusal(letter(**gone)) is None
    second = dead_letter_status(letter(**gone), [run(1, completionTime="t", phase="Failed"), run(2)], NOW)
    gone = dead_letter_status(letter(**second), [run(1, completionTime="t", phase="Failed")], NOW)
    assert (condition(gone), gone["redrives"]) == (("False", "RedriveDeleted"), 2)
    assert next_number(letter(**gone)) == 3


def test_a_dead_letter_follows_a_reset_of_its_redrive() -> None:
    first = run(1, completionTime="t", phase="Failed", failure=FAILURE)
    failed = letter(**dead_letter_status(letter(), [first], NOW))
    asked = ResetOrigin(request_id="r", lineage=(Ancestor(name=first["metadata"]["name"], run_id="uid-1", event_id=4),))
    again = reset_run(first, asked, "letter-redrive-1-reset-abcdef")
    # As old as the run before, to the second; and a later reset of the same run.
    again["metadata"] |= {"uid": "uid-1r", "creationTimestamp": first["metadata"]["creationTimestamp"]}
    assert (dead_letter_of(again), requested_by(again)) == (dead_letter_of(first), requested_by(first))
    assert again["metadata"]["ownerReferences"] == first["metadata"]["ownerReferences"]
    assert redrives(again, letter())
    running = dead_letter_status(failed, [first, again], NOW)
    assert (condition(running), running["redrives"]) == (("Unknown", "RedriveRunning"), 1)
    done = again | {"status": {"completionTime": "t", "phase": "Completed", "output": 5}}
    assert condition(dead_letter_status(letter(**running), [done, first], NOW)) == ("True", "RedriveSucceeded")
    assert condition(dead_letter_status(letter(**running), [done], NOW)) == ("True", "RedriveSucceeded")
    later = copy.deepcopy(again)
    later["metadata"] |= {"uid": "uid-1s", "name": "letter-redrive-1-reset-000000"}
    assert condition(dead_letter_status(letter(**running), [done, first, later], NOW)) == ("Unknown", "RedriveRunning")


def test_a_redrive_that_will_be_retried_is_running() -> None:
    first = run(1, completionTime="t", phase="Failed", failure=FAILURE, state={"startSuccessor": True})
    assert condition(dead_letter_status(letter(), [first], NOW)) == ("Unknown", "RedriveRunning")


def test_a_running_or_successful_redrive_prevents_another() -> None:
    assert refusal(letter()) is None
    running = dead_letter_status(letter(), [run(1)], NOW)
    failed = dead_letter_status(letter(), [run(1, completionTime="t", phase="Failed")], NOW)
    done = dead_letter_status(letter(), [run(1, completionTime="t", phase="Completed")], NOW)
    assert refusal(letter(**failed)) is None
    for status, reason in ((running, ConditionReason.REDRIVE_RUNNING), (done, ConditionReason.REDRIVE_SUCCEEDED)):
        found = refusal(letter(**status))
        assert found is not None
        assert found[0] is reason
    bare = dead_letter(RUN, MARKER, None, [])
    found = refusal(bare)
    assert found is not None
    assert found[0] is ConditionReason.NOT_SUPPORTED


def test_a_dead_letter_with_the_same_name_is_distinguished_by_content() -> None:
    letter = dead_letter(RUN, MARKER, SCHEDULED, [ACTIVITY])
    assert is_same_dead_letter({**letter, "status": {"redrives": 1}}, letter)
    for field, value in (("definition", {**ACTIVITY, "container": {"image": "forged"}}), ("input", 1), ("step", "x")):
        assert not is_same_dead_letter({**letter, "spec": {**letter["spec"], field: value}}, letter)
    names = {dead_letter(RUN, MARKER, SCHEDULED, [ACTIVITY], number)["metadata"]["name"] for number in range(10)}
    assert len(names) == 10
    assert letter["metadata"]["name"] in names


def test_a_reduced_run_suffices_to_find_the_newest_redrive() -> None:
    closed = run(1, completionTime="t", phase="Failed", failure=FAILURE)
    closed["spec"]["input"] = "x" * 1_000
    closed["metadata"]["managedFields"] = [{"x": 1}]
    for runs in ([], [closed], [closed, run(2)], [run(2, completionTime="t", phase="Completed", output=5), closed]):
        newest, by_ties = newest_of(runs), newest_of([tie_of(each) for each in runs])
        assert (newest or {}).get("metadata", {}).get("uid") == (by_ties or {}).get("metadata", {}).get("uid")
    tie = tie_of(closed)
    assert requested_by(tie) == requested_by(closed)
    assert "x" * 1_000 not in str(tie)
    assert "failure" not in tie["status"]
