"""The action that an Operation requires, and the status that the operator writes."""

from datetime import UTC, datetime
from typing import Any

import pytest

from perdure.controller.directory import entry_of
from perdure.controller.errors import RefusedError
from perdure.controller.operations.operation import (
    DeliverToRun,
    DeliverToSchedule,
    RedriveDeadLetter,
    ResetRun,
    action_of,
)
from perdure.controller.operations.status import OperationAnswer, finished, running
from perdure.controller.reconcile.newer_states import NewerStateError
from perdure.engine.inputs import Answer, SignalRequested

NOW = datetime(2026, 1, 1, tzinfo=UTC)
RUN = {"kind": "WorkflowRun", "name": "order-42"}


def operation(status: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    meta = {"name": "ask", "namespace": "shop", "uid": "u-1", "resourceVersion": "120", "generation": 1}
    return {"metadata": meta, "spec": spec, "status": status or {}}


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        ({"target": RUN, "signal": {"name": "go"}}, DeliverToRun),
        ({"target": RUN, "reset": {"to": "FirstWorkflowTask", "reason": "again"}}, ResetRun),
        ({"target": {"kind": "Schedule", "name": "nightly"}, "trigger": {}}, DeliverToSchedule),
        ({"target": {"kind": "DeadLetter", "name": "charge"}, "redrive": {}}, RedriveDeadLetter),
    ],
    ids=["a signal", "a reset", "a trigger of a Schedule", "a re-drive"],
)
def test_the_spec_of_an_operation_determines_its_action(spec: dict[str, Any], want: type[Any]) -> None:
    assert isinstance(action_of(operation(**spec)), want)


def test_the_uid_of_an_operation_is_the_id_of_its_request() -> None:
    action = action_of(operation(target=RUN, signal={"name": "go"}))
    assert isinstance(action, DeliverToRun)
    assert isinstance(action.request, SignalRequested)
    assert (action.request.request_id, action.request.identity) == ("u-1", "operation/ask")


def test_an_operation_with_an_invalid_spec_is_rejected_with_the_field() -> None:
    with pytest.raises(RefusedError, match=r"spec\.signal\.name: must be set") as caught:
        action_of(operation(target=RUN, signal={}))
    assert caught.value.reason == "InvalidSpec"


def test_an_operation_with_a_field_that_the_api_server_knows_and_this_version_does_not_is_left_to_a_newer_one() -> None:
    with pytest.raises(NewerStateError, match=r"unknown field `spec\.signal\.lane`"):
        action_of(operation(target=RUN, signal={"name": "go", "lane": "fast"}))


def test_the_targeted_run_and_the_place_in_the_order_are_recorded_before_delivery() -> None:
    entry = entry_of({"metadata": {"namespace": "shop", "name": "order-42", "uid": "r-1"}, "spec": {}})
    status = running(operation(target=RUN, signal={"name": "go"}), entry, NOW)
    assert (status["phase"], status["runId"], status["arrival"], status["verb"]) == ("Running", "r-1", 120, "signal")


@pytest.mark.parametrize(
    ("answer", "phase", "reason"),
    [
        (Answer(ok=True), "Complete", "Done"),
        (Answer(ok=True, reason="SignalNotAwaited", message="never"), "Complete", "SignalNotAwaited"),
        (Answer(ok=True, reason="Deferred", message="later"), "Complete", "Deferred"),
        (Answer(ok=False, reason="TargetNotFound", message="deleted"), "Failed", "TargetNotFound"),
    ],
    ids=["done", "done with a warning", "done later", "failed"],
)
def test_an_answer_becomes_a_condition(answer: Answer, phase: str, reason: str) -> None:
    started = {"startTime": "2025-12-31T00:00:00Z", "runId": "r-1"}
    status = finished(operation(started, target=RUN, signal={"name": "go"}), OperationAnswer(answer), NOW)
    condition = status["conditions"][-1]
    assert (status["phase"], condition["type"], condition["reason"]) == (phase, phase, reason)
    assert status["startTime"] == started["startTime"]
    assert status["completionTime"]
    assert "result" not in status
