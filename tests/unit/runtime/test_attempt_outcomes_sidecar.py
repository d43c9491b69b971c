"""Attempts with a sidecar, which reports the result that the activity wrote to files."""

from typing import Any

import pytest

from perdure.api.pods import SIDECAR
from perdure.engine.inputs import AttemptCompleted
from unit.runtime.attempt_outcomes import document, failure_of, outcome_of


def beside(make: Any, main: dict[str, Any], sidecar: dict[str, Any], **fields: Any) -> Any:
    """The outcome of a pod with Perdure's sidecar."""
    attempt = make.with_attempt(sidecar=True)
    definition = make.activity(sidecar={})
    fields.setdefault("phase", "Running")
    lease = fields.pop("lease", None)
    pod = make.pod(main, attempt=attempt, definition=definition, init=(sidecar,), **fields)
    return outcome_of(make, pod, lease and make.lease(attempt, **lease), attempt=attempt, definition=definition)


def ours(make: Any, exit_code: int | None, message: str = "") -> dict[str, Any]:
    found: dict[str, Any] = (
        make.running(SIDECAR) if exit_code is None else make.terminated(exit_code, name=SIDECAR, message=message)
    )
    return found


@pytest.mark.parametrize("exit_code", [0, 1])
def test_an_attempt_waits_for_its_sidecar(make: Any, exit_code: int) -> None:
    assert beside(make, make.terminated(exit_code), ours(make, None)) is None


def test_the_result_is_read_when_the_sidecar_ends(make: Any) -> None:
    reported = beside(make, make.terminated(0), ours(make, 0, '{"a":1}'))
    assert isinstance(reported, AttemptCompleted)
    assert reported.result == {"a": 1}


def test_a_large_result_is_read_from_the_lease(make: Any) -> None:
    reported = beside(make, make.terminated(0), ours(make, 0), lease={"result": '"large"'})
    assert isinstance(reported, AttemptCompleted)
    assert reported.result == "large"


def test_without_a_result_file_the_message_of_the_activity_is_the_result(make: Any) -> None:
    reported = beside(make, make.terminated(0, message="7"), ours(make, 0))
    assert isinstance(reported, AttemptCompleted)
    assert reported.result == 7


def test_a_result_that_the_sidecar_cannot_report_fails_the_attempt(make: Any) -> None:
    document_ = document(type="PayloadTooLarge", message="too large", nonRetryable=True)
    failure = failure_of(beside(make, make.terminated(0), ours(make, 1, document_)))
    assert (failure.type, failure.non_retryable) == ("PayloadTooLarge", True)
    assert failure_of(beside(make, make.terminated(0), ours(make, 137))).type == "ResultMissing"


def test_a_failed_activity_is_a_failure_whatever_the_sidecar_reports(make: Any) -> None:
    assert failure_of(beside(make, make.terminated(3), ours(make, 0, '"half"'))).type == "ExitCode3"


def test_an_attempt_does_not_wait_for_a_sidecar_of_a_finished_pod(make: Any) -> None:
    reported = beside(make, make.terminated(0, message="7"), ours(make, None), phase="Succeeded")
    assert isinstance(reported, AttemptCompleted)
    assert reported.result == 7
