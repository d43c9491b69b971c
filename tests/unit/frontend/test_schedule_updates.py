"""Updates of schedules by Temporal clients change only what the client has changed."""

from typing import Any

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.api.common.v1 import RetryPolicy as ProtoRetryPolicy
from temporalio.api.enums.v1 import TaskQueueKind
from temporalio.common import RetryPolicy

from perdure.engine.state import WORKFLOWS_QUEUE
from perdure.frontend.schedules import messages
from perdure.frontend.schedules.messages import ClientOptions
from unit.frontend.schedule_requests import asked, made_of, seconds


def test_an_update_keeps_fields_without_a_temporal_equivalent() -> None:
    obj = made_of(asked(cron_string=["@daily"]))
    obj["spec"] |= {"successfulRunsHistoryLimit": 7, "retryPolicy": {"name": "patient"}}
    obj["spec"]["workflowRunTemplate"] = {
        "metadata": {"labels": {"team": "accounts"}},
        "spec": {**obj["spec"]["workflowRunTemplate"]["spec"], "ttlSecondsAfterFinished": 60},
    }
    wanted = messages.described(obj)
    wanted.action.start_workflow.workflow_type.name = "Other"
    changed = messages.changed_schedule(obj, wanted, {}, ClientOptions())["spec"]
    assert (changed["successfulRunsHistoryLimit"], changed["retryPolicy"]) == (7, {"name": "patient"})
    template = changed["workflowRunTemplate"]
    assert template["metadata"] == {"labels": {"team": "accounts"}}
    assert template["spec"]["ttlSecondsAfterFinished"] == 60
    assert template["spec"]["workflow"] == {"type": "Other", "taskQueue": "reports"}


@pytest.mark.parametrize(
    "kept",
    [
        {"retryPolicy": {"name": "patient"}},
        {"retryPolicy": {"cloudScheduler": {"retryCount": 3}}},
        {"retryPolicy": {"exponential": {}}},
        {"inline": {"steps": []}, "workflow": None},
        {"startDelay": "10m", "priority": 5, "ttlSecondsAfterFailure": 60, "workflowIdReusePolicy": "RejectDuplicate"},
        {"workflowId": None},
    ],
    ids=str,
)
def test_an_update_of_the_input_keeps_the_other_fields_of_the_template(kept: dict[str, Any]) -> None:
    obj = made_of(asked())
    written = obj["spec"]["workflowRunTemplate"]["spec"] | kept
    before = {field: value for field, value in written.items() if value is not None}
    obj["spec"]["workflowRunTemplate"]["spec"] = before
    wanted = messages.described(obj)
    start = wanted.action.start_workflow
    if start.HasField("retry_policy"):  # the SDK checks what it sends back (issue 44, C 2)
        policy = ProtoRetryPolicy()
        RetryPolicy.from_proto(start.retry_policy).apply_to_proto(policy)
        assert policy == start.retry_policy
    start.task_queue.kind = TaskQueueKind.TASK_QUEUE_KIND_UNSPECIFIED  # as sent by the SDKs
    start.input.payloads.append(Payload(metadata={"encoding": b"json/plain"}, data=b"5"))
    changed = messages.changed_schedule(obj, wanted, {}, ClientOptions())
    assert changed["spec"]["workflowRunTemplate"]["spec"] == {**before, "input": 5}


def test_an_update_replaces_the_fields_of_the_template_that_a_client_changes() -> None:
    obj = made_of(asked())
    template = obj["spec"]["workflowRunTemplate"]["spec"]
    del template["workflow"]
    template |= {"inline": {"steps": []}, "retryPolicy": {"name": "patient"}}
    wanted = messages.described(obj)
    start = wanted.action.start_workflow
    start.workflow_type.name, start.task_queue.name = "Report", "reports"
    start.retry_policy.SetInParent()
    updated = messages.changed_schedule(obj, wanted, {}, ClientOptions())
    changed = updated["spec"]["workflowRunTemplate"]["spec"]
    assert changed["workflow"] == {"type": "Report", "taskQueue": "reports"}
    assert "inline" not in changed
    assert changed["retryPolicy"]["exponential"]["initialInterval"] == "1s"


def test_an_update_from_code_to_a_workflow_stores_the_input_as_json() -> None:
    said = asked()
    payload = Payload(metadata={"encoding": b"json/plain", "kind": b"number"}, data=b"5")
    said.action.start_workflow.input.payloads.append(payload)
    obj = made_of(said)
    assert obj["spec"]["workflowRunTemplate"]["spec"]["input"] != 5
    start = said.action.start_workflow
    start.workflow_type.name, start.task_queue.name = "report", WORKFLOWS_QUEUE
    updated = messages.changed_schedule(obj, said, {}, ClientOptions())
    template = updated["spec"]["workflowRunTemplate"]["spec"]
    assert (template["workflow"], template["input"]) == ({"name": "report"}, 5)


def test_an_update_by_an_sdk_keeps_days_that_depend_on_the_month() -> None:
    """SDKs ignore calendars in the older format, and do not send them back."""
    obj = made_of(asked(cron_string=["0 6 L * *", "0 12 * * *"]))
    wanted = messages.described(obj)
    assert wanted.spec.calendar
    del wanted.spec.calendar[:]
    assert messages.changed_schedule(obj, wanted, {}, ClientOptions())["spec"] == obj["spec"]
    wanted.spec.jitter.CopyFrom(seconds(5))
    assert "cron" not in messages.changed_schedule(obj, wanted, {}, ClientOptions())["spec"]
