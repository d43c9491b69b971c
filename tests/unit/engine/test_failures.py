"""The text of a failure, which contains the failure types, and the limits of a recorded failure."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.api.json_values import nests_deeper
from perdure.engine.failures import MAX_SIZE, Failure, FailureKind, bounded, full_message_of, shorten
from perdure.language.step_failures import as_json

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
def test_a_failure_is_formatted_with_its_types(failure: Failure, want: str) -> None:
    assert failure.full_message == want
    assert full_message_of(as_json(failure)) == want


def test_an_unreadable_failure_keeps_its_message() -> None:
    assert full_message_of({"kind": "Of a newer version", "message": "no"}) == "no"
    assert full_message_of(None) == ""


@pytest.mark.parametrize(
    ("text", "limit", "want"),
    [("abcdef", 6, "abcdef"), ("abcdefghij", 9, "abc … hij"), ("abcdefghij", 8, "abc … ij"), ("abcdef", 0, " … ")],
)
def test_a_long_text_is_cut_in_the_middle(text: str, limit: int, want: str) -> None:
    assert shorten(text, limit) == want


def size(failure: Failure) -> int:
    return len(msgspec.json.encode(failure))


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def wrapped(failure: Failure, times: int) -> Failure:
    for number in range(times):
        message = f"step `again`: child workflow `{number}` failed: {failure.message}"
        failure = Failure(kind=FailureKind.CHILD_WORKFLOW, message=message, workflow_id="w" * 500, cause=failure)
    return failure


LONG = application("KeyError", "m" * 4_000, stack_trace="s" * 9_000, log="l" * 4_000, details={"left": 0})


def test_a_failure_that_fits_is_recorded_unchanged() -> None:
    for failure in (KEY, ACTIVITY, wrapped(LONG, 5)):
        assert bounded(failure) is failure


def test_causes_in_the_middle_are_cut_before_the_first_and_the_last() -> None:
    failure = wrapped(LONG, 20)
    assert size(failure) > MAX_SIZE
    outermost, *between, innermost = bounded(failure).chain()
    assert (outermost.message, innermost) == (failure.message, LONG)
    assert [each.workflow_id for each in between] == [each.workflow_id for each in failure.chain()[1:-1]]
    assert all(each.message.endswith("m" * 500) and len(each.message) < 1_100 for each in between)
    assert size(bounded(failure)) <= MAX_SIZE


def test_a_value_that_is_too_large_or_too_deep_is_omitted() -> None:
    for details in ("d" * MAX_SIZE, nested(240)):
        failure = bounded(wrapped(application("KeyError", "no", details=details, stack_trace="s"), 3))
        assert failure.chain()[-1] == application("KeyError", "no", stack_trace="s")
    deep = application("KeyError", "no", details=nested(180))
    assert bounded(wrapped(deep, 20)).chain()[-1] == deep
    assert bounded(wrapped(deep, 60)).chain()[-1].details is None


TEXTS = st.builds(lambda letter, count: letter * count, st.sampled_from("aé\n\x01😀"), st.integers(0, 30_000))
FAILURES = st.recursive(
    st.builds(
        Failure,
        kind=st.sampled_from(FailureKind),
        type=st.none() | TEXTS,
        message=TEXTS,
        stack_trace=st.none() | TEXTS,
        details=st.none() | TEXTS | st.integers(0, 300).map(nested),
    ),
    lambda inner: st.builds(
        lambda failure, cause, times, suppressed: msgspec.structs.replace(
            failure, cause=wrapped(cause, times), suppressed=tuple(suppressed)
        ),
        inner,
        inner,
        st.integers(0, 60),
        st.lists(inner, max_size=5).map(lambda causes: causes * 40),
    ),
    max_leaves=5,
)


@given(FAILURES, st.sampled_from([2_048, 10_000, MAX_SIZE]))
def test_every_failure_can_be_recorded(failure: Failure, limit: int) -> None:
    kept = bounded(failure, limit)
    assert size(kept) <= limit
    assert not nests_deeper(msgspec.to_builtins(kept), 220)
    assert kept.kind is failure.kind
    assert bounded(kept, limit) is kept
