"""The Deployments of workers."""

from typing import Any

import pytest

from perdure.api.kinds.workerdeployment import WorkerDeploymentSpec
from perdure.runtime.attempts import PodSettings
from perdure.runtime.workers.versions import deployment, template_hash

OWNER = {"metadata": {"name": "shop", "namespace": "team", "uid": "1"}}
SETTINGS = PodSettings(sidecar_image="ours", pull_secrets=("one", "two"))


def spec_of(**pod: Any) -> WorkerDeploymentSpec:
    return WorkerDeploymentSpec.parse({"taskQueues": ["shop"], "podTemplate": {"spec": pod}})


def secrets(spec: WorkerDeploymentSpec) -> list[str]:
    made = deployment(OWNER, spec, 1, SETTINGS)
    return [each["name"] for each in made["spec"]["template"]["spec"].get("imagePullSecrets") or ()]


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        ({"containers": [{"name": "worker", "image": "ours"}]}, ["one", "two"]),
        ({"containers": [{"name": "worker", "image": "theirs"}]}, []),
        (
            {
                "containers": [{"name": "worker", "image": "ours"}],
                "imagePullSecrets": [{"name": "two"}, {"name": "own"}],
            },
            ["two", "own", "one"],
        ),
        (
            {
                "containers": [{"name": "worker", "image": "theirs"}],
                "initContainers": [{"name": "copy", "image": "ours"}],
            },
            ["one", "two"],
        ),
    ],
    ids=["the operator's image", "another image", "with secrets of its own", "in an init container"],
)
def test_workers_with_the_operators_image_get_its_pull_secrets(pod: dict[str, Any], expected: list[str]) -> None:
    spec = spec_of(**pod)
    before = template_hash(spec)
    assert secrets(spec) == expected
    assert template_hash(spec) == before, "the version is that of the manifest"
