"""Expressions in scripts."""

from typing import Any

import pytest

from perdure.api.kinds.workflow import Activity, WorkflowSpec
from perdure.language import containers
from perdure.language.checks import check

RUN = {"name": "order-1", "namespace": "shop", "workflowId": "order", "runId": "uid"}


def activity(**script: Any) -> dict[str, Any]:
    return {"name": "a", "startToCloseTimeout": "1m", "script": {"image": "i", "source": "true", **script}}


def findings_of(**script: Any) -> list[str]:
    steps = [{"name": "s", "activity": {"name": "a"}}]
    found = check(WorkflowSpec.parse({"activities": [activity(**script)], "steps": steps})).findings
    return [f"{finding.severity.value} {finding}" for finding in found]


def test_the_source_is_evaluated_and_not_expanded_by_kubernetes() -> None:
    parsed = Activity.parse(
        activity(
            image="shop:${input.tag}",
            source='echo "${input.text}" $(date) $${HOME} $$',
            args=["${input.text}"],
            env=[{"name": "A", "value": "${attempt}"}],
        )
    )
    found = containers.resolve(parsed, input={"tag": 1, "text": "$(x)"}, run=RUN, attempt=2).script
    assert found is not None
    made = found.dump()
    assert made["source"] == 'echo "$(x)" $(date) ${HOME} $$'
    assert (made["image"], made["args"], made["env"][0]["value"]) == ("shop:1", ["$$(x)"], "2")


def test_a_script_without_expressions_is_unchanged() -> None:
    parsed = Activity.parse(activity(source="echo $HOME", command=["bash"], result="LastLine"))
    assert containers.resolve(parsed, input=1, run=RUN, attempt=1).dump() == parsed.dump()


def test_an_expression_in_the_source_causes_a_warning() -> None:
    (finding,) = findings_of(source="print(${input})", command=["/usr/bin/python3"])
    assert finding.startswith(
        "Warning spec.activities[0].script.source: the value becomes a part of the program that `pyth"
    )
    assert findings_of(source="echo $1 $${HOME}", args=["${input}"]) == []


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (
            {"source": "echo ${HOME}"},
            "for a shell variable, write `$HOME`",
        ),
        ({"args": ["${nope}"]}, "script.args[0]: `nope`: unknown name `nope`"),
        ({"env": [{"name": "A", "value": 3}]}, "script.env[0].value: must be a string, not 3"),
        ({"volumeMounts": [{"name": "x", "mountPath": "/perdure"}]}, "script.volumeMounts[0].mountPath: "),
    ],
)
def test_an_invalid_script_is_an_error(script: dict[str, Any], message: str) -> None:
    (finding,) = findings_of(**script)
    assert finding.startswith("Error spec.activities[0].")
    assert message in finding


def test_an_expression_in_a_field_without_evaluation_causes_a_warning() -> None:
    (finding,) = findings_of(command=["sh", "${input}"])
    assert finding.startswith("Warning spec.activities[0].script.command[1]: `${…}` is not evaluated here")
