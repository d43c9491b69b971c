"""Artifacts: an activity whose pod prepares files before its container starts, and uploads others after it has ended.

init container of Perdure            volume                      activity's container            sidecar of Perdure
downloads, checks, unpacks    ──▶    a file or a folder   ──▶    reads each at its path
                                     folders of the outputs  ◀── writes                   ──▶    packs and uploads

Only the containers of Perdure have the credentials of the artifact store. Kubernetes reads them from the Secret; we do not.

Pods of Perdure that belong to no attempt, for deleting and reading artifacts, are built here, too.
"""

import json
import posixpath
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from perdure.api import labels
from perdure.api.kinds.artifact import Archive, Artifacts, InputArtifact
from perdure.api.kinds.workflow import Activity, PodTemplate
from perdure.api.names import LOG_ARTIFACT, RESULT_ARTIFACT, artifact_file
from perdure.api.pods import ARTIFACTS, ARTIFACTS_PATH, LOG_PATH, OUTPUTS, OUTPUTS_PATH, RESULT_FILE
from perdure.runtime.attempts import InvalidDefinitionError, KubeObject, PayloadTooLargeError
from perdure.runtime.pods.commands import copy_log, list_in
from perdure.runtime.pods.payloads import decode
from perdure.runtime.pods.sidecar import BLOCKING_SIGTERM
from perdure.runtime.pods.workspaces import template_of

_LARGEST: Final = 120_000
"""Maximum bytes of an environment variable: Linux accepts 128 KiB, including the name."""
_MAX_ITEMS: Final = 200
"""Maximum number of artifacts in a list in `from`."""
UPLOAD_SECONDS: Final = 600
"""Seconds that Kubernetes gives the sidecar to upload, unless the pod has a `terminationGracePeriodSeconds` of its own."""
_SOURCES: Final = ("key", "url", "data")
"""The source of an input artifact: the artifact store, an HTTP server, or a text."""
_STOP_SECONDS: Final = 30
"""The default grace period of Kubernetes, in seconds."""
_RESOURCES: Final = {"requests": {"cpu": "5m", "memory": "64Mi"}}
_OUTPUTS_VARIABLE: Final = "PERDURE_OUTPUTS"
_RESULT_VARIABLE: Final = "PERDURE_RESULT_FILE"
STORE: Final = {
    "ENDPOINT": "endpoint",
    "REGION": "region",
    "PREFIX": "prefix",
    "ACCESS_KEY_ID": "accessKeyId",
    "SECRET_ACCESS_KEY": "secretAccessKey",
    "SESSION_TOKEN": "sessionToken",
    "CA": "ca.crt",
}
"""The variables of the programs, and the optional keys of the Secret."""


def references(store: str, report: Any, copied: Mapping[str, str]) -> dict[str, Any] | None:
    """The output artifacts of an attempt, as expressions see them; None if the report is not from the sidecar.

    Args:
        store: The Secret of the artifact store.
        report: The report of the sidecar.
        copied: The keys of copies, by artifact: see `copies`.
    """
    try:
        files = {
            name: (f"{report['at']}/{artifact_file(name, archive)}", size, sha256, archive)
            for name, (size, sha256, archive) in report["files"].items()
        }
        if "log" in report:
            files[LOG_ARTIFACT] = (*report["log"], Archive.NONE.value)
        found: dict[str, Any] = {
            name: {"store": store, "key": key, "size": size, "sha256": sha256, "archive": archive}
            for name, (key, size, sha256, archive) in files.items()
        }
    except (AttributeError, KeyError, TypeError, ValueError):
        return None
    for name in found.keys() & copied.keys():
        found[name]["copy"] = copied[name]
    return found


def copies(pod: KubeObject) -> dict[str, str]:
    """Return the keys of the copies that the sidecar of a pod makes, by output artifact.

    Args:
        pod: A Pod. Outputs that an admission webhook has made unreadable have no copies.
    """
    sidecars = [each for each in (pod.get("spec") or {}).get("initContainers") or () if each.get("name") == OUTPUTS]
    variables = {each["name"]: each.get("value", "") for sidecar in sidecars for each in sidecar.get("env") or ()}
    outputs, _ = decode(str(variables.get(_OUTPUTS_VARIABLE, "[]")).replace("$$", "$"))
    wanted = [each for each in outputs if isinstance(each, dict)] if isinstance(outputs, list) else []
    return {str(each["name"]): str(each["key"]) for each in wanted if each.keys() >= {"name", "key"}}


def stop_seconds(pod: KubeObject) -> int | None:
    """Return the grace period for deleting a pod, in seconds; None means the period in its spec.

    The longer period for uploads by the sidecar is not meant for an activity that ignores SIGTERM.

    Args:
        pod: A Pod.
    """
    spec = pod.get("spec") or {}
    uploads = any(each.get("name") == OUTPUTS for each in spec.get("initContainers") or ())
    return _STOP_SECONDS if uploads and spec.get("terminationGracePeriodSeconds") == UPLOAD_SECONDS else None


def with_artifacts(definition: Activity, image: str) -> Activity:
    """Return the activity as a pod template that downloads its input artifacts and uploads its output artifacts.

    Args:
        definition: The activity, with its expressions evaluated; not changed.
        image: An image with `perdure.runner`.

    Raises:
        PayloadTooLargeError: The total size of the literal artifacts exceeds the limit.
        InvalidDefinitionError: A value of `from` is not an artifact, or the log of a container without a command is archived.
    """
    artifacts = definition.artifacts
    if artifacts is None or not (artifacts.inputs or artifacts.uploads):
        return definition
    template = template_of(definition)
    spec = template["spec"]
    main = spec["containers"][0]
    containers = []
    if artifacts.inputs:
        containers.append(_downloader(definition.name, artifacts, spec, main))
    if artifacts.uploads:
        containers.append(_uploader(definition.name, artifacts, spec, main))
    if artifacts.uploads_data:
        spec.setdefault("terminationGracePeriodSeconds", UPLOAD_SECONDS)
    for container in containers:
        users = [(part.get("securityContext") or {}).get("runAsUser") for part in (main, spec)]
        user = next((one for one in users if one is not None), None)
        context = (
            {} if user is None else {"securityContext": {"runAsUser": user}}
        )  # each reads what the other has written
        container |= {"image": image, "resources": _RESOURCES, **context}
    # Before those of the template, which may read the files.
    spec["initContainers"] = [*containers, *list_in(spec, "initContainers")]
    return definition.model_copy(
        update={"container": None, "pod_template": PodTemplate.parse(template), "artifacts": None}
    )


def _volume(name: str, artifacts: Artifacts) -> KubeObject:
    return {"name": name, "emptyDir": {} if artifacts.size_limit is None else {"sizeLimit": artifacts.size_limit}}


def _downloader(activity: str, artifacts: Artifacts, spec: KubeObject, main: KubeObject) -> KubeObject:
    """Build the init container that prepares the inputs, and add its mounts to `main`."""
    wanted = [
        each for each in (_instructions(artifact, artifacts.store) for artifact in artifacts.inputs) if each is not None
    ]
    text = json.dumps(wanted, ensure_ascii=False)
    if len(text.encode()) > _LARGEST:
        raise PayloadTooLargeError(
            f"the input artifacts of activity {activity} take {len(text.encode())} bytes, but the limit is {_LARGEST}; "
            "download large files with `http`, or keep them in the artifact store"
        )
    spec["volumes"] = [*list_in(spec, "volumes"), _volume(ARTIFACTS, artifacts)]
    names = {each["name"] for each in wanted}
    mounts = [
        {"name": ARTIFACTS, "mountPath": each.path, "subPath": each.name, "readOnly": True}
        for each in artifacts.inputs
        if each.name in names
    ]
    main["volumeMounts"] = [*list_in(main, "volumeMounts"), *mounts]
    stored = any("key" in item for each in wanted for item in each.get("items", [each]))
    return {
        "name": ARTIFACTS,
        "command": ["python", "-m", "perdure.runner.artifacts.input_artifacts"],
        "env": [_variable("PERDURE_ARTIFACTS", text), *(store_settings(artifacts.store) if stored else ())],
        "volumeMounts": [{"name": ARTIFACTS, "mountPath": ARTIFACTS_PATH}],
    }


def _instructions(artifact: InputArtifact, store: str) -> KubeObject | None:
    """Return the instructions for the init container about an input artifact; None if there is no artifact."""
    if artifact.raw is not None:
        return {"name": artifact.name, "data": artifact.raw.data}
    packed = {} if artifact.archive is Archive.NONE else {"archive": artifact.archive.value}
    if artifact.http is not None:
        hashed = {} if artifact.http.sha256 is None else {"sha256": artifact.http.sha256}
        return {"name": artifact.name, "url": artifact.http.url, **hashed, **packed}
    if artifact.key is not None:
        return {"name": artifact.name, "key": artifact.key, **packed}
    source: Any = artifact.from_
    if source is None:
        if artifact.optional:
            return None
        raise InvalidDefinitionError(f"artifact `{artifact.name}`: `from` is null; set `optional` if that is allowed")
    if isinstance(source, list):
        if len(source) > _MAX_ITEMS:
            raise InvalidDefinitionError(
                f"artifact `{artifact.name}`: `from` has {len(source)} artifacts, but the limit is {_MAX_ITEMS}"
            )
        return {"name": artifact.name, "items": [_reference(artifact.name, each, store) for each in source]}
    return {"name": artifact.name, **_reference(artifact.name, source, store)}


def _reference(name: str, reference: Any, store: str) -> KubeObject:
    """Return the instructions for the init container about an output artifact of another activity."""
    if not isinstance(reference, Mapping) or sum(isinstance(reference.get(key), str) for key in _SOURCES) != 1:
        raise InvalidDefinitionError(
            f"artifact `{name}`: `from` must be an artifact, such as `${{input.report}}` where the input of the step is "
            "`{report: ${steps.make.artifacts.report}}`"
        )
    other = reference.get("store", store)
    if other != store:
        raise InvalidDefinitionError(
            f"artifact `{name}` is in the artifact store `{other}`, and the activity uses `{store}`; set `artifacts.store`"
        )
    found = {key: reference[key] for key in (*_SOURCES, "sha256", "archive") if isinstance(reference.get(key), str)}
    return {key: value for key, value in found.items() if value != Archive.NONE}


def _uploader(activity: str, artifacts: Artifacts, spec: KubeObject, main: KubeObject) -> KubeObject:
    """Build the sidecar that uploads the outputs, a large result, and the log, and give `main` the volumes for them."""
    wanted = _uploads(artifacts)
    paths = [each["path"] for each in wanted]
    folders = _folders(main, paths)
    if folders:
        spec["volumes"] = [*list_in(spec, "volumes"), _volume(OUTPUTS, artifacts)]
        added = [{"name": OUTPUTS, "mountPath": path, "subPath": str(i)} for i, path in enumerate(folders)]
        main["volumeMounts"] = [*list_in(main, "volumeMounts"), *added]
    if artifacts.large_results:
        theirs = [each for each in list_in(main, "env") if each.get("name") != _RESULT_VARIABLE]
        main["env"] = [_variable(_RESULT_VARIABLE, RESULT_FILE), *theirs]
    return {
        "name": OUTPUTS,
        # Not a `preStop` hook: when a pod is deleted, Kubernetes runs it while the other containers are still writing.
        "command": [*BLOCKING_SIGTERM, "python", "-m", "perdure.runner.artifacts.output_artifacts"],
        "restartPolicy": "Always",
        "env": [
            _variable(_OUTPUTS_VARIABLE, json.dumps(wanted, ensure_ascii=False)),
            _variable("PERDURE_OUTPUTS_FOLDER", OUTPUTS_PATH),
            _variable("PERDURE_TERMINATION_LOG", "/dev/termination-log"),
            _field("PERDURE_NAMESPACE", "metadata.namespace"),
            _field("PERDURE_RUN_ID", f"metadata.labels['{labels.RUN_ID_LABEL}']"),
            _field("PERDURE_EVENT", f"metadata.annotations['{labels.SCHEDULED_EVENT_ANNOTATION}']"),
            _field("PERDURE_ATTEMPT", f"metadata.annotations['{labels.ATTEMPT_ANNOTATION}']"),
            *((_variable("PERDURE_KEPT", "true"),) if artifacts.keeps_outputs else ()),
            *((_variable("PERDURE_LOG_FOLDER", LOG_PATH),) if artifacts.archive_logs else ()),
            *store_settings(artifacts.store),
        ],
        "volumeMounts": [
            *_shared(main, paths),
            *((copy_log(activity, spec, main),) if artifacts.archive_logs else ()),
        ],
    }


def _uploads(artifacts: Artifacts) -> list[KubeObject]:
    """Return the instructions for the sidecar: the outputs, and a large result, which is one that may be missing."""
    outputs = [
        {
            "name": each.name,
            "path": posixpath.normpath(each.path),
            **({"key": each.key} if each.key is not None else {}),
            **({"optional": True} if each.optional else {}),
        }
        for each in artifacts.outputs
    ]
    result = {"name": RESULT_ARTIFACT, "path": RESULT_FILE, "optional": True}
    return [*outputs, result] if artifacts.large_results else outputs


def _folders(main: KubeObject, paths: Sequence[str]) -> list[str]:
    """Return the output folders that are not in a volume of the container yet, without nested ones."""
    parents = sorted({_folder_of(posixpath.normpath(path)) for path in paths if _mount_of(main, path) is None})
    return [each for each in parents if not any(_within(each, other) for other in parents if other != each)]


def _folder_of(path: str) -> str:
    """Return the folder to mount as a volume for an output. It cannot be the root, so an output in the root must be a folder."""
    parent = posixpath.dirname(path)
    return path if parent == "/" else parent


def _shared(main: KubeObject, paths: Sequence[str]) -> Iterator[KubeObject]:
    """Yield the mounts of the container that contain outputs, for the sidecar."""
    mounts = [_mount_of(main, path) for path in paths]
    for mount in list_in(main, "volumeMounts"):
        if any(mount is each for each in mounts):
            if "subPathExpr" in mount:
                raise InvalidDefinitionError(
                    f"the volume mount at `{mount['mountPath']}` has outputs, so it needs `subPath`"
                )
            part = {"subPath": mount["subPath"]} if "subPath" in mount else {}
            target = OUTPUTS_PATH + posixpath.normpath(mount["mountPath"])
            yield {"name": mount["name"], "mountPath": target, **part, "readOnly": True}


def _mount_of(main: KubeObject, path: str) -> KubeObject | None:
    """Return the innermost volume mount of the container that contains or equals a path."""
    found = [each for each in list_in(main, "volumeMounts") if _within(path, str(each.get("mountPath") or "/"))]
    return max(found, key=lambda each: len(posixpath.normpath(each["mountPath"])), default=None)


def _within(path: str, folder: str) -> bool:
    return f"{posixpath.normpath(path)}/".startswith(f"{posixpath.normpath(folder).rstrip('/')}/")


def store_settings(store: str) -> Iterator[KubeObject]:
    """Yield the settings and credentials of the artifact store as variables of a container, from its Secret.

    Args:
        store: Name of the Secret.
    """
    yield {"name": "PERDURE_STORE_BUCKET", "valueFrom": {"secretKeyRef": {"name": store, "key": "bucket"}}}
    for name, key in STORE.items():
        reference = {"name": store, "key": key, "optional": True}
        yield {"name": f"PERDURE_STORE_{name}", "valueFrom": {"secretKeyRef": reference}}


def _variable(name: str, value: str) -> KubeObject:
    return {"name": name, "value": value.replace("$", "$$")}


def _field(name: str, path: str) -> KubeObject:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


LOG_FILE: Final = "/dev/termination-log"
"""The file for the termination message."""
_STORE_RESOURCES: Final = {"requests": {"cpu": "5m", "memory": "64Mi"}}


def build_store_pod(
    metadata: KubeObject,
    program: str,
    store: str,
    variables: Mapping[str, str],
    *,
    image: str,
    user: int | None = None,
    seconds: int,
) -> KubeObject:
    """Build a pod that runs a program once.

    Args:
        metadata: Name, namespace and so on.
        program: The module of the program in `perdure.runner.artifacts`.
        store: The Secret of the artifact store.
        variables: More variables of the program.
        image: An image with `perdure.runner`.
        user: The user ID; None leaves it to the image or the platform.
        seconds: After this time, Kubernetes stops the pod.
    """
    container = {
        "name": program.replace("_", "-"),
        "image": image,
        "command": ["python", "-m", f"perdure.runner.artifacts.{program}"],
        "env": [
            *({"name": name, "value": value.replace("$", "$$")} for name, value in variables.items()),
            {"name": "PERDURE_TERMINATION_LOG", "value": LOG_FILE},
            *store_settings(store),
        ],
        "resources": _STORE_RESOURCES,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    who = {} if user is None else {"runAsUser": user}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {
            "restartPolicy": "Never",
            "activeDeadlineSeconds": seconds,
            "automountServiceAccountToken": False,
            "securityContext": {"runAsNonRoot": True, **who, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [container],
        },
    }


def build_export_pod(
    metadata: KubeObject,
    store: str,
    key: str,
    ranges: Sequence[tuple[int, int]],
    *,
    reader: str,
    image: str,
    seconds: int,
) -> KubeObject:
    """Build a pod that writes parts of an object to its logs, each part to the log of a container of its own.

    The containers run one after the other, as the user of the image, or as the one that the platform sets: a client does not
    know the settings of the operator.

    Args:
        metadata: Name, namespace and so on.
        store: The Secret of the artifact store.
        key: The key of the object.
        ranges: The parts: the first byte, and the one after the last; empty for the whole object.
        reader: The public key of the reader, for whom the containers encrypt the parts.
        image: An image with `perdure.runner`.
        seconds: After this time, Kubernetes stops the pod.
    """
    common = {"PERDURE_KEY": key, "PERDURE_READER": reader}
    pods = [
        build_store_pod(metadata, "export", store, {**common, **part}, image=image, seconds=seconds)
        for part in [{"PERDURE_RANGE": f"{first}-{end}"} for first, end in ranges] or [{}]
    ]
    *others, last = (pod["spec"]["containers"][0] for pod in pods)
    init = [{**each, "name": f"{each['name']}-{number}"} for number, each in enumerate(others, 1)]
    return {**pods[0], "spec": {**pods[0]["spec"], "initContainers": init, "containers": [last]}}
