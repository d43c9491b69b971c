"""An attempt of an activity, as input for building and reading pods, and errors for attempts that cannot have a pod."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeAlias

from perdure.engine.failures import Failure, FailureKind

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
class Conflict:
    """An object with the name that an attempt needs exists, but does not belong to this attempt."""

    kind: str
    namespace: str
    name: str
    message: str
    """A sentence for users that names the owner of the object."""
    passing: bool
    """Whether the object is terminating, so that the attempt only waits. Otherwise, a user must act."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSettings:
    """Settings of activity pods that come from the operator, not from the Workflow."""

    run_as_user: int | None = 65532
    """The user ID for pods that do not set one; None leaves it to the image."""
    service_account: str = "perdure-activity"
    """The ServiceAccount of attempts that have a Lease and do not specify an account."""
    sidecar_image: str = "localhost/perdure:0.1.0"
    """The image of sidecars that do not specify one."""
    pod_ttl: timedelta = timedelta(minutes=5)
    """How long pods of successful attempts are kept with `podRetention` Expire; zero deletes them immediately."""
    deadline_margin: timedelta = timedelta(minutes=5)
    """The time after the start-to-close timeout at which a node stops the pod without the operator. The node's deadline starts
    before images are pulled and init containers run, the timeout when the activity starts; the margin covers the difference."""
