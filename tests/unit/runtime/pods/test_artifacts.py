"""The pod of an activity that finds files when it starts, and leaves others."""

import json
from typing import Any

import pytest

from perdure.api import labels
from perdure.api.kinds.workflow import Activity
from perdure.engine.inputs import AttemptCompleted, AttemptFailed
from perdure.language.containers import resolve
from perdure.runtime.attempt_outcomes import outcome
from perdure.runtime.attempts import InvalidDefinitionError, PayloadTooLargeError, PodSettings
from perdure.runtime.pods.artifacts import copies, references, stop_seconds, with_artifacts
from perdure.runtime.pods.builder import build_pod

_RAW = {"name": "config", "path": "/etc/app.yaml", "raw": {"data": "a: $(B) $"}}
_HTTP = {
    "name": "code",
    "path": "/src",
    "http": {"url": "https://shop.test/code.tgz", "sha256": "0" * 64},
    "archive": "Tar",
}


def test_an_init_container_prepares_the_inputs_of_the_activity(make: Any) -> None:
    artifacts = {
        "inputs": [_RAW, _HTTP, {**_HTTP, "name": "plain", "path": "/plain", "archive": "None"}],
        "sizeLimit": "2Gi",
    }
    template = {
        "spec": {"initContainers": [{"name": "own", "image": "i"}], "containers": [{"name": "main", "image": "i"}]}
    }
    definition = make.activity(podTemplate=template, artifacts=artifacts)
    settings = PodSettings(sidecar_image="perdure:test")
    spec = build_pod(make.run, make.attempt, with_artifacts(definition, settings.sidecar_image), settings)["spec"]
    first, second = spec["initContainers"]
    assert (first["name"], first["image"], second["name"]) == ("perdure-artifacts", "perdure:test", "own")
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


def test_an_activity_without_artifacts_is_unchanged(make: Any) -> None:
    definition = make.activity()
    assert with_artifacts(definition, "i") is definition


def test_texts_with_a_too_large_total_size_fail_the_activity(make: Any) -> None:
    inputs = [{"name": f"a{i}", "path": f"/a{i}", "raw": {"data": "x" * 60_000}} for i in range(3)]
    with pytest.raises(PayloadTooLargeError, match=r"take 180\d\d\d bytes, but the limit is 120000"):
        with_artifacts(make.activity(artifacts={"inputs": inputs}), "i")


def test_a_script_mounts_its_artifacts(make: Any) -> None:
    script = {"image": "i", "command": ["sh"], "source": "cat /etc/app.yaml"}
    work = {"name": "charge", "startToCloseTimeout": "5m", "script": script, "artifacts": {"inputs": [_RAW]}}
    settings = PodSettings()
    definition = with_artifacts(Activity.parse(work), settings.sidecar_image)
    pod = build_pod(make.run, make.attempt, definition, settings)
    spec = pod["spec"]
    (main,) = spec["containers"]
    assert [each["name"] for each in spec["initContainers"]] == ["perdure-artifacts"]
    assert main["command"] == ["sh", "/perdure/script"]
    assert pod["metadata"]["annotations"][labels.SCRIPT_ANNOTATION] == script["source"]
    (volume,) = [each for each in spec["volumes"] if each["name"] == "perdure"]
    assert "annotations['perdure.dev/script']" in str(volume)
    assert "/etc/app.yaml" in [each["mountPath"] for each in main["volumeMounts"]]


_REPORT = {"store": "perdure-artifacts", "key": "shop/u/5-1/report.tar.gz", "size": 9, "sha256": "ab", "archive": "Tar"}
_OUTPUTS = {"outputs": [{"name": "report", "path": "/out/report"}]}


def spec_of(make: Any, artifacts: Any, **fields: Any) -> dict[str, Any]:
    definition = make.activity(artifacts=artifacts, **fields)
    spec: dict[str, Any] = build_pod(make.run, make.attempt, with_artifacts(definition, "perdure:test"), PodSettings())[
        "spec"
    ]
    return spec


def wanted_of(make: Any, *references_: Any, **fields: Any) -> Any:
    """The artifacts that the init container prepares for a resolved `from`."""
    inputs = [{"name": "in", "path": "/in", "from": "${input}", **fields}]
    definition = make.activity(artifacts={"inputs": inputs})
    (reference,) = references_
    resolved = definition.artifacts.inputs[0].model_copy(update={"from_": reference})
    artifacts = definition.artifacts.model_copy(update={"inputs": [resolved]})
    spec = with_artifacts(definition.model_copy(update={"artifacts": artifacts}), "i").pod_template.spec.dump()
    variables = {each["name"]: each for each in spec["initContainers"][0]["env"]}
    mounts = spec["containers"][0].get("volumeMounts") or []
    return json.loads(variables["PERDURE_ARTIFACTS"]["value"].replace("$$", "$")), variables, mounts


def test_an_artifact_of_another_activity_is_downloaded_with_the_settings_of_the_store(make: Any) -> None:
    wanted, variables, mounts = wanted_of(make, _REPORT)
    assert wanted == [{"name": "in", "key": "shop/u/5-1/report.tar.gz", "sha256": "ab", "archive": "Tar"}]
    bucket = {"secretKeyRef": {"name": "perdure-artifacts", "key": "bucket"}}
    assert variables["PERDURE_STORE_BUCKET"]["valueFrom"] == bucket
    secret = variables["PERDURE_STORE_SECRET_ACCESS_KEY"]["valueFrom"]["secretKeyRef"]
    assert secret == {"name": "perdure-artifacts", "key": "secretAccessKey", "optional": True}
    assert [each["mountPath"] for each in mounts] == ["/in"]


def test_a_list_of_artifacts_becomes_a_folder(make: Any) -> None:
    plain = {"key": "a", "archive": "None"}
    (wanted,) = wanted_of(make, [_REPORT, plain])[0]
    assert [each["key"] for each in wanted["items"]] == [_REPORT["key"], "a"]
    assert "archive" not in wanted["items"][1]


def test_a_text_or_a_url_can_be_passed_like_an_artifact(make: Any) -> None:
    wanted, variables, _ = wanted_of(make, [{"data": "a$b"}, {"url": "http://shop.test/a.tgz", "archive": "Tar"}])
    items = [{"data": "a$b"}, {"url": "http://shop.test/a.tgz", "archive": "Tar"}]
    assert wanted == [{"name": "in", "items": items}]
    assert "PERDURE_STORE_BUCKET" not in variables


def test_a_missing_optional_artifact_is_omitted(make: Any) -> None:
    wanted, variables, mounts = wanted_of(make, None, optional=True)
    assert (wanted, mounts) == ([], [])
    assert "PERDURE_STORE_BUCKET" not in variables


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (None, "`from` is null; set `optional`"),
        ("report", "`from` must be an artifact"),
        ({"size": 1}, "`from` must be an artifact"),
        ([{"key": "a"}, 5], "`from` must be an artifact"),
        ([{"key": "a"}] * 201, "has 201 artifacts, but the limit is 200"),
        ({**_REPORT, "store": "other"}, "is in the artifact store `other`, and the activity uses `perdure-artifacts`"),
    ],
)
def test_a_value_that_is_not_an_artifact_fails_the_activity(make: Any, value: Any, said: str) -> None:
    with pytest.raises(InvalidDefinitionError, match=said):
        wanted_of(make, value)


def test_only_the_sidecar_has_the_credentials_of_the_store(make: Any) -> None:
    spec = spec_of(make, {**_OUTPUTS, "store": "team"})
    (sidecar,) = spec["initContainers"]
    (main,) = spec["containers"]
    assert (sidecar["name"], sidecar["restartPolicy"], sidecar["image"]) == (
        "perdure-outputs",
        "Always",
        "perdure:test",
    )
    assert {"name": "perdure-outputs", "mountPath": "/out", "subPath": "0"} in main["volumeMounts"]
    shared = {"name": "perdure-outputs", "mountPath": "/perdure-outputs/out", "subPath": "0", "readOnly": True}
    assert sidecar["volumeMounts"] == [shared]
    values = {each["name"]: each.get("value") for each in sidecar["env"]}
    assert json.loads(values["PERDURE_OUTPUTS"]) == [{"name": "report", "path": "/out/report"}]
    assert [each for each in main["env"] if "STORE" in each["name"]] == []
    stores = {each["valueFrom"]["secretKeyRef"]["name"] for each in sidecar["env"] if "secretKeyRef" in str(each)}
    assert stores == {"team"}
    assert spec["terminationGracePeriodSeconds"] == 600


def test_the_upload_begins_with_a_signal_that_cannot_be_lost_and_not_with_the_deletion_of_the_pod(make: Any) -> None:
    (sidecar,) = spec_of(make, _OUTPUTS)["initContainers"]
    assert sidecar["command"][:2] == ["env", "--block-signal=TERM"]
    assert "lifecycle" not in sidecar, "a deleted pod runs hooks while its containers are still writing"


def test_an_output_can_have_a_copy_with_a_key(make: Any) -> None:
    output = {"name": "report", "path": "/out/report", "key": "${input.day}/report"}
    definition = resolve(make.activity(artifacts={"outputs": [output]}), input={"day": "$5"}, run={}, attempt=1)
    spec = build_pod(make.run, make.attempt, with_artifacts(definition, "perdure:test"), PodSettings())["spec"]
    (sidecar,) = spec["initContainers"]
    (wanted,) = [each for each in sidecar["env"] if each["name"] == "PERDURE_OUTPUTS"]
    assert json.loads(wanted["value"]) == [{"name": "report", "path": "/out/report", "key": "$$5/report"}]
    assert copies({"spec": spec}) == {"report": "$5/report"}
    for changed in ("", "[", "{}", "[1]", '[{"name": "report"}]'):
        wanted["value"] = changed
        assert copies({"spec": spec}) == {}


def test_outputs_in_a_volume_of_the_container_are_read_from_it(make: Any) -> None:
    mounts = [
        {"name": "data", "mountPath": "/data"},
        {"name": "deep", "mountPath": "/data/deep", "subPath": "x"},
        {"name": "other", "mountPath": "/other"},
    ]
    paths = ["/data/a", "/data/deep/b", "/tmp/c", "/tmp/more/d", "/data/e", "/other", "/top"]
    outputs = [{"name": f"o{i}", "path": path} for i, path in enumerate(paths)]
    template = {"spec": {"containers": [{"name": "main", "image": "i", "volumeMounts": mounts}]}}
    spec = spec_of(make, {"outputs": outputs}, podTemplate=template)
    assert [
        (each["name"], each["mountPath"], each.get("subPath")) for each in spec["initContainers"][0]["volumeMounts"]
    ] == [
        ("data", "/perdure-outputs/data", None),
        ("deep", "/perdure-outputs/data/deep", "x"),
        ("other", "/perdure-outputs/other", None),
        ("perdure-outputs", "/perdure-outputs/tmp", "0"),
        ("perdure-outputs", "/perdure-outputs/top", "1"),
    ]


def test_the_containers_of_perdure_run_as_the_user_of_the_activity(make: Any) -> None:
    container = {"image": "i", "securityContext": {"runAsUser": 1000}}
    spec = spec_of(make, {**_OUTPUTS, "inputs": [_RAW]}, container=container)
    assert [each["securityContext"]["runAsUser"] for each in spec["initContainers"]] == [1000, 1000]


def test_a_stopped_pod_gets_no_time_for_an_upload(make: Any) -> None:
    assert stop_seconds({"spec": spec_of(make, _OUTPUTS)}) == 30
    assert stop_seconds({"spec": spec_of(make, {"inputs": [_RAW]})}) is None
    template = {"spec": {"terminationGracePeriodSeconds": 90, "containers": [{"name": "main", "image": "i"}]}}
    assert stop_seconds({"spec": spec_of(make, _OUTPUTS, podTemplate=template)}) is None


def uploading(make: Any, *init: dict[str, Any], phase: str = "Running") -> Any:
    definition = make.activity(artifacts=_OUTPUTS)
    pod = make.pod(make.terminated(message="7"), phase=phase, init=init, definition=definition)
    return outcome(make.attempt, definition, pod, now=make.now)


def test_an_attempt_completes_when_its_artifacts_are_stored(make: Any) -> None:
    assert uploading(make, make.running("perdure-outputs")) is None
    report = {"at": "shop/u/5-2", "files": {"report": [9, "ab", "Tar"]}}
    reported = uploading(make, make.terminated(0, name="perdure-outputs", message=json.dumps(report)))
    assert isinstance(reported, AttemptCompleted)
    assert reported.result == 7
    assert reported.artifacts == {"report": {**_REPORT, "key": "shop/u/5-2/report.tar.gz"}}


def test_a_result_that_names_artifacts_gets_their_references(make: Any) -> None:
    named = {"perdure.dev/artifact": "report", "name": "a.csv", "key": "forged"}
    result = {"rows": [named, 5], "other": {"perdure.dev/artifact": "unknown"}}
    definition = make.activity(artifacts=_OUTPUTS)
    report = {"at": "shop/u/5-2", "files": {"report": [9, "ab", "Tar"]}}
    init = [make.terminated(0, name="perdure-outputs", message=json.dumps(report))]
    pod = make.pod(make.terminated(message=json.dumps(result)), init=init, definition=definition)
    reported = outcome(make.attempt, definition, pod, now=make.now)
    assert isinstance(reported, AttemptCompleted)
    reference = {**_REPORT, "key": "shop/u/5-2/report.tar.gz", "name": "a.csv"}
    assert reported.result == {"rows": [reference, 5], "other": {"perdure.dev/artifact": "unknown"}}


def test_a_reference_has_the_key_of_the_copy(make: Any) -> None:
    outputs = [{"name": "report", "path": "/out/report", "key": "$${a}/report"}, {"name": "log", "path": "/out/log"}]
    definition = make.activity(artifacts={"outputs": outputs})
    pod = make.pod(make.terminated(message="7"), definition=definition)
    pod["spec"] = build_pod(make.run, make.attempt, with_artifacts(definition, "i"), PodSettings())["spec"]
    report = {"at": "shop/u/5-2", "files": {"report": [9, "ab", "None"], "log": [9, "ab", "None"]}}
    ended = make.terminated(0, name="perdure-outputs", message=json.dumps(report))
    pod["status"]["initContainerStatuses"] = [ended]
    done = outcome(make.attempt, definition, pod, now=make.now)
    assert isinstance(done, AttemptCompleted)
    assert done.artifacts["report"]["copy"] == "$${a}/report"
    assert "copy" not in done.artifacts["log"]


@pytest.mark.parametrize(
    ("end", "type_", "said"),
    [
        (
            {"exit_code": 1, "message": '{"error": {"type": "ArtifactMissing", "message": "gone"}}'},
            "ArtifactMissing",
            "gone",
        ),
        ({"exit_code": 137, "message": ""}, "ArtifactsNotStored", "exit code 137"),
        ({"exit_code": 0, "message": "[1]"}, "ArtifactsNotStored", "exit code 0"),
        (None, "ArtifactsNotStored", "their upload was not reported"),
    ],
)
def test_an_attempt_whose_artifacts_are_not_stored_fails(make: Any, end: Any, type_: str, said: str) -> None:
    init = () if end is None else (make.terminated(end["exit_code"], name="perdure-outputs", message=end["message"]),)
    reported = uploading(make, *init, phase="Succeeded")
    assert isinstance(reported, AttemptFailed)
    assert reported.failure.type == type_
    assert said in reported.failure.message


def test_a_failed_attempt_does_not_wait_for_the_upload(make: Any) -> None:
    definition = make.activity(artifacts=_OUTPUTS)
    pod = make.pod(make.terminated(3), init=(make.running("perdure-outputs"),), definition=definition)
    reported = outcome(make.attempt, definition, pod, now=make.now)
    assert isinstance(reported, AttemptFailed)
    assert reported.failure.type == "ExitCode3"


@pytest.mark.parametrize("report", [None, {}, {"at": "a", "files": [1]}, {"at": "a", "files": {"x": 1}}, "text", 5])
def test_an_invalid_report_has_no_artifacts(report: Any) -> None:
    assert references("store", report, {}) is None
