"""What every effect of a run is applied with."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from perdure.controller.peers import Peers
from perdure.engine import inputs
from perdure.engine.effects import Effect
from perdure.engine.failures import Failure, FailureKind
from perdure.kube import client as api
from perdure.runtime.attempts import RunRef
from perdure.runtime.chains import Reset


class Tell(Protocol):
    """Has the engine told of something in the next pass."""

    def __call__(self, told: inputs.RunInput, recorded: Callable[[], None] | None = None) -> None:
        """Tell it; `recorded` is called once that is committed."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """A run, and what its effects reach."""

    client: api.Client
    run: RunRef
    reset: Reset | None
    """What the run begins with of another one."""
    peers: Peers
    tell: Tell
    retry_soon: Callable[[Effect], None]
    """Has an effect applied once more in a moment: the run that is asked is about to close, or to be created."""

    def url(self, name: str | None = None) -> str:
        """Path of a WorkflowRun of the namespace, or of all of them."""
        return api.path(api.PERDURE, self.run.namespace, "workflowruns", name)


def application_failure(type_: str, message: str) -> Failure:
    """A failure that retrying does not change."""
    return Failure(kind=FailureKind.APPLICATION, type=str(type_), message=message, non_retryable=True)
