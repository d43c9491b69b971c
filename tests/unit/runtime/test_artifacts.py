"""The pod of an activity that finds files when it starts."""

import json
from typing import Any

import pytest

from perdure.api.workflow import Activity
from perdure.runtime import PayloadTooLargeError, PodSettings, build_pod
from perdure.runtime.artifacts import with_artifacts

_RAW = {"name": "config", "path": "/etc/app.yaml", "raw": {"data": "a: $(B) $"}}
_HTTP = {
    "name": "code",
    "path": "/src",
    "http": {"url": "https://shop.test/code.tgz", "sha256": "0" * 64},
    "archive": "Tar",
}


def test_an_init_container_prepares_what_the_activity_mounts(make: Any) -> None:
    given = {
        "inputs": [_RAW, _HTTP, {**_HTTP, "name": "plain", "path": "/plain", "archive": "None"}],
        "sizeLimit": "2Gi",
    }
    template = {
        "spec": {"initContainers": [{"name": "own", "image": "i"}], "containers": [{"name": "main", "image": "i"}]}
    }
    definition = make.activity(podTemplate=template, artifacts=given)
    settings = PodSettings(sidecar_image="perdure:test")
    spec = build_pod(make.run, make.attempt, with_artifacts(definition, settings.sidecar_image), settings)["spec"]
    first, own = spec["initContainers"]
    assert (first["name"], first["image"], own["name"]) == ("perdure-artifacts", "perdure:test", "own")
    assert first["securityContext"]["runAsUser"] == 65532
    (variable,) = first["env"]
    assert "$(B)" not in variable["value"].replace("$$", ""), "Kubernetes expands nothing"
    assert json.loads(variable["value"].replace("$$", "$")) == [
        {"name": "config", "data": "a: $(B) $"},
        {"name": "code", "url": "https://shop.test/code.tgz", "sha256": "0" * 64, "archive": "Tar"},
        {"name": "plain", "url": "https://shop.test/code.tgz", "sha256": "0" * 64},
    ]
    assert {"name": "perdure-artifacts", "emptyDir": {"sizeLimit": "2Gi"}} in spec["volumes"]
    mounts = [each for each in spec["containers"][0]["volumeMounts"] if each["name"] == "perdure-artifacts"]
    assert [(each["mountPath"], each["subPath"], each["readOnly"]) for each in mounts] == [
        ("/etc/app.yaml", "config", True),
        ("/src", "code", True),
        ("/plain", "plain", True),
    ]


def test_an_activity_without_artifacts_stays_as_it_is(make: Any) -> None:
    definition = make.activity()
    assert with_artifacts(definition, "i") is definition


def test_texts_that_are_too_large_together_fail_the_activity(make: Any) -> None:
    inputs = [{"name": f"a{i}", "path": f"/a{i}", "raw": {"data": "x" * 60_000}} for i in range(3)]
    with pytest.raises(PayloadTooLargeError, match=r"take 180\d\d\d bytes, and may take 120000"):
        with_artifacts(make.activity(artifacts={"inputs": inputs}), "i")


def test_a_script_finds_its_artifacts(make: Any) -> None:
    given = {"image": "i", "command": ["sh"], "source": "cat /etc/app.yaml"}
    work = {"name": "charge", "startToCloseTimeout": "5m", "script": given, "artifacts": {"inputs": [_RAW]}}
    settings = PodSettings()
    definition = with_artifacts(Activity.parse(work), settings.sidecar_image)
    spec = build_pod(make.run, make.attempt, definition, settings)["spec"]
    (main,) = spec["containers"]
    assert [each["name"] for each in spec["initContainers"]] == ["perdure-artifacts"]
    assert "/etc/app.yaml" in [each["mountPath"] for each in main["volumeMounts"]]
