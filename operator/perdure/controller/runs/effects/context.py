"""The context in which effects are applied, and their results: inputs of the engine for the next reconciliation."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from perdure.controller.directory import Entry
from perdure.controller.services import Peers
from perdure.engine.effects import Effect
from perdure.engine.failures import Failure, FailureKind
from perdure.engine.inputs import RunInput
from perdure.kube import client as kube
from perdure.runtime.attempts import RunRef
from perdure.runtime.chains import ResetOrigin

MAX_AT_ONCE = 250
"""Maximum number of inputs for one step, so that the write of their events stays below the size limit."""


@dataclass(frozen=True, slots=True)
class _Pending:
    input: RunInput
    on_commit: Callable[[], None] | None = None


class PendingInputs:
    """The inputs that a run has not committed yet, in order."""

    def __init__(self, wake: Callable[[], None]) -> None:
        """Create it without inputs; `wake` requests another reconciliation."""
        self._wake = wake
        self._pending: list[_Pending] = []

    def __bool__(self) -> bool:
        return bool(self._pending)

    def enqueue(self, item: RunInput, on_commit: Callable[[], None] | None = None) -> None:
        """Add an input for another reconciliation. `on_commit` is called once the input is committed."""
        self._pending.append(_Pending(item, on_commit))
        self._wake()

    def add(self, items: Iterable[RunInput]) -> None:
        """Add inputs for the current reconciliation."""
        self._pending += map(_Pending, items)

    def first(self) -> list[RunInput]:
        """The inputs for the next step, in order, at most `MAX_AT_ONCE`."""
        return [pending.input for pending in self._pending[:MAX_AT_ONCE]]

    def committed(self, count: int) -> None:
        """Remove the first `count` inputs, which are committed."""
        for pending in self._pending[:count]:
            if pending.on_commit is not None:
                pending.on_commit()
        del self._pending[:count]


class EffectRetry(Protocol):
    """Retries an effect."""

    def __call__(self, effect: Effect, seconds: float = 0.0) -> None:
        """Apply the effect again soon, or after `seconds`."""
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
