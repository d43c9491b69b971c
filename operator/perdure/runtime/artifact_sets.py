"""ArtifactSets: which objects need the artifacts of a run, and the pod that deletes artifacts that nothing needs."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from perdure.api import labels
from perdure.api.kinds.artifactset import HolderKind
from perdure.api.labels import API_VERSION
from perdure.api.names import artifact_folder, artifact_set_name, deletion_pod_name, label_value
from perdure.api.times import read_kubernetes_time
from perdure.runtime.attempts import KubeObject, PodSettings, RunRef, add_pull_secrets
from perdure.runtime.pods.artifacts import build_store_pod

_SECONDS: Final = 600
"""After this time Kubernetes stops a pod that deletes artifacts."""
_LATEST: Final = timedelta(minutes=15)
"""After this time, a pod that has not ended has failed: it may never have started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletionReport:
    """The result of a pod that deletes artifacts."""

    deleted: frozenset[str]
    """Names of the ArtifactSets whose artifacts it has deleted."""
    error: str
    """Why others are left; empty if there are none."""
    ended: datetime
    """When it ended, or was found not to end."""


def holder(kind: HolderKind, name: str, uid: str) -> KubeObject:
    """An object that needs artifacts, as in the spec of an ArtifactSet."""
    return {"kind": kind.value, "name": name, "uid": uid}


def build_set(run: RunRef, store: str, image: str) -> KubeObject:
    """Build the ArtifactSet of a run, which needs its own artifacts.

    Args:
        run: The run.
        store: The Secret of an artifact store.
        image: An image with `perdure.runner`.
    """
    return {
        "apiVersion": API_VERSION,
        "kind": "ArtifactSet",
        "metadata": {
            "name": artifact_set_name(run.uid),
            "namespace": run.namespace,
            "labels": {labels.RUN_LABEL: label_value(run.name)},
            "annotations": {labels.IMAGE_ANNOTATION: image},
        },
        "spec": {
            "runId": run.uid,
            "stores": [store],
            "holders": [holder(HolderKind.WORKFLOW_RUN, run.name, run.uid)],
        },
    }


def uploaders_in(text: bytes, namespace: str) -> set[str]:
    """Return the UIDs of the runs to whose artifacts a text refers, whatever is around the keys.

    Args:
        text: JSON, such as the status of a run.
        namespace: The namespace of the runs.
    """
    start = f"{namespace}/".encode()
    if start not in text:
        return set()
    keys = re.finditer(rb"(?<![-a-z0-9])" + re.escape(start) + rb"([a-z0-9][-a-z0-9]{0,62})/\d+-\d+/", text)
    return {each[1].decode() for each in keys}


def build_deletion_pod(
    namespace: str, store: str, sets: Sequence[KubeObject], settings: PodSettings, *, unique: str
) -> KubeObject:
    """Build the pod that deletes artifacts from a store.

    Args:
        namespace: The namespace of the Secret.
        store: The Secret of the artifact store.
        sets: The ArtifactSets whose artifacts to delete.
        settings: The operator's settings.
        unique: A text that nobody can guess; the pod is named after it.
    """
    folders = [artifact_folder(namespace, each["spec"]["runId"]) for each in sets]
    metadata = {
        "name": deletion_pod_name(unique),
        "namespace": namespace,
        "labels": {labels.ARTIFACT_STORE_LABEL: label_value(store)},
        "annotations": {labels.ARTIFACT_SETS_ANNOTATION: json.dumps([each["metadata"]["name"] for each in sets])},
        "ownerReferences": [_owner(each["metadata"]) for each in sets],
    }
    pod = build_store_pod(
        metadata,
        "deletion",
        store,
        {"PERDURE_FOLDERS": json.dumps(folders)},
        image=settings.sidecar_image,
        user=settings.run_as_user,
        seconds=_SECONDS,
    )
    add_pull_secrets(pod["spec"], settings)
    return pod


def _owner(meta: KubeObject) -> KubeObject:
    """An owner reference to an ArtifactSet: the garbage collector deletes a pod that has no more artifacts to delete."""
    owner = {"apiVersion": API_VERSION, "kind": "ArtifactSet", "name": meta["name"], "uid": meta["uid"]}
    return {**owner, "blockOwnerDeletion": False}


def deletion_report(pod: KubeObject, now: datetime) -> DeletionReport | None:
    """Return the result of a pod that deletes artifacts; None if it may still end.

    Args:
        pod: The pod.
        now: The time.
    """
    status, created = pod.get("status") or {}, read_kubernetes_time(pod["metadata"].get("creationTimestamp")) or now
    names = _json((pod["metadata"].get("annotations") or {}).get(labels.ARTIFACT_SETS_ANNOTATION), list)
    state = next((each.get("state") or {} for each in status.get("containerStatuses") or ()), {})
    if status.get("phase") not in {"Succeeded", "Failed"}:
        if now - created < _LATEST:
            return None
        waiting = state.get("waiting") or {}
        why = waiting.get("message") or waiting.get("reason") or "it does not end"
        return DeletionReport(
            deleted=frozenset(), error=f"pod `{pod['metadata']['name']}`: {why}", ended=created + _LATEST
        )
    end = state.get("terminated") or {}
    ended = read_kubernetes_time(end.get("finishedAt")) or created
    report = _json(end.get("message"), dict)
    if status["phase"] == "Succeeded":
        return DeletionReport(deleted=frozenset(names), error="", ended=ended)
    failed = report.get("failed")
    if not isinstance(failed, list):
        why = end.get("message") or status.get("message") or status.get("reason") or "it has failed"
        return DeletionReport(deleted=frozenset(), error=str(why)[-1_000:], ended=ended)
    done = frozenset(name for index, name in enumerate(names) if index not in failed)
    return DeletionReport(deleted=done, error=str(report.get("error")), ended=ended)


def _json(text: Any, kind: type[Any]) -> Any:
    """Decode JSON of a kind; an empty value if it is anything else."""
    try:
        value = json.loads(text or "")
    except (ValueError, TypeError):
        return kind()
    return value if isinstance(value, kind) else kind()
