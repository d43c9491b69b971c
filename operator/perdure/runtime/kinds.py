"""What a run is: a workflow, or one activity or one Nexus operation without a workflow. Pure."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any


class RunKind(StrEnum):
    """What a run is. Runs of different kinds can have the same ID."""

    WORKFLOW = "workflow"
    ACTIVITY = "activity"
    NEXUS_OPERATION = "nexusOperation"

    @property
    def standalone(self) -> bool:
        """Whether it runs without a workflow."""
        return self is not RunKind.WORKFLOW

    @property
    def noun(self) -> str:
        """What messages call it."""
        return "Nexus operation" if self is RunKind.NEXUS_OPERATION else self.value

    @property
    def id_name(self) -> str:
        """What messages call its ID."""
        return _ID_NAMES[self]


_ID_NAMES = {
    RunKind.WORKFLOW: "workflow id",
    RunKind.ACTIVITY: "activity ID",
    RunKind.NEXUS_OPERATION: "operation ID",
}


def kind_of(spec: Mapping[str, Any]) -> RunKind:
    """What a run is, by the spec of its WorkflowRun as JSON."""
    for kind in (RunKind.ACTIVITY, RunKind.NEXUS_OPERATION):
        if kind.value in spec:
            return kind
    return RunKind.WORKFLOW
