"""What the builders and readers are told about an attempt, and what they tell about a refusal."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeAlias

from perdure.engine.failures import Failure, FailureKind

KubeObject: TypeAlias = dict[str, Any]
"""A Kubernetes object as its JSON has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRef:
    """The WorkflowRun that an attempt belongs to."""

    namespace: str
    name: str
    uid: str
    """`metadata.uid`, which is also the run id."""
    workflow_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One attempt of an activity, as its Scheduled event and the run's state describe it."""

    scheduled_event_id: int
    attempt: int
    """From 1."""
    activity_id: str
    activity_type: str
    """Name of the activity in its Workflow."""
    input: Any = None
    """Any JSON value."""
    last_heartbeat_details: Any = None
    """What an earlier attempt left; None where there is nothing."""
    start_to_close: timedelta | None = None
    heartbeat_timeout: timedelta | None = None
    schedule_to_start: timedelta | None = None
    large_result: bool = False
    """Whether the result may exceed what a termination message holds."""
    sidecar: bool = False
    """Whether our sidecar stands beside the activity's container."""
    started: bool = False
    """Whether it is known to have started."""
    waiting_reason: str | None = None
    """What it was last seen to wait for before it started."""

    @property
    def needs_lease(self) -> bool:
        """Whether a Lease goes with the pod: for heartbeats, for a large result, or for the sidecar, which does both."""
        return self.heartbeat_timeout is not None or self.large_result or self.sidecar


class AttemptRefusedError(Exception):
    """No pod can be made for the attempt, now or later: the activity fails with `failure`.

    * `PayloadTooLargeError`: its payloads do not fit;
    * `InvalidDefinitionError`: its definition describes no pod.
    """

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class PayloadTooLargeError(AttemptRefusedError):
    """A payload does not fit where it has to go. It is never cut."""

    def __init__(self, message: str) -> None:
        super().__init__(payload_too_large(message))


class InvalidDefinitionError(AttemptRefusedError):
    """`container` or `podTemplate` is not shaped like a container or a pod."""

    def __init__(self, message: str) -> None:
        super().__init__(
            Failure(kind=FailureKind.APPLICATION, type="InvalidActivityDefinition", message=message, non_retryable=True)
        )


def payload_too_large(message: str) -> Failure:
    """Make the failure of a payload that does not fit.

    It is final: the same input would be refused again, and work done once should not be done again for a result that
    cannot be kept.

    Args:
        message: What did not fit where, with both sizes.

    Returns:
        The failure, of type `PayloadTooLarge`.
    """
    return Failure(kind=FailureKind.APPLICATION, type="PayloadTooLarge", message=message, non_retryable=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict:
    """An object of the name that an attempt needs exists, and it is not this attempt's."""

    kind: str
    namespace: str
    name: str
    message: str
    """A sentence for people: whose object it is."""
    passing: bool
    """Whether the object is being deleted already, so that waiting helps. Otherwise somebody has to act."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSettings:
    """What the operator, not the user of a Workflow, decides about activity pods."""

    run_as_user: int | None = 65532
    """The user id for pods that say nothing about their user; None leaves it to the image."""
    service_account: str = "perdure-activity"
    """The service account of attempts that have a Lease and name no account of their own."""
    sidecar_image: str = "localhost/perdure:0.1.0"
    """The image of sidecars where the user names none."""
    pod_ttl: timedelta = timedelta(minutes=5)
    """How long the pods of attempts that succeeded stay where `podRetention` says Expire; zero: they do not."""
    deadline_margin: timedelta = timedelta(minutes=5)
    """How far beyond start-to-close a node stops the pod on its own. The node's clock starts before images are pulled and
    init containers run, the timeout's when the activity starts: the margin is for those."""
