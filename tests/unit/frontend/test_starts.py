"""Clients start code or Workflows that exist: nothing that they send describes a pod."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from google.protobuf.descriptor import FieldDescriptor
from temporalio.api.common.v1 import Payload
from temporalio.api.schedule.v1 import Schedule
from temporalio.api.workflow.v1 import NewWorkflowExecutionInfo
from temporalio.api.workflowservice.v1 import SignalWithStartWorkflowExecutionRequest, StartWorkflowExecutionRequest

from perdure.api import labels
from perdure.engine.starts import StartExtras
from perdure.frontend.errors import RpcError
from perdure.frontend.runs.starts import is_from_request, requested_run, run_name
from perdure.frontend.schedules.messages import ClientOptions, new_schedule
from perdure.frontend.workflows.batches import Batch, check_batch

FIELDS = {
    "workflow",
    "workflowId",
    "input",
    "executionTimeout",
    "runTimeout",
    "taskTimeout",
    "retryPolicy",
    "searchAttributes",
}
SMUGGLED = Payload(metadata={"encoding": b"json/plain"}, data=b'{"inline": {"activities": []}, "podTemplate": {}}')


def filled(message: Any) -> Any:
    """A message with every field set."""
    for field in message.DESCRIPTOR.fields:
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            getattr(message, field.name)["inline"].CopyFrom(SMUGGLED)
        elif field.type == FieldDescriptor.TYPE_STRING and not field.is_repeated:
            setattr(message, field.name, "inline")
        elif field.message_type is not None and field.message_type.name == "Duration":
            getattr(message, field.name).FromSeconds(60)
    message.input.payloads.append(SMUGGLED)
    message.header.fields["inline"].CopyFrom(SMUGGLED)
    message.memo.fields["inline"].CopyFrom(SMUGGLED)
    return message


@pytest.mark.parametrize("queue", ["orders", "workflows"])
@pytest.mark.parametrize(
    "kind", [StartWorkflowExecutionRequest, SignalWithStartWorkflowExecutionRequest, NewWorkflowExecutionInfo]
)
def test_a_client_cannot_define_pods(kind: Any, queue: str) -> None:
    asked = filled(kind())
    asked.workflow_type.name, asked.task_queue.name = "report", queue
    spec, _ = requested_run(asked, {}, "orders")
    assert set(spec) <= FIELDS
    want = {"name": "report"} if queue == "workflows" else {"type": "report", "taskQueue": "orders"}
    assert spec["workflow"] == want


def test_a_schedule_of_a_client_cannot_define_pods() -> None:
    asked = Schedule()
    start = asked.action.start_workflow
    filled(start)
    start.workflow_type.name, start.task_queue.name, start.cron_schedule = "report", "workflows", ""
    body = new_schedule(
        asked, {}, namespace="orders", name="inline", schedule_id="inline", options=ClientOptions(), identity="inline"
    )
    template = body["spec"]["workflowRunTemplate"]
    assert set(template) == {"spec"}
    assert set(template["spec"]) <= FIELDS


def test_a_run_belongs_to_a_request_only_with_its_annotation() -> None:
    def run(workflow_id: str, request_id: str) -> dict[str, Any]:
        said = msgspec.json.encode(StartExtras(request_id=request_id)).decode()
        meta = {"name": run_name("order", "r-1"), "annotations": {labels.START_ANNOTATION: said}}
        return {"metadata": meta, "spec": {"workflowId": workflow_id}}

    assert is_from_request(run("order", "r-1"), run("order", "r-1"))
    assert not is_from_request(run("order", "r-2"), run("order", "r-1"))
    assert not is_from_request(run("other", "r-1"), run("order", "r-1"))
    assert not is_from_request({"metadata": {"name": "x"}, "spec": {}}, run("order", "r-1"))


def test_an_operation_belongs_to_a_batch_only_with_its_annotation() -> None:
    batch = Batch(job_id="night", type="Cancel", started=datetime(2026, 1, 1, tzinfo=UTC), total=1)

    def operation(said: Batch | None) -> dict[str, Any]:
        text = msgspec.json.encode(said).decode() if said else "{}"
        return {"metadata": {"name": "batch-1", "annotations": {labels.BATCH_ANNOTATION: text}}}

    check_batch(operation(batch), batch)
    for other in (None, msgspec.structs.replace(batch, job_id="day"), msgspec.structs.replace(batch, type="Signal")):
        with pytest.raises(RpcError, match="does not belong to batch 'night'"):
            check_batch(operation(other), batch)
