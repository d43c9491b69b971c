"""The context in which effects are applied."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from perdure.controller.directory import Entry
from perdure.controller.peers import Peers
from perdure.controller.runs.effects.pending_inputs import PendingInputs
from perdure.engine.effects import Effect
from perdure.engine.failures import Failure, FailureKind
from perdure.kube import client as kube
from perdure.runtime.attempts import RunRef
from perdure.runtime.chains import ResetOrigin


class EffectRetry(Protocol):
    """Retries an effect."""

    def __call__(self, effect: Effect, seconds: float = 0.0) -> None:
        """Apply the effect again after a moment, or after `seconds`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectContext:
    """A run, and everything that its effects use."""

    client: kube.Client
    run: RunRef
    reset: ResetOrigin | None
    """The origin of the run, if a reset created it."""
    peers: Peers
    pending: PendingInputs
    """Receives the results of effects."""
    retry_soon: EffectRetry
    """Retries an effect soon, because its target run is about to close or to be created."""

    def url(self, name: str | None = None) -> str:
        """Path of a WorkflowRun of the namespace, or of their collection."""
        return kube.path(kube.PERDURE, self.run.namespace, "workflowruns", name)

    def children(self) -> Iterable[Entry]:
        """The known runs of all children of the run."""
        return self.peers.directory.children_of(self.run.namespace, self.run.uid)


def application_failure(type_: str, message: str) -> Failure:
    """Build a failure that is not retried."""
    return Failure(kind=FailureKind.APPLICATION, type=str(type_), message=message, non_retryable=True)
