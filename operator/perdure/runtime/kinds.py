"""The kinds of runs: a workflow, or a standalone activity or Nexus operation. Pure."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any


class RunKind(StrEnum):
    """The kind of a run. Runs of different kinds can have the same ID."""

    WORKFLOW = "workflow"
    ACTIVITY = "activity"
    NEXUS_OPERATION = "nexusOperation"

    @property
    def standalone(self) -> bool:
        """Whether the run has no workflow."""
        return self is not RunKind.WORKFLOW

    @property
    def noun(self) -> str:
        """The noun for a run of this kind in messages."""
        return "Nexus operation" if self is RunKind.NEXUS_OPERATION else self.value

    @property
    def id_name(self) -> str:
        """The name of its ID in messages."""
        return _ID_NAMES[self]


_ID_NAMES = {
    RunKind.WORKFLOW: "workflow ID",
    RunKind.ACTIVITY: "activity ID",
    RunKind.NEXUS_OPERATION: "operation ID",
}


def kind_of(spec: Mapping[str, Any]) -> RunKind:
    """Return the kind of a run from the spec of its WorkflowRun, as JSON."""
    for kind in (RunKind.ACTIVITY, RunKind.NEXUS_OPERATION):
        if kind.value in spec:
            return kind
    return RunKind.WORKFLOW
