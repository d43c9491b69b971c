"""What the condition `Ready` of a Workflow says."""

from datetime import UTC, datetime, timedelta
from typing import Any

from perdure.api.reasons import ConditionReason
from perdure.api.workflow import Activity
from perdure.controller.readiness import status, verdict
from perdure.language.program import Finding, Severity
from perdure.runtime.attempts import PodSettings
from perdure.runtime.pods import build_trial

T0 = datetime(2026, 1, 1, tzinfo=UTC)
ERROR = Finding("spec.steps[0]", "is wrong")
WARNING = Finding("spec.steps[1]", "looks wrong", Severity.WARNING)
NOTE = Finding("spec.steps[2]", "is worth a look", Severity.NOTE)


def test_errors_make_a_workflow_not_ready_and_are_all_that_is_told() -> None:
    assert verdict([ERROR, WARNING]) == (False, ConditionReason.INVALID_SPEC, "spec.steps[0]: is wrong")


def test_warnings_stand_in_the_message_of_one_that_is_ready_and_notes_do_not() -> None:
    want = "can be run, but look at: spec.steps[1]: looks wrong"
    assert verdict([WARNING, NOTE]) == (True, ConditionReason.ACCEPTED, want)
    assert verdict([NOTE]) == (True, ConditionReason.ACCEPTED, "")


def test_of_many_findings_the_first_are_told() -> None:
    message = verdict([ERROR] * 12)[2]
    assert message.count("is wrong") == 10
    assert message.endswith("; and 2 more: `perdure lint` tells all")


def test_a_status_that_says_the_same_is_the_same() -> None:
    accepted: dict[str, Any] = status({}, True, ConditionReason.ACCEPTED, "", generation=1, now=T0)
    assert accepted["observedGeneration"] == accepted["conditions"][0]["observedGeneration"] == 1
    later = T0 + timedelta(hours=1)
    assert status(accepted, True, ConditionReason.ACCEPTED, "", generation=1, now=later) == accepted
    refused = status(accepted, False, ConditionReason.INVALID_SPEC, "x", generation=2, now=later)
    assert refused["conditions"][0]["status"] == "False"
    assert refused["conditions"][0]["lastTransitionTime"] > accepted["conditions"][0]["lastTransitionTime"]


def test_a_trial_is_the_pod_of_no_run() -> None:
    activity = Activity.parse(
        {"name": "work", "startToCloseTimeout": "1m", "heartbeatTimeout": "5s", "container": {"image": "i"}}
    )
    pod = build_trial("shop", activity, PodSettings())
    assert pod["spec"]["containers"][0]["image"] == "i"
    assert "ownerReferences" not in pod["metadata"]
    assert "finalizers" not in pod["metadata"]
    assert pod["metadata"]["labels"] == {}
    assert pod["spec"].get("serviceAccountName") is None
