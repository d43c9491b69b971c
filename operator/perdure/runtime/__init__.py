"""Pure builders and readers: an attempt becomes a Pod and a Lease; a Pod and a Lease become an outcome."""

from perdure.runtime.attempts import (
    Attempt,
    AttemptRefusedError,
    Conflict,
    InvalidDefinitionError,
    KubeObject,
    PayloadTooLargeError,
    PodSettings,
    RunRef,
)
from perdure.runtime.leases import Pulse, build_lease, heartbeat
from perdure.runtime.outcomes import Outcome, outcome, recheck_time
from perdure.runtime.ownership import lease_conflict, owns, owns_lease, pod_conflict
from perdure.runtime.pod_waiting import waiting_reason
from perdure.runtime.pods import build_pod, main_container_name

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
