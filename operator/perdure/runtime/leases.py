"""The Lease of an attempt, and the heartbeats read from it."""

import math
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from perdure.api import labels
from perdure.api.names import pod_name
from perdure.api.times import read_kubernetes_time
from perdure.engine.inputs import HeartbeatRead
from perdure.runtime.attempts import Attempt, KubeObject, RunRef, is_attempt
from perdure.runtime.pods import payloads
from perdure.runtime.pods.builder import LONGEST_DEADLINE, attempt_annotations, attempt_labels

TOO_LARGE_KEY = "perdure.dev/details-too-large"
"""The only key of the object that replaces heartbeat details above the limit; its value is their size in bytes."""

_LATENCY = timedelta(seconds=0.5)
"""Added to a sixth of the timeout between two reads, because reads at a sixth of a short timeout would be too frequent."""


def build_lease(run: RunRef, attempt: Attempt, pod_uid: str) -> KubeObject:
    """Build the Lease through which an attempt's pod sends heartbeats and a large result.

    The pod owns it: the garbage collector removes it with the pod, and an admission policy admits writes only with the
    token bound to that pod. `renewTime` is absent until the first heartbeat.

    Args:
        run: The run that the attempt belongs to.
        attempt: The attempt.
        pod_uid: UID of the attempt's existing pod.

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Pulse:
    """The heartbeats of an attempt, timed by the clock of the operator only.

    The clocks of nodes differ, and a pod may write any time: the text of `renewTime` is compared, never trusted. A value that has
    changed between two reads is a heartbeat, which counts from the read that first returned it; an unchanged value means that
    there was no heartbeat since. Reads are a sixth of the timeout plus half a second apart. An attempt without heartbeats ends
    after its heartbeat timeout at the earliest, and after 1.2 times the timeout plus one second at the latest, if the API server
    responds within a quarter of a second. If it takes longer, twice the excess is added.
    """

    renewed: str | None
    """The text of `renewTime`; None before the first heartbeat."""
    since: datetime
    """When the response with this `renewTime` first arrived."""
    read_at: datetime
    """When the request of the last read was sent."""
    exact: bool = False
    """Whether `renewTime` is exact, as in a simulation with a single clock. It may be in the future there: a Lease then shows
    immediately until when it is renewed, and is not polled in between."""

    @classmethod
    def begin(cls, now: datetime, *, exact: bool = False) -> "Pulse":
        """Start observing a running attempt: the timeout for its first heartbeat begins now.

        This also happens after a restart: earlier heartbeats are forgotten, and the first read shows a heartbeat or none.
        """
        return cls(renewed=None, since=now, read_at=now, exact=exact)

    def read(self, attempt: Attempt, lease: KubeObject | None, sent: datetime, answered: datetime) -> "Pulse":
        """Record a read of the attempt's Lease; None, or the Lease of another attempt, has no effect.

        Args:
            attempt: The attempt.
            lease: The Lease at some moment between the two times.
            sent: When the request was sent.
            answered: When the response arrived.
        """
        is_current = lease is not None and is_attempt(lease, attempt)
        text = (lease.get("spec") or {}).get("renewTime") if lease is not None and is_current else None
        shown = (read_kubernetes_time(text) or answered) if self.exact else answered
        return replace(self, renewed=text, since=self.since if text == self.renewed else shown, read_at=sent)

    def next_read(self, timeout: timedelta) -> datetime:
        """Return when to read the Lease next."""
        if self.exact:
            return max(self.since + timeout, self.read_at)
        return min(self.read_at + timeout / 6 + _LATENCY, max(self.since + timeout, self.read_at))

    def lost(self, timeout: timedelta) -> bool:
        """Whether the timeout had passed without a heartbeat at the last read."""
        return self.read_at >= self.since + timeout


def heartbeat(attempt: Attempt, lease: KubeObject | None, pulse: Pulse) -> HeartbeatRead:
    """Return the engine's input for the last heartbeat.

    Args:
        attempt: The attempt.
        lease: Its Lease, read just now; None if it does not exist.
        pulse: The heartbeats observed so far, including this read.

    Returns:
        The input; without a time if there was no heartbeat.
    """
    is_current = lease is not None and is_attempt(lease, attempt)
    return HeartbeatRead(
        scheduled_event_id=attempt.scheduled_event_id,
        attempt=attempt.attempt,
        time=pulse.since if pulse.renewed is not None else None,
        details=heartbeat_details(lease) if lease is not None and is_current else None,
    )


def heartbeat_details(lease: KubeObject) -> Any:
    """Read the details of the last heartbeat.

    Args:
        lease: The attempt's own Lease.

    Returns:
        The JSON value; the text itself if it is not JSON; an object with the key `TOO_LARGE_KEY` if it exceeds the limit,
        so details are neither truncated nor stored (the activity helper rejects them before they are sent).
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
        Its value; None if it is absent.
    """
    value = ((obj.get("metadata") or {}).get("annotations") or {}).get(name)
    return None if value is None else str(value)
