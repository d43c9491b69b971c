"""Conversion between Temporal's messages and Perdure's, in both directions."""

from datetime import UTC, datetime, timedelta
from typing import Any, get_args

import pytest
from msgspec.structs import replace
from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import EventType, WorkflowTaskFailedCause
from temporalio.api.failure.v1 import Failure as ProtoFailure

from perdure.engine import events as ev
from perdure.engine.starts import ParentReference, StartExtras, WorkflowStart
from perdure.frontend.errors import RpcError, already_started
from perdure.frontend.messages import failures, tokens
from perdure.frontend.messages.histories import Historian
from perdure.frontend.messages.values import from_enum, to_enum

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def test_a_failure_without_info_survives_conversion() -> None:
    """SDKs send their own errors so, and make another class of them than of application failures."""
    sent = ProtoFailure(message="workflow already started", source="TypeScriptSDK", cause=ProtoFailure(message="inner"))
    assert failures.to_proto(failures.to_json(sent)) == sent


def test_a_failure_with_causes_survives_conversion() -> None:
    sent = ProtoFailure(message="outer", source="PythonSDK", stack_trace="a\nb")
    sent.activity_failure_info.activity_type.name = "charge"
    sent.activity_failure_info.activity_id = "1"
    sent.activity_failure_info.scheduled_event_id = 5
    sent.activity_failure_info.started_event_id = 6
    sent.activity_failure_info.identity = "worker"
    sent.activity_failure_info.retry_state = 2
    cause = sent.cause
    cause.message = "no"
    cause.application_failure_info.type = "CardStolen"
    cause.application_failure_info.non_retryable = True
    cause.application_failure_info.details.payloads.append(
        Payload(metadata={"encoding": b"json/plain"}, data=b'{"code": 1.5}')
    )
    cause.application_failure_info.next_retry_delay.FromTimedelta(timedelta(seconds=3))
    cause.cause.timeout_failure_info.timeout_type = 4
    cause.cause.cause.canceled_failure_info.SetInParent()
    assert failures.to_proto(failures.to_json(sent)) == sent


@pytest.mark.parametrize("event", get_args(ev.AnyEvent))
def test_every_event_has_its_name_and_attributes_in_temporals_history(event: type[ev.Event]) -> None:
    assert to_enum(EventType, event.__name__) or event in {ev.WorkflowExecutionPaused, ev.WorkflowExecutionUnpaused}


def test_an_event_has_all_known_attributes() -> None:
    historian = Historian("orders", {"next": "run-2"}.get)  # type: ignore[arg-type]
    start = WorkflowStart(
        workflow_type="Child",
        task_queue="q",
        workflow_id="c",
        input={"a": 1},
        extras=StartExtras(memo={"note": "x"}, header={"h": 1}),
    )
    made = historian.one(ev.StartChildWorkflowExecutionInitiated(event_id=5, event_time=NOW, child_id="1", start=start))
    said = made.start_child_workflow_execution_initiated_event_attributes
    assert (said.workflow_id, said.workflow_type.name, said.task_queue.name) == ("c", "Child", "q")
    assert (said.namespace, said.input.payloads[0].data) == ("orders", b'{"a":1}')
    assert said.memo.fields["note"].data == b'"x"'
    closed = historian.one(
        ev.WorkflowExecutionContinuedAsNew(event_id=9, event_time=NOW, new_workflow_run="next", workflow_type="W")
    )
    assert closed.workflow_execution_continued_as_new_event_attributes.new_execution_run_id == "run-2"


def test_a_page_of_a_history_fits_into_a_response() -> None:
    large = [
        ev.WorkflowExecutionSignaled(event_id=number, event_time=NOW, signal_name="s", input="x" * 250_000)
        for number in range(1, 31)
    ]
    page = Historian("orders", lambda _: "").page(large)
    assert [event.event_id for event in page] == list(range(1, 13))
    assert Historian("orders", lambda _: "").page([]) == []


def started(**said: Any) -> ev.WorkflowExecutionStarted:
    """The first event of the run `r` of the workflow `w`."""
    ids = {"workflow_id": "w", "original_execution_run_id": "r", "first_execution_run_id": "r"}
    return ev.WorkflowExecutionStarted(event_id=1, event_time=NOW, workflow_type="W", **ids, **said)


def test_unset_fields_remain_unset() -> None:
    said = Historian("orders", lambda _: "").one(started(task_queue="q")).workflow_execution_started_event_attributes
    assert not said.HasField("workflow_run_timeout")
    assert said.original_execution_run_id == "r"


def test_only_a_child_has_parent_and_root() -> None:
    start = started(root_workflow_id="w", root_run_id="r")
    historian = Historian("orders", lambda _: "")
    alone = historian.one(start).workflow_execution_started_event_attributes
    assert not alone.HasField("root_workflow_execution")
    assert alone.HasField("first_workflow_task_backoff")  # present though it is zero, as Temporal's server sends it
    assert not alone.parent_workflow_namespace
    parent = ParentReference(name="p", workflow_id="parent", run_id="pr", initiated_event_id=5)
    child = replace(start, parent=parent, root_workflow_id="top", root_run_id="tr")
    reported = historian.one(child).workflow_execution_started_event_attributes
    assert (reported.parent_workflow_namespace, reported.parent_workflow_namespace_id) == ("orders", "orders")
    assert reported.parent_workflow_execution.workflow_id == "parent"
    assert reported.root_workflow_execution.workflow_id == "top"


@pytest.mark.parametrize("name", ["NonDeterministicError", "WorkflowWorkerUnhandledFailure", "UnhandledCommand"])
def test_names_of_causes_survive_conversion(name: str) -> None:
    assert from_enum(WorkflowTaskFailedCause, to_enum(WorkflowTaskFailedCause, name)) == name


def test_a_token_of_another_namespace_or_an_invalid_one_is_rejected() -> None:
    token = tokens.WorkflowTaskToken(namespace="a", run_id="r", scheduled=2, started=3, attempt=1, epoch="e")
    packed = tokens.pack(token)
    assert tokens.unpack(packed, tokens.WorkflowTaskToken, "a") == token
    refused: list[tuple[bytes, Any, str]] = [
        (packed, tokens.WorkflowTaskToken, "b"),
        (packed, tokens.ActivityToken, "a"),
        (b"garbage", tokens.WorkflowTaskToken, "a"),
    ]
    for raw, kind, namespace in refused:
        with pytest.raises(RpcError):
            tokens.unpack(raw, kind, namespace)


def test_an_error_has_its_details() -> None:
    status = already_started("taken", "run-1", "run-0").status()
    assert status.code == 6
    assert status.details[0].type_url.endswith("WorkflowExecutionAlreadyStartedFailure")
