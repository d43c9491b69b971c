"""What people read of a failure: always with the types of what has failed."""

from typing import Any

import pytest

from perdure.engine.failures import Failure, FailureKind, full_message_of
from perdure.language.failures import as_json

KEY = Failure(kind=FailureKind.APPLICATION, type="KeyError", message="'n'")
ACTIVITY = Failure(kind=FailureKind.ACTIVITY, message="step `a`: activity `x` failed after 1 attempt: 'n'", cause=KEY)


def application(type_: str, message: str, **more: Any) -> Failure:
    return Failure(kind=FailureKind.APPLICATION, type=type_, message=message, **more)


@pytest.mark.parametrize(
    ("failure", "want"),
    [
        (KEY, "KeyError: 'n'"),
        (application("KeyError", ""), "KeyError"),
        (application("KeyError", "KeyError: 'n'"), "KeyError: 'n'"),
        (ACTIVITY, "step `a`: activity `x` failed after 1 attempt: KeyError: 'n'"),
        (
            Failure(kind=FailureKind.CHILD_WORKFLOW, message=f"child `c` failed: {ACTIVITY.message}", cause=ACTIVITY),
            "child `c` failed: step `a`: activity `x` failed after 1 attempt: KeyError: 'n'",
        ),
        (
            Failure(kind=FailureKind.ACTIVITY, message="Activity task failed", cause=KEY),
            "Activity task failed: KeyError: 'n'",
        ),
        (application("OrderFailed", "no such item: 'n'", cause=KEY), "OrderFailed: no such item: KeyError: 'n'"),
        (
            Failure(
                kind=FailureKind.ACTIVITY,
                message=f"{ACTIVITY.message}; then failed as well: 'n'; then failed as well: late",
                cause=KEY,
                suppressed=(KEY, application("TooLate", "late")),
            ),
            (
                "step `a`: activity `x` failed after 1 attempt: KeyError: 'n'; then failed as well: KeyError: 'n'; "
                "then failed as well: TooLate: late"
            ),
        ),
        (
            Failure(kind=FailureKind.CANCELLED, message="cancelled, and then failed as well: 'n'", suppressed=(KEY,)),
            "cancelled, and then failed as well: KeyError: 'n'",
        ),
        (
            Failure(kind=FailureKind.TIMEOUT, message="activity StartToClose timeout after 10s"),
            "activity StartToClose timeout after 10s",
        ),
        (Failure(kind=FailureKind.SERVER, message="pod p was deleted"), "pod p was deleted"),
    ],
)
def test_a_failure_is_told_with_its_types(failure: Failure, want: str) -> None:
    assert failure.full_message == want
    assert full_message_of(as_json(failure)) == want


def test_a_failure_that_cannot_be_read_keeps_its_message() -> None:
    assert full_message_of({"kind": "Of a newer version", "message": "no"}) == "no"
    assert full_message_of(None) == ""
