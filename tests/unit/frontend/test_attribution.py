"""The user of a request is in the audit log, and in the history as Temporal's clients read it."""

from contextlib import nullcontext
from datetime import UTC, datetime
from typing import Any

import pytest
import structlog
from temporalio.api.workflowservice.v1 import (
    CountWorkflowExecutionsRequest,
    ExecuteMultiOperationRequest,
    PatchScheduleRequest,
    RespondActivityTaskCompletedByIdRequest,
    SignalWorkflowExecutionRequest,
    StartWorkflowExecutionRequest,
    StartWorkflowExecutionResponse,
)

from perdure.engine import events as ev
from perdure.frontend.errors import invalid, not_found
from perdure.frontend.messages.histories import Historian
from perdure.frontend.transport.rpc import recorded

USER = "system:serviceaccount:orders:shop"


def lines(rpc: str, request: Any, response: Any = None, error: Exception | None = None) -> list[Any]:
    expected = pytest.raises(type(error)) if error is not None else nullcontext()
    with structlog.testing.capture_logs() as found, expected, recorded(rpc, USER, "10.0.0.1") as record:
        record.request, record.response = request, response
        if error is not None:
            raise error
    return list(found)


def test_a_changing_call_is_logged_with_user_and_run() -> None:
    request = StartWorkflowExecutionRequest(namespace="orders", workflow_id="order-17", identity="me@laptop")
    (line,) = lines("StartWorkflowExecution", request, StartWorkflowExecutionResponse(run_id="uid-1"))
    assert line == {
        "event": "RPC",
        "log_level": "info",
        "rpc": "StartWorkflowExecution",
        "user": USER,
        "address": "10.0.0.1",
        "outcome": "OK",
        "namespace": "orders",
        "workflow_id": "order-17",
        "run_id": "uid-1",
        "identity": "me@laptop",
    }


def test_a_failed_call_is_logged() -> None:
    request = SignalWorkflowExecutionRequest(namespace="orders")
    request.workflow_execution.workflow_id = "order-17"
    (line,) = lines("SignalWorkflowExecution", request, error=not_found("no such workflow"))
    assert (line["outcome"], line["workflow_id"]) == ("NOT_FOUND", "order-17")
    (line,) = lines("SignalWorkflowExecution", request, error=ValueError("x"))
    assert line["outcome"] == "ValueError"
    (line,) = lines("SignalWorkflowExecution", None, error=not_found("the message was not read"))
    assert line["outcome"] == "NOT_FOUND"


def test_ids_in_a_log_line_are_truncated() -> None:
    request = StartWorkflowExecutionRequest(namespace="orders", workflow_id="x" * 4_000_000, identity="y" * 1_001)
    (line,) = lines("StartWorkflowExecution", request, error=invalid("WorkflowId length exceeds limit."))
    assert (len(line["workflow_id"]), len(line["identity"])) == (1_000, 1_000)


def test_schedules_and_all_operations_of_a_call_are_logged() -> None:
    (line,) = lines("PatchSchedule", PatchScheduleRequest(namespace="orders", schedule_id="nightly"))
    assert line["schedule_id"] == "nightly"
    both = ExecuteMultiOperationRequest(namespace="orders")
    both.operations.add().start_workflow.workflow_id = "order-17"
    (line,) = lines("ExecuteMultiOperation", both)
    assert line["workflow_id"] == "order-17"


@pytest.mark.parametrize("rpc", ["CountWorkflowExecutions", "PollWorkflowTaskQueue", "RespondActivityTaskCompleted"])
def test_calls_that_read_and_calls_of_workers_are_not_logged(rpc: str) -> None:
    assert lines(rpc, CountWorkflowExecutionsRequest(namespace="orders")) == []


def test_completions_by_id_are_logged_and_others_only_if_rejected() -> None:
    by_id = RespondActivityTaskCompletedByIdRequest(namespace="orders", workflow_id="order-17", activity_id="charge")
    (line,) = lines("RespondActivityTaskCompletedById", by_id)
    assert (line["user"], line["workflow_id"], line["activity_id"]) == (USER, "order-17", "charge")
    (line,) = lines("RespondActivityTaskFailed", None, error=invalid("Invalid TaskToken."))
    assert (line["user"], line["outcome"]) == (USER, "INVALID_ARGUMENT")


def test_the_user_is_the_principal_of_an_event() -> None:
    time = datetime(2026, 1, 1, tzinfo=UTC)
    event = ev.WorkflowExecutionSignaled(event_id=2, event_time=time, signal_name="go", identity="me", principal=USER)
    made = Historian("orders", lambda _: "").one(event)
    assert (made.principal.type, made.principal.name) == ("kubernetes", USER)
    event = ev.WorkflowExecutionSignaled(event_id=2, event_time=time, signal_name="go", identity="me")
    assert not Historian("orders", lambda _: "").one(event).HasField("principal")
