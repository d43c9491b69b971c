from datetime import UTC, datetime, timedelta, timezone

import pytest
from pydantic import ValidationError

from perdure.api.fields import is_expression
from perdure.api.kinds.operation import OperationSpec
from perdure.api.kinds.retrypolicy import Exponential, RetryPolicy
from perdure.api.kinds.schedule import Calendar, Exclusion
from perdure.api.kinds.steps import STEP_KINDS, Return, Sleep, Step
from perdure.api.kinds.workflow import Workflow, WorkflowSpec
from perdure.api.kinds.workflowrun import WorkflowRun, WorkflowRunStatus
from perdure.api.models import ObjectMeta, field_path, mistakes
from perdure.api.phases import Phase
from perdure.api.rules import Rule, cel_name, exactly_one_of, json_name, listed
from perdure.api.times import format_time, parse_time


def test_python_writes_snake_case_and_manifests_camel_case() -> None:
    policy = Exponential(initial_interval=timedelta(seconds=2), maximum_attempts=3)
    assert policy.dump() == {
        "initialInterval": "2s",
        "backoffCoefficient": "2.0",
        "maximumAttempts": 3,
        "nonRetryableErrorTypes": [],
    }
    with pytest.raises(ValidationError, match="maximum_attempts"):
        Exponential.parse({"maximum_attempts": 3})


@pytest.mark.parametrize("kind", STEP_KINDS)
def test_a_step_has_the_kind_of_its_action(kind: str) -> None:
    examples = {
        "activity": {"name": "x"},
        "sleep": {"duration": "1s"},
        "wait_for_signal": {"name": "x"},
        "wait_until": {"condition": "${true}"},
        "child_workflow": {"workflow": {"name": "x"}},
        "call": {"block": "x"},
        "parallel": {"branches": [{"name": "x", "block": "x"}]},
        "switch": {"cases": [{"when": "${true}", "call": {"block": "x"}}]},
        "set_": {"x": 1},
        "signal": {"workflowId": "x", "name": "x"},
        "continue_as_new": {},
        "fail": {},
        "return_": {},
    }
    step = Step.parse({"name": "a", json_name(kind): examples[kind]})
    assert step.kind == kind.rstrip("_")
    assert Step.parse(step.dump()) == step


def test_omitted_needs_differ_from_an_empty_list() -> None:
    assert Step.parse({"name": "a", "fail": {}}).needs is None
    assert Step.parse({"name": "a", "fail": {}, "needs": []}).dump()["needs"] == []


def test_a_sleep_is_a_timedelta_or_an_expression() -> None:
    assert Sleep.parse({"duration": "30d"}).duration == timedelta(days=30)
    assert Sleep.parse({"duration": "${input.delay}"}).duration == "${input.delay}"
    assert Sleep.parse({"until": "2026-12-24T18:00:00+01:00"}).until == datetime(2026, 12, 24, 17, tzinfo=UTC)
    assert Sleep.parse({"until": "${run.startTime}"}).dump() == {"until": "${run.startTime}"}


def test_free_form_values_are_unchanged() -> None:
    value = {"a": [1, 2.5, None, {"b": None}], "snake_case": {"camelCase": True}}
    assert Return.parse({"output": value}).dump() == {"output": value}
    assert Step.parse({"name": "a", "set": value}).dump()["set"] == value


def test_a_number_of_branches_is_accepted_and_stored_as_text() -> None:
    branches = [{"name": "x", "block": "x"}, {"name": "z", "block": "x"}]
    step = Step.parse({"name": "a", "parallel": {"branches": branches, "wait": 2}})
    assert step.parallel is not None
    assert step.parallel.wait == "2"


def test_containers_are_unchanged() -> None:
    container = {"image": "busybox", "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "x"}}}], "tty": True}
    pod = {"containers": [container, {"name": "side"}], "nodeSelector": {"a": "b"}, "volumes": [{"emptyDir": {}}]}
    spec = WorkflowSpec.parse(
        {
            "activities": [
                {"name": "a", "container": container, "startToCloseTimeout": "1m"},
                {"name": "b", "podTemplate": {"spec": pod}, "startToCloseTimeout": "1m"},
            ]
        }
    )
    dumped = spec.dump()["activities"]
    assert dumped[0]["container"] == container
    assert dumped[1]["podTemplate"]["spec"] == pod


def test_a_definition_finds_activities_and_blocks_by_name() -> None:
    spec = WorkflowSpec.parse(
        {
            "blocks": [{"name": "b", "steps": []}],
            "activities": [{"name": "a", "worker": {"taskQueue": "q"}, "startToCloseTimeout": "1m"}],
        }
    )
    assert spec.block("b") is spec.blocks[0]
    assert spec.activity("a") is spec.activities[0]
    assert spec.block("a") is spec.activity("b") is None


def test_a_calendar_defaults_to_midnight_and_an_exclusion_to_the_whole_day() -> None:
    assert (Calendar().hour, Calendar().minute, Calendar().second) == ("0", "0", "0")
    assert (Exclusion().hour, Exclusion().minute, Exclusion().second) == ("*", "*", "*")


def test_the_workflow_id_defaults_to_the_name() -> None:
    run = {"metadata": {"name": "order-42"}, "spec": {"workflow": {"name": "x"}}}
    assert WorkflowRun.parse(run).workflow_id == "order-42"
    run["spec"]["workflowId"] = "orders/42"
    assert WorkflowRun.parse(run).workflow_id == "orders/42"


def test_an_operation_has_the_action_that_it_requests() -> None:
    spec = OperationSpec.parse(
        {"target": {"kind": "WorkflowRun", "name": "x"}, "completeActivity": {"step": "a", "result": {}}}
    )
    assert spec.request == "complete_activity"


def test_a_status_of_a_newer_version_is_read() -> None:
    status = WorkflowRunStatus.parse({"phase": "Running", "newField": 1})
    assert status.phase is Phase.RUNNING
    assert not status.phase.is_closed
    assert "newField" not in status.dump()


def test_metadata_keeps_unknown_fields_and_omits_empty_ones() -> None:
    metadata = {"name": "a", "managedFields": [{"manager": "kubectl"}], "labels": {"a": "b"}}
    assert ObjectMeta.parse(metadata).dump() == metadata


def test_another_version_or_kind_is_rejected() -> None:
    with pytest.raises(ValidationError) as caught:
        RetryPolicy.parse({"apiVersion": "perdure.dev/v2", "kind": "Retry", "spec": {"exponential": {}}})
    assert mistakes(caught.value) == [
        "apiVersion: must match `^(perdure.dev/v1beta1|perdure.dev/v1alpha1)$`",
        "kind: must be 'RetryPolicy'",
    ]


def test_errors_name_the_field_and_the_remedy() -> None:
    with pytest.raises(ValidationError) as caught:
        Workflow.parse(
            {"kind": "Workflow", "spec": {"steps": [{"name": "a", "sleep": {"duratoin": "1s"}}, {"fail": {}}]}}
        )
    assert mistakes(caught.value) == [
        "spec.steps[0].sleep.duratoin: unknown field; did you mean `duration`?",
        "spec.steps[1].name: must be set",
    ]


def test_a_field_path_has_the_format_of_the_api_server() -> None:
    assert field_path(("spec", "steps", 0, "activity")) == "spec.steps[0].activity"
    assert field_path(()) == ""


def test_models_are_immutable() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        Exponential().maximum_attempts = 1  # type: ignore[misc]


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("2026-01-02T03:04:05Z", "2026-01-02T03:04:05Z"),
        ("2026-01-02T03:04:05.5+02:00", "2026-01-02T01:04:05.500000Z"),
        ("2026-01-02T03:04:05.123456789Z", "2026-01-02T03:04:05.123456Z"),
    ],
)
def test_times_are_formatted_in_utc(text: str, want: str) -> None:
    assert format_time(parse_time(text)) == want


@pytest.mark.parametrize(
    "text", ["2026-01-02", "2026-01-02T03:04:05", "2026-01-02 03:04:05Z", "2026-02-30T00:00:00Z", "now", ""]
)
def test_invalid_times_are_rejected_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="must be an RFC 3339 time"):
        parse_time(text)


def test_a_time_without_a_zone_cannot_be_formatted() -> None:
    with pytest.raises(ValueError, match="must have a time zone"):
        format_time(datetime(2026, 1, 2))  # noqa: DTZ001 - that is the point
    assert format_time(datetime(2026, 1, 2, tzinfo=timezone(timedelta(hours=2)))) == "2026-01-01T22:00:00Z"


@pytest.mark.parametrize(
    ("value", "want"), [("${a}", True), ("a ${b}", False), ("${a", False), (1, False), (None, False)]
)
def test_a_value_that_is_one_expression_is_recognized(value: object, want: bool) -> None:
    assert is_expression(value) is want


def test_rules_use_the_field_names_of_manifests() -> None:
    rule = exactly_one_of("wait_until", "return_")
    assert rule.message == "must have exactly one of `waitUntil` and `return`"
    assert rule.cel == "(has(self.waitUntil) ? 1 : 0) + (has(self.__return__) ? 1 : 0) == 1"
    assert cel_name("set_") == "set"
    assert listed(("a_b", "c", "d")) == "`aB`, `c` and `d`"
    assert listed(("c",)) == "`c`"


def test_a_rule_becomes_a_validation() -> None:
    rule = Rule("must x", "self.x", reason="FieldValueForbidden", field_path=".x")
    want = {"message": "must x", "rule": "self.x", "reason": "FieldValueForbidden", "fieldPath": ".x"}
    assert rule.as_validation() == want
