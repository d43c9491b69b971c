"""Changes to the pods of activities."""

from typing import Any

import pytest

from perdure.api.kinds.workflow import Activity
from perdure.api.pod_patches import patched
from perdure.engine.inputs import AttemptCompleted
from perdure.language import containers
from perdure.runtime.attempt_outcomes import outcome
from perdure.runtime.attempts import PodSettings
from perdure.runtime.pods.builder import build_pod


@pytest.mark.parametrize(
    ("template", "patch", "made"),
    [
        ({"a": 1, "b": {"c": 2}}, {"b": {"d": 3}}, {"a": 1, "b": {"c": 2, "d": 3}}),
        ({"a": 1, "b": 2}, {"a": None}, {"b": 2}),
        ({"a": {"b": 1}}, {"a": {"b": None}}, {"a": {}}),
        ({}, {"a": {"b": [1]}}, {"a": {"b": [1]}}),
        ({"a": [1, 2]}, {"a": [3]}, {"a": [3]}),
        (
            {"a": [{"name": "x", "v": 1}, {"name": "y", "v": 2}]},
            {"a": [{"name": "z", "v": 3}, {"name": "x", "w": 4}]},
            {"a": [{"name": "x", "v": 1, "w": 4}, {"name": "y", "v": 2}, {"name": "z", "v": 3}]},
        ),
        ({"a": [{"mountPath": "/x", "name": "v"}]}, {"a": [{"mountPath": "/y", "subPath": "z"}]}, None),
        ({"a": [{"v": 1}]}, {"a": [{"v": 2}]}, {"a": [{"v": 2}]}),
        ({"a": 1}, {"a": {"b": 2}}, {"a": {"b": 2}}),
    ],
)
def test_objects_are_merged_and_lists_of_objects_merged_by_key(template: Any, patch: Any, made: Any) -> None:
    if made is None:
        made = {"a": [*template["a"], *patch["a"]]}
    assert patched(template, patch) == made


def build(make: Any, patch: dict[str, Any], **work: Any) -> dict[str, Any]:
    definition = make.activity(**work, podSpecPatch=patch)
    return build_pod(make.run, make.attempt, definition, PodSettings())


def test_the_container_of_every_kind_of_work_can_be_patched(make: Any) -> None:
    patch = {
        "nodeSelector": {"disk": "ssd"},
        "volumes": [{"name": "scratch", "emptyDir": {}}],
        "containers": [
            {"name": "activity", "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}]},
            {"name": "proxy", "image": "proxy"},
        ],
    }
    resource = {"action": "Get", "serviceAccountName": "a", "manifest": {}}
    for work in ({"container": {"image": "i"}}, {"script": {"image": "i", "source": "true"}}, {"resource": resource}):
        spec = build(make, patch, **work)["spec"]
        assert spec["nodeSelector"] == {"disk": "ssd"}
        assert [volume["name"] for volume in spec["volumes"]] == ["scratch", "perdure"]
        assert [container["name"] for container in spec["containers"]] == ["activity", "proxy"]
        assert {"name": "scratch", "mountPath": "/scratch"} in spec["containers"][0]["volumeMounts"]
        assert "PERDURE_RUN" in {variable["name"] for variable in spec["containers"][0]["env"]}


def test_a_patch_cannot_change_restart_policy_or_identity(make: Any) -> None:
    pod = build(
        make,
        {
            "restartPolicy": "Always",
            "containers": [{"name": "activity", "env": [{"name": "PERDURE_RUN", "value": "x"}]}],
        },
    )
    assert pod["spec"]["restartPolicy"] == "Never"
    (named,) = [each for each in pod["spec"]["containers"][0]["env"] if each["name"] == "PERDURE_RUN"]
    assert named["value"] == make.run.name


def test_expressions_in_a_patch_keep_their_type() -> None:
    patch = {
        "priority": "${input.n}",
        "containers": [
            {"name": "activity", "resources": {"limits": {"memory": "${input.n}Mi"}}, "args": ["${input.text}"]}
        ],
    }
    parsed = Activity.parse(
        {"name": "a", "startToCloseTimeout": "1m", "container": {"image": "i"}, "podSpecPatch": patch}
    )
    run = {"name": "r", "namespace": "n", "workflowId": "w", "runId": "u"}
    found = containers.resolve(parsed, input={"n": 3, "text": "$(X)"}, run=run, attempt=1).pod_spec_patch
    assert found == {
        "priority": 3,
        "containers": [{"name": "activity", "resources": {"limits": {"memory": "3Mi"}}, "args": ["$$(X)"]}],
    }
    assert containers.with_placeholders(parsed).pod_spec_patch is None
    fixed = parsed.model_copy(update={"pod_spec_patch": {"priority": 1}})
    assert containers.with_placeholders(fixed).pod_spec_patch == {"priority": 1}


def test_a_service_is_a_sidecar_that_does_not_determine_the_outcome(make: Any) -> None:
    service = {
        "name": "service",
        "image": "db",
        "restartPolicy": "Always",
        "startupProbe": {"httpGet": {"port": 8000}},
    }
    definition = make.activity(script={"image": "i", "source": "true"}, podSpecPatch={"initContainers": [service]})
    stopped = make.terminated(143, name="service")
    pod = make.pod(make.terminated(message="7"), phase="Succeeded", definition=definition, init=(stopped,))
    (found,) = pod["spec"]["initContainers"]
    assert found.items() >= service.items()
    reported = outcome(make.attempt, definition, pod, now=make.now)
    assert isinstance(reported, AttemptCompleted)
    assert reported.result == 7
