"""Requests are parsed, or rejected with the field, before they have any effect."""

import json
import re
import time
from datetime import timedelta
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from temporalio.api.activity.v1 import ActivityOptions
from temporalio.api.command.v1 import Command
from temporalio.api.common.v1 import Payload, Payloads, RetryPolicy
from temporalio.api.enums.v1 import CommandType
from temporalio.api.failure.v1 import Failure
from temporalio.api.protocol.v1 import Message
from temporalio.api.schedule.v1 import IntervalSpec, SchedulePatch, ScheduleSpec
from temporalio.api.workflowservice.v1 import StartWorkflowExecutionRequest, UpdateWorkflowExecutionRequest

from perdure.engine.commands import (
    ContinueAsNewWorkflowExecution,
    ScheduleActivityTask,
    StartChildWorkflowExecution,
    StartTimer,
)
from perdure.engine.state import OpenActivityOptions
from perdure.frontend.activities.changes import changed_options
from perdure.frontend.activities.tasks import completion
from perdure.frontend.errors import RpcError
from perdure.frontend.messages import failures, values
from perdure.frontend.messages import payloads as data
from perdure.frontend.messages.tokens import page_of
from perdure.frontend.messages.values import LONGEST, MAX_BLOB, MAX_INLINE, UnfitError
from perdure.frontend.runs.starts import requested_run
from perdure.frontend.schedules.messages import to_times
from perdure.frontend.schedules.rpcs import patch_requests
from perdure.frontend.visibility.search_attributes import check_registered
from perdure.frontend.workflows.commands import BadCommandError, CommandReader
from perdure.frontend.workflows.updates import check_update

NEGATIVE, MIXED, ENDLESS = Duration(seconds=-5), Duration(seconds=1, nanos=-1), Duration(seconds=10**15)
NOT_FINE = Duration(nanos=2_000_000_000)
NEVER = Timestamp(seconds=2**60)


def json_payload(value: str, **metadata: bytes) -> Payload:
    return Payload(metadata={"encoding": b"json/plain", **metadata}, data=value.encode())


def command(kind: str, **said: Any) -> Command:
    made = Command(command_type=CommandType.Value(f"COMMAND_TYPE_{kind.upper()}"))
    attributes = getattr(made, f"{kind}_command_attributes")
    attributes.MergeFrom(type(attributes)(**said))
    return made


def activity(**said: Any) -> Command:
    named = {"activity_id": "1", "activity_type": {"name": "a"}, "task_queue": {"name": "q"}}
    return command("schedule_activity_task", **{**named, **said})


def child(**said: Any) -> Command:
    named = {"workflow_id": "c", "workflow_type": {"name": "W"}, "task_queue": {"name": "q"}}
    return command("start_child_workflow_execution", **{**named, **said})


def again(**said: Any) -> Command:
    return command("continue_as_new_workflow_execution", **said)


def upsert(**fields: Payload) -> Command:
    return command("upsert_workflow_search_attributes", search_attributes={"indexed_fields": fields})


def start(**said: Any) -> StartWorkflowExecutionRequest:
    named = {"workflow_id": "w", "workflow_type": {"name": "W"}, "task_queue": {"name": "q"}}
    return StartWorkflowExecutionRequest(**{**named, **said})  # type: ignore[arg-type]


LONG, BLOB = "x" * 1_001, {"payloads": [Payload(data=b"x" * (MAX_BLOB + 1))]}
LARGE_AS_JSON = {"payloads": [Payload(metadata={"encoding": b"binary/plain"}, data=b"x" * (MAX_INLINE - 1_000))]}
LARGE_MEMO = {"fields": {"m": Payload(data=b"x" * 70_000)}}
LARGE_HEADER = {"fields": {"h": Payload(data=b"x" * 150_000)}}
DEEP = {"payloads": [json_payload("[" * 202 + "]" * 202)]}
HALF = {"payloads": [json_payload('"\\ud800"')]}
ENDLESS_POLICY = {"backoff_coefficient": float("inf")}


@pytest.mark.parametrize(
    ("bad", "cause", "field"),
    [
        (activity(start_to_close_timeout=NEGATIVE), "BadScheduleActivityAttributes", "start_to_close_timeout"),
        (activity(heartbeat_timeout=MIXED), "BadScheduleActivityAttributes", "heartbeat_timeout"),
        (activity(heartbeat_timeout=NOT_FINE), "BadScheduleActivityAttributes", "heartbeat_timeout"),
        (activity(activity_id=LONG), "BadScheduleActivityAttributes", "ActivityId length exceeds limit"),
        (activity(activity_id=""), "BadScheduleActivityAttributes", "ActivityId is not set"),
        (activity(task_queue={"name": LONG}), "BadScheduleActivityAttributes", "TaskQueue length"),
        (activity(retry_policy={"backoff_coefficient": float("nan")}), "BadScheduleActivityAttributes", "Coefficient"),
        (command("start_timer", timer_id=LONG), "BadStartTimerAttributes", "TimerId length"),
        (command("start_timer", timer_id="1", start_to_fire_timeout=NEGATIVE), "BadStartTimerAttributes", "to_fire"),
        (child(workflow_id=LONG), "BadStartChildExecutionAttributes", "WorkflowId length"),
        (child(workflow_run_timeout=NEGATIVE), "BadStartChildExecutionAttributes", "workflow_run_timeout"),
        (child(retry_policy=ENDLESS_POLICY), "BadStartChildExecutionAttributes", "BackoffCoefficient"),
        (
            child(input=LARGE_AS_JSON, task_queue={"name": "workflows"}, workflow_type={"name": "w"}),
            "BadStartChildExecutionAttributes",
            "Blob data size exceeds limit",
        ),
        (child(task_queue={"name": "pods/x"}), "BadStartChildExecutionAttributes", "no worker polls"),
        (child(namespace="other"), "BadStartChildExecutionAttributes", "cross namespace"),
        (child(task_queue={"name": "workflows"}), "BadStartChildExecutionAttributes", "runs Workflows by name"),
        (again(workflow_type={"name": "x" * 4_000}), "BadContinueAsNewAttributes", "WorkflowType length"),
        (again(task_queue={"name": "x" * 3_000}), "BadContinueAsNewAttributes", "TaskQueue length"),
        (again(memo=LARGE_MEMO), "BadContinueAsNewAttributes", "Memo size exceeds limit"),
        (again(header=LARGE_HEADER), "BadContinueAsNewAttributes", "Header and memo size exceeds limit"),
        (again(input=BLOB), "BadContinueAsNewAttributes", "Blob data size exceeds limit"),
        (again(workflow_run_timeout=NEGATIVE), "BadContinueAsNewAttributes", "workflow_run_timeout"),
        (
            command("signal_external_workflow_execution", execution={"workflow_id": "w"}, signal_name=LONG),
            "BadSignalWorkflowExecutionAttributes",
            "SignalName length",
        ),
        (upsert(A=json_payload("1" * 30)), "BadSearchAttributes", "search attribute A of type Int: 1111"),
        (upsert(A=json_payload("[" * 5_000 + "]" * 5_000)), "BadSearchAttributes", "search attribute A of type Int"),
        (child(search_attributes={"indexed_fields": {"A": json_payload("{}")}}), "BadSearchAttributes", "type Int: {}"),
        (upsert(), "BadSearchAttributes", "IndexedFields is not set"),
        (command("modify_workflow_properties"), "BadModifyWorkflowPropertiesAttributes", "UpsertedMemo is not set"),
        (
            upsert(B=json_payload("1")),
            "BadSearchAttributes",
            "Namespace orders has no mapping defined for search attribute B",
        ),
        (upsert(RunId=json_payload("1")), "BadSearchAttributes", "RunId attribute can't be set in SearchAttributes"),
        (again(search_attributes={"indexed_fields": {"a b": json_payload('"x"')}}), "BadSearchAttributes", "'a b'"),
    ],
)
def test_41_an_invalid_command_fails_the_workflow_task_with_its_cause(bad: Command, cause: str, field: str) -> None:
    with pytest.raises(BadCommandError, match=field) as caught:
        CommandReader(3, {"A": "Int", "a b": "Keyword"}, "orders").read([bad], [])
    assert caught.value.cause == cause


def test_an_undecodable_message_fails_the_workflow_task() -> None:
    broken = Message(id="m")
    broken.body.type_url, broken.body.value = "type.googleapis.com/temporal.api.update.v1.Acceptance", b"\xff\xff"
    with pytest.raises(BadCommandError) as caught:
        CommandReader(3, {}).read([], [broken])
    assert caught.value.cause == "BadUpdateWorkflowExecutionMessage"


def test_durations_are_limited_to_a_century() -> None:
    commands = [
        activity(start_to_close_timeout=ENDLESS),
        command("start_timer", timer_id="1", start_to_fire_timeout=Duration(seconds=10**12)),
        again(workflow_run_timeout=ENDLESS),
    ]
    for read in CommandReader(3, {}).read(commands, []).commands:
        match read:
            case ScheduleActivityTask(start_to_close_timeout=found) | StartTimer(start_to_fire_timeout=found):
                assert found == LONGEST
            case ContinueAsNewWorkflowExecution(workflow_run_timeout=found):
                assert found == LONGEST
    assert requested_run(start(workflow_run_timeout=ENDLESS), {}, "orders")[0]["runTimeout"] == "36500d"


def test_a_tiny_timeout_of_a_start_becomes_one_millisecond() -> None:
    assert requested_run(start(workflow_run_timeout=Duration(nanos=1_000)), {}, "orders")[0]["runTimeout"] == "1ms"


@pytest.mark.parametrize(
    ("bad", "field"),
    [
        (start(workflow_run_timeout=NEGATIVE), "workflow_run_timeout: negative duration"),
        (start(retry_policy=RetryPolicy(initial_interval=MIXED)), "initial_interval"),
        (start(retry_policy=RetryPolicy(maximum_interval=NEGATIVE)), "maximum_interval"),
        (start(retry_policy=RetryPolicy(backoff_coefficient=float("nan"))), "BackoffCoefficient"),
        (start(input=BLOB), "Blob data size exceeds limit"),
        (start(memo=LARGE_MEMO), "Memo size exceeds limit"),
        (
            start(search_attributes={"indexed_fields": {"A": json_payload('"\\ud800"')}}),
            "search attribute A of type Keyword",
        ),
        (start(task_queue={"name": "pods/x"}), "no worker polls 'pods/x'"),
        (start(task_queue={"name": "workflows"}, workflow_type={"name": "Not A Name"}), "runs Workflows by name"),
        (
            start(task_queue={"name": "workflows"}, workflow_type={"name": "w"}, input=HALF),
            "cannot be passed on as JSON",
        ),
        (
            start(task_queue={"name": "workflows"}, workflow_type={"name": "w"}, input=DEEP),
            "nests more than 200 levels deep",
        ),
    ],
)
def test_an_invalid_start_is_rejected_with_the_field(bad: Any, field: str) -> None:
    with pytest.raises(UnfitError, match=field):
        requested_run(bad, {"A": "Keyword"}, "orders")


@pytest.mark.parametrize("value", ['"\\ud800"', '{"\\udfff":1}', '[{"a":["\\ud83d"]}]'])
def test_a_lone_surrogate_is_unchanged(value: str) -> None:
    sent = json_payload(value)
    assert json.loads(sent.data) == json.loads(data.canonical(json.loads(value)))
    kept = data.to_json([sent])
    json.dumps(kept, ensure_ascii=False).encode()
    assert data.from_json(kept) == [sent]
    headers = data.fields_to_json({"h": sent})
    json.dumps(headers, ensure_ascii=False).encode()


def test_a_surrogate_pair_is_stored_as_a_character() -> None:
    assert data.to_json([Payload(metadata={"encoding": b"json/plain"}, data=b'"\\ud83d\\ude00"')]) == "😀"


def test_a_million_payloads_are_rejected_quickly() -> None:
    many = start()
    many.input.payloads.extend([Payload()] * 1_500_000)
    begin = time.monotonic()
    with pytest.raises(UnfitError, match="Blob data size exceeds limit"):
        requested_run(many, {}, "orders")
    assert time.monotonic() - begin < 1


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("Double", '"abc"'),
        ("Double", "NaN"),
        ("Datetime", '"2026-01-01T00:00:00"'),
        ("Datetime", '"soon"'),
        ("Keyword", "{}"),
        ("Text", "1"),
        ("Int", str(2**63)),
        ("Int", "true"),
        ("Bool", "1"),
        ("KeywordList", "[1]"),
        ("KeywordList", '"one"'),
        ("Keyword", "no JSON"),
        ("Double", '{"type":"Double","value":"abc"}'),
    ],
)
def test_a_search_attribute_of_another_type_is_rejected(kind: str, value: str) -> None:
    with pytest.raises(UnfitError, match=f"invalid value for search attribute A of type {kind}"):
        data.attributes_to_json({"A": json_payload(value, type=b"Keyword")}, {"A": kind}, "orders")


def test_invalid_options_and_schedules_are_rejected_with_the_field() -> None:
    with pytest.raises(UnfitError, match="heartbeat_timeout"):
        changed_options(
            OpenActivityOptions(task_queue="q"), ActivityOptions(heartbeat_timeout=NEGATIVE), ["heartbeat_timeout"]
        )
    endless = ActivityOptions(retry_policy=ENDLESS_POLICY)
    with pytest.raises(RpcError, match="retry_policy"):
        changed_options(OpenActivityOptions(task_queue="q"), endless, ["retry_policy"])
    for spec, field in (
        (ScheduleSpec(jitter=NEGATIVE), "jitter"),
        (ScheduleSpec(end_time=NEVER), "end_time"),
        (ScheduleSpec(interval=[IntervalSpec(interval=MIXED)]), r"interval\[0\].*interval"),
    ):
        with pytest.raises(UnfitError, match=field):
            to_times(spec)
    early = SchedulePatch()
    early.backfill_request.add(start_time=Timestamp(seconds=-(10**10)), end_time=Timestamp(seconds=0))
    with pytest.raises(UnfitError, match=r"backfill_request\[0\].start_time"):
        patch_requests({"spec": {}}, early, "")
    patch = SchedulePatch()
    patch.trigger_immediately.scheduled_time.CopyFrom(NEVER)
    with pytest.raises(UnfitError, match="scheduled_time"):
        patch_requests({"spec": {}}, patch, "")
    for text in ("1969-12-31T23:59:59Z", "9990-01-01T00:00:00Z"):  # the search for the times around it did not end
        patch.trigger_immediately.scheduled_time.FromJsonString(text)
        with pytest.raises(UnfitError, match=r"trigger_immediately\.scheduled_time: must be at 1970-01-01 or later"):
            patch_requests({"spec": {}}, patch, "")


def test_a_negative_next_retry_delay_is_rejected() -> None:
    failed = Failure(application_failure_info={"next_retry_delay": NEGATIVE})
    with pytest.raises(UnfitError, match="next_retry_delay"):
        failures.to_json(failed)
    failed = Failure(application_failure_info={"next_retry_delay": ENDLESS})
    assert failures.to_json(failed).next_retry_delay == LONGEST


def test_an_unset_duration_is_zero_or_none() -> None:
    assert values.duration(start(), "workflow_run_timeout") == timedelta(0)
    assert values.duration_or_none(start(), "workflow_run_timeout") is None


def test_invalid_page_sizes_and_tokens_are_handled() -> None:
    assert page_of(range(5), b"", -3, 4) == (range(4), b"4")
    assert page_of(range(5), b"4", -3, 4) == (range(4, 5), b"")
    for token in (b"-5", b"x", b"9" * 5_000):
        with pytest.raises(RpcError, match="next_page_token"):
            page_of(range(5), token, 0, 4)


@pytest.mark.parametrize(
    ("said", "field"),
    [
        ({}, "Update name is not set"),
        ({"request": {"input": {"name": LONG}}}, "Update name length"),
        ({"request": {"input": {"name": "u"}, "meta": {"update_id": LONG}}}, "UpdateId length"),
        ({"request": {"input": {"name": "u", "args": BLOB}}}, "Blob data size exceeds limit"),
        ({"request": {"input": {"name": "u"}}, "wait_policy": {"lifecycle_stage": 77}}, "lifecycle_stage"),
    ],
)
def test_an_invalid_update_is_rejected_with_the_field(said: dict[str, Any], field: str) -> None:
    request = UpdateWorkflowExecutionRequest(workflow_execution={"workflow_id": "w"}, **said)
    with pytest.raises((RpcError, UnfitError), match=field):
        check_update(request)


def test_a_too_large_result_fails_the_activity() -> None:
    assert completion(Payloads(payloads=[json_payload("7")])) == {"result": 7}
    failed = completion(Payloads(**BLOB))["failure"]
    assert (failed.message, failed.non_retryable) == ("Complete result exceeds size limit.", True)


@pytest.mark.parametrize("types", [{"a b": "Keyword"}, {"../x": "Int"}, {"A": ""}, {"A": "Unspecified"}])
def test_invalid_search_attributes_are_rejected_by_name(types: dict[str, str]) -> None:
    with pytest.raises(UnfitError, match=f"search_attributes: '{re.escape(next(iter(types)))}'"):
        check_registered(types)


@pytest.mark.parametrize(("said", "meant"), [({"name": ""}, "orders"), ({"name": "other"}, "other")])
def test_a_child_without_a_task_queue_inherits_it(said: dict[str, str], meant: str) -> None:
    (read,) = CommandReader(3, {}, task_queue="orders").read([child(task_queue=said)], []).commands
    assert isinstance(read, StartChildWorkflowExecution)
    assert read.start.task_queue == meant


@pytest.mark.parametrize(
    ("nanoseconds", "microseconds"), [(0, 0), (1, 1), (1_000, 1), (1_001, 2), (999_999_999, 1_000_000)]
)
def test_only_zero_is_rounded_to_zero(nanoseconds: int, microseconds: int) -> None:
    policy = RetryPolicy(initial_interval=Duration(nanos=nanoseconds))
    assert values.duration(policy, "initial_interval") == timedelta(microseconds=microseconds)


def test_a_retry_interval_of_a_nanosecond_is_not_the_default() -> None:
    policy = values.retry_policy(RetryPolicy(initial_interval=Duration(nanos=1), backoff_coefficient=1))
    assert policy.interval(1) == timedelta(microseconds=1)


def test_the_parts_of_a_request_are_counted_up_to_a_limit() -> None:
    request = StartWorkflowExecutionRequest(input=Payloads(payloads=[json_payload("1"), json_payload("2")]))
    request.header.fields["a"].CopyFrom(json_payload("3"))
    assert values.parts(request) == 2 + 1 + 3, "payloads, fields, and the encoding of each"
    request.input.payloads.extend(Payload() for _ in range(values.MAX_PARTS))
    with pytest.raises(UnfitError, match="have more than 50,000 items"):
        values.parts(request)
