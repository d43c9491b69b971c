"""What a run or a Schedule knows of the other runs of this operator."""

from collections.abc import Callable
from typing import Protocol

from perdure.api.reasons import ConditionReason
from perdure.controller.directory import Directory, Entry
from perdure.engine import inputs
from perdure.engine.inputs import Answer
from perdure.kube import client as kube

ALREADY_STARTED = ConditionReason.WORKFLOW_EXECUTION_ALREADY_STARTED.value
"""Failure type of a run that was not started because its workflow id is taken."""
NOT_FOUND = "ExternalWorkflowExecutionNotFound"
"""Failure type of a signal or cancellation for which no run is open (temporal.api.enums.v1)."""
OVER = frozenset({inputs.CLOSED, ConditionReason.TARGET_NOT_FOUND.value})
"""Answers of a run that ended before it could process a request."""


class Peers(Protocol):
    """The other runs of this operator."""

    @property
    def directory(self) -> Directory:
        """All runs that there are."""
        ...

    def ask(self, entry: Entry, request: inputs.Request, then: Callable[[Answer], None]) -> None:
        """Give a run a request; `then` is called with its answer, once that is recorded."""
        ...

    def record_start(self, entry: Entry) -> bool:
        """Have the start of a run recorded that would wait for its first decision; whether it is not recorded yet."""
        ...

    def noted(self, obj: kube.Object) -> None:
        """A run was written, and is now like this: nobody has to wait for a watch to tell."""
        ...

    def suspect(self, obj: kube.Object) -> None:
        """The status of a closed run was edited: have it reported; those who wait for its result hear when it is restored."""
        ...

    def answered(self, entry: Entry, request_id: str) -> None:
        """Tell a run that the sender has recorded its answer to a request."""
        ...
