"""An attempt of an activity: what its pod is built from, why it may have none, and which objects belong to it.

Names are locks: the same attempt always uses the same name. After a crash between create and commit, the existing object is
therefore our own and is adopted. Any other object with that name is a conflict, which is reported and never modified:

    A1  created, crashed, created again          owner and attempt match             adopt
    A2  run deleted and re-created, same name    owner is the old run, terminating   wait, then create
    A3  another client's pod with that name      no owner or label of ours           a user must act

Everyone who can create pods can write owner references and annotations, but not the label with the run's ID: an admission policy
of the chart (templates/podfence.yaml) reserves it for the operator. So exactly the objects with this label are ours.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from fnmatch import fnmatchcase
from typing import Any, TypeAlias

from perdure import IMAGE
from perdure.api import labels
from perdure.api.json_values import mappings
from perdure.engine.events import ActivityTaskScheduled
from perdure.engine.failures import Failure, FailureKind
from perdure.engine.state import PendingActivity

KubeObject: TypeAlias = dict[str, Any]
"""A Kubernetes object, decoded from JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRef:
    """The WorkflowRun that an attempt belongs to."""

    namespace: str
    name: str
    uid: str
    """`metadata.uid`, which is also the run ID."""
    workflow_id: str
    created_by: str = ""
    """The user that created it, authenticated by the API server; empty if it is not known."""


def definition_name(activity: PendingActivity | ActivityTaskScheduled) -> str:
    """The name of an activity's definition in the Workflow of its run; with that of the other Workflow if code calls it there."""
    return f"{activity.task_queue}/{activity.activity_type}" if activity.task_queue else activity.activity_type


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One attempt of an activity, from its Scheduled event and the state of the run."""

    scheduled_event_id: int
    attempt: int
    """The number of the attempt, from 1."""
    activity_id: str
    activity_type: str
    """Name of the activity in its Workflow."""
    input: Any = None
    """The input, any JSON value."""
    last_heartbeat_details: Any = None
    """Heartbeat details of an earlier attempt; None if there are none."""
    start_to_close: timedelta | None = None
    heartbeat_timeout: timedelta | None = None
    schedule_to_start: timedelta | None = None
    large_result: bool = False
    """Whether the result may be larger than a termination message."""
    sidecar: bool = False
    """Whether the pod has our sidecar."""
    service: str = ""
    """Name of the service of steps that the pod is; empty if it is not one."""
    started: bool = False
    """Whether the attempt is known to have started."""
    waiting_reason: str | None = None
    """The last reported reason why the attempt waited to start."""

    @property
    def needs_lease(self) -> bool:
        """Whether the pod needs a Lease: for heartbeats, for a large result, or for the sidecar, which uses it for both."""
        return self.heartbeat_timeout is not None or self.large_result or self.sidecar


class AttemptRefusedError(Exception):
    """No pod can ever be created for the attempt; the activity fails with `failure`.

    * `PayloadTooLargeError`: a payload exceeds its size limit;
    * `InvalidDefinitionError`: its definition does not describe a valid pod.
    """

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class PayloadTooLargeError(AttemptRefusedError):
    """A payload is too large for its destination. Payloads are never truncated."""

    def __init__(self, message: str) -> None:
        super().__init__(payload_too_large(message))


class InvalidDefinitionError(AttemptRefusedError):
    """`container` or `podTemplate` is not a valid container or pod."""

    def __init__(self, message: str) -> None:
        super().__init__(
            Failure(kind=FailureKind.APPLICATION, type="InvalidActivityDefinition", message=message, non_retryable=True)
        )


def payload_too_large(message: str) -> Failure:
    """Build the failure of a payload that is too large.

    It is not retried: the same input would be rejected again, and finished work should not be repeated for a result that
    cannot be stored.

    Args:
        message: The payload and its destination, with both sizes.

    Returns:
        The failure, of type `PayloadTooLarge`.
    """
    return Failure(kind=FailureKind.APPLICATION, type="PayloadTooLarge", message=message, non_retryable=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSettings:
    """Settings of activity pods that come from the operator, not from the Workflow."""

    run_as_user: int | None = 65532
    """The user ID for pods that do not set one; None leaves it to the image."""
    service_account: str = "perdure-activity"
    """The ServiceAccount of attempts that have a Lease and do not specify an account."""
    sidecar_image: str = IMAGE
    """The image of the operator: that of sidecars that do not specify one, and of all other containers that Perdure adds."""
    pull_secrets: tuple[str, ...] = ()
    """Names of Secrets, in the namespace of the pod, with which nodes pull that image."""
    pod_ttl: timedelta = timedelta(minutes=5)
    """How long pods of successful attempts are kept with `podRetention` Expire; zero deletes them immediately."""
    without_logs: tuple[str, ...] = ()
    """Namespaces in which failures do not contain the end of the log of their container. ``*`` matches any characters."""
    deadline_margin: timedelta = timedelta(minutes=5)
    """The time after the start-to-close timeout at which a node stops the pod without the operator. The node's deadline starts
    before images are pulled and init containers run, the timeout when the activity starts; the margin covers the difference."""

    def keeps_logs(self, namespace: str) -> bool:
        """Whether failures in a namespace contain the end of the log of their container."""
        return not any(fnmatchcase(namespace, pattern) for pattern in self.without_logs)


def add_pull_secrets(spec: KubeObject, settings: PodSettings) -> None:
    """Let a pod that has a container with the image of the operator pull it.

    Args:
        spec: The spec of the pod, modified in place.
        settings: The operator's settings.
    """
    containers = [*mappings(spec.get("initContainers")), *mappings(spec.get("containers"))]
    if all(each.get("image") != settings.sidecar_image for each in containers):
        return
    secrets = spec.get("imagePullSecrets") or []
    names = {each.get("name") for each in mappings(secrets)}
    if missing := [{"name": name} for name in settings.pull_secrets if name not in names]:
        spec["imagePullSecrets"] = [*secrets, *missing]


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict:
    """An object with the name that an attempt needs exists, but does not belong to this attempt."""

    kind: str
    namespace: str
    name: str
    message: str
    """A sentence for users that names the owner of the object."""
    temporary: bool
    """Whether the object is terminating, so that the attempt only waits. Otherwise, a user must act."""


def owns(obj: KubeObject, run: RunRef, attempt: Attempt) -> bool:
    """Return whether a Pod belongs to exactly this attempt of this run.

    Args:
        obj: A Pod as the API server returned it.
        run: The run.
        attempt: The attempt.

    Returns:
        True if it can be adopted and its outcome trusted.
    """
    return belongs_to_run(obj, run) and is_attempt(obj, attempt)


def belongs_to_run(obj: KubeObject, run: RunRef) -> bool:
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


def without_reserved(items: Mapping[str, str]) -> dict[str, str]:
    """Remove labels or annotations with our prefixes: even one that we do not set now would be trusted later."""
    return {name: value for name, value in items.items() if not name.startswith(labels.RESERVED_PREFIXES)}


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
        temporary="deletionTimestamp" in metadata,
    )


def _owned_by(obj: KubeObject, uid: str) -> bool:
    return any(owner.get("uid") == uid for owner in _metadata(obj).get("ownerReferences") or ())


def _run_id(obj: KubeObject) -> str | None:
    run_id: str | None = (_metadata(obj).get("labels") or {}).get(labels.RUN_ID_LABEL)
    return run_id


def _metadata(obj: KubeObject) -> dict[str, Any]:
    metadata: dict[str, Any] = obj.get("metadata") or {}
    return metadata
