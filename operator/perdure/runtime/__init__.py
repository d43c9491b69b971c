"""Builders and readers of Kubernetes objects: what the operator writes to the API server, and what it learns from there. Pure.

An attempt becomes a Pod and a Lease; a Pod and a Lease become an outcome. Histories become HistorySegments, and large payloads
become Payloads. The modules have the names of objects, or of the parts of a run's object (`chains`, `commits`, `status_texts`).
"""

from perdure.runtime.attempts import (
    Attempt,
    AttemptRefusedError,
    Conflict,
    InvalidDefinitionError,
    KubeObject,
    PayloadTooLargeError,
    PodSettings,
    RunRef,
    lease_conflict,
    owns,
    owns_lease,
    pod_conflict,
)
from perdure.runtime.leases import Pulse, build_lease, heartbeat
from perdure.runtime.outcomes import Outcome, outcome, recheck_time
from perdure.runtime.pods.builder import build_pod, main_container_name
from perdure.runtime.pods.waiting import waiting_reason

__all__ = [
    "Attempt",
    "AttemptRefusedError",
    "Conflict",
    "InvalidDefinitionError",
    "KubeObject",
    "Outcome",
    "PayloadTooLargeError",
    "PodSettings",
    "Pulse",
    "RunRef",
    "build_lease",
    "build_pod",
    "heartbeat",
    "lease_conflict",
    "main_container_name",
    "outcome",
    "owns",
    "owns_lease",
    "pod_conflict",
    "recheck_time",
    "waiting_reason",
]
