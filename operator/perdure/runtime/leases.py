"""From an attempt to its Lease, and from a Lease to what the attempt last said."""

import math
from datetime import datetime
from typing import Any

from perdure.api import labels
from perdure.api.names import pod_name
from perdure.engine.inputs import HeartbeatRead
from perdure.runtime import payloads
from perdure.runtime.attempts import Attempt, KubeObject, RunRef
from perdure.runtime.ownership import is_attempt
from perdure.runtime.pods import LONGEST_DEADLINE, attempt_annotations, attempt_labels
from perdure.runtime.times import read_time

TOO_LARGE_KEY = "perdure.dev/details-too-large"
"""The one key of what stands in for heartbeat details that exceed the limit; its value is their size in bytes."""


def build_lease(run: RunRef, attempt: Attempt, pod_uid: str) -> KubeObject:
    """Make the Lease through which an attempt's pod heartbeats and hands over a large result.

    It belongs to the pod: the garbage collector removes it with the pod, and an admission policy lets only the token
    bound to that pod write to it. `renewTime` is absent until the first heartbeat.

    Args:
        run: The run the attempt belongs to.
        attempt: The attempt.
        pod_uid: UID of the attempt's pod, which exists already.

    Returns:
        A coordination.k8s.io/v1 Lease to create.
    """
    name = pod_name(run.name, attempt.scheduled_event_id, attempt.attempt)
    spec: KubeObject = {"holderIdentity": name, "leaseTransitions": attempt.attempt}
    if attempt.heartbeat_timeout is not None:
        seconds = math.ceil(attempt.heartbeat_timeout.total_seconds())
        spec["leaseDurationSeconds"] = min(max(seconds, 1), LONGEST_DEADLINE)
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "name": name,
            "namespace": run.namespace,
            "labels": attempt_labels(run, attempt),
            "annotations": attempt_annotations(run, attempt),
            "ownerReferences": [
                {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "name": name,
                    "uid": pod_uid,
                    "controller": True,
                    "blockOwnerDeletion": False,
                }
            ],
        },
        "spec": spec,
    }


def heartbeat(attempt: Attempt, lease: KubeObject | None, *, now: datetime) -> HeartbeatRead:
    """Read the last heartbeat from an attempt's Lease.

    Args:
        attempt: The attempt whose heartbeat timeout comes due.
        lease: The Lease as it was read just now, or None where it is gone.
        now: The time of that reading. A heartbeat from the future (a node's clock that is ahead) counts as of now: it
            must not put off the timeout.

    Returns:
        The input for the engine; without a time where there is no Lease, no heartbeat, or only another attempt's Lease.
    """
    time: datetime | None = None
    details: Any = None
    if lease is not None and is_attempt(lease, attempt):
        time = read_time((lease.get("spec") or {}).get("renewTime"))
        time = None if time is None else min(time, now)
        details = heartbeat_details(lease)
    return HeartbeatRead(
        scheduled_event_id=attempt.scheduled_event_id, attempt=attempt.attempt, time=time, details=details
    )


def heartbeat_details(lease: KubeObject) -> Any:
    """Read the details of the last heartbeat.

    Args:
        lease: The attempt's own Lease.

    Returns:
        The JSON value; the text itself where it is no JSON; an object with the key `TOO_LARGE_KEY` where it exceeds the
        limit, so that it is neither cut nor kept (the helper refuses such details before they are sent).
    """
    text = annotation(lease, labels.HEARTBEAT_DETAILS_ANNOTATION)
    if text is None:
        return None
    if payloads.size(text) > payloads.HEARTBEAT_DETAILS_LIMIT:
        return {TOO_LARGE_KEY: payloads.size(text)}
    return payloads.decode(text)[0]


def annotation(obj: KubeObject, name: str) -> str | None:
    """Read one annotation of an object.

    Args:
        obj: Any Kubernetes object.
        name: Name of the annotation.

    Returns:
        Its value, or None where it is absent.
    """
    value = ((obj.get("metadata") or {}).get("annotations") or {}).get(name)
    return None if value is None else str(value)
