"""The services that all runs share, and the interface of a run or a Schedule to the other runs of this operator."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from perdure.api.reasons import ConditionReason
from perdure.controller.capacity import Capacity
from perdure.controller.deadletters import DeadLetters
from perdure.controller.directory import Directory, Entry
from perdure.controller.fleet.shards import AllShards, Shards
from perdure.controller.limits import WorkflowLimits
from perdure.controller.payloads import Blobs
from perdure.controller.pods.attempt_pods import Pods
from perdure.controller.retry_policies import Policies
from perdure.controller.workers import NoWorkers, Workers
from perdure.controller.workflows.definitions import Definitions
from perdure.engine import inputs
from perdure.engine.inputs import Answer
from perdure.kube import client as kube
from perdure.kube.events import Recorder


@dataclass(slots=True, kw_only=True)
class Services:
    """The shared services of the operator, one of each."""

    client: kube.Client
    pods: Pods
    definitions: Definitions
    policies: Policies
    letters: DeadLetters
    limits: WorkflowLimits
    recorder: Recorder
    blobs: Blobs
    shards: Shards = field(default_factory=AllShards)
    workers: Workers = field(default_factory=NoWorkers)
    """The server for polling workers. It is created with the manager, and added by `Manager.attach` before the manager runs."""


ALREADY_STARTED = ConditionReason.WORKFLOW_EXECUTION_ALREADY_STARTED.value
"""Failure type of a run that was not started because its workflow ID is in use."""
NOT_FOUND = "ExternalWorkflowExecutionNotFound"
"""Failure type of a signal or cancellation without an open target run (temporal.api.enums.v1)."""
OVER = frozenset({inputs.CLOSED, ConditionReason.TARGET_NOT_FOUND.value})
"""Answers of a run that ended before it could process a request."""


class Peers(Protocol):
    """The other runs of this operator."""

    @property
    def directory(self) -> Directory:
        """The directory of all runs."""
        ...

    async def catch_up(self, namespace: str) -> None:
        """Ensure that all runs of a namespace are known that existed when this process last gained shards.

        Raises:
            RequestError: The API server did not respond.
        """
        ...

    def send(self, entry: Entry, request: inputs.Request, then: Callable[[Answer], None]) -> None:
        """Deliver a request to a run; `then` is called with its answer once the answer is recorded."""
        ...

    def record_start(self, entry: Entry) -> bool:
        """Record the start of a run without waiting for its first decision; return whether it was unrecorded."""
        ...

    @property
    def capacity(self) -> Capacity:
        """Decides whether new runs start now."""
        ...

    def publish(self, obj: kube.Object) -> None:
        """Publish a run that was just written, without waiting for a watch."""
        ...

    async def is_archived(self, obj: kube.Object) -> bool:
        """Whether a finished run is archived as it was read; always true without an archive."""
        ...

    def suspect(self, obj: kube.Object) -> None:
        """Report that the status of a closed run was edited. Objects that wait for its result are woken when it is restored."""
        ...

    def acknowledge(self, entry: Entry, request_id: str) -> None:
        """Report to a run that the sender has recorded its answer to a request."""
        ...
