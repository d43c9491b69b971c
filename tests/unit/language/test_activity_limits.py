"""The WorkflowLimits that activities take: findings in a definition, and their keys."""

from typing import Any

import pytest

from perdure.api.kinds.workflow import Activity
from perdure.language.checks import Documents, check_references
from perdure.language.keys import activity_limit_keys
from perdure.language.step_failures import StepError
from support.language.checks import checked

RUN = {"name": "order-1", "namespace": "shop", "workflowId": "order", "runId": "uid"}


def work(*limits: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "name": "work",
        "startToCloseTimeout": "1m",
        "container": {"image": "i"},
        "limits": list(limits),
        **more,
    }


def found(*limits: dict[str, Any], **more: Any) -> list[str]:
    return [f"{each.severity.value} {each}" for each in checked(activities=[work(*limits)], **more).findings]


def test_valid_limits_of_activities_are_accepted() -> None:
    assert found({"name": "a"}, {"name": "b", "key": "${input.customer}/${run.name}", "waitTimeout": "1h"}) == []


@pytest.mark.parametrize(
    ("key", "want"),
    [
        ("${steps.x.output}", "Error spec.activities[0].limits[0].key: `steps.x.output`: unknown name `steps`"),
        ("${attempt}", "Error spec.activities[0].limits[0].key: `attempt`: unknown name `attempt`"),
        ("${run.nam}", "Error spec.activities[0].limits[0].key: "),
    ],
)
def test_a_key_reads_only_the_input_and_the_run(key: str, want: str) -> None:
    (finding,) = found({"name": "a", "key": key})
    assert finding.startswith(want)


def test_a_limit_that_the_run_also_holds_causes_a_warning() -> None:
    (finding,) = found({"name": "b"}, {"name": "a"}, limits=[{"name": "a"}])
    assert finding.startswith("Warning spec.activities[0].limits[1].name: the run holds WorkflowLimit `a` already")


def test_a_limit_missing_from_the_files_is_reported() -> None:
    each = checked(activities=[work({"name": "databse"})])
    (finding,) = check_references(each, Documents(limits=frozenset({"database"})))
    assert finding.path == "spec.activities[0].limits[0].name"
    assert "`database`" in finding.message


def keys(input_: Any, *limits: dict[str, Any]) -> list[tuple[str, str]]:
    definition = Activity.parse(work(*limits))
    return [(use.name, key) for use, key in activity_limit_keys(definition, input_, RUN)]


def test_keys_are_evaluated_in_the_order_of_the_names_of_the_limits() -> None:
    taken = keys({"n": 7}, {"name": "b", "key": "${input.n}"}, {"name": "a", "key": "of ${run.name}"}, {"name": "c"})
    assert taken == [("a", "of order-1"), ("b", "7"), ("c", "")]


@pytest.mark.parametrize(
    ("input_", "reported"),
    [({}, "limits[a].key: "), ({"n": "x" * 254}, "limits[a].key: has 254 characters, but must have at most 253")],
)
def test_a_key_without_a_value_fails_the_activity(input_: Any, reported: str) -> None:
    with pytest.raises(StepError) as caught:
        keys(input_, {"name": "a", "key": "${input.n}"})
    assert caught.value.failure.type == "ExpressionError"
    assert caught.value.failure.non_retryable
    assert reported in caught.value.failure.message


def test_an_activity_of_a_worker_takes_no_limits() -> None:
    with pytest.raises(ValueError, match="`limits` must not be used with `worker`"):
        Activity.parse(
            {"name": "work", "startToCloseTimeout": "1m", "worker": {"taskQueue": "q"}, "limits": [{"name": "a"}]}
        )


def test_an_activity_cannot_cancel_holders_of_its_limit() -> None:
    with pytest.raises(ValueError, match=r"limits\.0\.overflowPolicy"):
        Activity.parse(work({"name": "a", "overflowPolicy": "CancelRunning"}))
