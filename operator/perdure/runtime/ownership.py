"""Determines the owner of an existing object, to decide what to do if the API server returns AlreadyExists.

Names are locks: the same attempt always uses the same name. After a crash between create and commit, the existing object is
therefore our own and is adopted. Any other object with that name is a conflict, which is reported and never modified:

    A1  created, crashed, created again          owner and attempt match             adopt
    A2  run deleted and re-created, same name    owner is the old run, terminating   wait, then create
    A3  another client's pod with that name      no owner or label of ours           a user must act

Everyone who can create pods can write owner references and annotations, but not the label with the run's ID: an admission policy
of the chart (templates/podfence.yaml) reserves it for the operator. So exactly the objects with this label are ours.
"""

from typing import Any

from perdure.api import labels
from perdure.runtime.attempts import Attempt, Conflict, KubeObject, RunRef


def owns(obj: KubeObject, run: RunRef, attempt: Attempt) -> bool:
    """Return whether a Pod belongs to exactly this attempt of this run.

    Args:
        obj: A Pod as the API server returned it.
        run: The run.
        attempt: The attempt.

    Returns:
        True if it can be adopted and its outcome trusted.
    """
    return made_for(obj, run) and is_attempt(obj, attempt)


def made_for(obj: KubeObject, run: RunRef) -> bool:
    """Return whether the operator created a Pod for any attempt of this run.

    Args:
        obj: A Pod as the API server returned it.
        run: The run.

    Returns:
        True if it belongs to the run and has the label that only the operator can set.
    """
    return _owned_by(obj, run.uid) and _run_id(obj) == run.uid


def owns_lease(lease: KubeObject, attempt: Attempt, pod_uid: str) -> bool:
    """Return whether a Lease belongs to the pod of exactly this attempt.

    Args:
        lease: A Lease as the API server returned it.
        attempt: The attempt.
        pod_uid: UID of the attempt's pod.

    Returns:
        True if it can be adopted and its contents trusted.
    """
    return _owned_by(lease, pod_uid) and is_attempt(lease, attempt)


def is_attempt(obj: KubeObject, attempt: Attempt) -> bool:
    """Return whether one of our objects belongs to this attempt.

    Args:
        obj: A Pod or a Lease.
        attempt: The attempt.

    Returns:
        True if the operator created it, and event and attempt number match.
    """
    annotations = _metadata(obj).get("annotations") or {}
    return (
        _run_id(obj) is not None
        and annotations.get(labels.SCHEDULED_EVENT_ANNOTATION) == str(attempt.scheduled_event_id)
        and annotations.get(labels.ATTEMPT_ANNOTATION) == str(attempt.attempt)
    )


def pod_conflict(existing: KubeObject, run: RunRef, attempt: Attempt) -> Conflict | None:
    """Check an existing Pod with the name of this attempt's pod.

    Args:
        existing: The existing Pod.
        run: The run.
        attempt: The attempt.

    Returns:
        None if it belongs to the attempt and can be adopted; otherwise the conflict.
    """
    return None if owns(existing, run, attempt) else _conflict(existing, "Pod", f"WorkflowRun {run.name}")


def lease_conflict(existing: KubeObject, attempt: Attempt, pod_uid: str) -> Conflict | None:
    """Check an existing Lease with the name of this attempt's Lease.

    Args:
        existing: The existing Lease.
        attempt: The attempt.
        pod_uid: UID of the attempt's pod.

    Returns:
        None if it belongs to the attempt and can be adopted; otherwise the conflict.
    """
    return None if owns_lease(existing, attempt, pod_uid) else _conflict(existing, "Lease", "the attempt's pod")


def _conflict(existing: KubeObject, kind: str, wanted: str) -> Conflict:
    metadata = _metadata(existing)
    owners = [
        f"{owner.get('kind')} {owner.get('name')} (uid {owner.get('uid')})"
        for owner in metadata.get("ownerReferences") or ()
    ]
    name = str(metadata.get("name"))
    stranger = "" if _run_id(existing) else f", and was not created by Perdure (it has no label {labels.RUN_ID_LABEL})"
    return Conflict(
        kind=kind,
        namespace=str(metadata.get("namespace")),
        name=name,
        message=f"{kind} {name} exists and belongs to {', '.join(owners) or 'nobody'}, not to this attempt of {wanted}{stranger}",
        passing="deletionTimestamp" in metadata,
    )


def _owned_by(obj: KubeObject, uid: str) -> bool:
    return any(owner.get("uid") == uid for owner in _metadata(obj).get("ownerReferences") or ())


def _run_id(obj: KubeObject) -> str | None:
    run_id: str | None = (_metadata(obj).get("labels") or {}).get(labels.RUN_ID_LABEL)
    return run_id


def _metadata(obj: KubeObject) -> dict[str, Any]:
    metadata: dict[str, Any] = obj.get("metadata") or {}
    return metadata
