"""The activities of a version of workers: WorkflowRevisions, which its Deployment names. Pure.

A flow calls activities whose definitions are in Workflows, which the next deployment replaces. So the pod template of a version
says which definitions it was made for, by a hash of each, and the Deployment of the version names the revisions that have them:

    Workflow etl                        WorkerDeployment                        Deployment of the version
    perdure.dev/activities: 5f3c09d1a2  perdure.dev/activities: etl=5f3c09d1a2  perdure.dev/revisions: etl=etl-51c0be9be29f
    status.revision: etl-51c0be9be29f   (annotation of its pod template)
"""

from collections.abc import Mapping
from typing import Any

from perdure.api.json_values import mapping, mappings
from perdure.api.kinds.workerdeployment import WorkerDeploymentSpec
from perdure.api.labels import ACTIVITIES_ANNOTATION, REVISIONS_ANNOTATION

KubeObject = Mapping[str, Any]


def wanted(spec: WorkerDeploymentSpec) -> dict[str, str]:
    """The hashes of the activities that the version in a spec was made for, by the name of their Workflow."""
    metadata = spec.pod_template.metadata
    return _read(metadata.annotations.get(ACTIVITIES_ANNOTATION, "") if metadata is not None else "")


def revisions_of(deployment: KubeObject) -> dict[str, str]:
    """The revisions with the activities of a version, by the name of their Workflow, from its Deployment."""
    return _read(str((deployment["metadata"].get("annotations") or {}).get(REVISIONS_ANNOTATION, "")))


def written(found: Mapping[str, str]) -> str:
    """Hashes or revisions by Workflow, as the value of an annotation."""
    return ",".join(f"{workflow}={value}" for workflow, value in sorted(found.items()))


def revision_of(workflow: KubeObject, hashed: str) -> tuple[str, str]:
    """Return the name of the revision of a Workflow, if that has the activities with a hash; otherwise why it does not (yet).

    A revision that cannot be stored has an empty name and no reason: then the version uses what its Workflow has.
    """
    metadata, status = workflow["metadata"], mapping(workflow.get("status"))
    name = metadata["name"]
    has = (metadata.get("annotations") or {}).get(ACTIVITIES_ANNOTATION)
    if has != hashed:
        other = f"those with the hash {has}" if has else "others"
        return (
            "",
            f"it needs the activities with the hash {hashed}, but Workflow `{name}` has {other}: apply both together",
        )
    ready: Mapping[str, Any] = next(
        (each for each in mappings(status.get("conditions")) if each.get("type") == "Ready"), {}
    )
    if status.get("observedGeneration") != metadata.get("generation") or not ready:
        return "", f"Workflow `{name}`, which has its activities, has not been checked yet"
    if ready.get("status") != "True":
        return (
            "",
            f"Workflow `{name}`, which has its activities, is not ready: {ready.get('reason')}: {ready.get('message')}",
        )
    return str(status.get("revision") or ""), ""


def _read(text: str) -> dict[str, str]:
    pairs = (each.partition("=") for each in text.split(","))
    return {workflow: value for workflow, _, value in pairs if workflow and value}
