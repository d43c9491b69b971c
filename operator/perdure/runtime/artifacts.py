"""Artifacts: an activity whose pod prepares files before its container starts.

init container of Perdure            volume                      activity's container
downloads, checks, unpacks    ──▶    a file or a folder   ──▶    mounts each at its path, read-only
"""

import json
from typing import Final

from perdure.api.artifact import Archive, InputArtifact
from perdure.api.reserved import ARTIFACTS, ARTIFACTS_PATH
from perdure.api.workflow import Activity, PodTemplate
from perdure.runtime.attempts import KubeObject, PayloadTooLargeError
from perdure.runtime.workspaces import list_in, template_of

_LARGEST: Final = 120_000
"""Bytes of an environment variable: Linux takes 128 KiB, with the name."""


def with_artifacts(definition: Activity, image: str) -> Activity:
    """Return the activity as a pod template that prepares its artifacts.

    Args:
        definition: The activity, with its expressions evaluated; not changed.
        image: An image with `perdure.activity`.

    Raises:
        PayloadTooLargeError: The texts of the artifacts are too large together.
    """
    artifacts = definition.artifacts
    if artifacts is None:
        return definition
    template = template_of(definition)
    spec = template["spec"]
    main = spec["containers"][0]
    wanted = json.dumps([_wanted(each) for each in artifacts.inputs], ensure_ascii=False)
    if len(wanted.encode()) > _LARGEST:
        raise PayloadTooLargeError(
            f"the input artifacts of activity {definition.name} take {len(wanted.encode())} bytes, and may take {_LARGEST}; "
            "download large files with `http`"
        )
    folder: KubeObject = {} if artifacts.size_limit is None else {"sizeLimit": artifacts.size_limit}
    spec["volumes"] = [*list_in(spec, "volumes"), {"name": ARTIFACTS, "emptyDir": folder}]
    # Before those of the template, which may read the files.
    spec["initContainers"] = [_container(image, wanted), *list_in(spec, "initContainers")]
    mounts = [
        {"name": ARTIFACTS, "mountPath": each.path, "subPath": each.name, "readOnly": True} for each in artifacts.inputs
    ]
    main["volumeMounts"] = [*list_in(main, "volumeMounts"), *mounts]
    return definition.model_copy(
        update={"container": None, "pod_template": PodTemplate.parse(template), "artifacts": None}
    )


def _container(image: str, wanted: str) -> KubeObject:
    return {
        "name": ARTIFACTS,
        "image": image,
        "command": ["python", "-m", "perdure.activity.artifacts"],
        "env": [{"name": "PERDURE_ARTIFACTS", "value": wanted.replace("$", "$$")}],
        "volumeMounts": [{"name": ARTIFACTS, "mountPath": ARTIFACTS_PATH}],
        "resources": {"requests": {"cpu": "5m", "memory": "24Mi"}},
    }


def _wanted(artifact: InputArtifact) -> KubeObject:
    """What the init container needs to know about an artifact."""
    if artifact.raw is not None:
        return {"name": artifact.name, "data": artifact.raw.data}
    assert artifact.http is not None
    wanted: KubeObject = {"name": artifact.name, "url": artifact.http.url}
    if artifact.http.sha256 is not None:
        wanted["sha256"] = artifact.http.sha256
    if artifact.archive is not Archive.NONE:
        wanted["archive"] = artifact.archive.value
    return wanted
