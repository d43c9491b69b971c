"""Results and failures: written completely or not at all."""

import json
from datetime import timedelta
from typing import Any

import pytest

from perdure.activity import ApplicationError, CancelledError, PayloadTooLargeError, SupersededError
from perdure.activity._lease import LeaseError
from perdure.activity._payloads import error_document

RESULT, DETAILS = "perdure.dev/result", "perdure.dev/heartbeat-details"


@pytest.mark.parametrize(
    ("result", "want"),
    [
        pytest.param(None, "null", id="nothing is null"),
        pytest.param({"a": [1, 2.5, "é", True]}, '{"a":[1,2.5,"é",true]}', id="compact JSON"),
        pytest.param("x" * 4093, '"' + "x" * 4093 + '"', id="as much as fits"),
    ],
)
def test_a_small_result_is_the_termination_message(pod: Any, result: Any, want: str) -> None:
    pod.context().complete(result)
    assert pod.message_file.read_text() == want


def test_a_too_large_result_is_rejected_and_not_written(pod: Any) -> None:
    with pytest.raises(PayloadTooLargeError, match=r"4096 bytes, but the limit is 4095.*resultSize: Large"):
        pod.context().complete("x" * 4094)
    assert not pod.message_file.exists()


def test_outside_of_a_pod_the_result_is_printed(pod: Any, capsys: Any) -> None:
    pod.context(PERDURE_TERMINATION_LOG="").complete([1])
    assert capsys.readouterr().out == "[1]\n"


def test_a_large_result_is_written_to_the_lease(api: Any, pod: Any) -> None:
    pod.with_lease(None, large=True).context().complete("x" * 10_000)
    assert json.loads(api.annotations[RESULT]) == "x" * 10_000
    assert "renewTime" in api.lease["spec"]
    assert not pod.message_file.exists()


def test_a_small_result_of_a_large_activity_needs_no_api_call(api: Any, pod: Any) -> None:
    pod.with_lease(None, large=True).context().complete([1])
    assert pod.message == [1]
    assert api.requests == []


def test_the_last_of_several_results_counts(api: Any, pod: Any) -> None:
    context = pod.with_lease(None, large=True).context()
    context.complete("x" * 10_000)
    context.complete("final")
    assert json.loads(api.annotations[RESULT]) == "final"


def test_a_very_large_result_replaces_heartbeat_details(api: Any, pod: Any) -> None:
    api.annotations[DETAILS] = "1"
    context = pod.with_lease(None, large=True).context()
    context.complete("x" * 200_000)
    assert DETAILS in api.annotations
    context.complete("x" * 250_000)
    assert DETAILS not in api.annotations


def test_a_result_that_does_not_fit_into_a_lease_is_rejected(api: Any, pod: Any) -> None:
    with pytest.raises(PayloadTooLargeError, match=r"pass a reference to the data instead$"):
        pod.with_lease(None, large=True).context().complete("x" * 252 * 1024)
    assert api.requests == []


def test_a_result_that_fits_nowhere_else_is_written_to_the_file_for_large_results(api: Any, pod: Any) -> None:
    file = pod.folder / "result.json"
    context = pod.with_lease(None, large=True).context(PERDURE_RESULT_FILE=str(file))
    context.complete("x" * 100_000)
    assert not file.exists()
    context.complete("x" * 300_000)
    assert json.loads(file.read_text()) == "x" * 300_000
    context.complete("y" * 100_000)
    assert not file.exists(), "the last of several results counts"
    assert json.loads(api.annotations[RESULT]) == "y" * 100_000


def test_a_result_that_does_not_fit_on_the_disk_leaves_no_part_of_it(pod: Any) -> None:
    file = pod.folder / "result.json"
    (pod.folder / "result.json.part").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left"):
        pod.context(PERDURE_RESULT_FILE=str(file)).complete("x" * 5000)
    assert not file.exists()


def test_a_small_result_needs_no_file_for_large_results(pod: Any) -> None:
    file = pod.folder / "result.json"
    context = pod.context(PERDURE_RESULT_FILE=str(file))
    context.complete("x" * 5000)
    assert json.loads(file.read_text()) == "x" * 5000
    context.complete([1])
    assert (pod.message, file.exists()) == ([1], False)


def test_a_large_result_is_retried_until_it_is_stored(api: Any, pod: Any) -> None:
    api.answers = [500, 0, 404]
    pod.with_lease(None, large=True).context().complete("x" * 10_000)
    assert len(api.requests) == 4


def test_a_result_that_cannot_be_stored_is_an_error(api: Any, pod: Any) -> None:
    api.always = 500
    heartbeats = pod.with_lease(None, large=True).heartbeats()
    with pytest.raises(LeaseError):
        heartbeats.write_result("1", drop_details=False, patience=0)


def test_a_rejected_result_means_superseded(api: Any, pod: Any, clock: Any) -> None:
    heartbeats = pod.with_lease(60, large=True).heartbeats(clock)
    heartbeats.beat(1)
    api.always = 403
    with pytest.raises(SupersededError):
        heartbeats.write_result("1", drop_details=False)


# --- Error documents --------------------------------------------------------------------------------------------------


def raised(error: BaseException) -> BaseException:
    """The same exception with a stack trace."""
    try:
        raise error  # noqa: TRY301
    except BaseException as caught:  # noqa: BLE001
        return caught


def document(error: BaseException, limit: int = 4095) -> dict[str, Any]:
    text = error_document(raised(error), limit)
    assert len(text.encode()) <= limit
    parsed: dict[str, Any] = json.loads(text)
    assert parsed.keys() == {"error"}
    return parsed["error"]


class CardRefusedError(Exception):
    """As users make them."""


class Unprintable(Exception):  # noqa: N818
    """An exception whose message cannot be read."""

    def __str__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    ("error", "want"),
    [
        pytest.param(
            CardRefusedError("no funds"), {"type": "CardRefusedError", "message": "no funds"}, id="an exception's class"
        ),
        pytest.param(
            ApplicationError("m", type="T", details=[1], non_retryable=True, next_retry_delay=timedelta(seconds=3.5)),
            {"type": "T", "message": "m", "details": [1], "nonRetryable": True, "nextRetryDelay": "3.500000s"},
            id="an application error has all fields",
        ),
        pytest.param(
            ApplicationError("m", next_retry_delay=2),
            {"type": "ApplicationError", "message": "m", "nextRetryDelay": "2.000000s"},
            id="a delay in seconds",
        ),
        pytest.param(
            ApplicationError("m", next_retry_delay=float("nan")),
            {"type": "ApplicationError", "message": "m"},
            id="a delay that is no number",
        ),
        pytest.param(CancelledError("by ann"), {"message": "by ann", "cancelled": True}, id="a cancellation"),
        pytest.param(
            SupersededError("refused"),
            {"message": "refused", "type": "SupersededError"},
            id="a superseded attempt failed",
        ),
        pytest.param(
            PayloadTooLargeError("m"),
            {"type": "PayloadTooLarge", "message": "m", "nonRetryable": True},
            id="a payload that does not fit is final",
        ),
        pytest.param(
            Unprintable(),
            {"type": "Unprintable", "message": "(its message cannot be printed: RuntimeError)"},
            id="an exception that cannot be printed",
        ),
        pytest.param(ValueError("\ud800"), {"type": "ValueError", "message": "?"}, id="half a surrogate pair"),
        pytest.param(KeyboardInterrupt(), {"type": "KeyboardInterrupt", "message": ""}, id="any exception at all"),
    ],
)
def test_an_exception_becomes_a_document(error: BaseException, want: dict[str, Any]) -> None:
    got = document(error)
    trace = got.pop("stackTrace")
    assert "in raised" in trace
    assert got == want


def test_a_long_message_is_shortened() -> None:
    assert document(ValueError("x" * 9999))["message"] == "x" * 999 + "…"


def test_too_large_details_are_omitted_with_their_size() -> None:
    got = document(ApplicationError("m", type="T", details="x" * 5000))
    assert "details" not in got
    assert got["message"] == "m (its details were left out: 5002 bytes are too many)"


def test_details_that_are_not_json_are_omitted_with_a_note() -> None:
    got = document(ApplicationError("m", type="T", details=object()))
    assert "details" not in got
    assert "not valid JSON" in got["message"]


def test_a_stack_trace_keeps_its_end() -> None:
    def deep(levels: int) -> None:
        if levels:
            deep_too(levels - 1)
        raise ValueError("at the bottom")

    def deep_too(levels: int) -> None:
        deep(levels)

    try:
        deep(60)
    except ValueError as error:
        text = error_document(error, 2000)
    trace = json.loads(text)["error"]["stackTrace"]
    assert trace.startswith("…\n")
    assert trace.endswith("ValueError: at the bottom")


@pytest.mark.parametrize("limit", [120, 300, 1023, 4095])
def test_a_document_fits_into_any_limit(limit: int) -> None:
    document(ApplicationError("é\n" * 5000, type="T", details="x" * 3000), limit)
