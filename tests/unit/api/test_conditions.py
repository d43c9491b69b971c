from datetime import UTC, datetime, timedelta

import pytest

from perdure.api.kinds.status import MAX_MESSAGE, Condition, find_condition, set_condition
from perdure.api.reasons import ConditionReason, ConditionStatus, ConditionType

THEN = datetime(2026, 1, 1, tzinfo=UTC)
NOW = THEN + timedelta(hours=1)


def running(message: str = "") -> list[Condition]:
    return set_condition([], ConditionType.SUCCEEDED, None, ConditionReason.RUNNING, message, now=THEN)


def test_a_new_condition_sets_the_transition_time() -> None:
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


def test_another_status_changes_the_transition_time() -> None:
    (after,) = set_condition(running(), ConditionType.SUCCEEDED, True, ConditionReason.COMPLETED, now=NOW)
    assert (after.status, after.last_transition_time) == (ConditionStatus.TRUE, NOW)


def test_an_unchanged_condition_is_equal() -> None:
    assert set_condition(running(), ConditionType.SUCCEEDED, None, ConditionReason.RUNNING, now=NOW) == running()


def test_other_conditions_keep_their_place_and_the_old_list_is_unchanged() -> None:
    before = [*running(), *set_condition([], ConditionType.PAUSED, False, ConditionReason.NOT_PAUSED, now=THEN)]
    after = set_condition(before, ConditionType.SUCCEEDED, False, ConditionReason.FAILED, now=NOW)
    assert [condition.type for condition in after] == ["Succeeded", "Paused"]
    assert before[0].reason == "Running"
    assert after[1] is before[1]


def test_a_too_long_message_is_truncated_with_an_ellipsis() -> None:
    (condition,) = running("x" * (MAX_MESSAGE + 1))
    assert len(condition.message) == MAX_MESSAGE
    assert condition.message.endswith("x…")


@pytest.mark.parametrize(
    ("status", "want"),
    [(True, "True"), (False, "False"), (None, "Unknown"), (ConditionStatus.UNKNOWN, "Unknown")],
)
def test_a_status_can_be_given_as_a_bool(status: ConditionStatus | bool | None, want: str) -> None:
    assert set_condition([], ConditionType.READY, status, ConditionReason.ACCEPTED, now=NOW)[0].status == want


def test_find_condition_returns_the_condition_of_a_type() -> None:
    assert find_condition(running(), "Ready") is None
    assert find_condition(running(), "Succeeded") is not None
