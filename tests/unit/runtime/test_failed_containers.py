"""The failures of attempts whose containers failed."""

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.engine.failures import Failure, FailureKind
from perdure.runtime.attempt_outcomes import LOG_LIMIT, tail
from unit.runtime.attempt_outcomes import STARTED, TOO_MUCH_MEMORY, document, failure_of, outcome_of

# --- Failed: exit codes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("end", "want_type", "want_message"),
    [
        pytest.param({"exit_code": 3}, "ExitCode3", "container activity failed (exit code 3)", id="an exit code"),
        pytest.param(
            {"exit_code": 255}, "ExitCode255", "container activity failed (exit code 255)", id="255 is no signal"
        ),
        pytest.param(
            {"exit_code": 137, "reason": "OOMKilled"},
            "OOMKilled",
            TOO_MUCH_MEMORY,
            id="out of memory",
        ),
        pytest.param(
            {"exit_code": 139}, "SIGSEGV", "container activity was killed by SIGSEGV (exit code 139)", id="a signal"
        ),
        pytest.param(
            {"exit_code": 1, "signal": 9},
            "SIGKILL",
            "container activity was killed by SIGKILL (exit code 1)",
            id="a signal that the runtime names",
        ),
        pytest.param(
            {"exit_code": 128, "reason": "StartError", "message": 'exec: "chrage": executable file not found'},
            "StartError",
            "container activity could not be started (StartError, exit code 128); check that the image contains its `command`:\n"
            'exec: "chrage": executable file not found',
            id="a missing command",
        ),
        pytest.param(
            {"exit_code": 64}, "InvalidInput", "container activity failed (exit code 64)", id="a declared code"
        ),
        pytest.param(
            {"exit_code": 137, "reason": "OOMKilled", "mapped": 137},
            "InvalidInput",
            TOO_MUCH_MEMORY,
            id="a declared exit code overrides the reason of Kubernetes",
        ),
        pytest.param(
            {"exit_code": 1, "message": "a\nb\n"},
            "ExitCode1",
            "container activity failed (exit code 1):\na\nb",
            id="the end of the log is kept",
        ),
        pytest.param(
            {"exit_code": None},
            "ExitCode-1",
            "container activity failed (exit code -1)",
            id="no exit code is no success",
        ),
    ],
)
def test_a_failed_container_has_type_and_message(
    make: Any, end: dict[str, Any], want_type: str, want_message: str
) -> None:
    codes = [64, end.pop("mapped", 65)]
    definition = make.activity(failureTypes=[{"exitCodes": codes, "type": "InvalidInput", "nonRetryable": True}])
    code = end.pop("exit_code")
    reported = outcome_of(make, make.pod(make.terminated(code, **end), phase="Failed"), definition=definition)
    failure = failure_of(reported)
    assert (failure.type, failure.message) == (want_type, want_message)
    assert failure.kind is FailureKind.APPLICATION
    assert failure.non_retryable is (want_type == "InvalidInput")
    assert reported.started_time == STARTED


def test_the_details_contain_the_exit_code_and_signal(make: Any) -> None:
    failure = failure_of(outcome_of(make, make.pod(make.terminated(137), phase="Failed")))
    assert failure.details == {"container": "activity", "exitCode": 137, "reason": "Error", "signal": "SIGKILL"}


def test_a_long_log_keeps_its_end(make: Any) -> None:
    message = failure_of(outcome_of(make, make.pod(make.terminated(1, message="x" * 3000 + "the end")))).message
    assert len(message) <= 2048
    assert message.endswith("the end")
    assert "\n…" in message


def test_a_failure_counts_while_a_sidecar_runs(make: Any) -> None:
    assert failure_of(outcome_of(make, make.pod(make.running("sidecar"), make.terminated(1)))).type == "ExitCode1"


# --- Failed: error documents ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "want"),
    [
        pytest.param(
            document(
                type="CardRefused", message="no funds", details={"code": 7}, nonRetryable=True, nextRetryDelay="3.5s"
            ),
            {
                "type": "CardRefused",
                "message": "no funds",
                "details": {"code": 7},
                "non_retryable": True,
                "next_retry_delay": timedelta(seconds=3.5),
            },
            id="all fields are used",
        ),
        pytest.param(
            document(type="A"), {"type": "A", "message": "container activity failed with A"}, id="only a type"
        ),
        pytest.param(
            document(message="m"), {"type": "Declared", "message": "m", "non_retryable": True}, id="only a message"
        ),
        pytest.param(
            document(type="A", message="m", nextRetryDelay="1h30m"),
            {"type": "A", "message": "m", "next_retry_delay": timedelta(minutes=90)},
            id="a delay in Kubernetes' form",
        ),
        pytest.param(
            document(type="A", message="m", nextRetryDelay="soon"),
            {"type": "A", "message": "m (nextRetryDelay 'soon' is not a valid duration and was ignored)"},
            id="an invalid delay is ignored",
        ),
        pytest.param(
            document(type="A", message="m", nextRetryDelay=[1]),
            {"type": "A", "message": "m (nextRetryDelay '[1]' is not a valid duration and was ignored)"},
            id="a delay that is not a string is ignored",
        ),
        pytest.param(
            document(type="A", message="m", nonRetryable="yes", stackTrace="t"),
            {"type": "A", "message": "m", "stack_trace": "t"},
            id="only true is true",
        ),
        pytest.param(
            document(type=5, message="m"),
            {"type": "Declared", "message": "m", "non_retryable": True},
            id="a type that is a number is ignored",
        ),
        pytest.param(
            document(type="T" * 999, message="m"), {"type": "T" * 256, "message": "m"}, id="a type has limits"
        ),
    ],
)
def test_an_error_document_describes_the_failure(make: Any, message: str, want: dict[str, Any]) -> None:
    definition = make.activity(failureTypes=[{"exitCodes": [1], "type": "Declared", "nonRetryable": True}])
    failure = failure_of(outcome_of(make, make.pod(make.terminated(1, message=message)), definition=definition))
    assert failure == Failure(kind=FailureKind.APPLICATION, **want)


def test_an_activity_that_stops_on_request_is_cancelled(make: Any) -> None:
    message = document(cancelled=True, message="asked by ann", details=3)
    failure = failure_of(outcome_of(make, make.pod(make.terminated(1, message=message))))
    assert failure == Failure(kind=FailureKind.CANCELLED, message="asked by ann", details=3)


@pytest.mark.parametrize(
    "message",
    [
        pytest.param('{"error": "text"}', id="an error that is a text"),
        pytest.param('{"error": {}}', id="an empty error"),
        pytest.param('{"error": {"code": 5}}', id="an error of another form"),
        pytest.param("[1]", id="other JSON"),
        pytest.param('log line\n{"error": {"type": "A"}}', id="a document among log lines"),
    ],
)
def test_a_message_that_is_not_an_error_document_is_a_log(make: Any, message: str) -> None:
    failure = failure_of(outcome_of(make, make.pod(make.terminated(1, message=message))))
    assert failure.type == "ExitCode1"
    assert failure.message.endswith(message)


# --- Failed: the pod --------------------------------------------------------------------------------------------------


def test_a_failed_init_container_is_named(make: Any) -> None:
    definition = make.activity(failureTypes=[{"exitCodes": [64], "type": "InvalidInput"}])
    pod = make.pod(
        make.waiting("PodInitializing"), phase="Failed", init=(make.terminated(64, name="fetch", message="no route"),)
    )
    reported = outcome_of(make, pod, definition=definition)
    failure = failure_of(reported)
    assert failure.type == "InitContainerFailed"
    assert failure.message == "init container fetch failed (exit code 64):\nno route"
    assert reported.started_time is None


@given(st.text(max_size=3000), st.integers(1, 4))
def test_the_tail_of_a_log_is_limited_to_4_kib(text: str, times: int) -> None:
    end = tail(text * times)
    assert len(end.encode()) <= LOG_LIMIT
    assert (text * times).rstrip().endswith(end)


def test_the_tail_of_a_log_starts_with_a_complete_line() -> None:
    log = "".join(f"line {number}\n" for number in range(1000))
    assert tail(log).startswith("line ")
    assert tail("x" * 5000) == "x" * LOG_LIMIT
