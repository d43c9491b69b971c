"""Suggestions for field names of CronJob, Argo or Temporal, and for misspelled ones."""

from typing import Any

import pytest
from pydantic import ValidationError

from perdure.api.kinds.schedule import ScheduleSpec
from perdure.api.kinds.steps import Step
from perdure.api.kinds.workflow import WorkflowSpec
from perdure.api.models import mistakes

TEMPLATE: dict[str, Any] = {"spec": {"workflow": {"name": "w"}}}


def errors_of(model: Any, data: dict[str, Any]) -> list[str]:
    with pytest.raises(ValidationError) as caught:
        model.parse(data)
    return mistakes(caught.value)


@pytest.mark.parametrize(
    ("field", "meant"),
    [
        ("schedule", "cron"),
        ("concurrencyPolicy", "overlapPolicy"),
        ("startingDeadlineSeconds", "catchupWindow"),
        ("suspend", "paused"),
        ("timezone", "timeZone"),
        ("overlapPolcy", "overlapPolicy"),
        ("workflow", "workflowRunTemplate.spec.workflow"),
        ("input", "workflowRunTemplate.spec.input"),
        ("args", "workflowRunTemplate.spec.input"),
    ],
)
def test_a_field_name_of_another_scheduler_gets_a_suggestion(field: str, meant: str) -> None:
    fields = {field: "x", "workflowRunTemplate": TEMPLATE}
    assert errors_of(ScheduleSpec, fields) == [f"{field}: unknown field; did you mean `{meant}`?"]


def test_an_exit_handler_of_argo_gets_a_suggestion() -> None:
    fields = {"steps": [{"name": "a", "set": {"x": 1}}], "onExit": "notify"}
    assert errors_of(WorkflowSpec, fields) == ["onExit: unknown field; did you mean `finally`?"]


def test_a_field_at_the_wrong_level_gets_a_suggestion() -> None:
    fields = {"retryPolicy": {"exponential": {}, "maximumAttempts": 3}, "workflowRunTemplate": TEMPLATE}
    (sentence,) = errors_of(ScheduleSpec, fields)
    assert sentence == "retryPolicy.maximumAttempts: unknown field; did you mean `exponential.maximumAttempts`?"


def test_an_unknown_field_without_similar_names_gets_no_suggestion() -> None:
    (sentence,) = errors_of(ScheduleSpec, {"zebra": 1, "workflowRunTemplate": TEMPLATE})
    assert sentence == "zebra: unknown field; check its spelling and its indentation"


@pytest.mark.parametrize(
    ("fields", "want"),
    [
        ({"activity": "a"}, "activity: must be an object: `activity: {name: a}`"),
        ({"sleep": "5s"}, "sleep: must be an object: `sleep: {duration: 5s}`"),
        ({"sleep": 5}, "sleep: must be an object: `sleep: {duration: 5}`"),
        ({"waitUntil": "${a > 1}"}, 'waitUntil: must be an object: `waitUntil: {condition: "${a > 1}"}`'),
        ({"childWorkflow": "w"}, "childWorkflow: must be an object: `childWorkflow: {workflow: {name: w}}`"),
        ({"parallel": "a"}, "parallel: must be an object"),
        ({"signal": "a"}, "signal: must be an object"),
        ({"activity": ["a"]}, "activity: must be an object"),
        ({"activity": "a" * 100}, "activity: must be an object"),
    ],
)
def test_a_plain_value_in_place_of_an_object_gets_a_suggestion(fields: dict[str, Any], want: str) -> None:
    assert want in errors_of(Step, {"name": "s", **fields})
