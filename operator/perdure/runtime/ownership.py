"""Whose object is it? Asked when a create is answered with AlreadyExists.

Names are locks: the same attempt always asks for the same name. So after a crash between create and commit the object that
is found is our own, and is adopted. Anything else under that name is a conflict, which is told and never touched:

    A1  created, crashed, created again          owner and attempt match          adopt
    A2  run deleted and made anew, same name     owner is the old run, deleting   wait, then create
    A3  somebody else's pod of that name         no owner or label of ours        somebody has to act

Owner references and annotations can be written by whoever may create pods. The label with the run's id cannot: an admission
policy of the chart (templates/podfence.yaml) keeps it for the operator. So what carries it is ours, and nothing else is.
"""

from typing import Any

from perdure.api import labels
from perdure.runtime.attempts import Attempt, Conflict, KubeObject, RunRef


def owns(obj: KubeObject, run: RunRef, attempt: Attempt) -> bool:
    """Tell whether a Pod belongs to this run and is exactly this attempt.

    Args:
        obj: A Pod as the API server has it.
        run: The run.
        attempt: The attempt.

    Returns:
        True if it can be adopted, and its outcome believed.
    """
    return made_for(obj, run) and is_attempt(obj, attempt)


def made_for(obj: KubeObject, run: RunRef) -> bool:
    """Tell whether the operator has made a Pod for some attempt of this run.

    Args:
        obj: A Pod as the API server has it.
        run: The run.

    Returns:
        True if it belongs to the run, and has the label that only the operator can give.
    """
    return _owned_by(obj, run.uid) and _run_id(obj) == run.uid


def owns_lease(lease: KubeObject, attempt: Attempt, pod_uid: str) -> bool:
    """Tell whether a Lease belongs to the pod of exactly this attempt.

    Args:
        lease: A Lease as the API server has it.
        attempt: The attempt.
        pod_uid: UID of the attempt's pod.

    Returns:
        True if it can be adopted, and what stands on it believed.
    """
    return _owned_by(lease, pod_uid) and is_attempt(lease, attempt)


def is_attempt(obj: KubeObject, attempt: Attempt) -> bool:
    """Tell whether an object of ours is this attempt's.

    Args:
        obj: A Pod or a Lease.
        attempt: The attempt.

    Returns:
        True if the operator has made it, and event and attempt number are the same.
    """
    annotations = _metadata(obj).get("annotations") or {}
    return (
        _run_id(obj) is not None
        and annotations.get(labels.SCHEDULED_EVENT_ANNOTATION) == str(attempt.scheduled_event_id)
        and annotations.get(labels.ATTEMPT_ANNOTATION) == str(attempt.attempt)
    )


def pod_conflict(existing: KubeObject, run: RunRef, attempt: Attempt) -> Conflict | None:
    """Judge the Pod that stands where this attempt's should be created.

    Args:
        existing: The Pod that has the name.
        run: The run.
        attempt: The attempt.

    Returns:
        None if it is the attempt's own, to be adopted; otherwise what is in the way.
    """
    return None if owns(existing, run, attempt) else _conflict(existing, "Pod", f"WorkflowRun {run.name}")


def lease_conflict(existing: KubeObject, attempt: Attempt, pod_uid: str) -> Conflict | None:
    """Judge the Lease that stands where this attempt's should be created.

    Args:
        existing: The Lease that has the name.
        attempt: The attempt.
        pod_uid: UID of the attempt's pod.

    Returns:
        None if it is the attempt's own, to be adopted; otherwise what is in the way.
    """
    return None if owns_lease(existing, attempt, pod_uid) else _conflict(existing, "Lease", "the attempt's pod")


def _conflict(existing: KubeObject, kind: str, wanted: str) -> Conflict:
    metadata = _metadata(existing)
    owners = [
        f"{owner.get('kind')} {owner.get('name')} (uid {owner.get('uid')})"
        for owner in metadata.get("ownerReferences") or ()
    ]
    name = str(metadata.get("name"))
    stranger = "" if _run_id(existing) else f", and was not made by Perdure (it has no label {labels.RUN_ID_LABEL})"
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
