from datetime import UTC, datetime, timedelta

import pytest

from perdure.api.conditions import MAX_MESSAGE, Condition, ConditionStatus, find_condition, set_condition
from perdure.api.reasons import ConditionReason, ConditionType

THEN = datetime(2026, 1, 1, tzinfo=UTC)
NOW = THEN + timedelta(hours=1)


def running(message: str = "") -> list[Condition]:
    return set_condition([], ConditionType.SUCCEEDED, None, ConditionReason.RUNNING, message, now=THEN)


def test_the_first_time_sets_the_transition_time() -> None:
    (condition,) = running()
    assert condition.dump() == {
        "type": "Succeeded",
        "status": "Unknown",
        "reason": "Running",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }


def test_another_reason_keeps_the_transition_time() -> None:
    before = running()
    (after,) = set_condition(before, ConditionType.SUCCEEDED, None, ConditionReason.PAUSED, "by me", now=NOW)
    assert (after.reason, after.message, after.last_transition_time) == ("Paused", "by me", THEN)


def test_another_status_moves_the_transition_time() -> None:
    (after,) = set_condition(running(), ConditionType.SUCCEEDED, True, ConditionReason.COMPLETED, now=NOW)
    assert (after.status, after.last_transition_time) == (ConditionStatus.TRUE, NOW)


def test_nothing_new_is_equal_so_that_nothing_is_written() -> None:
    assert set_condition(running(), ConditionType.SUCCEEDED, None, ConditionReason.RUNNING, now=NOW) == running()


def test_others_stay_where_they_are_and_the_old_list_is_not_changed() -> None:
    before = [*running(), *set_condition([], ConditionType.PAUSED, False, ConditionReason.NOT_PAUSED, now=THEN)]
    after = set_condition(before, ConditionType.SUCCEEDED, False, ConditionReason.FAILED, now=NOW)
    assert [condition.type for condition in after] == ["Succeeded", "Paused"]
    assert before[0].reason == "Running"
    assert after[1] is before[1]


def test_a_message_that_is_too_long_is_cut_visibly() -> None:
    (condition,) = running("x" * (MAX_MESSAGE + 1))
    assert len(condition.message) == MAX_MESSAGE
    assert condition.message.endswith("x…")


@pytest.mark.parametrize(
    ("status", "want"),
    [(True, "True"), (False, "False"), (None, "Unknown"), (ConditionStatus.UNKNOWN, "Unknown")],
)
def test_a_status_may_be_told_as_a_bool(status: ConditionStatus | bool | None, want: str) -> None:
    assert set_condition([], ConditionType.READY, status, ConditionReason.ACCEPTED, now=NOW)[0].status == want


def test_find() -> None:
    assert find_condition(running(), "Ready") is None
    assert find_condition(running(), "Succeeded") is not None
