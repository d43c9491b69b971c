"""Attempts with a sidecar, which hands over what the activity has left in files."""

from typing import Any

import pytest

from perdure.api.reserved import SIDECAR
from perdure.engine.inputs import AttemptCompleted
from unit.runtime.outcomes import document, failure_of, tell


def beside(make: Any, main: dict[str, Any], sidecar: dict[str, Any], **fields: Any) -> Any:
    """What is told of a pod with our sidecar."""
    attempt = make.with_attempt(sidecar=True)
    definition = make.activity(sidecar={})
    fields.setdefault("phase", "Running")
    lease = fields.pop("lease", None)
    pod = make.pod(main, attempt=attempt, definition=definition, init=(sidecar,), **fields)
    return tell(make, pod, lease and make.lease(attempt, **lease), attempt=attempt, definition=definition)


def ours(make: Any, exit_code: int | None, message: str = "") -> dict[str, Any]:
    found: dict[str, Any] = (
        make.running(SIDECAR) if exit_code is None else make.terminated(exit_code, name=SIDECAR, message=message)
    )
    return found


@pytest.mark.parametrize("exit_code", [0, 1])
def test_what_the_activity_left_in_files_is_waited_for(make: Any, exit_code: int) -> None:
    assert beside(make, make.terminated(exit_code), ours(make, None)) is None


def test_a_result_comes_with_the_end_of_the_sidecar(make: Any) -> None:
    told = beside(make, make.terminated(0), ours(make, 0, '{"a":1}'))
    assert isinstance(told, AttemptCompleted)
    assert told.result == {"a": 1}


def test_a_large_one_stands_on_the_lease(make: Any) -> None:
    told = beside(make, make.terminated(0), ours(make, 0), lease={"result": '"large"'})
    assert isinstance(told, AttemptCompleted)
    assert told.result == "large"


def test_without_a_file_the_activitys_own_message_counts(make: Any) -> None:
    told = beside(make, make.terminated(0, message="7"), ours(make, 0))
    assert isinstance(told, AttemptCompleted)
    assert told.result == 7


def test_a_result_that_could_not_be_handed_over_fails_the_attempt(make: Any) -> None:
    document_ = document(type="PayloadTooLarge", message="too large", nonRetryable=True)
    failure = failure_of(beside(make, make.terminated(0), ours(make, 1, document_)))
    assert (failure.type, failure.non_retryable) == ("PayloadTooLarge", True)
    assert failure_of(beside(make, make.terminated(0), ours(make, 137))).type == "ResultMissing"


def test_an_activity_that_failed_is_judged_by_itself(make: Any) -> None:
    assert failure_of(beside(make, make.terminated(3), ours(make, 0, '"half"'))).type == "ExitCode3"


def test_a_sidecar_whose_end_nobody_will_tell_is_not_waited_for(make: Any) -> None:
    told = beside(make, make.terminated(0, message="7"), ours(make, None), phase="Succeeded")
    assert isinstance(told, AttemptCompleted)
    assert told.result == 7
