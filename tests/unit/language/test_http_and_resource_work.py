"""Expressions in HTTP requests and in actions on Kubernetes objects, and errors in them."""

from typing import Any

import pytest

from perdure.api.kinds.workflow import Activity, WorkflowSpec
from perdure.language import containers
from perdure.language.checks import check
from perdure.language.step_failures import StepError

RUN = {"name": "order-1", "namespace": "shop", "workflowId": "order", "runId": "uid"}
JOB = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train"}}


def activity(**fields: Any) -> dict[str, Any]:
    return {"name": "a", "startToCloseTimeout": "1m", **fields}


def http(**fields: Any) -> dict[str, Any]:
    return activity(http={"url": "https://shop", **fields})


def resource(**fields: Any) -> dict[str, Any]:
    return activity(resource={"action": "Create", "serviceAccountName": "a", "manifest": JOB, **fields})


def resolve(definition: dict[str, Any], input_: Any) -> Activity:
    return containers.resolve(Activity.parse(definition), input=input_, run=RUN, attempt=2)


def findings_of(definition: dict[str, Any]) -> list[str]:
    steps = [{"name": "s", "activity": {"name": "a"}}]
    found = check(WorkflowSpec.parse({"activities": [definition], "steps": steps})).findings
    return [f"{finding.severity.value} {finding}" for finding in found]


def test_everything_in_a_request_is_evaluated_before_it_is_sent() -> None:
    input_ = {"id": 7, "items": [{"n": 1}], "text": "$(x)"}
    definition = http(
        url="https://shop/orders/${input.id}",
        query={"n": "${input.id}", "all": ["${input.text}"]},
        headers=[{"name": "X-Text", "value": "${input.text}"}],
        body={"items": "${input.items}", "text": "<${input.text}>", "literal": "$${x}"},
        successCondition="${response.status == input.id}",
        output="${response.body}",
    )
    found = resolve(definition, input_).http
    assert found is not None
    assert found.url == "https://shop/orders/7"
    assert found.query == {"n": "7", "all": ["$(x)"]}
    assert found.headers[0].value == "$(x)"
    assert found.body == {"items": [{"n": 1}], "text": "<$(x)>", "literal": "${x}"}
    assert (found.success_condition, found.output) == ("${response.status == input.id}", "${response.body}")


def test_everything_in_an_object_is_evaluated_and_keeps_its_type() -> None:
    manifest = {
        **JOB,
        "metadata": {"name": "train-${input.id}"},
        "spec": {"parallelism": "${input.id}", "a": ["${run.name}"]},
    }
    found = resolve(resource(manifest=manifest), {"id": 7}).resource
    assert found is not None
    assert found.manifest == {
        **JOB,
        "metadata": {"name": "train-7"},
        "spec": {"parallelism": 7, "a": ["order-1"]},
    }


def test_an_expression_without_a_value_fails_the_activity() -> None:
    with pytest.raises(StepError, match=r"activity `a`: http\.body\.x: \$\{input\.nope\}"):
        resolve(http(body={"x": "${input.nope}"}), {})


def test_a_valid_definition_is_not_reported() -> None:
    assert (
        findings_of(
            http(method="POST", body="${input}", successCondition="${response.body.done}", output="${response.status}")
        )
        == []
    )
    assert findings_of(http(url="${input.url}")) == []
    condition = "${object.status.succeeded > 0}"
    assert (
        findings_of(resource(successCondition=condition, failureCondition=condition, output="${object.metadata.uid}"))
        == []
    )
    assert findings_of(resource(manifest={**JOB, "metadata": {"generateName": "a-"}})) == []
    assert findings_of(resource(action="Patch", patch={"spec": {}})) == []


@pytest.mark.parametrize(
    ("definition", "message"),
    [
        (http(url="shop/orders"), "http.url: must start with `https://` or `http://`"),
        (http(body={}), "http.body: must not be used with `method: GET`; use POST or PUT"),
        (http(body="${nope}", method="PUT"), "http.body: `nope`: unknown name `nope`"),
        (http(successCondition="${object.x}"), "http.successCondition: `object.x`: unknown name `object`"),
        (
            http(successCondition="response.status"),
            "http.successCondition: `response.status`: a condition must be one expression",
        ),
        (http(successCondition="${response.status}"), "type int, but must be true or false"),
        (http(output={"a": "${response.code}"}), "http.output.a: there is no field `code` in `response`"),
        (resource(successCondition="${response.x}"), "the available names are: attempt, input, object, run"),
        (resource(failureCondition="${1 +}"), "resource.failureCondition: `1 +`: "),
        (resource(manifest={"kind": "Job", "metadata": {"name": "a"}}), "resource.manifest.apiVersion: must be set"),
        (resource(manifest={**JOB, "metadata": {}}), "metadata.name: must be set, or `generateName`"),
        (resource(action="Get", manifest={**JOB, "metadata": {"generateName": "a"}}), "metadata.name: must be set"),
        (resource(action="Patch"), "resource.patch: must be used with `action: Patch`, and only with it"),
        (resource(patch={}), "resource.patch: must be used with `action: Patch`, and only with it"),
        (
            resource(action="Delete", owned=True),
            "resource.owned: must be used with `action: Create` or `action: Apply`",
        ),
    ],
)
def test_an_invalid_definition_is_an_error_before_the_run(definition: dict[str, Any], message: str) -> None:
    (finding,) = findings_of(definition)
    assert finding.startswith("Error spec.activities[0].")
    assert message in finding


@pytest.mark.parametrize(
    ("patch", "place"),
    [
        ({"volumes": [{"name": "perdure"}]}, "podSpecPatch.volumes[0].name: "),
        ({"volumes": [{"name": "workspace-x"}]}, "podSpecPatch.volumes[0].name: "),
        ({"containers": [{"name": "perdure-sidecar"}]}, "podSpecPatch.containers[0].name: "),
        ({"containers": [{"image": "x"}]}, "podSpecPatch.containers[0].name: must be set"),
        ({"nodeName": "${nope}"}, "podSpecPatch.nodeName: `nope`: unknown name `nope`"),
    ],
)
def test_an_invalid_patch_is_an_error(patch: dict[str, Any], place: str) -> None:
    (finding,) = findings_of(http() | {"podSpecPatch": patch})
    assert finding.startswith(f"Error spec.activities[0].{place}")
